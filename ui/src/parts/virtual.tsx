/** A long list of rows of which only those in sight are in the document. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const MORE = 6;

export function VirtualRows(props: {
  label: string;
  length: number;
  rowHeight: number;
  height: number;
  columns: string;
  head: ComponentChildren;
  row: (index: number) => ComponentChildren;
  /** Columns of each row, for readers of tables. */
  columnCount: number;
  isChosen?: (index: number) => boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = Math.min(props.height, Math.max(1, props.length) * props.rowHeight);
  useEffect(() => {
    const element = box.current as HTMLDivElement;
    if (element.scrollTop > props.length * props.rowHeight) element.scrollTop = 0;
  }, [props.length]);
  const first = Math.max(0, Math.floor(top / props.rowHeight) - MORE);
  const end = Math.min(props.length, Math.ceil((top + height) / props.rowHeight) + MORE);
  const style = { gridTemplateColumns: props.columns, height: `${props.rowHeight}px` };
  return (
    <div role="table" aria-label={props.label} aria-rowcount={props.length + 1} aria-colcount={props.columnCount}>
      <div role="rowgroup">
        <div class="vrow head" role="row" aria-rowindex={1} style={style}>{props.head}</div>
      </div>
      <div
        class="virtual"
        role="rowgroup"
        ref={box}
        tabIndex={0}
        aria-label={`${props.label}, rows`}
        style={{ height: `${height}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div role="presentation" style={{ height: `${props.length * props.rowHeight}px` }} />
        <div class="rows" role="presentation" style={{ transform: `translateY(${first * props.rowHeight}px)` }}>
          {Array.from({ length: Math.max(0, end - first) }, (_, at) => (
            <div
              key={first + at}
              class={props.isChosen?.(first + at) ? "vrow chosen" : "vrow"}
              role="row"
              aria-rowindex={first + at + 2}
              style={style}
            >
              {props.row(first + at)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
