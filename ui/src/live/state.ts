/** What the page knows, and where its reader is. */
import { Client } from "../api/client";
import type {
  Finding,
  GroupLoads,
  Move,
  Ownership,
  Session,
  Status,
  Utilisation,
} from "../api/types";
import { Tape } from "../model/tape";
import { Store } from "./store";

export type Connection = "opening" | "live" | "lost" | "stored" | "refused";

export interface State {
  session: Session | null;
  connection: Connection;
  /** Why there is no connection, or what went wrong at last. */
  trouble: string | null;
  status: Status | null;
  ownership: Ownership | null;
  groupLoads: GroupLoads | null;
  utilisation: Utilisation;
  findings: Finding[];
  moves: Move[];
  tape: Tape;
  tapeRevision: number;
  /** The moment that is shown; null: now. */
  at: number | null;
  /** Seconds of charts. */
  reach: number;
  /** Unix time, a step a second. */
  now: number;
}

export const client = new Client();

export const store = new Store<State>({
  session: null,
  connection: "opening",
  trouble: null,
  status: null,
  ownership: null,
  groupLoads: null,
  utilisation: {},
  findings: [],
  moves: [],
  tape: new Tape(),
  tapeRevision: 0,
  at: null,
  reach: 600,
  now: Date.now() / 1000,
});

/** The moment that charts end at. */
export function present(state: State): number {
  if (state.connection !== "stored") return state.now;
  return state.tape.span[1];
}

/** How busy workers are at the moment that is shown; until two looks were taken, of the journal. */
export function sharesOf(state: State): Utilisation {
  if (state.at !== null) return state.tape.busyAt(state.at);
  const isKnown = Object.keys(state.utilisation).length > 0;
  return isKnown ? state.utilisation : state.tape.busyAt(state.now);
}

export function mayOperate(state: State): boolean {
  return state.session?.role === "operate" && state.connection === "live";
}
