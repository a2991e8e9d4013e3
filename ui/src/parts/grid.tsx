/** Key groups as a grid: a cell each, coloured by owner, heat or bytes; moves as marks in cells. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { GroupMove } from "../api/types";
import { useTheme } from "../live/theme";
import { heatColour, type Theme, workerColour } from "../model/colour";
import { cellAt, corner, type GridLayout, layout, step } from "../model/grid";
import type { Owners } from "../model/owners";

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
    if (canvas.current !== null && width > 0) draw(canvas.current, placed, props, theme);
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

function draw(canvas: HTMLCanvasElement, placed: GridLayout, props: GridProps, theme: Theme): void {
  const scale = devicePixelRatio || 1;
  const width = Math.ceil(placed.width * scale);
  const height = Math.ceil(placed.height * scale);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, placed.width, placed.height);
  const colours = props.owners.workers.map((worker) => workerColour(worker, theme));
  const side = placed.pitch - placed.gap;
  const only = props.worker === null ? -1 : props.owners.workers.indexOf(props.worker);
  paint(pen, placed, props, theme, colours, side, only);
  for (const move of props.moving.values()) mark(pen, placed, move, theme, side);
  if (props.chosen !== null) outline(pen, placed, props.chosen, side);
}

/** Cells of one colour in one go: a path for each colour, not for each cell. */
function paint(
  pen: CanvasRenderingContext2D,
  placed: GridLayout,
  props: GridProps,
  theme: Theme,
  colours: readonly string[],
  side: number,
  only: number,
): void {
  const { owners } = props.owners;
  const buckets = new Map<string, number[]>();
  for (let group = 0; group < owners.length; group += 1) {
    const owner = owners[group] as number;
    const heat = props.heat?.[group];
    const colour =
      heat === undefined
        ? (colours[owner] as string)
        : heatColour(Math.round(heat * 24) / 24, theme);
    const key = only >= 0 && owner !== only ? `~${colour}` : colour;
    const bucket = buckets.get(key);
    if (bucket === undefined) buckets.set(key, [group]);
    else bucket.push(group);
  }
  const radius = side >= 12 ? 2.5 : side >= 8 ? 1.5 : 0;
  for (const [key, groups] of buckets) {
    const isDimmed = key.startsWith("~");
    pen.fillStyle = isDimmed ? key.slice(1) : key;
    pen.globalAlpha = isDimmed ? 0.18 : 1;
    pen.beginPath();
    for (const group of groups) {
      const [x, y] = corner(placed, group);
      if (radius > 0) pen.roundRect(x, y, side, side, radius);
      else pen.rect(x, y, side, side);
    }
    pen.fill();
  }
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
  pen.strokeRect(x, y, side, side);
}
