import { expect, test } from "vitest";
import type { Entry } from "../src/api/types";
import { eventsOf } from "../src/model/events";
import { Tape } from "../src/model/tape";

function tapeOf(...entries: Entry[]): Tape {
  const tape = new Tape();
  for (const entry of entries) tape.append(entry);
  return tape;
}

const load = (time: number, applying: number): Entry => ({
  kind: "load",
  time,
  details: {
    w1: {
      resident_bytes: 5,
      operators: { totals: { rows: 1, bytes: 2, busy_seconds: { applying, writing: applying / 2 } } },
    },
  },
});

test("batches, owners and revisions follow events", () => {
  const tape = tapeOf(
    { kind: "batch", time: 5, operator: "totals", epoch: 3, seconds: 0.2, rows: 9, apply_ms: 40 },
    { kind: "ownership", time: 4, details: { version: 1, workers: ["w1"], owners: [0, 0] } },
    { kind: "ownership", time: 6, details: { version: 2, gained: { w2: [1] } } },
  );
  expect(tape.batches.epoch).toEqual([3]);
  expect(tape.batches.load_ms).toEqual([null]);
  expect([...tape.owners.at(6).owners]).toEqual([0, 1]);
  expect(tape.revision).toBe(3);
  expect(tape.span).toEqual([5, 5]);
});

test("Spark tells of its part of a batch later", () => {
  const batch = (epoch: number, operator: string): Entry => ({ kind: "batch", time: epoch, operator, epoch });
  const tape = tapeOf(batch(1, "a"), batch(1, "b"), batch(2, "a"), {
    kind: "spark",
    time: 9,
    operator: "a",
    details: { epoch: [1, 2, 3], run_ms: [10, 20, 30], plan_ms: [1, 2, 3], commit_ms: [4, 5, 6] },
  });
  expect(tape.batches.run_ms).toEqual([10, null, 20]);
  expect(tape.batches.commit_ms).toEqual([4, null, 5]);
});

test("how busy workers were is the difference of two loads", () => {
  const tape = tapeOf(load(0, 0), load(10, 4), load(20, 14));
  expect(tape.busyAt(5).w1?.applying).toBeCloseTo(0.4);
  expect(tape.busyAt(12).w1?.applying).toBeCloseTo(1);
  expect(tape.busyAt(99).w1?.writing).toBeCloseTo(0.5);
  expect(tape.busyAt(5)).toBe(tape.busyAt(6));
  expect(tapeOf(load(0, 1)).busyAt(5)).toEqual({});
});

test("a move's end is put to its beginning", () => {
  const details = { number: 1, cause: "page", strategy: "live", workers_before: ["w1"], workers_after: ["w1", "w2"] };
  const tape = tapeOf(
    { kind: "move-started", time: 1, details },
    { kind: "move-ended", time: 4, details: { ...details, outcome: "done", groups: 3 } },
    { kind: "move-started", time: 9, details: { ...details, number: 2 } },
  );
  expect(tape.moves.map((move) => [move.number, move.ended, move.outcome])).toEqual([
    [1, 4, "done"],
    [2, null, undefined],
  ]);
});

test("events are told the newest first", () => {
  const tape = tapeOf(
    { kind: "worker-ended", time: 3, worker: "w1", text: "killed\n by signal 9" },
    { kind: "worker-started", time: 4, worker: "w1", details: { incarnation: 2, pid: 77 } },
    { kind: "batch-failed", time: 2, operator: "totals", epoch: 8, text: "no" },
  );
  expect(eventsOf(tape).map((event) => [event.what, event.about, event.text])).toEqual([
    ["worker started", "w1", "replacement, process 77"],
    ["worker died", "w1", "killed by signal 9"],
    ["batch failed", "totals", "batch 8: no"],
  ]);
});
