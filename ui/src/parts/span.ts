/** The stretch of time that charts show. */
import { present, type State } from "../live/state";
import type { Span } from "../model/series";

/** A service that is young has a short chart, but not a tiny one. */
const LEAST = 60;

export function spanOf(state: State): Span {
  const end = present(state);
  const { at } = state;
  const lived = end - state.tape.span[0];
  if (lived < state.reach) return { from: end - Math.max(LEAST, lived * 1.03), to: end };
  if (at === null || at > end - state.reach / 2) return { from: end - state.reach, to: end };
  return { from: at - state.reach / 2, to: at + state.reach / 2 };
}

export const REACHES = [
  ["60", "1 min"],
  ["600", "10 min"],
  ["3600", "1 h"],
] as const;
