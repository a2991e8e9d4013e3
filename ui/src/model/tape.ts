/** Everything over time that the page knows: what the server sent, and what has happened since. */
import {
  ACTIVITIES,
  type BatchColumns,
  type Entry,
  type Load,
  type OwnershipNote,
  type TapeAnswer,
  type TapeMove,
  type Utilisation,
} from "../api/types";
import { OwnerTape } from "./owners";

const ENTRIES_MAX = 5000;
const BATCHES_MAX = 40_000;
const EMPTY: BatchColumns = {
  operators: [], left_out: 0, operator: [], time: [], epoch: [], seconds: [], rows: [],
  load_ms: [], wait_ms: [], apply_ms: [], write_ms: [], run_ms: [], plan_ms: [], commit_ms: [],
};
const NUMBERS = ["seconds", "rows", "load_ms", "wait_ms", "apply_ms", "write_ms"] as const;
const SPARK = ["run_ms", "plan_ms", "commit_ms"] as const;

export class Tape {
  readonly since: number;
  readonly aliveAt: number | null;
  readonly damaged: string[];
  readonly batches: BatchColumns;
  readonly owners: OwnerTape;
  readonly loads: Load[];
  readonly moves: TapeMove[];
  readonly marks: Entry[];
  /** Goes up with each entry: what was made from the tape may be old. */
  revision = 0;
  private lastBusy: { at: number; shares: Utilisation } | null = null;

  constructor(answer?: TapeAnswer) {
    this.since = answer?.since ?? 0;
    this.aliveAt = answer?.alive_at ?? null;
    this.damaged = answer?.damaged ?? [];
    this.batches = answer?.batches ?? structuredClone(EMPTY);
    this.owners = new OwnerTape(answer?.ownership);
    this.loads = answer?.loads ?? [];
    this.moves = answer?.moves ?? [];
    this.marks = answer?.marks ?? [];
  }

  append(entry: Entry): void {
    this.revision += 1;
    const details = entry.details ?? {};
    switch (entry.kind) {
      case "batch":
        this.addBatch(entry);
        break;
      case "ownership":
        this.owners.append({ time: entry.time, ...details } as OwnershipNote);
        break;
      case "spark":
        this.addSpark(entry.operator ?? "", details as Record<string, number[]>);
        break;
      case "load":
        this.loads.push(loadOf(entry.time, details));
        break;
      case "move-started":
        this.moves.push({ ...(details as object), started: entry.time, ended: null } as TapeMove);
        break;
      case "move-ended":
        this.endMove(entry.time, details as Partial<TapeMove>);
        break;
      default:
        this.marks.push(entry);
        if (this.marks.length > ENTRIES_MAX) this.marks.splice(0, ENTRIES_MAX / 10);
    }
  }

  /** First and last moment that it tells of. */
  get span(): [number, number] {
    const { time } = this.batches;
    const firsts = [time[0], this.marks[0]?.time, this.moves[0]?.started].filter(isNumber);
    const lasts = [time.at(-1), this.marks.at(-1)?.time, this.moves.at(-1)?.ended].filter(isNumber);
    if (this.aliveAt !== null) lasts.push(this.aliveAt);
    const first = firsts.length ? Math.min(...firsts) : this.since;
    return [first, lasts.length ? Math.max(...lasts) : first];
  }

  /** Shares of time between the two looks at loads around a moment. */
  busyAt(time: number): Utilisation {
    let at = this.loads.findIndex((load) => load.time > time);
    at = Math.max(1, at < 0 ? this.loads.length - 1 : at);
    if (this.lastBusy?.at === at) return this.lastBusy.shares;
    const [before, after] = [this.loads[at - 1], this.loads[at]];
    if (before === undefined || after === undefined) return {};
    this.lastBusy = { at, shares: shares(before, after) };
    return this.lastBusy.shares;
  }

  private addBatch(entry: Entry): void {
    const columns = this.batches;
    let operator = columns.operators.indexOf(entry.operator ?? "");
    if (operator < 0) operator = columns.operators.push(entry.operator ?? "") - 1;
    columns.operator.push(operator);
    columns.time.push(entry.time);
    columns.epoch.push(entry.epoch ?? -1);
    for (const name of NUMBERS) columns[name].push(entry[name] ?? null);
    for (const name of SPARK) columns[name].push(null);
    if (columns.time.length > BATCHES_MAX) {
      for (const name of ["operator", "time", "epoch", ...NUMBERS, ...SPARK] as const) {
        columns[name].splice(0, BATCHES_MAX / 10);
      }
    }
  }

  /** Spark tells of its own part of batches after their end. */
  private addSpark(operator: string, details: Record<string, number[]>): void {
    const columns = this.batches;
    const mine = columns.operators.indexOf(operator);
    const position = new Map((details.epoch ?? []).map((epoch, at) => [epoch, at]));
    for (let row = columns.epoch.length - 1; row >= 0 && position.size > 0; row -= 1) {
      const epoch = columns.epoch[row] as number;
      const at = position.get(epoch);
      if (columns.operator[row] !== mine || at === undefined) continue;
      for (const name of SPARK) columns[name][row] = details[name]?.[at] ?? null;
      position.delete(epoch);
    }
  }

  private endMove(time: number, details: Partial<TapeMove>): void {
    for (let at = this.moves.length - 1; at >= 0; at -= 1) {
      const move = this.moves[at] as TapeMove;
      if (move.number === details.number && move.ended === null) {
        this.moves[at] = { ...move, ...details, ended: time };
        return;
      }
    }
  }
}

function isNumber(value: number | null | undefined): value is number {
  return typeof value === "number";
}

function shares(before: Load, after: Load): Utilisation {
  const found: Utilisation = {};
  const elapsed = after.time - before.time;
  const position = new Map(before.workers.map((worker, at) => [worker, at]));
  after.workers.forEach((worker, at) => {
    const was = position.get(worker);
    if (was === undefined || elapsed <= 0) return;
    const share: Utilisation[string] = {};
    for (const activity of ACTIVITIES) {
      const seconds = (after[activity][at] ?? 0) - (before[activity][was] ?? 0);
      share[activity] = Math.max(0, seconds / elapsed);
    }
    found[worker] = share;
  });
  return found;
}

interface WorkerLoad {
  resident_bytes: number | null;
  operators: Record<string, { rows: number; bytes: number; busy_seconds: Record<string, number> }>;
}

function loadOf(time: number, details: Record<string, unknown>): Load {
  const workers = details as Record<string, WorkerLoad>;
  const held = Object.values(workers).map((each) => Object.values(each.operators));
  const sums = (pick: (each: WorkerLoad["operators"][string]) => number) =>
    held.map((some) => some.reduce((sum, each) => sum + pick(each), 0));
  return {
    time,
    workers: Object.keys(workers),
    rows: sums((each) => each.rows),
    bytes: sums((each) => each.bytes),
    resident_bytes: Object.values(workers).map((each) => each.resident_bytes),
    applying: sums((each) => each.busy_seconds.applying ?? 0),
    fetching: sums((each) => each.busy_seconds.fetching ?? 0),
    writing: sums((each) => each.busy_seconds.writing ?? 0),
    sending: sums((each) => each.busy_seconds.sending ?? 0),
  };
}
