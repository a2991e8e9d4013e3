/** Where the time of batches went; drag over the chart to see its batches. */
import { useMemo, useState } from "preact/hooks";
import { type State, store } from "../live/state";
import { useStore } from "../live/store";
import { useTheme } from "../live/theme";
import { PHASE_COLOURS } from "../model/colour";
import { clock, count, plural, seconds } from "../model/format";
import { ceiling, PHASES, type Phase, phasesOf, type Span, stacked, within } from "../model/series";
import { Choice, Panel } from "../parts/bits";
import { Chart } from "../parts/chart";
import { REACHES, spanOf } from "../parts/span";
import { VirtualRows } from "../parts/virtual";

const POINTS = 700;
const WORDS: Record<Phase, string> = {
  load: "waiting for state from elsewhere",
  wait: "waiting for its turn",
  apply: "applying rows",
  write: "writing changelogs",
  tasks: "Spark's tasks: reading, shuffling, sending",
  sink: "other stages and the sink",
  plan: "planning",
  commit: "offsets and commits",
};

export function Timeline() {
  const state = useStore(store, (s: State) => s);
  const theme = useTheme();
  const [brushed, setBrushed] = useState<Span | null>(null);
  const span = spanOf(state);
  const columns = state.tape.batches;
  const key = `${state.tapeRevision} ${span.from.toFixed(1)} ${span.to.toFixed(1)}`;
  const data = useMemo(() => stacked(columns, span, POINTS), [columns, key]);
  const colours = PHASE_COLOURS[theme];
  const chosen = brushed ?? span;
  return (
    <div class="stack">
      <div class="title">
        <h1>Timeline</h1>
        <Choice
          label="Span of the chart"
          options={REACHES}
          value={String(state.reach) as "60"}
          onChange={(reach) => {
            setBrushed(null);
            store.set({ reach: Number(reach) });
          }}
        />
      </div>
      <Panel title="Seconds of each batch" aside={<PhaseLegend colours={colours} />}>
        <Chart
          label="Seconds of each batch by what it did, over time"
          data={data}
          lines={PHASES.map((phase) => ({
            label: phase,
            colour: colours[phase],
            isArea: true,
            isStepped: true,
          }))}
          span={span}
          height={300}
          unit={seconds}
          moves={state.tape.moves}
          marks={state.tape.marks}
          at={state.at}
          onBrush={setBrushed}
        />
      </Panel>
      <Batches
        state={state}
        span={chosen}
        isBrushed={brushed !== null}
        onAll={() => setBrushed(null)}
        colours={colours}
      />
    </div>
  );
}

function PhaseLegend(props: { colours: Record<Phase, string> }) {
  return (
    <div class="legend">
      {PHASES.map((phase) => (
        <span key={phase}>
          <i class="swatch" style={{ background: props.colours[phase] }} />
          {WORDS[phase]}
        </span>
      ))}
    </div>
  );
}

function Batches(props: {
  state: State;
  span: Span;
  isBrushed: boolean;
  onAll: () => void;
  colours: Record<Phase, string>;
}) {
  const columns = props.state.tape.batches;
  const { first, end } = within(columns, props.span);
  const most = useMemo(() => {
    const sums = Array.from({ length: end - first }, (_, at) => {
      const parts = phasesOf(columns, first + at);
      return PHASES.reduce((sum, phase) => sum + parts[phase], 0);
    });
    return ceiling(sums);
  }, [columns, first, end]);
  const aside = props.isBrushed ? (
    <button type="button" class="button small" onClick={props.onAll}>
      All of the chart
    </button>
  ) : (
    <span class="quiet">Drag over the chart to see some only.</span>
  );
  return (
    <Panel
      flush
      title={`${plural(end - first, "batch", "batches")}${props.isBrushed ? `, ${clock(props.span.from)} to ${clock(props.span.to)}` : ""}`}
      aside={aside}
    >
      {end === first ? (
        <p class="empty" style={{ padding: "10px 16px 14px" }}>No batch ended in this time.</p>
      ) : (
        <VirtualRows
          label="Batches"
          length={end - first}
          rowHeight={28}
          height={280}
          columns="150px minmax(80px,140px) 80px 90px 100px minmax(120px,1fr) 100px"
          columnCount={7}
          head={
            <>
              <span role="columnheader">Ended</span>
              <span role="columnheader">Operator</span>
              <span role="columnheader" class="number">Batch</span>
              <span role="columnheader" class="number">Rows</span>
              <span role="columnheader" class="number">Took</span>
              <span role="columnheader">Phases</span>
              <span role="columnheader" class="number">Slowest</span>
            </>
          }
          row={(index) => <BatchRow {...props} at={end - 1 - index} most={most} />}
        />
      )}
    </Panel>
  );
}

function BatchRow(props: { state: State; at: number; most: number; colours: Record<Phase, string> }) {
  const { at } = props;
  const columns = props.state.tape.batches;
  const parts = phasesOf(columns, at);
  const main = PHASES.reduce((a, b) =>
    parts[b] > parts[a] ? b : a,
  );
  const label = PHASES.map((phase) => `${phase} ${seconds(parts[phase])}`).join(", ");
  return (
    <>
      <span role="cell" class="mono">{clock(columns.time[at] as number)}</span>
      <span role="cell">{columns.operators[columns.operator[at] as number]}</span>
      <span role="cell" class="number">{columns.epoch[at]}</span>
      <span role="cell" class="number">{count(columns.rows[at] ?? 0)}</span>
      <span role="cell" class="number">{seconds(columns.seconds[at] ?? 0)}</span>
      <span role="cell">
        <div class="bar" role="img" aria-label={label} title={label}>
          {PHASES.map((phase) => (
            <i
              key={phase}
              style={{
                width: `${(100 * parts[phase]) / (props.most || 1)}%`,
                background: props.colours[phase],
              }}
            />
          ))}
        </div>
      </span>
      <span role="cell" class="number quiet">{parts[main] > 0.001 ? main : "–"}</span>
    </>
  );
}
