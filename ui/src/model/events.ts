/** Entries of the journal as lines for people. */
import type { Entry, TapeMove } from "../api/types";
import { bytes, plural, seconds } from "./format";
import type { Tape } from "./tape";

export type Group = "all" | "trouble" | "moves" | "workers" | "service";
export const GROUPS = [
  ["all", "All"],
  ["trouble", "Trouble"],
  ["moves", "Moves"],
  ["workers", "Workers"],
  ["service", "Service"],
] as const;

export interface Event {
  time: number;
  group: Group;
  tone: "bad" | "warning" | "good" | "plain" | "accent";
  what: string;
  about: string;
  text: string;
}

const KINDS: Record<string, [Group, Event["tone"], string]> = {
  "service-started": ["service", "good", "service started"],
  "service-stopped": ["service", "plain", "service stopped"],
  "batch-failed": ["trouble", "bad", "batch failed"],
  "worker-started": ["workers", "plain", "worker started"],
  "worker-ended": ["trouble", "bad", "worker died"],
  savepoint: ["service", "accent", "savepoint"],
  "entries-lost": ["trouble", "warning", "journal"],
};

/** The newest first. */
export function eventsOf(tape: Tape): Event[] {
  const found = [...tape.marks.map(fromEntry), ...tape.moves.flatMap(fromMove)];
  return found.sort((a, b) => b.time - a.time);
}

function fromEntry(entry: Entry): Event {
  const [group, tone, what] = KINDS[entry.kind] ?? (["service", "plain", entry.kind] as const);
  return {
    time: entry.time,
    group,
    tone,
    what,
    about: entry.worker ?? entry.operator ?? "",
    text: describe(entry),
  };
}

function describe(entry: Entry): string {
  const text = (entry.text ?? "").split(/\s+/).join(" ");
  const details = entry.details ?? {};
  if (entry.kind === "worker-started") {
    const process = details.pid === undefined ? "" : `process ${String(details.pid)}`;
    const again = Number(details.incarnation ?? 0) > 1 ? "replacement" : "";
    return [again, process].filter(Boolean).join(", ");
  }
  if (entry.kind === "savepoint") return `${text}, ${bytes(entry.bytes ?? 0)}`;
  if (entry.epoch !== undefined) return `batch ${entry.epoch}: ${text}`;
  return text;
}

function fromMove(move: TapeMove): Event[] {
  const about = `${move.workers_before.length} → ${move.workers_after.length}`;
  const began: Event = {
    time: move.started,
    group: "moves",
    tone: "accent",
    what: "move began",
    about,
    text: `${move.strategy} to ${plural(move.workers_after.length, "worker")}, asked by ${move.cause}`,
  };
  if (move.ended === null) return [began];
  const isDone = move.outcome === "done";
  const ended: Event = {
    time: move.ended,
    group: "moves",
    tone: isDone ? "good" : move.outcome?.startsWith("failed") ? "bad" : "warning",
    what: isDone ? "move done" : "move ended",
    about,
    text:
      `${isDone ? "" : `${move.outcome ?? ""} `}${plural(move.groups ?? 0, "key group")}, ` +
      `${bytes(move.bytes ?? 0)} in ${seconds(move.seconds ?? 0)}, longest pause ` +
      seconds(move.pause_seconds ?? 0),
  };
  return [began, ended];
}
