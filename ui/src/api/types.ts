/** What the server's API gives, as far as the page uses it. Times are Unix seconds. */

export interface Session {
  role: "read" | "operate";
  csrf: string | null;
  location: string;
  is_live: boolean;
  version: string;
}

export type Activity = "applying" | "fetching" | "writing" | "sending";
export const ACTIVITIES: readonly Activity[] = ["applying", "fetching", "writing", "sending"];

export interface Worker {
  status: string;
  host: string | null;
  pid: number | null;
  restarts: number;
  key_groups: number;
  rows: number;
  bytes: number;
  resident_bytes: number | null;
  stuck: unknown;
}

export interface Batch {
  epoch: number;
  started: number;
  seconds: number | null;
  stats: Record<string, number>;
}

export interface Operator {
  last_epoch: number | null;
  rows: number;
  bytes: number;
  in_memory: number | null;
  hit_rate: number | null;
  batches: Batch[];
}

export interface Status {
  routing_version: number;
  key_groups: number;
  workers: Record<string, Worker>;
  operators: Record<string, Operator>;
  reconfiguration: { strategy: string; progress: number } | null;
}

export type MovePhase = "planned" | "copied" | "flipped" | "settled";

export interface GroupMove {
  group: number;
  source: string;
  target: string;
  phase: MovePhase;
}

export interface Ownership {
  version: number;
  workers: string[];
  /** Positions in `workers`, by key group. */
  owners: number[];
  moving: GroupMove[];
}

export interface GroupLoads {
  rows: number[];
  bytes: number[];
}

/** By worker: shares of time. */
export type Utilisation = Record<string, Partial<Record<Activity, number>>>;

export interface Price {
  groups: number;
  bytes: number;
  seconds: number;
}

export interface Finding {
  kind: string;
  severity: "bad" | "warning" | "note";
  text: string;
  action: MoveRequest | null;
  command: string | null;
  price: Price | null;
}

export interface MoveRequest {
  kind: "rescale" | "move" | "drain" | "rebalance" | "standby";
  workers?: number;
  worker?: string;
  key_groups?: number[];
  to?: string;
  strategy?: string;
  bytes_per_second?: number;
  latency_target?: number;
  if_routing_version?: number;
  timeout_s?: number;
  on_timeout?: "rollback" | "continue";
}

export interface Forecast extends Omit<Price, "groups"> {
  groups: number;
  strategy: string;
  workers_before: string[];
  workers_after: string[];
  moves: { group: number; source: string; target: string }[];
  lack: string;
  text: string;
}

export interface MoveBatch {
  operator: string;
  epoch: number;
  seconds: number | null;
  load_ms: number;
  rows_forwarded: number;
}

export interface Move {
  number: number;
  cause: string;
  /** ISO time. */
  started: string;
  is_done: boolean;
  progress: number;
  strategy: string;
  outcome: string;
  seconds: number;
  workers_before: string[];
  workers_after: string[];
  groups: number;
  bytes: number;
  batches: MoveBatch[];
  pause_seconds: number;
  rows_forwarded: number;
  counters: Record<string, number>;
}

export interface BatchColumns {
  operators: string[];
  left_out: number;
  operator: number[];
  time: number[];
  epoch: number[];
  seconds: (number | null)[];
  rows: (number | null)[];
  load_ms: (number | null)[];
  wait_ms: (number | null)[];
  apply_ms: (number | null)[];
  write_ms: (number | null)[];
  /** Spark's own, told some seconds later: all of the stages and the sink; planning; offsets and commits. */
  run_ms: (number | null)[];
  plan_ms: (number | null)[];
  commit_ms: (number | null)[];
}

export interface OwnershipNote {
  time: number;
  version: number;
  workers?: string[];
  owners?: number[];
  gained?: Record<string, number[]>;
}

export interface Load extends Record<Activity, number[]> {
  time: number;
  workers: string[];
  rows: number[];
  bytes: number[];
  resident_bytes: (number | null)[];
}

export interface TapeMove {
  number: number;
  cause: string;
  strategy: string;
  workers_before: string[];
  workers_after: string[];
  started: number;
  ended: number | null;
  outcome?: string;
  groups?: number;
  bytes?: number;
  seconds?: number;
  pause_seconds?: number;
}

export interface Entry {
  time: number;
  kind: string;
  operator?: string;
  worker?: string;
  epoch?: number;
  seconds?: number;
  rows?: number;
  bytes?: number;
  load_ms?: number;
  wait_ms?: number;
  apply_ms?: number;
  write_ms?: number;
  text?: string;
  details?: Record<string, unknown>;
}

export interface TapeAnswer {
  since: number;
  alive_at: number | null;
  damaged: string[];
  batches: BatchColumns;
  ownership: OwnershipNote[];
  loads: Load[];
  moves: TapeMove[];
  marks: Entry[];
}

export interface Recovery {
  operator: string;
  epochs: number[];
  in_memory: number | null;
  hit_rate: number | null;
  last_epoch?: number;
  committed_at?: number;
  snapshots?: { files: number; bytes: number };
  changelogs?: { files: number; bytes: number };
}

export interface Savepoint {
  name: string;
  path: string;
  /** Milliseconds. */
  created_at: number;
  epochs: Record<string, number>;
  bytes: number;
}

export interface Found {
  operator: string;
  epoch: number | null;
  value: unknown;
  key_group: number | null;
  owner: string | null;
}

export interface TopRows {
  operator: string;
  epoch: number;
  columns: string[];
  by: string | null;
  rows_read: number;
  is_complete: boolean;
  rows: Record<string, unknown>[];
}
