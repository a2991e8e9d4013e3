/** What to ask for; while it changes, a dry run says what it would do. */
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "../api/client";
import type { Forecast, MoveRequest } from "../api/types";
import { refresh } from "../live/feed";
import { client, mayOperate, type State } from "../live/state";
import { command } from "../model/command";
import { bytes, plural, roughly } from "../model/format";
import { groupsOf } from "../model/groups";
import { Choice, Copy } from "./bits";

type Kind = "rescale" | "rebalance" | "drain" | "move";
const KINDS = [
  ["rescale", "Rescale"],
  ["rebalance", "Rebalance"],
  ["drain", "Drain"],
  ["move", "Move"],
] as const;
const STRATEGIES = [
  "live", "lazy", "drrs", "meces", "order-unaware", "rhino", "megaphone", "replicate", "pause",
  "stop-restart",
];
/** After the last change, before a forecast is asked for. */
const PATIENCE_MS = 180;
const MEGABYTE = 1_000_000;

export function MoveForm(props: { state: State }) {
  const { state } = props;
  const workers = Object.keys(state.status?.workers ?? {});
  const [kind, setKind] = useState<Kind>("rescale");
  const [number, setNumber] = useState(workers.length + 1);
  const [worker, setWorker] = useState(workers[0] ?? "");
  const [groups, setGroups] = useState("");
  const [strategy, setStrategy] = useState("live");
  const [timeout, setTimeout_] = useState("");
  const [rate, setRate] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const request = requestOf({ kind, number, worker, groups, strategy, timeout, rate });
  const forecast = useForecast(request, state.status?.routing_version ?? 0);
  const most = Math.max(8, 2 * workers.length);
  const begin = async () => {
    setSaid(null);
    try {
      const key = crypto.randomUUID();
      const wanted = { ...request, if_routing_version: state.status?.routing_version };
      await client.post("/moves", wanted, { "Idempotency-Key": key });
      refresh();
    } catch (error) {
      setSaid(sentence(error));
    }
  };
  return (
    <div class="stack" style={{ gap: "14px" }}>
      <Choice label="Kind" options={KINDS} value={kind} onChange={setKind} />
      <div class="form">
        {kind === "rescale" && (
          <label class="field">
            <span>
              Workers: <strong>{number}</strong> (now {workers.length})
            </span>
            <input
              type="range"
              min={1}
              max={most}
              value={number}
              aria-label="Workers"
              onInput={(event) => setNumber(Number(event.currentTarget.value))}
            />
          </label>
        )}
        {(kind === "drain" || kind === "move") && (
          <label class="field">
            <span>{kind === "drain" ? "Worker to empty and end" : "New owner"}</span>
            <select class="input" value={worker} onChange={(event) => setWorker(event.currentTarget.value)}>
              {workers.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        {kind === "move" && (
          <label class="field">
            <span>Key groups, as 3, 17, 20-25</span>
            <input class="input" value={groups} onInput={(event) => setGroups(event.currentTarget.value)} />
          </label>
        )}
        <label class="field">
          <span>Strategy</span>
          <select class="input" value={strategy} onChange={(event) => setStrategy(event.currentTarget.value)}>
            {STRATEGIES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>Limit for copies, MB/s</span>
          <input
            class="input"
            inputMode="decimal"
            placeholder="by itself"
            value={rate}
            onInput={(event) => setRate(event.currentTarget.value)}
          />
        </label>
        <label class="field">
          <span>Take it back after, seconds</span>
          <input
            class="input"
            inputMode="numeric"
            placeholder="never"
            value={timeout}
            onInput={(event) => setTimeout_(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="forecast" aria-live="polite" role="status" aria-label="Forecast">
        <Said forecast={forecast} said={said} isAsked={request !== null} />
      </div>
      <div class="actions">
        {mayOperate(state) && (
          <button type="button" class="button first" disabled={!isPossible(forecast)} onClick={() => void begin()}>
            Begin
          </button>
        )}
        {request !== null && <Copy text={command(state.session?.location ?? "LOCATION", request)} />}
        {state.session?.role === "read" && <span class="quiet">This session may only read.</span>}
      </div>
    </div>
  );
}

interface Given {
  kind: Kind;
  number: number;
  worker: string;
  groups: string;
  strategy: string;
  timeout: string;
  rate: string;
}

function requestOf(given: Given): MoveRequest | null {
  const seconds = Number(given.timeout);
  const rate = Math.round(Number(given.rate) * MEGABYTE);
  const base = {
    strategy: given.strategy,
    ...(seconds > 0 ? { timeout_s: seconds, on_timeout: "rollback" as const } : {}),
    ...(rate >= 1 ? { bytes_per_second: rate } : {}),
  };
  if (given.kind === "rescale") return { kind: "rescale", workers: given.number, ...base };
  if (given.kind === "rebalance") return { kind: "rebalance", ...base };
  if (given.kind === "drain") return { kind: "drain", worker: given.worker, ...base };
  const groups = groupsOf(given.groups);
  return groups === null ? null : { kind: "move", key_groups: groups, to: given.worker, ...base };
}

type Outlook = Forecast | { error: string } | null;

/** What a request would do; asked again when it or the owners change. */
function useForecast(request: MoveRequest | null, version: number): Outlook {
  const [outlook, setOutlook] = useState<Outlook>(null);
  const asked = useRef(0);
  const key = JSON.stringify(request);
  useEffect(() => {
    if (request === null) return setOutlook(null);
    const mine = ++asked.current;
    const timer = setTimeout(async () => {
      let found: Outlook;
      try {
        const { timeout_s: _, on_timeout: __, ...wanted } = request;
        found = await client.post<Forecast>("/moves", { ...wanted, dry_run: true });
      } catch (error) {
        found = { error: sentence(error) };
      }
      if (mine === asked.current) setOutlook(found);
    }, PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [key, version]);
  return outlook;
}

function isPossible(outlook: Outlook): boolean {
  return outlook !== null && !("error" in outlook) && !outlook.lack && hasWork(outlook);
}

function hasWork(forecast: Forecast): boolean {
  return forecast.groups > 0 || forecast.workers_before.length !== forecast.workers_after.length;
}

function Said(props: { forecast: Outlook; said: string | null; isAsked: boolean }) {
  const { forecast } = props;
  if (props.said !== null) return <p>{props.said}</p>;
  if (forecast === null) return <p class="quiet">{props.isAsked ? "Asking what it would do …" : "Say what should move."}</p>;
  if ("error" in forecast) return <p>{forecast.error}</p>;
  if (forecast.lack) return <p>Not possible now: {forecast.lack}</p>;
  if (!hasWork(forecast)) return <p>Nothing would move.</p>;
  return (
    <>
      <p class="main-line">
        {plural(forecast.groups, "key group")}, {bytes(forecast.bytes)}, about {roughly(forecast.seconds)}
      </p>
      <p class="second">
        {forecast.workers_before.length} → {plural(forecast.workers_after.length, "worker")}
        {pairs(forecast)}
      </p>
    </>
  );
}

/** Who gives how much to whom, the largest first. */
function pairs(forecast: Forecast): string {
  const found = new Map<string, number>();
  for (const move of forecast.moves) {
    const pair = `${move.source} → ${move.target}`;
    found.set(pair, (found.get(pair) ?? 0) + 1);
  }
  const sorted = [...found].sort((a, b) => b[1] - a[1]);
  const shown = sorted.slice(0, 6).map(([pair, number]) => `${pair}: ${number}`);
  if (sorted.length > 6) shown.push(`and ${sorted.length - 6} more pairs`);
  return shown.length > 0 ? `; ${shown.join(", ")}` : "";
}
