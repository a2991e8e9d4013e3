/** Colours that mean something: owners, heat, phases. */
import type { Phase } from "./series";

export type Theme = "light" | "dark";

/** Nine hues that stay apart, also for most who see colours differently; then they come again. */
const HUES = [192, 32, 265, 95, 345, 225, 60, 305, 150];

/** A worker keeps its colour: it follows from its number. */
export function workerColour(worker: string, theme: Theme): string {
  const number = Number(worker.replace(/^\D+/, "")) || 1;
  const hue = HUES[(number - 1) % HUES.length] as number;
  const round = Math.floor((number - 1) / HUES.length) % 3;
  const light = (theme === "light" ? 0.71 : 0.68) + (round === 1 ? 0.11 : round === 2 ? -0.15 : 0);
  return `oklch(${light.toFixed(2)} 0.098 ${hue})`;
}

/** From cold to hot; `share` is from 0 to 1. */
export function heatColour(share: number, theme: Theme): string {
  const s = Math.max(0, Math.min(1, share));
  const [from, to] = theme === "light" ? [0.95, 0.45] : [0.26, 0.85];
  const light = from + (to - from) * s;
  return `oklch(${light.toFixed(3)} ${(0.02 + 0.13 * s).toFixed(3)} ${(200 - 165 * s).toFixed(0)})`;
}

export const PHASE_COLOURS: Record<Theme, Record<Phase, string>> = {
  light: {
    load: "#c2711a", wait: "#8f7bb8", apply: "#1f7f8c", write: "#4a7fc4", tasks: "#c5cfcc",
    sink: "#a9b7b3", plan: "#8b9b96", commit: "#6c7d78",
  },
  dark: {
    load: "#e09a4a", wait: "#a893d1", apply: "#4fb3bf", write: "#6f9fe0", tasks: "#3d4a47",
    sink: "#51605c", plan: "#687873", commit: "#81918c",
  },
};

export const ACTIVITY_COLOURS = {
  applying: "var(--apply)",
  fetching: "var(--load)",
  writing: "var(--write)",
  sending: "var(--wait)",
} as const;
