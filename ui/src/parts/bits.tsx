/** Small things that several pages show. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ACTIVITIES, type Activity, type Utilisation } from "../api/types";
import { ACTIVITY_COLOURS } from "../model/colour";
import { percent } from "../model/format";

export function Panel(props: {
  title: ComponentChildren;
  aside?: ComponentChildren;
  flush?: boolean;
  children: ComponentChildren;
}) {
  return (
    <section class={props.flush ? "panel flush" : "panel"}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export function Choice<T extends string>(props: {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button
          type="button"
          key={value}
          aria-pressed={value === props.value}
          onClick={() => props.onChange(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** Copies a text, and says so. */
export function Copy(props: { text: string; label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      setSaid("Copied");
    } catch {
      setSaid("Copy it yourself:");
    }
    setTimeout(() => setSaid(""), 2500);
  };
  return (
    <>
      <button type="button" class="button small" title={props.text} onClick={() => void copy()}>
        {said || (props.label ?? "Copy as command")}
      </button>
      <span class="hidden" aria-live="polite">{said}</span>
    </>
  );
}

const ACTIVITY_WORDS: Record<Activity, string> = {
  applying: "applying rows",
  fetching: "fetching state",
  writing: "writing changelogs",
  sending: "sending outputs",
};

/** Shares of a worker's time; the whole width is all of it. */
export function BusyBar(props: { worker: string; shares: Utilisation[string] | undefined }) {
  const shares = props.shares ?? {};
  const total = busy(shares);
  const words = ACTIVITIES.filter((activity) => (shares[activity] ?? 0) >= 0.01)
    .map((activity) => `${percent(shares[activity] ?? 0)} ${ACTIVITY_WORDS[activity]}`)
    .join(", ");
  const label = `${props.worker} busy ${percent(total)}${words ? `: ${words}` : ""}`;
  return (
    <div class="bar" role="img" aria-label={label} title={label}>
      {ACTIVITIES.map((activity) => (
        <i
          key={activity}
          style={{
            width: `${100 * Math.min(1, shares[activity] ?? 0)}%`,
            background: ACTIVITY_COLOURS[activity],
          }}
        />
      ))}
    </div>
  );
}

export function busy(shares: Utilisation[string] | undefined): number {
  return ACTIVITIES.reduce((sum, activity) => sum + (shares?.[activity] ?? 0), 0);
}

export function BusyLegend() {
  return (
    <div class="legend">
      {ACTIVITIES.map((activity) => (
        <span key={activity}>
          <i class="swatch" style={{ background: ACTIVITY_COLOURS[activity] }} />
          {ACTIVITY_WORDS[activity]}
        </span>
      ))}
    </div>
  );
}

export function Outcome(props: { outcome: string }) {
  const { outcome } = props;
  if (outcome === "done") return <span class="pill good">done</span>;
  if (outcome === "running") return <span class="pill accent">running</span>;
  if (outcome.startsWith("failed")) return <span class="pill bad">failed</span>;
  if (outcome.startsWith("It was cancelled")) return <span class="pill warning">cancelled</span>;
  return <span class="pill" title={outcome}>{shortened(outcome)}</span>;
}

function shortened(text: string): string {
  return text.length > 24 ? "replaced" : text.replace(/\.$/, "");
}
