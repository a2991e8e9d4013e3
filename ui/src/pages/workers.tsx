/** Who owns what: workers beside a grid of key groups, and the same as a table. */
import { useMemo, useState } from "preact/hooks";
import type { GroupMove } from "../api/types";
import { mayOperate, sharesOf, type State, store } from "../live/state";
import { useStore } from "../live/store";
import { useTheme } from "../live/theme";
import { workerColour } from "../model/colour";
import { bytes, count, percent, plural, short } from "../model/format";
import { shares as heats } from "../model/grid";
import { counts, fromLive, type Owners } from "../model/owners";
import { BusyBar, busy, Choice, Panel } from "../parts/bits";
import { Grid } from "../parts/grid";
import { VirtualRows } from "../parts/virtual";

type By = "owner" | "rows" | "bytes";
type Twin = "grid" | "table";
const COLOURS = [["owner", "Owner"], ["rows", "Heat"], ["bytes", "Bytes"]] as const;
const TWINS = [["grid", "Grid"], ["table", "Table"]] as const;
const NONE: ReadonlyMap<number, GroupMove> = new Map();
const GRID_HEIGHT = 540;

export function Workers() {
  const state = useStore(store, (s: State) => s);
  const [by, setBy] = useState<By>("owner");
  const [twin, setTwin] = useState<Twin>("grid");
  const [worker, setWorker] = useState<string | null>(null);
  const [chosen, setChosen] = useState<number | null>(null);
  const { ownership, groupLoads, at, tape } = state;
  const owners = useMemo<Owners>(() => {
    if (at !== null || ownership === null) return tape.owners.at(at ?? state.now);
    return fromLive(ownership);
  }, [at, ownership, tape, state.tapeRevision]);
  const moving = useMemo(
    () => (at !== null || !ownership ? NONE : new Map(ownership.moving.map((each) => [each.group, each]))),
    [at, ownership],
  );
  const values = at === null && by !== "owner" ? (groupLoads?.[by] ?? null) : null;
  const heat = useMemo(() => (values === null ? null : heats(values)), [values]);
  return (
    <div class="stack">
      <div class="title">
        <h1>Workers and key groups</h1>
        <p class="second">
          {plural(owners.owners.length, "key group")} on {plural(owners.workers.length, "worker")}, routing{" "}
          {owners.version}
        </p>
      </div>
      <div class="split">
        <WorkerList state={state} owners={owners} chosen={worker} onChoose={setWorker} />
        <Panel
          title="Key groups"
          flush={twin === "table"}
          aside={
            <div class="actions">
              {twin === "grid" && <Choice label="Colour" options={COLOURS} value={by} onChange={setBy} />}
              <Choice label="View" options={TWINS} value={twin} onChange={setTwin} />
            </div>
          }
        >
          {twin === "grid" ? (
            <>
              <Grid
                owners={owners}
                heat={heat}
                moving={moving}
                worker={worker}
                chosen={chosen}
                onChoose={setChosen}
                height={GRID_HEIGHT}
              />
              <p class="readout" aria-live="polite" style={{ marginTop: "10px" }}>
                {readout(state, owners, moving, chosen)}
              </p>
              {moving.size > 0 && <MoveKey />}
            </>
          ) : (
            <GroupTable state={state} owners={owners} moving={moving} worker={worker} />
          )}
        </Panel>
      </div>
    </div>
  );
}

function readout(
  state: State,
  owners: Owners,
  moving: ReadonlyMap<number, GroupMove>,
  chosen: number | null,
): string {
  if (chosen === null || chosen >= owners.owners.length) {
    if (moving.size > 0) return summaryOf(moving);
    return "Point at a cell, or go to it with the arrow keys.";
  }
  const parts = [`Key group ${chosen}`, `on ${owners.workers[owners.owners[chosen] as number]}`];
  const move = moving.get(chosen);
  if (move !== undefined) parts.push(`${move.phase}, from ${move.source} to ${move.target}`);
  if (state.at === null && state.groupLoads !== null) {
    parts.push(`${short(state.groupLoads.rows[chosen] ?? 0)} recent rows`);
    parts.push(bytes(state.groupLoads.bytes[chosen] ?? 0));
  }
  return parts.join(", ");
}

function summaryOf(moving: ReadonlyMap<number, GroupMove>): string {
  const phases: Record<string, number> = { planned: 0, copied: 0, flipped: 0, settled: 0 };
  for (const move of moving.values()) phases[move.phase] = (phases[move.phase] ?? 0) + 1;
  const parts = Object.entries(phases).filter(([, number]) => number > 0);
  return `On the move: ${parts.map(([phase, number]) => `${number} ${phase}`).join(", ")}`;
}

function MoveKey() {
  return (
    <div class="legend" style={{ marginTop: "6px" }}>
      <span>corner: planned</span>
      <span>half: copied</span>
      <span>ring of the old owner: flipped</span>
      <span>plain: settled</span>
    </div>
  );
}

