/** What could be restored just now: epochs, files, savepoints. */
import { useEffect, useState } from "preact/hooks";
import { sentence } from "../api/client";
import type { Recovery, Savepoint } from "../api/types";
import { client, mayOperate, type State, store } from "../live/state";
import { useStore } from "../live/store";
import { ago, bytes, clock, percent, plural } from "../model/format";
import { Copy, Panel } from "../parts/bits";

const EVERY_MS = 4000;

export function RecoveryPage() {
  const state = useStore(store, (s: State) => s);
  const [operators, setOperators] = useState<Recovery[] | null>(null);
  const [savepoints, setSavepoints] = useState<Savepoint[]>([]);
  const [trouble, setTrouble] = useState<string | null>(null);
  const look = async () => {
    try {
      const [found, kept] = await Promise.all([
        client.get<Recovery[]>("/recovery"),
        client.get<Savepoint[]>("/savepoints"),
      ]);
      setOperators(found);
      setSavepoints(kept);
      setTrouble(null);
    } catch (error) {
      setTrouble(sentence(error));
    }
  };
  useEffect(() => {
    void look();
    const timer = setInterval(() => !document.hidden && void look(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="stack">
      <h1>Recovery</h1>
      {trouble !== null && <div class="banner bad" role="alert">{trouble}</div>}
      {operators?.length === 0 && <p class="empty">Nothing is stored yet.</p>}
      {operators?.map((operator) => (
        <OperatorPanel key={operator.operator} operator={operator} now={Date.now() / 1000} />
      ))}
      <Savepoints state={state} savepoints={savepoints} onMade={() => void look()} />
    </div>
  );
}

function OperatorPanel(props: { operator: Recovery; now: number }) {
  const { operator } = props;
  const { epochs, committed_at: committed, snapshots, changelogs } = operator;
  const first = epochs[0];
  const last = epochs.at(-1);
  return (
    <Panel title={operator.operator}>
      <dl class="figures">
        <Fact
          name="Last manifest"
          value={committed === undefined ? "–" : ago(committed, props.now)}
          note={committed === undefined ? "" : clock(committed)}
        />
        <Fact
          name="Batches kept"
          value={String(epochs.length)}
          note={first === undefined ? "" : `${first} to ${last}`}
        />
        <Fact
          name="Snapshots"
          value={snapshots ? bytes(snapshots.bytes) : "–"}
          note={snapshots ? plural(snapshots.files, "file") : ""}
        />
        <Fact
          name="Changelogs since"
          value={changelogs ? bytes(changelogs.bytes) : "–"}
          note={changelogs ? plural(changelogs.files, "file") : ""}
        />
        <Fact name="In memory" value={operator.in_memory === null ? "–" : percent(operator.in_memory)} />
        <Fact
          name="Rows found in memory"
          value={operator.hit_rate === null ? "–" : percent(operator.hit_rate)}
        />
      </dl>
      <p class="quiet" style={{ marginTop: "10px" }}>
        {last === undefined
          ? "No batch can be restored yet."
          : `After a crash the query continues behind batch ${last}. A restart can also go back as far as ${first}.`}
      </p>
    </Panel>
  );
}

function Fact(props: { name: string; value: string; note?: string }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        {props.value} {props.note && <small>{props.note}</small>}
      </dd>
    </div>
  );
}

function Savepoints(props: { state: State; savepoints: Savepoint[]; onMade: () => void }) {
  const [name, setName] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const [isMaking, setMaking] = useState(false);
  const make = async (event: Event) => {
    event.preventDefault();
    setMaking(true);
    setSaid(null);
    try {
      const made = await client.post<Savepoint>("/savepoints", { name });
      setSaid(`${made.name} exists: ${bytes(made.bytes)}.`);
      setName("");
      props.onMade();
    } catch (error) {
      setSaid(sentence(error));
    } finally {
      setMaking(false);
    }
  };
  return (
    <Panel title="Savepoints">
      {mayOperate(props.state) && (
        <form class="actions" onSubmit={(event) => void make(event)}>
          <label class="hidden" for="savepoint">Name of the savepoint</label>
          <input
            class="input"
            id="savepoint"
            placeholder="name, such as before-upgrade"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button type="submit" class="button" disabled={isMaking || name.trim() === ""}>
            {isMaking ? "Saving …" : "Make a savepoint"}
          </button>
        </form>
      )}
      {said !== null && <p role="status" style={{ marginTop: "8px" }}>{said}</p>}
      {props.savepoints.length === 0 ? (
        <p class="empty">None. A savepoint stays until somebody deletes it, whatever the query does.</p>
      ) : (
        <table class="table" style={{ marginTop: "8px" }}>
          <thead>
            <tr>
              <th>Name</th>
              <th>Made</th>
              <th>As of</th>
              <th class="number">Size</th>
              <th>Start from it</th>
            </tr>
          </thead>
          <tbody>
            {props.savepoints.map((savepoint) => (
              <tr key={savepoint.path}>
                <td>{savepoint.name}</td>
                <td class="mono">{clock(savepoint.created_at / 1000)}</td>
                <td>
                  {Object.entries(savepoint.epochs)
                    .map(([operator, epoch]) => `${operator}: batch ${epoch}`)
                    .join(", ")}
                </td>
                <td class="number">{bytes(savepoint.bytes)}</td>
                <td>
                  <Copy text={`restore="${savepoint.path}"`} label="Copy restore=" />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
