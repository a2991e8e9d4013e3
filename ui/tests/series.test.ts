import { expect, test } from "vitest";
import type { BatchColumns } from "../src/api/types";
import { ceiling, latency, phasesOf, stacked, summary, throughput, within } from "../src/model/series";

function columns(batches: { time: number; seconds: number | null; rows?: number; apply?: number; load?: number; run?: number }[]): BatchColumns {
  return {
    operators: ["totals"],
    left_out: 0,
    operator: batches.map(() => 0),
    time: batches.map((batch) => batch.time),
    epoch: batches.map((_, at) => at),
    seconds: batches.map((batch) => batch.seconds),
    rows: batches.map((batch) => batch.rows ?? 0),
    load_ms: batches.map((batch) => batch.load ?? null),
    wait_ms: batches.map(() => null),
    apply_ms: batches.map((batch) => batch.apply ?? 0),
    write_ms: batches.map(() => 0),
    run_ms: batches.map((batch) => batch.run ?? null),
    plan_ms: batches.map((batch) => (batch.run ? 20 : null)),
    commit_ms: batches.map((batch) => (batch.run ? 40 : null)),
  };
}

test("batches of a span are those that ended in it", () => {
  const some = columns([1, 2, 3, 4].map((time) => ({ time, seconds: 0.1 })));
  expect(within(some, { from: 2, to: 3 })).toEqual({ first: 1, end: 3 });
  expect(within(some, { from: 5, to: 9 })).toEqual({ first: 4, end: 4 });
});

test("of each pixel the slowest batch is shown", () => {
  const some = columns([
    { time: 0.1, seconds: 1 },
    { time: 0.2, seconds: 5 },
    { time: 0.3, seconds: 2 },
    { time: 7, seconds: null },
    { time: 9, seconds: 3 },
  ]);
  expect(latency(some, { from: 0, to: 10 }, 10)).toEqual([[0.1, 9], [5, 3]]);
});

test("rows belong to all of the time that their batch took, and none are lost", () => {
  const some = columns([
    { time: 4, seconds: 2, rows: 100 },
    { time: 9, seconds: 0.5, rows: 30 },
  ]);
  const [, rates] = throughput(some, { from: 0, to: 10 }, 10);
  expect(rates[2]).toBeCloseTo(50);
  expect(rates[3]).toBeCloseTo(50);
  expect(rates.reduce((sum, rate) => sum + rate, 0)).toBeCloseTo(130);
});

test("phases add up to the batch", () => {
  const some = columns([{ time: 1, seconds: 0.5, apply: 100, load: 300 }]);
  const parts = phasesOf(some, 0);
  expect(parts.load).toBeCloseTo(0.3);
  expect(parts.tasks).toBeCloseTo(0.1);
  const data = stacked(some, { from: 0, to: 2 }, 100);
  expect(data.map((column) => column[0])).toEqual([1, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5, 0.5, 0.5].map((n) => expect.closeTo(n)));
  const told = phasesOf(columns([{ time: 1, seconds: 0.5, apply: 100, run: 700 }]), 0);
  expect([told.sink, told.plan, told.commit]).toEqual([0.2, 0.02, 0.04].map((n) => expect.closeTo(n)));
  expect(phasesOf(columns([{ time: 1, seconds: 0.1, apply: 100, load: 300 }]), 0).tasks).toBe(0);
});

test("a few giants do not make all others tiny", () => {
  const usual = Array.from({ length: 99 }, (_, at) => 1 + at / 100);
  expect(ceiling(usual)).toBeCloseTo(1.98);
  expect(ceiling([...usual, 40])).toBeLessThan(4);
  expect(ceiling([1, 40])).toBe(40);
  expect(ceiling([null])).toBe(0);
});

test("a summary of what was in a span", () => {
  const some = columns([1, 2, 3, 4].map((time) => ({ time, seconds: time / 10, rows: 10 })));
  expect(summary(some, { from: 0, to: 4 })).toEqual({
    batches: 4, rows: 40, median: 0.3, p99: 0.4, worst: 0.4, rowsPerSecond: 10,
  });
  expect(summary(some, { from: 8, to: 9 })).toBeNull();
});
