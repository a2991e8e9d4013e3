/** The stretch of time that charts show. */
import { present, type State } from "../live/state";
import type { Span } from "../model/series";

export function spanOf(state: State): Span {
  const end = present(state);
  const at = state.at;
  if (at === null || at > end - state.reach / 2) return { from: end - state.reach, to: end };
  return { from: at - state.reach / 2, to: at + state.reach / 2 };
}

export const REACHES = [
  ["60", "1 min"],
  ["600", "10 min"],
  ["3600", "1 h"],
] as const;
