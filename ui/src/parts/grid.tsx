/** Key groups as a grid: a cell each, coloured by owner, heat or bytes; moves as marks in cells. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { GroupMove } from "../api/types";
import { useTheme } from "../live/theme";
import { heatColour, type Theme, workerColour } from "../model/colour";
import { cellAt, corner, type GridLayout, layout, step } from "../model/grid";
import type { Owners } from "../model/owners";

/** Steps between cold and hot. */
const HEATS = 24;

export interface GridProps {
  owners: Owners;
  /** Shares from 0 to 1, by key group; null: colours are those of owners. */
  heat: Float32Array | null;
  moving: ReadonlyMap<number, GroupMove>;
  /** Only this worker's cells stand out. */
  worker: string | null;
  chosen: number | null;
  onChoose: (group: number | null) => void;
  height: number;
}

export function Grid(props: GridProps) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const painted = useRef<Painted | null>(null);
  const [width, setWidth] = useState(0);
  const theme = useTheme();
  const groups = props.owners.owners.length;
  const placed = layout(groups, width, props.height);

  useEffect(() => {
    const element = host.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (canvas.current === null || width === 0) return;
    painted.current = draw(canvas.current, placed, props, theme, painted.current);
  });

  const point = (event: PointerEvent) =>
    props.onChoose(cellAt(placed, groups, event.offsetX, event.offsetY));
  const press = (event: KeyboardEvent) => {
    const to = step(placed, groups, props.chosen ?? 0, event.key);
    if (to === null) return;
    event.preventDefault();
    props.onChoose(props.chosen === null ? 0 : to);
  };
  return (
    <div class="grid" ref={host}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="grid of key groups"
        aria-label={`${groups} key groups of ${props.owners.workers.length} workers. Arrow keys go from cell to cell.`}
        style={{ width: `${placed.width}px`, height: `${placed.height}px` }}
        onPointerMove={point}
        onPointerLeave={() => props.onChoose(null)}
        onKeyDown={press}
      />
    </div>
  );
}

/** What is on the canvas: cells that have not changed are not painted again. */
interface Painted {
  key: string;
  colours: string[];
  marked: Set<number>;
}

function draw(
  canvas: HTMLCanvasElement,
  placed: GridLayout,
  props: GridProps,
  theme: Theme,
  before: Painted | null,
): Painted {
  const scale = devicePixelRatio || 1;
  const width = Math.ceil(placed.width * scale);
  const height = Math.ceil(placed.height * scale);
  const key = `${width} ${height} ${placed.pitch} ${theme}`;
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  const isFresh = before?.key !== key || before.colours.length !== props.owners.owners.length;
  if (isFresh) {
    canvas.width = width;
    canvas.height = height;
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const side = placed.pitch - placed.gap;
  const colours = coloursOf(props, theme);
  const marked = new Set(props.moving.keys());
  if (props.chosen !== null && props.chosen < colours.length) marked.add(props.chosen);
  const changed = new Map<string, number[]>();
  colours.forEach((colour, group) => {
    const isSame = !isFresh && before.colours[group] === colour;
    if (isSame && !before.marked.has(group) && !marked.has(group)) return;
    const some = changed.get(colour);
    if (some === undefined) changed.set(colour, [group]);
    else some.push(group);
  });
  for (const [colour, groups] of changed) paint(pen, placed, colour, groups, side);
  for (const move of props.moving.values()) mark(pen, placed, move, theme, side);
  if (props.chosen !== null && marked.has(props.chosen)) outline(pen, placed, props.chosen, side);
  return { key, colours, marked };
}

/** By key group; one that is dimmed begins with "~". */
function coloursOf(props: GridProps, theme: Theme): string[] {
  const { owners, workers } = props.owners;
  const only = props.worker === null ? -1 : workers.indexOf(props.worker);
  const own = workers.map((worker) => workerColour(worker, theme));
  const heats = Array.from({ length: HEATS + 1 }, (_, at) => heatColour(at / HEATS, theme));
  const { heat } = props;
  return Array.from(owners, (owner, group) => {
    const share = heat?.[group];
    const colour = share === undefined ? own[owner] : heats[Math.round(share * HEATS)];
    return only >= 0 && owner !== only ? `~${colour}` : (colour as string);
  });
}

/** Cells of one colour in one go: a path for each colour, not for each cell. */
function paint(
  pen: CanvasRenderingContext2D,
  placed: GridLayout,
  colour: string,
  groups: readonly number[],
  side: number,
): void {
  const radius = side >= 12 ? 2.5 : 0;
  const isDimmed = colour.startsWith("~");
  pen.fillStyle = isDimmed ? colour.slice(1) : colour;
  pen.beginPath();
  for (const group of groups) {
    const [x, y] = corner(placed, group);
    pen.clearRect(x - 1, y - 1, placed.pitch, placed.pitch);
    if (radius > 0) pen.roundRect(x, y, side, side, radius);
    else pen.rect(x, y, side, side);
  }
  pen.globalAlpha = isDimmed ? 0.18 : 1;
  pen.fill();
  pen.globalAlpha = 1;
}

/** Planned: a corner in the target's colour; copied: a half; flipped: a ring of the source's. */
function mark(
  pen: CanvasRenderingContext2D,
  placed: GridLayout,
  move: GroupMove,
  theme: Theme,
  side: number,
): void {
  if (move.phase === "settled") return;
  const [x, y] = corner(placed, move.group);
  const target = workerColour(move.target, theme);
  if (move.phase === "flipped") {
    pen.fillStyle = target;
    pen.fillRect(x, y, side, side);
    pen.strokeStyle = workerColour(move.source, theme);
    pen.lineWidth = Math.max(1.5, side / 7);
    const inset = pen.lineWidth / 2;
    pen.strokeRect(x + inset, y + inset, side - 2 * inset, side - 2 * inset);
    return;
  }
  const reach = move.phase === "copied" ? side : side * 0.45;
  pen.fillStyle = target;
  pen.beginPath();
  pen.moveTo(x + side, y + side - reach);
  pen.lineTo(x + side, y + side);
  pen.lineTo(x + side - reach, y + side);
  pen.fill();
}

function outline(pen: CanvasRenderingContext2D, placed: GridLayout, group: number, side: number): void {
  const [x, y] = corner(placed, group);
  pen.strokeStyle = getComputedStyle(pen.canvas).getPropertyValue("--ink");
  pen.lineWidth = 2;
  pen.strokeRect(x + 1, y + 1, side - 2, side - 2);
}
