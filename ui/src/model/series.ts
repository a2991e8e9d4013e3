/** Columns for charts: from batches to at most as many points as there are pixels. */
import type { BatchColumns } from "../api/types";
import { lastAtOrBefore } from "./owners";

export const PHASES = ["load", "wait", "apply", "write", "tasks", "sink", "plan", "commit"] as const;
export type Phase = (typeof PHASES)[number];

export interface Span {
  from: number;
  to: number;
}

export interface Rows {
  first: number;
  /** One past the last. */
  end: number;
}

/** Which batches ended in a span. */
export function within(columns: BatchColumns, span: Span): Rows {
  const first = lastAtOrBefore(columns.time, span.from - 1e-9) + 1;
  return { first, end: lastAtOrBefore(columns.time, span.to) + 1 };
}

/** Time and duration of batches; of each pixel the slowest one counts. */
export function latency(
  columns: BatchColumns,
  span: Span,
  points: number,
): [number[], (number | null)[]] {
  const { first, end } = within(columns, span);
  const times: number[] = [];
  const values: (number | null)[] = [];
  const width = (span.to - span.from) / points;
  let bucket = -1;
  for (let at = first; at < end; at += 1) {
    const value = columns.seconds[at] ?? null;
    if (value === null) continue;
    const time = columns.time[at] as number;
    const mine = Math.floor((time - span.from) / width);
    const last = values.length - 1;
    if (mine !== bucket) {
      times.push(time);
      values.push(value);
      bucket = mine;
    } else if (value > (values[last] as number)) {
      values[last] = value;
    }
  }
  return [times, values];
}

/** Rows a second, in equal steps of time. */
export function throughput(columns: BatchColumns, span: Span, steps: number): [number[], number[]] {
  const width = (span.to - span.from) / steps;
  const sums = new Array<number>(steps).fill(0);
  const { first, end } = within(columns, span);
  for (let at = first; at < end; at += 1) {
    const ended = columns.time[at] as number;
    spread(sums, ended - (columns.seconds[at] ?? 0), ended, columns.rows[at] ?? 0, span.from, width);
  }
  return [sums.map((_, step) => span.from + (step + 0.5) * width), sums.map((sum) => sum / width)];
}

/** A batch's rows belong to all of the time that it took. */
function spread(
  sums: number[], started: number, ended: number, rows: number, from: number, width: number,
): void {
  const first = Math.max(0, Math.floor((started - from) / width));
  const last = Math.min(sums.length - 1, Math.floor((ended - from) / width));
  const length = Math.max(ended - started, 1e-9);
  for (let step = first; step <= last; step += 1) {
    const overlap =
      Math.min(ended, from + (step + 1) * width) - Math.max(started, from + step * width);
    const share = first === last && overlap >= length ? 1 : Math.max(0, overlap) / length;
    sums[step] = (sums[step] as number) + rows * share;
  }
}

/**
 * Seconds of each phase of one batch. `tasks` is what is left of the operator's stage: Spark's tasks
 * around us; `sink` what the batch took beside that stage; `plan` and `commit` are Spark's own.
 */
export function phasesOf(columns: BatchColumns, at: number): Record<Phase, number> {
  const of = (name: "load_ms" | "wait_ms" | "apply_ms" | "write_ms") =>
    (columns[name][at] ?? 0) / 1000;
  const parts = {
    load: of("load_ms"), wait: of("wait_ms"), apply: of("apply_ms"), write: of("write_ms"),
  };
  const sum = parts.load + parts.wait + parts.apply + parts.write;
  const seconds = columns.seconds[at] ?? 0;
  const run = (columns.run_ms[at] ?? 0) / 1000;
  return {
    ...parts,
    tasks: Math.max(0, seconds - sum),
    sink: Math.max(0, run - Math.max(seconds, sum)),
    plan: (columns.plan_ms[at] ?? 0) / 1000,
    commit: (columns.commit_ms[at] ?? 0) / 1000,
  };
}

/** Times, then for each phase the sum up to it; of each pixel the slowest batch counts. */
export function stacked(columns: BatchColumns, span: Span, points: number): number[][] {
  const { first, end } = within(columns, span);
  const width = (span.to - span.from) / points;
  const chosen: number[] = [];
  let bucket = -1;
  for (let at = first; at < end; at += 1) {
    if (columns.seconds[at] === null) continue;
    const mine = Math.floor(((columns.time[at] as number) - span.from) / width);
    const last = chosen.at(-1);
    if (mine !== bucket || last === undefined) {
      chosen.push(at);
      bucket = mine;
    } else if ((columns.seconds[at] ?? 0) > (columns.seconds[last] ?? 0)) {
      chosen[chosen.length - 1] = at;
    }
  }
  const data: number[][] = [chosen.map((at) => columns.time[at] as number)];
  for (const _ of PHASES) data.push([]);
  for (const at of chosen) {
    const parts = phasesOf(columns, at);
    let sum = 0;
    PHASES.forEach((phase, index) => {
      sum += parts[phase];
      (data[index + 1] as number[]).push(sum);
    });
  }
  return data;
}

/** Where a scale ends: a few giants do not make all others tiny. */
export function ceiling(values: readonly (number | null)[]): number {
  const sorted = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0;
  if (sorted.length < 20) return most;
  const usual = sorted[Math.floor(0.98 * (sorted.length - 1))] as number;
  return most > 3 * usual ? 1.6 * usual : most;
}

export interface Summary {
  batches: number;
  rows: number;
  median: number;
  p99: number;
  worst: number;
  /** Of all rows. */
  rowsPerSecond: number;
}

export function summary(columns: BatchColumns, span: Span): Summary | null {
  const { first, end } = within(columns, span);
  const took: number[] = [];
  let rows = 0;
  for (let at = first; at < end; at += 1) {
    const seconds = columns.seconds[at] ?? null;
    if (seconds === null) continue;
    took.push(seconds);
    rows += columns.rows[at] ?? 0;
  }
  if (took.length === 0) return null;
  took.sort((a, b) => a - b);
  const quantile = (q: number) => took[Math.min(took.length - 1, Math.floor(q * took.length))] as number;
  return {
    batches: took.length,
    rows,
    median: quantile(0.5),
    p99: quantile(0.99),
    worst: took.at(-1) as number,
    rowsPerSecond: rows / Math.max(1e-9, span.to - span.from),
  };
}
