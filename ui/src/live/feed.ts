/** Keeps the state up to date: events as they come, pictures by asking now and then. */
import { Problem, sentence } from "../api/client";
import type { Entry, TapeAnswer } from "../api/types";
import { Tape } from "../model/tape";
import { client, store, type State } from "./state";

const TAPE_SECONDS = 3600;
const STORED_SECONDS = 24 * 3600;
const RETRY_MS = 2000;
const KINDS = [
  "service-started", "service-stopped", "batch", "batch-failed", "move-started", "move-ended",
  "worker-started", "worker-ended", "savepoint", "load", "spark", "ownership", "entries-lost",
];

/** Milliseconds between two looks; while key groups move, owners are looked at more often. */
const EVERY = { status: 2000, findings: 4000, owners: 2500, moving: 350, loads: 4000 };

interface Look {
  path: string;
  every: (state: State) => number;
  keep: (answer: never) => Partial<State>;
  /** Only while somebody looks at pages that show it. */
  pages?: readonly string[];
  due: number;
  isAsking: boolean;
}

const isMoving = (state: State) => state.status?.reconfiguration != null;
const page = () => location.hash.replace(/^#\//, "") || "overview";

const looks: Look[] = [
  look("/status", () => EVERY.status, (status) => ({ status })),
  look("/moves", (s) => (isMoving(s) ? EVERY.moving : EVERY.status), (moves) => ({ moves })),
  look("/ownership", (s) => (isMoving(s) ? EVERY.moving : EVERY.owners), (ownership) => ({ ownership })),
  look("/utilisation", () => EVERY.status, (utilisation) => ({ utilisation })),
  look("/findings", () => EVERY.findings, (findings) => ({ findings }), ["overview"]),
  look("/group-loads", () => EVERY.loads, (groupLoads) => ({ groupLoads }), ["workers"]),
];

function look(
  path: string,
  every: Look["every"],
  keep: (answer: never) => Partial<State>,
  pages?: readonly string[],
): Look {
  return { path, every, keep, pages, due: 0, isAsking: false };
}

/** Open the session, read what was, then listen. */
export async function start(): Promise<void> {
  setInterval(() => store.set({ now: Date.now() / 1000 }), 1000);
  addEventListener("hashchange", () => looks.filter((each) => each.pages).forEach(soon));
  for (;;) {
    try {
      const session = await client.open();
      const tape = await readTape(session.is_live);
      store.set({ session, tape, tapeRevision: 0, trouble: null });
      if (session.is_live) listen();
      else await lookBack();
      setInterval(ask, 100);
      return;
    } catch (error) {
      const isRefused = error instanceof Problem && error.status === 401;
      store.set({ connection: isRefused ? "refused" : "lost", trouble: sentence(error) });
      if (isRefused) return;
      await new Promise((resume) => setTimeout(resume, RETRY_MS));
    }
  }
}

/** Ask soon for everything: something was done that changes it. */
export function refresh(): void {
  looks.forEach(soon);
}

function soon(each: Look): void {
  each.due = 0;
}

async function readTape(isLive: boolean): Promise<Tape> {
  const now = Date.now() / 1000;
  if (isLive) return new Tape(await client.get<TapeAnswer>("/tape", { since: now - TAPE_SECONDS }));
  const all = new Tape(await client.get<TapeAnswer>("/tape", { since: 0 }));
  const end = all.span[1];
  const isLong = all.batches.left_out > 0;
  return isLong
    ? new Tape(await client.get<TapeAnswer>("/tape", { since: end - STORED_SECONDS }))
    : all;
}

async function lookBack(): Promise<void> {
  const [status, ownership] = await Promise.all([
    client.get<State["status"]>("/status"),
    client.get<State["ownership"]>("/ownership"),
  ]);
  const [first, end] = store.get().tape.span;
  const reach = Math.max(60, Math.min(3600, end - first));
  store.set({ connection: "stored", status, ownership, reach, at: end });
}

function ask(): void {
  const state = store.get();
  if (document.hidden || state.connection === "stored" || state.connection === "refused") return;
  const now = performance.now();
  for (const each of looks) {
    if (each.isAsking || now < each.due) continue;
    if (each.pages !== undefined && !each.pages.includes(page())) continue;
    each.isAsking = true;
    void client
      .get<never>(each.path)
      .then((answer) => {
        if (each.path === "/status" && store.get().connection !== "live") reconnected();
        store.set(each.keep(answer));
      })
      .catch((error: unknown) => lost(error))
      .finally(() => {
        each.isAsking = false;
        each.due = performance.now() + each.every(store.get());
      });
  }
}

function reconnected(): void {
  store.set({ connection: "live", trouble: null });
}

function lost(error: unknown): void {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) store.set({ connection: "refused", trouble: sentence(error) });
  else if (error.status === 0) store.set({ connection: "lost", trouble: sentence(error) });
}

function listen(): void {
  const source = new EventSource("/api/v1/events");
  let wasOpen = false;
  source.onopen = () => {
    store.set({ connection: "live", trouble: null });
    if (wasOpen) void readTape(true).then((tape) => store.set({ tape, tapeRevision: 0 }));
    wasOpen = true;
  };
  const heard = (event: MessageEvent<string>) => {
    const tape = store.get().tape;
    const entry = JSON.parse(event.data) as Entry;
    tape.append(entry);
    store.set({ tapeRevision: tape.revision });
    if (entry.kind.startsWith("move") || entry.kind.startsWith("worker")) refresh();
  };
  for (const kind of KINDS) source.addEventListener(kind, heard as EventListener);
}
