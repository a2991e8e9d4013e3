/** Latency and throughput, one above the other. */
import { useMemo, useState } from "preact/hooks";
import { type State, store } from "../live/state";
import { useStore } from "../live/store";
import { useTheme } from "../live/theme";
import { PHASE_COLOURS } from "../model/colour";
import { clock, count, seconds, short } from "../model/format";
import { latency, throughput } from "../model/series";
import { Chart } from "./chart";
import { spanOf } from "./span";

const POINTS = 900;
const STEPS = 120;

export function LatencyCharts(props: { height?: number }) {
  const state = useStore(store, (s: State) => s);
  const theme = useTheme();
  const span = spanOf(state);
  const columns = state.tape.batches;
  const key = `${state.tapeRevision} ${span.from.toFixed(1)} ${span.to.toFixed(1)}`;
  const slow = useMemo(() => latency(columns, span, POINTS), [columns, key]);
  const rate = useMemo(() => throughput(columns, span, STEPS), [columns, key]);
  const [hovered, setHovered] = useState<number | null>(null);
  const time = hovered === null ? undefined : slow[0][hovered];
  const common = {
    span,
    at: state.at,
    moves: state.tape.moves,
    marks: state.tape.marks,
    sync: "latency",
  };
  const colours = PHASE_COLOURS[theme];
  return (
    <div>
      <p class="readout" aria-hidden="true">
        {time === undefined ? (
          <Key />
        ) : (
          `${clock(time)}: a batch of ${seconds(slow[1][hovered as number] ?? 0)}`
        )}
      </p>
      <Chart
        {...common}
        label={`Seconds of batches over time; the slowest took ${seconds(most(slow[1]))}`}
        data={slow}
        lines={[{ label: "batch", colour: colours.apply, isStepped: true, isTinted: true }]}
        height={props.height ?? 190}
        unit={seconds}
        onHover={setHovered}
      />
      <p class="readout second">Rows a second</p>
      <Chart
        {...common}
        label={`Rows a second over time; at most ${count(most(rate[1]))}`}
        data={rate}
        lines={[{ label: "rows", colour: colours.write, isTinted: true }]}
        height={120}
        unit={short}
      />
    </div>
  );
}

function Key() {
  return (
    <span class="legend">
      <span>Time of each batch</span>
      <span>
        <i class="swatch" style={{ background: "var(--shade)", borderTop: "2px solid var(--accent)" }} />
        reconfiguration
      </span>
      <span>
        <i class="swatch" style={{ background: "var(--bad)" }} />
        worker died, batch failed
      </span>
    </span>
  );
}

function most(values: readonly (number | null)[]): number {
  return values.reduce<number>((top, value) => Math.max(top, value ?? 0), 0);
}
