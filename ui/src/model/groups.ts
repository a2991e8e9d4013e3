/** Key groups as people write them. */

/** "3, 5-7" as [3, 5, 6, 7]; null: it is none. */
export function groupsOf(text: string): number[] | null {
  const found: number[] = [];
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const match = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(part);
    if (match === null) return null;
    const first = Number(match[1]);
    const last = Number(match[2] ?? match[1]);
    if (last < first || last - first > 100_000) return null;
    for (let group = first; group <= last; group += 1) found.push(group);
  }
  return found.length > 0 ? found : null;
}
