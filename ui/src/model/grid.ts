/** Where cells of a grid of key groups are. */

export interface GridLayout {
  columns: number;
  rows: number;
  /** Side of a cell with its gap. */
  pitch: number;
  gap: number;
  width: number;
  height: number;
}

const PITCH_MAX = 34;
const PITCH_MIN = 6;
/** Rows of a round number of key groups can be counted. */
const COLUMNS = [8, 16, 24, 32, 48, 64, 80, 96, 100, 128, 160, 192, 200, 256];

/** The largest cells with which all fit into the space; in a narrow space it grows in height. */
export function layout(groups: number, width: number, height: number): GridLayout {
  let columns = evenly(Math.max(1, Math.floor(width / PITCH_MIN)));
  let pitch = PITCH_MIN;
  for (const tried of COLUMNS) {
    const across = Math.floor(width / tried);
    const down = Math.floor(height / Math.ceil(groups / tried));
    const fits = Math.min(across, down, PITCH_MAX);
    if (fits >= PITCH_MIN && (fits > pitch || (fits === pitch && tried < columns))) {
      [columns, pitch] = [tried, fits];
    }
  }
  const rows = Math.ceil(groups / columns);
  const gap = pitch >= 16 ? 2 : 1;
  return { columns, rows, pitch, gap, width: columns * pitch, height: rows * pitch };
}

function evenly(columns: number): number {
  for (const step of [64, 32, 16, 8]) {
    if (columns >= step * 2) return columns - (columns % step);
  }
  return columns >= 8 ? columns - (columns % 8) : columns;
}

export function cellAt(layout: GridLayout, groups: number, x: number, y: number): number | null {
  const column = Math.floor(x / layout.pitch);
  const row = Math.floor(y / layout.pitch);
  if (column < 0 || column >= layout.columns || row < 0) return null;
  const group = row * layout.columns + column;
  return group < groups ? group : null;
}

export function corner(layout: GridLayout, group: number): [number, number] {
  const row = Math.floor(group / layout.columns);
  return [(group - row * layout.columns) * layout.pitch, row * layout.pitch];
}

/** The cell that a key of the keyboard goes to. */
export function step(layout: GridLayout, groups: number, from: number, key: string): number | null {
  const by: Record<string, number> = {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns,
  };
  if (key === "Home") return 0;
  if (key === "End") return groups - 1;
  const distance = by[key];
  if (distance === undefined) return null;
  const to = from + distance;
  return to >= 0 && to < groups ? to : from;
}

/** Values as shares of the largest; a few giants do not hide the others: a root evens it out. */
export function shares(values: readonly number[]): Float32Array {
  let most = 0;
  for (const value of values) most = Math.max(most, value);
  return Float32Array.from(values, (value) => (most > 0 ? Math.sqrt(value / most) : 0));
}
