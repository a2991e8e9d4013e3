/** How the service is, what to know, and what to do about it. */
import { useState } from "preact/hooks";
import { sentence } from "../api/client";
import type { Finding, Forecast } from "../api/types";
import { refresh } from "../live/feed";
import { client, mayOperate, present, sharesOf, type State, store } from "../live/state";
import { useStore } from "../live/store";
import { command } from "../model/command";
import { ago, bytes, clock, count, percent, plural, roughly, seconds, short } from "../model/format";
import { type Health, health } from "../model/health";
import { within, summary } from "../model/series";
import { BusyBar, BusyLegend, busy, Choice, Copy, Panel } from "../parts/bits";
import { LatencyCharts } from "../parts/latency_charts";
import { REACHES } from "../parts/span";

const RECENT_SECONDS = 60;
const WORKERS_SHOWN = 12;

export function Overview() {
  const state = useStore(store, (s: State) => s);
  const { status, tape } = state;
  if (status === null) return null;
  const end = state.at ?? present(state);
  const recent = summary(tape.batches, { from: end - RECENT_SECONDS, to: end });
  const { end: past } = within(tape.batches, { from: 0, to: end });
  const committed = tape.batches.time[past - 1] ?? null;
  const isPast = state.at !== null;
  return (
    <div class="stack">
      <div class="title">
        <HealthLine
          health={
            isPast
              ? { tone: "quiet", word: clock(end), line: pastLine(recent?.batches ?? 0) }
              : health(status, state.findings, recent, committed, state.now)
          }
        />
        <Choice
          label="Span of the charts"
          options={REACHES}
          value={String(state.reach) as "60"}
          onChange={(reach) => store.set({ reach: Number(reach) })}
        />
      </div>
      {!isPast && <Findings findings={state.findings} />}
      <dl class="figures">
        <Figure name="Rows a second" value={recent ? short(recent.rowsPerSecond) : "–"} />
        <Figure name="Batch, median" value={recent ? seconds(recent.median) : "–"} />
        <Figure name="Batch, 99th percentile" value={recent ? seconds(recent.p99) : "–"} />
        <Figure name="State" value={bytes(total(state, "bytes"))} note={`${short(total(state, "rows"))} rows`} />
        <Figure
          name="Last batch"
          value={past > 0 ? count(tape.batches.epoch[past - 1] as number) : "–"}
          note={committed === null ? "" : isPast ? clock(committed) : ago(committed, state.now)}
        />
      </dl>
      <Panel title="Latency and throughput">
        <LatencyCharts />
      </Panel>
      <WorkersPanel state={state} />
    </div>
  );
}

function pastLine(batches: number): string {
  return `as the journal tells, ${plural(batches, "batch", "batches")} in the minute before`;
}

export function HealthLine(props: { health: Health }) {
  const { tone, word, line } = props.health;
  return (
    <div class="health" aria-live="polite">
      <i class={`dot ${tone}`} aria-hidden="true" />
      <h1>{word}</h1>
      <span class="line">{line}</span>
    </div>
  );
}

function Figure(props: { name: string; value: string; note?: string }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        {props.value} {props.note && <small>{props.note}</small>}
      </dd>
    </div>
  );
}

function total(state: State, what: "bytes" | "rows"): number {
  const operators = Object.values(state.status?.operators ?? {});
  return operators.reduce((sum, operator) => sum + operator[what], 0);
}

function Findings(props: { findings: Finding[] }) {
  if (props.findings.length === 0) return null;
  return (
    <ul class="findings" aria-label="Findings">
      {props.findings.map((finding) => (
        <FindingLine key={finding.kind + finding.text.slice(0, 12)} finding={finding} />
      ))}
    </ul>
  );
}

const SEVERITY = { bad: "Urgent", warning: "Soon", note: "Note" } as const;
const TONE = { bad: "bad", warning: "warning", note: "" } as const;

