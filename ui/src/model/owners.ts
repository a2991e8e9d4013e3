/** Who owned which key group at any time: the journal's pictures and changes, played back. */
import type { Ownership, OwnershipNote } from "../api/types";

export interface Owners {
  version: number;
  workers: string[];
  /** Positions in `workers`, by key group. */
  owners: Uint16Array;
}

/** One in so many frames is kept whole, so that any time is near one. */
const KEYFRAME = 64;

export const NOBODY: Owners = { version: 0, workers: [], owners: new Uint16Array() };

export class OwnerTape {
  private readonly times: number[] = [];
  private readonly notes: OwnershipNote[] = [];
  private readonly kept = new Map<number, Owners>();
  private last: { at: number; owners: Owners } | null = null;

  constructor(notes: readonly OwnershipNote[] = []) {
    for (const note of notes) this.append(note);
  }

  append(note: OwnershipNote): void {
    if (this.notes.length === 0 && note.owners === undefined) return;
    this.times.push(note.time);
    this.notes.push(note);
  }

  /** Of the last note at or before a time; of the first one before all. */
  at(time: number): Owners {
    if (this.notes.length === 0) return NOBODY;
    return this.frame(Math.max(0, lastAtOrBefore(this.times, time)));
  }

  private frame(wanted: number): Owners {
    if (this.last?.at === wanted) return this.last.owners;
    let from = wanted;
    let owners = this.last !== null && this.last.at < wanted ? this.last.owners : null;
    const nearest = this.last !== null && this.last.at < wanted ? this.last.at : -1;
    while (from > nearest) {
      const known = this.kept.get(from);
      if (known !== undefined || this.notes[from]?.owners !== undefined) {
        owners = known ?? whole(this.notes[from] as OwnershipNote);
        break;
      }
      from -= 1;
    }
    for (let at = from + 1; at <= wanted; at += 1) {
      owners = applied(owners ?? NOBODY, this.notes[at] as OwnershipNote);
      if (at % KEYFRAME === 0) this.kept.set(at, owners);
    }
    this.last = { at: wanted, owners: owners ?? NOBODY };
    return this.last.owners;
  }
}

export function fromLive(ownership: Ownership): Owners {
  return {
    version: ownership.version,
    workers: ownership.workers,
    owners: Uint16Array.from(ownership.owners),
  };
}

/** How many key groups each worker has, by its position. */
export function counts(owners: Owners): number[] {
  const found = new Array<number>(owners.workers.length).fill(0);
  for (const owner of owners.owners) found[owner] = (found[owner] ?? 0) + 1;
  return found;
}

/** The last index whose value is at most `value`; -1 if there is none. */
export function lastAtOrBefore(sorted: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function whole(note: OwnershipNote): Owners {
  return {
    version: note.version,
    workers: note.workers ?? [],
    owners: Uint16Array.from(note.owners ?? []),
  };
}

function applied(before: Owners, note: OwnershipNote): Owners {
  if (note.owners !== undefined) return whole(note);
  const workers = [...before.workers];
  const owners = before.owners.slice();
  for (const [worker, groups] of Object.entries(note.gained ?? {})) {
    let position = workers.indexOf(worker);
    if (position < 0) position = workers.push(worker) - 1;
    for (const group of groups) owners[group] = position;
  }
  return { version: note.version, workers, owners };
}
