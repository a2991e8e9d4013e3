/** uPlot in the page's colours: lines and stacked areas over time, with moves and marks. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Entry, TapeMove } from "../api/types";
import { useTheme } from "../live/theme";
import { clock } from "../model/format";
import { ceiling, type Span } from "../model/series";

export interface Line {
  label: string;
  colour: string;
  /** Filled down to the line before it, or to zero. */
  isArea?: boolean;
  isStepped?: boolean;
  /** A faint area below the line. */
  isTinted?: boolean;
}

export interface ChartProps {
  label: string;
  data: (number | null)[][];
  lines: Line[];
  span: Span;
  height: number;
  unit: (value: number) => string;
  moves?: readonly TapeMove[];
  marks?: readonly Entry[];
  /** A vertical line at this moment. */
  at?: number | null;
  /** Charts with one key share their cursor. */
  sync?: string;
  onBrush?: (span: Span) => void;
  onHover?: (index: number | null) => void;
}

const AXIS_WIDTH = 62;

export function Chart(props: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const theme = useTheme();
  const lines = props.lines.map((line) => line.label + line.colour).join();

  useEffect(() => {
    const element = host.current as HTMLDivElement;
    const made = new uPlot(options(element, latest), data(props), element);
    plot.current = made;
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: latest.current.height }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, lines, props.height]);

  useEffect(() => {
    const made = plot.current;
    if (made === null) return;
    made.batch(() => {
      made.setData(data(props), false);
      made.setScale("x", { min: props.span.from, max: props.span.to });
    });
  }, [props.data, props.span.from, props.span.to]);

  useEffect(() => plot.current?.redraw(false, false), [props.at, props.moves, props.marks]);

  return <div class="chart" ref={host} role="img" aria-label={props.label} style={{ height: `${props.height}px` }} />;
}

function data(props: ChartProps): uPlot.AlignedData {
  return props.data as unknown as uPlot.AlignedData;
}

function options(element: HTMLElement, latest: { current: ChartProps }): uPlot.Options {
  const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
  const props = latest.current;
  const font = `12px ${getComputedStyle(element).fontFamily}`;
  const axis: uPlot.Axis = {
    stroke: colour("--ink-3"),
    font,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1, size: 4 },
  };
  return {
    width: element.clientWidth,
    height: props.height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    cursor: {
      sync: props.sync === undefined ? undefined : { key: props.sync },
      points: { show: false },
      drag: { x: props.onBrush !== undefined, y: false, setScale: false },
    },
    scales: { x: { time: true }, y: { range: () => [0, Math.max(ceiling(latest.current.data.at(-1) ?? []) * 1.08, 1e-3)] } },
    axes: [
      { ...axis, values: (_, splits) => splits.map((at) => clock(at)), space: 90, size: 30 },
      { ...axis, size: AXIS_WIDTH, space: 34, values: (_, splits) => splits.map((v) => (v === 0 ? "0" : props.unit(v))) },
    ],
    series: [{}, ...props.lines.map((line) => series(line))],
    bands: bands(props.lines),
    hooks: {
      drawClear: [(plot) => shadeMoves(plot, latest.current, colour)],
      draw: [(plot) => drawMarks(plot, latest.current, colour)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          const span = { from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") };
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.onBrush?.(span);
        },
      ],
      setCursor: [(plot) => latest.current.onHover?.(plot.cursor.idx ?? null)],
    },
  };
}

function series(line: Line): uPlot.Series {
  return {
    label: line.label,
    stroke: line.colour,
    width: line.isArea ? 0 : 1.5,
    fill: line.isArea ? line.colour : line.isTinted ? `${line.colour}24` : undefined,
    points: { show: false },
    paths: line.isStepped ? uPlot.paths.stepped?.({ align: -1 }) : undefined,
    spanGaps: true,
  };
}

/** Stacked areas: each is filled down to the one below. */
function bands(lines: readonly Line[]): uPlot.Band[] {
  return lines.flatMap((line, at) =>
    line.isArea && at > 0 ? [{ series: [at + 1, at] as [number, number], fill: line.colour }] : [],
  );
}

type Colour = (name: string) => string;

function shadeMoves(plot: uPlot, props: ChartProps, colour: Colour): void {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const move of props.moves ?? []) {
    const ends = move.ended ?? props.span.to;
    if (ends < props.span.from || move.started > props.span.to) continue;
    const from = Math.max(bbox.left, plot.valToPos(move.started, "x", true));
    const to = Math.min(bbox.left + bbox.width, plot.valToPos(ends, "x", true));
    ctx.fillStyle = colour("--shade");
    ctx.fillRect(from, bbox.top, Math.max(2, to - from), bbox.height);
    ctx.fillStyle = colour("--accent");
    ctx.fillRect(from, bbox.top, Math.max(2, to - from), 2 * devicePixelRatio);
  }
  ctx.restore();
}

function drawMarks(plot: uPlot, props: ChartProps, colour: Colour): void {
  const { ctx, bbox } = plot;
  ctx.save();
  const line = (time: number, stroke: string, dash: number[]) => {
    const x = Math.round(plot.valToPos(time, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) return null;
    ctx.strokeStyle = stroke;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    return x;
  };
  for (const mark of props.marks ?? []) {
    const isBad = mark.kind === "worker-ended" || mark.kind === "batch-failed";
    if (!isBad && mark.kind !== "service-started") continue;
    const stroke = colour(isBad ? "--bad" : "--ink-3");
    const x = line(mark.time, stroke, [3, 3]);
    if (x === null) continue;
    const side = 4 * devicePixelRatio;
    ctx.fillStyle = stroke;
    ctx.beginPath();
    ctx.moveTo(x - side, bbox.top);
    ctx.lineTo(x + side, bbox.top);
    ctx.lineTo(x, bbox.top + 1.6 * side);
    ctx.fill();
  }
  const most = (props.data.at(-1) ?? []).reduce<number>((top, value) => Math.max(top, value ?? 0), 0);
  if (most > (plot.scales.y?.max ?? most)) {
    ctx.fillStyle = colour("--ink-2");
    ctx.font = `${12 * devicePixelRatio}px ${getComputedStyle(plot.root).fontFamily}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    ctx.fillText(`↑ up to ${props.unit(most)}`, bbox.left + 8, bbox.top + 10);
  }
  if (props.at != null) line(props.at, colour("--ink"), []);
  ctx.restore();
}
