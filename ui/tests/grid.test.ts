import { expect, test } from "vitest";
import { cellAt, corner, layout, shares, step } from "../src/model/grid";

test("all cells fit, as large as they can be", () => {
  const small = layout(256, 640, 540);
  expect([small.columns, small.rows]).toEqual([16, 16]);
  expect(small.height).toBeLessThanOrEqual(540);
  const large = layout(10_000, 640, 640);
  expect(large.columns * large.rows).toBeGreaterThanOrEqual(10_000);
  expect(large.width).toBeLessThanOrEqual(640);
  expect(layout(3, 640, 540).rows).toBe(1);
});

test("in a narrow space the grid grows in height", () => {
  const narrow = layout(10_000, 200, 300);
  expect(narrow.width).toBeLessThanOrEqual(200);
  expect(narrow.height).toBeGreaterThan(300);
});

test("a cell is found where it is drawn", () => {
  const placed = layout(250, 640, 540);
  for (const group of [0, 15, 16, 249]) {
    const [x, y] = corner(placed, group);
    expect(cellAt(placed, 250, x + 1, y + 1)).toBe(group);
  }
  expect(cellAt(placed, 250, placed.width + 5, 3)).toBeNull();
  expect(cellAt(placed, 250, 15 * placed.pitch, 15 * placed.pitch)).toBeNull();
});

test("keys go from cell to cell and stay inside", () => {
  const placed = layout(256, 640, 540);
  expect(step(placed, 256, 0, "ArrowRight")).toBe(1);
  expect(step(placed, 256, 0, "ArrowLeft")).toBe(0);
  expect(step(placed, 256, 3, "ArrowDown")).toBe(19);
  expect(step(placed, 256, 3, "End")).toBe(255);
  expect(step(placed, 256, 3, "a")).toBeNull();
});

test("heat is relative to the hottest", () => {
  expect([...shares([0, 25, 100])]).toEqual([0, 0.5, 1]);
  expect([...shares([0, 0])]).toEqual([0, 0]);
});
