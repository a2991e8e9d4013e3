/** Dark or light: as the system says, unless the reader has chosen. */
import { useEffect, useState } from "preact/hooks";
import type { Theme } from "../model/colour";

const KEY = "anabranch-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<(theme: Theme) => void>();

function chosen(): Theme | null {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : null;
}

export function theme(): Theme {
  return chosen() ?? (dark.matches ? "dark" : "light");
}

export function choose(next: Theme): void {
  localStorage.setItem(KEY, next);
  apply();
}

export function apply(): void {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener(theme());
}

dark.addEventListener("change", apply);

export function useTheme(): Theme {
  const [now, setNow] = useState<Theme>(theme);
  useEffect(() => {
    listeners.add(setNow);
    return () => void listeners.delete(setNow);
  }, []);
  return now;
}

export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