function FindingLine(props: { finding: Finding }) {
  const { finding } = props;
  const state = useStore(store, (s: State) => s);
  const [said, setSaid] = useState<string | null>(null);
  const { action, price } = finding;
  const act = async (isDry: boolean) => {
    try {
      if (isDry) {
        const forecast = await client.post<Forecast>("/moves", { ...action, dry_run: true });
        setSaid(forecast.text);
      } else {
        await client.post("/moves", { ...action, if_routing_version: state.status?.routing_version });
        refresh();
        location.hash = "#/moves";
      }
    } catch (error) {
      setSaid(sentence(error));
    }
  };
  return (
    <li class={`finding ${finding.severity}`}>
      <span class={`pill ${TONE[finding.severity]}`}>{SEVERITY[finding.severity]}</span>
      <p>
        {finding.text}{" "}
        {action !== null && price !== null && (
          <span class="price">
            {verb(action.kind, action.workers)}: {plural(price.groups, "key group")}, {bytes(price.bytes)},
            about {roughly(price.seconds)}.
          </span>
        )}
      </p>
      {action !== null && (
        <div class="actions">
          <button type="button" class="button small" onClick={() => void act(true)}>
            Dry run
          </button>
          <Copy text={command(state.session?.location ?? "LOCATION", action)} />
          {mayOperate(state) && (
            <button type="button" class="button small first" onClick={() => void act(false)}>
              {verb(action.kind, action.workers)}
            </button>
          )}
        </div>
      )}
      {said !== null && (
        <div class="said" role="status">
          {said}
        </div>
      )}
    </li>
  );
}

function verb(kind: string, workers: number | undefined): string {
  return kind === "rescale" ? `Rescale to ${workers}` : kind === "rebalance" ? "Rebalance" : kind;
}

function WorkersPanel(props: { state: State }) {
  const { state } = props;
  const shares = sharesOf(state);
  const owners = state.at === null ? null : state.tape.owners.at(state.at);
  const workers = state.status?.workers ?? {};
  const names = owners === null ? Object.keys(workers) : owners.workers;
  const busiest = [...names].sort((a, b) => busy(shares[b]) - busy(shares[a]));
  const shown = names.length <= WORKERS_SHOWN ? names : busiest.slice(0, WORKERS_SHOWN);
  return (
    <Panel
      title={names.length > shown.length ? `The ${shown.length} busiest of ${names.length} workers` : "Workers"}
      aside={<BusyLegend />}
    >
      <table class="table">
        <thead>
          <tr>
            <th>Worker</th>
            <th style={{ width: "45%" }}>Busy</th>
            <th class="number">
              <span class="hidden">Busy, share</span>
            </th>
            <th class="number">Key groups</th>
            <th class="number">State</th>
            <th class="number">Memory</th>
            <th>Status</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((name) => {
            const worker = workers[name];
            return (
              <tr key={name}>
                <td>{name}</td>
                <td style={{ verticalAlign: "middle" }}>
                  <BusyBar worker={name} shares={shares[name]} />
                </td>
                <td class="number">{shares[name] ? percent(busy(shares[name])) : "–"}</td>
                <td class="number">
                  {owners === null ? worker?.key_groups : count(ownedBy(owners, name))}
                </td>
                <td class="number">{worker ? bytes(worker.bytes) : "–"}</td>
                <td class="number">{worker?.resident_bytes ? bytes(worker.resident_bytes) : "–"}</td>
                <td>
                  <StatusPill status={state.at === null ? worker?.status : undefined} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Panel>
  );
}

function ownedBy(owners: { workers: string[]; owners: Uint16Array }, worker: string): number {
  const position = owners.workers.indexOf(worker);
  let found = 0;
  for (const owner of owners.owners) if (owner === position) found += 1;
  return found;
}

export function StatusPill(props: { status: string | undefined }) {
  if (props.status === undefined) return <span class="quiet">–</span>;
  const tones: Record<string, string> = { up: "good", gone: "", starting: "warning" };
  const tone = tones[props.status] ?? "bad";
  return <span class={`pill ${tone}`}>{props.status}</span>;
}
