import { expect, test } from "vitest";
import { ago, bytes, clock, count, percent, plural, roughly, seconds, short } from "../src/model/format";

const plain = (text: string) => text.replace(/\u202f/g, " ");

test("numbers keep three digits, or all of them", () => {
  expect([0, 7, 999, 12_345_678].map((n) => plain(count(n)))).toEqual(["0", "7", "999", "12 345 678"]);
  expect([0.5, 7, 1234, 12_345, 1.5e6, 3e9].map((n) => plain(short(n)))).toEqual([
    "0.50", "7", "1 234", "12.3 k", "1.50 M", "3.00 G",
  ]);
  expect([0, 999, 1000, 123_456, 5e12].map((n) => plain(bytes(n)))).toEqual([
    "0 B", "999 B", "1.00 kB", "123 kB", "5.00 TB",
  ]);
});

test("times have the unit that fits", () => {
  expect([0, 0.0123, 1.5, 119, 600, 9000, 300_000].map((n) => plain(seconds(n)))).toEqual([
    "0 ms", "12 ms", "1.50 s", "119 s", "10 min", "2.50 h", "3.47 d",
  ]);
  expect(plain(roughly(0.2))).toBe("a second");
  expect(plain(roughly(4.63))).toBe("5 s");
  expect(plain(ago(100, 100.3))).toBe("just now");
  expect(plain(ago(100, 103))).toBe("3 s ago");
});

test("shares, plurals and clocks", () => {
  expect([0, 0.004, 0.5, 1].map((n) => plain(percent(n)))).toEqual(["0 %", "<1 %", "50 %", "100 %"]);
  expect(plain(plural(1, "batch", "batches"))).toBe("1 batch");
  expect(plain(plural(2000, "key group"))).toBe("2 000 key groups");
  const noon = new Date(2026, 4, 1, 12, 3, 9).getTime() / 1000;
  expect(clock(noon, noon + 60)).toBe("12:03:09");
  expect(clock(noon, noon + 86_400)).toBe("2026-05-01 12:03:09");
});
