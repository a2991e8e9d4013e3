/** Look a key up; the largest rows. */
import { useState } from "preact/hooks";
import { sentence } from "../api/client";
import type { Found, TopRows } from "../api/types";
import { client, type State, store } from "../live/state";
import { useStore } from "../live/store";
import { keyOf, plain } from "../model/keys";
import { count, plural, short } from "../model/format";
import { Panel } from "../parts/bits";

const TOP = 20;

export function StatePage() {
  const state = useStore(store, (s: State) => s);
  const operators = Object.keys(state.status?.operators ?? {});
  const [chosen, setOperator] = useState<string | null>(null);
  const [variable, setVariable] = useState("");
  const operator = chosen ?? operators[0] ?? null;
  if (operator === null) {
    return (
      <div class="stack">
        <h1>State</h1>
        <p class="empty">No operator has state yet. It appears with the first batch.</p>
      </div>
    );
  }
  const path = `/operators/${encodeURIComponent(operator)}`;
  return (
    <div class="stack">
      <div class="title">
        <h1>State</h1>
        <div class="actions">
          <label class="actions">
            <span class="second">Operator</span>
            <select class="input" value={operator} onChange={(event) => setOperator(event.currentTarget.value)}>
              {operators.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <label class="actions">
            <span class="second">Variable</span>
            <input
              class="input"
              placeholder="the only one"
              value={variable}
              onInput={(event) => setVariable(event.currentTarget.value)}
            />
          </label>
        </div>
      </div>
      <LookUp key={`${operator} ${variable}`} path={path} variable={variable || undefined} />
      <Largest key={`top ${operator} ${variable}`} path={path} variable={variable || undefined} />
    </div>
  );
}

interface Asking {
  path: string;
  variable: string | undefined;
}

function LookUp(props: Asking) {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Found | null>(null);
  const [said, setSaid] = useState<string | null>(null);
  const ask = async (event: Event) => {
    event.preventDefault();
    setSaid(null);
    try {
      const key = JSON.stringify(keyOf(text));
      setFound(await client.get<Found>(`${props.path}/state`, { key, variable: props.variable }));
    } catch (error) {
      setFound(null);
      setSaid(sentence(error));
    }
  };
  return (
    <Panel title="Look a key up">
      <form class="actions" onSubmit={(event) => void ask(event)}>
        <label class="hidden" for="key">Key</label>
        <input
          class="input mono"
          id="key"
          style={{ width: "min(420px, 100%)" }}
          placeholder='42, berlin, or [42, "berlin"] for several columns'
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="button first" disabled={text.trim() === ""}>
          Look up
        </button>
      </form>
      <div role="status" aria-label="Found" style={{ marginTop: "12px" }}>
        {said !== null && <p>{said}</p>}
        {found !== null && <Row found={found} />}
      </div>
    </Panel>
  );
}

function Row(props: { found: Found }) {
  const { found } = props;
  if (found.value === null) {
    return <p>This key has no state as of batch {found.epoch ?? "none"}.</p>;
  }
  return (
    <div class="stack" style={{ gap: "10px" }}>
      <dl class="kv">
        <dt>Key group</dt>
        <dd>{found.key_group ?? "–"}</dd>
        <dt>Owner</dt>
        <dd>{found.owner ?? "–"}</dd>
        <dt>As of batch</dt>
        <dd>{found.epoch ?? "–"}</dd>
      </dl>
      <pre class="pre" tabIndex={0}>{JSON.stringify(plain(found.value), null, 2)}</pre>
    </div>
  );
}

function Largest(props: Asking) {
  const [top, setTop] = useState<TopRows | null>(null);
  const [by, setBy] = useState<string | undefined>(undefined);
  const [said, setSaid] = useState<string | null>(null);
  const [isAsking, setAsking] = useState(false);
  const ask = async (column: string | undefined) => {
    setAsking(true);
    setSaid(null);
    try {
      const query = { limit: TOP, by: column, variable: props.variable };
      const found = await client.get<TopRows>(`${props.path}/top`, query);
      setTop(found);
      setBy(found.by ?? undefined);
    } catch (error) {
      setSaid(sentence(error));
    } finally {
      setAsking(false);
    }
  };
  const columns = top?.columns ?? [];
  return (
    <Panel
      title={`The ${TOP} largest rows`}
      aside={
        <div class="actions">
          {columns.length > 1 && (
            <label class="actions">
              <span class="second">by</span>
              <select class="input" value={by} onChange={(event) => void ask(event.currentTarget.value)}>
                {columns.map((column) => (
                  <option key={column}>{column}</option>
                ))}
              </select>
            </label>
          )}
          <button type="button" class="button" disabled={isAsking} onClick={() => void ask(by)}>
            {isAsking ? "Reading …" : top === null ? "Read" : "Read again"}
          </button>
        </div>
      }
    >
      {said !== null && <p role="status">{said}</p>}
      {top === null ? (
        <p class="empty">
          Reads the committed state of all keys from the location, for eight seconds at most, in the driver. Nothing
          is read until you ask.
        </p>
      ) : (
        <TopTable top={top} />
      )}
    </Panel>
  );
}

function TopTable(props: { top: TopRows }) {
  const { top } = props;
  if (top.rows.length === 0) return <p class="empty">There are no rows.</p>;
  const names = Object.keys(top.rows[0] ?? {});
  const isNumber = (name: string) => top.columns.includes(name) || name === "key_group";
  return (
    <>
      <p class="second" style={{ marginBottom: "6px" }}>
        As of batch {top.epoch}, of {plural(top.rows_read, "row")}
        {top.is_complete ? "" : ": there was no time to read them all"}.
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Largest rows">
        <table class="table">
          <thead>
            <tr>
              {names.map((name) => (
                <th key={name} class={isNumber(name) ? "number" : undefined}>
                  {name === "key_group" ? "key group" : name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {top.rows.map((row, at) => (
              <tr key={at}>
                {names.map((name) => (
                  <td key={name} class={isNumber(name) ? "number" : "mono"}>
                    {shown(row[name], top.columns.includes(name))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function shown(value: unknown, isNumber: boolean): string {
  if (typeof value === "number") {
    if (!isNumber) return String(value);
    return Number.isInteger(value) ? count(value) : short(value);
  }
  if (value !== null && typeof value === "object") {
    return Object.values(value).map((part) => String(part)).join(", ");
  }
  return String(value);
}
