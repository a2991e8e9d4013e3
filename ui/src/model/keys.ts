/** Keys as people type them, and values as the API gives them. */

/** JSON is itself; anything else is a text. */
export function keyOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text.trim();
  }
}

/** Maps come as lists of {key, value}: those with names as keys are objects to people. */
export function plain(value: unknown): unknown {
  if (Array.isArray(value)) {
    const isMap = value.length > 0 && value.every(isPair);
    if (!isMap) return value.map(plain);
    const pairs = value as { key: unknown; value: unknown }[];
    if (!pairs.every((pair) => typeof pair.key === "string")) {
      return pairs.map((pair) => ({ key: plain(pair.key), value: plain(pair.value) }));
    }
    return Object.fromEntries(pairs.map((pair) => [pair.key as string, plain(pair.value)]));
  }
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
  }
  return value;
}

function isPair(value: unknown): boolean {
  if (value === null || typeof value !== "object") return false;
  return Object.keys(value).sort().join() === "key,value";
}
