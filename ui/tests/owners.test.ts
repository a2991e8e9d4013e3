import { expect, test } from "vitest";
import type { OwnershipNote } from "../src/api/types";
import { counts, lastAtOrBefore, NOBODY, OwnerTape } from "../src/model/owners";

const start: OwnershipNote = { time: 10, version: 1, workers: ["w1", "w2"], owners: [0, 1, 0, 1] };

function names(tape: OwnerTape, time: number): string[] {
  const { workers, owners } = tape.at(time);
  return Array.from(owners, (owner) => workers[owner] as string);
}

test("changes are applied to the picture before them", () => {
  const tape = new OwnerTape([
    start,
    { time: 20, version: 2, gained: { w3: [0, 3] } },
    { time: 30, version: 3, gained: { w1: [3] } },
  ]);
  expect(names(tape, 5)).toEqual(["w1", "w2", "w1", "w2"]);
  expect(names(tape, 25)).toEqual(["w3", "w2", "w1", "w3"]);
  expect(names(tape, 99)).toEqual(["w3", "w2", "w1", "w1"]);
  expect(names(tape, 15)).toEqual(["w1", "w2", "w1", "w2"]);
  expect(counts(tape.at(25))).toEqual([1, 1, 2]);
});

test("any jump gives what playing from the beginning gives", () => {
  const notes: OwnershipNote[] = [start];
  let seed = 7;
  const draw = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let at = 1; at < 500; at += 1) {
    const whole = at % 97 === 0;
    notes.push(
      whole
        ? { time: 10 + at, version: at, workers: ["w1", "w2", "w5"], owners: [draw(3), draw(3), draw(3), draw(3)] }
        : { time: 10 + at, version: at, gained: { [`w${1 + draw(5)}`]: [draw(4)] } },
    );
  }
  const jumping = new OwnerTape(notes);
  for (let jump = 0; jump < 200; jump += 1) {
    const time = 10 + draw(500);
    const played = new OwnerTape(notes.filter((note) => note.time <= time));
    expect(names(jumping, time)).toEqual(names(played, 1e9));
  }
});

test("changes without a picture before them are nobody's", () => {
  const tape = new OwnerTape([{ time: 1, version: 2, gained: { w1: [0] } }]);
  expect(tape.at(5)).toBe(NOBODY);
});

test("the last index at or before a value", () => {
  expect([0, 1, 2, 3, 9].map((value) => lastAtOrBefore([1, 2, 2, 5], value))).toEqual([-1, 0, 2, 2, 3]);
});
