import { expect, test } from "vitest";
import type { Finding, Status, Worker } from "../src/api/types";
import { heatColour, workerColour } from "../src/model/colour";
import { command } from "../src/model/command";
import { health } from "../src/model/health";
import { keyOf, plain } from "../src/model/keys";
import { groupsOf } from "../src/model/groups";

test("a request as a command that a shell takes", () => {
  expect(command("state/orders", { kind: "rescale", workers: 3, strategy: "live" })).toBe(
    "anabranch rescale state/orders 3 --wait --yes",
  );
  expect(command("/my data/it's", { kind: "drain", worker: "w2", timeout_s: 30 })).toBe(
    "anabranch drain '/my data/it'\\''s' w2 --timeout 30s --wait --yes",
  );
  expect(command("s", { kind: "move", key_groups: [3, 5], to: "w1", strategy: "meces" })).toBe(
    "anabranch move s 3 5 --to w1 --strategy meces --wait --yes",
  );
});

test("key groups as people write them", () => {
  expect(groupsOf("3, 5-7 9")).toEqual([3, 5, 6, 7, 9]);
  for (const wrong of ["", "x", "7-5", "1-", "3,,x"]) expect(groupsOf(wrong)).toBeNull();
});

test("keys are JSON, or else texts", () => {
  expect(keyOf("42")).toBe(42);
  expect(keyOf('[42, "berlin"]')).toEqual([42, "berlin"]);
  expect(keyOf(" berlin ")).toBe("berlin");
});

test("maps of the API are objects again", () => {
  expect(plain([{ key: "a", value: [{ key: "b", value: 1 }] }])).toEqual({ a: { b: 1 } });
  expect(plain([{ key: 1, value: 2 }])).toEqual([{ key: 1, value: 2 }]);
  expect(plain([1, { x: [2] }])).toEqual([1, { x: [2] }]);
  expect(plain([])).toEqual([]);
});

const worker = (status: string) => ({ status }) as Worker;
const status = (...workers: string[]): Status => ({
  routing_version: 1,
  key_groups: 8,
  workers: Object.fromEntries(workers.map((each, at) => [`w${at + 1}`, worker(each)])),
  operators: {},
  reconfiguration: null,
});
const finding = (severity: Finding["severity"]) => ({ severity }) as Finding;

test("one line says how the service is", () => {
  const well = health(status("up", "up"), [], null, 99, 100);
  expect([well.tone, well.word, well.line.replace(/\u202f/g, " ")]).toEqual([
    "good", "Healthy", "2 workers, last commit 1 s ago",
  ]);
  expect(health(status("up", "failed"), [], null, 99, 100).word).toBe("Needs you");
  expect(health(status("up", "starting"), [], null, 99, 100).word).toBe("Workers start");
  expect(health(status("up"), [finding("bad")], null, 99, 100).tone).toBe("bad");
  expect(health(status("up"), [finding("warning")], null, 99, 100).word).toBe("Worth a look");
  expect(health(status("up"), [finding("note")], null, null, 100).tone).toBe("quiet");
  const moving = { ...status("up"), reconfiguration: { strategy: "live", progress: 0 } };
  expect(health(moving, [], null, 99, 100).word).toBe("Moving");
});

test("neighbours have different colours, and a worker keeps its own", () => {
  const colours = Array.from({ length: 27 }, (_, at) => workerColour(`w${at + 1}`, "light"));
  expect(new Set(colours).size).toBe(27);
  expect(workerColour("w3", "dark")).toBe(workerColour("w3", "dark"));
  expect(heatColour(0, "light")).not.toBe(heatColour(1, "light"));
});