function WorkerList(props: {
  state: State;
  owners: Owners;
  chosen: string | null;
  onChoose: (worker: string | null) => void;
}) {
  const { state, owners } = props;
  const theme = useTheme();
  const isPast = state.at !== null;
  const workers = state.status?.workers ?? {};
  const names = isPast ? owners.workers : Object.keys(workers);
  const owned = counts(owners);
  const shares = sharesOf(state);
  return (
    <Panel title="Workers" flush aside={<span class="quiet">{props.chosen ? `only ${props.chosen}` : ""}</span>}>
      <VirtualRows
        label="Workers"
        length={names.length}
        rowHeight={34}
        height={GRID_HEIGHT + 20}
        columns="74px minmax(60px,1fr) 46px 46px 64px"
        columnCount={5}
        isChosen={(at) => names[at] === props.chosen}
        head={
          <>
            <span role="columnheader">Worker</span>
            <span role="columnheader">Busy</span>
            <span role="columnheader" class="number">%</span>
            <span role="columnheader" class="number">Groups</span>
            <span role="columnheader" class="number">State</span>
          </>
        }
        row={(at) => {
          const name = names[at] as string;
          const position = owners.workers.indexOf(name);
          const worker = workers[name];
          return (
            <>
              <span role="cell">
                <button
                  type="button"
                  class="button small bare"
                  aria-pressed={props.chosen === name}
                  title={worker && worker.status !== "up" ? worker.status : `Show only ${name}`}
                  onClick={() => props.onChoose(props.chosen === name ? null : name)}
                  style={{ padding: 0, display: "inline-flex", gap: "7px", alignItems: "center" }}
                >
                  <i class="swatch" style={{ background: workerColour(name, theme) }} />
                  {name}
                  {worker && !["up", "gone"].includes(worker.status) && <i class="dot warning" />}
                </button>
              </span>
              <span role="cell">
                <BusyBar worker={name} shares={shares[name]} />
              </span>
              <span role="cell" class="number">{shares[name] ? percent(busy(shares[name])) : "–"}</span>
              <span role="cell" class="number">{position < 0 ? 0 : (owned[position] ?? 0)}</span>
              <span role="cell" class="number">{worker ? bytes(worker.bytes) : "–"}</span>
            </>
          );
        }}
      />
      {mayOperate(state) && (
        <p class="quiet" style={{ padding: "10px 16px" }}>
          To drain or move, see <a href="#/moves">Reconfigurations</a>.
        </p>
      )}
    </Panel>
  );
}

type Column = "group" | "owner" | "rows" | "bytes";

function GroupTable(props: {
  state: State;
  owners: Owners;
  moving: ReadonlyMap<number, GroupMove>;
  worker: string | null;
}) {
  const { owners, moving, worker } = props;
  const loads = props.state.at === null ? props.state.groupLoads : null;
  const [column, setColumn] = useState<Column>("group");
  const order = useMemo(() => {
    const only = worker === null ? -1 : owners.workers.indexOf(worker);
    const groups = [...owners.owners.keys()].filter((at) => only < 0 || owners.owners[at] === only);
    const of = (group: number) =>
      column === "owner" ? (owners.owners[group] as number) : -(loads?.[column as "rows"]?.[group] ?? 0);
    return column === "group" ? groups : groups.sort((a, b) => of(a) - of(b) || a - b);
  }, [owners, loads, column, worker]);
  const head = (name: Column, text: string, isNumber = false) => (
    <span
      role="columnheader"
      class={isNumber ? "number" : undefined}
      aria-sort={column === name ? (isNumber ? "descending" : "ascending") : "none"}
    >
      <button type="button" onClick={() => setColumn(name)}>
        {text}
        {column === name ? (isNumber ? " ↓" : " ↑") : ""}
      </button>
    </span>
  );
  return (
    <VirtualRows
      label="Key groups"
      length={order.length}
      rowHeight={28}
      height={GRID_HEIGHT}
      columns="90px 90px minmax(90px,1fr) minmax(90px,1fr) minmax(120px,1.4fr)"
      columnCount={5}
      head={
        <>
          {head("group", "Key group")}
          {head("owner", "Owner")}
          {head("rows", "Recent rows", true)}
          {head("bytes", "Bytes", true)}
          <span role="columnheader">Move</span>
        </>
      }
      row={(at) => {
        const group = order[at] as number;
        const move = moving.get(group);
        return (
          <>
            <span role="cell">{group}</span>
            <span role="cell">{owners.workers[owners.owners[group] as number]}</span>
            <span role="cell" class="number">{loads ? count(loads.rows[group] ?? 0) : "–"}</span>
            <span role="cell" class="number">{loads ? bytes(loads.bytes[group] ?? 0) : "–"}</span>
            <span role="cell">{move ? `${move.phase}, to ${move.target}` : ""}</span>
          </>
        );
      }}
    />
  );
}
