/** Ask for a reconfiguration, watch the running one, look back at others. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { sentence } from "../api/client";
import type { Move, TapeMove } from "../api/types";
import { refresh } from "../live/feed";
import { client, mayOperate, type State, store } from "../live/state";
import { useStore } from "../live/store";
import { bytes, clock, count, percent, plural, seconds } from "../model/format";
import { Outcome, Panel } from "../parts/bits";
import { MoveForm } from "../parts/move_form";

const WORDS = { planned: "Planned", copied: "Copied", flipped: "Flipped", settled: "Settled" };

export function Moves() {
  const state = useStore(store, (s: State) => s);
  const running = state.moves.filter((move) => !move.is_done);
  const past = useMemo(() => history(state.tape.moves, state.at), [state.tapeRevision, state.tape, state.at]);
  return (
    <div class="stack">
      <h1>Reconfigurations</h1>
      {running.map((move) => (
        <Running key={move.number} move={move} state={state} />
      ))}
      {state.connection !== "stored" && (
        <Panel title="New reconfiguration">
          <MoveForm state={state} />
        </Panel>
      )}
      <History moves={past} />
    </div>
  );
}

function history(moves: readonly TapeMove[], at: number | null): TapeMove[] {
  return moves.filter((move) => move.ended !== null && (at === null || move.started <= at)).reverse();
}

function Running(props: { move: Move; state: State }) {
  const { move, state } = props;
  const [workers, setWorkers] = useState(move.workers_after.length);
  const [said, setSaid] = useState<string | null>(null);
  const rate = useRate(move);
  useEffect(() => setWorkers(move.workers_after.length), [move.number]);
  const tell = async (path: string, body: object = {}) => {
    try {
      await client.post(`/moves/${move.number}/${path}`, body);
      refresh();
    } catch (error) {
      setSaid(sentence(error));
    }
  };
  const moving = state.ownership?.moving ?? [];
  const phases = (["planned", "copied", "flipped", "settled"] as const).map(
    (phase) => [phase, moving.filter((each) => each.phase === phase).length] as const,
  );
  return (
    <Panel
      title={`Running: ${move.strategy}, ${move.workers_before.length} → ${plural(move.workers_after.length, "worker")}`}
      aside={<span class="second">asked by {move.cause}, {seconds(move.seconds)} ago</span>}
    >
      <div class="stack" style={{ gap: "12px" }}>
        <div>
          <div
            class="progress"
            role="progressbar"
            aria-label="Progress"
            aria-valuenow={Math.round(100 * move.progress)}
            aria-valuemin={0}
            aria-valuemax={100}
          >
            <i style={{ width: `${100 * move.progress}%` }} />
          </div>
        </div>
        <dl class="figures">
          <Fact name="Progress" value={percent(move.progress)} />
          {phases.map(([phase, number]) => (
            <Fact key={phase} name={WORDS[phase]} value={count(number)} />
          ))}
          <Fact name="Sent" value={bytes(move.bytes)} note={rate === null ? "" : `${bytes(rate)}/s`} />
          <Fact name="Longest pause" value={seconds(move.pause_seconds)} />
        </dl>
        <Pauses move={move} />
        {mayOperate(state) && (
          <div class="actions">
            <button type="button" class="button" onClick={() => void tell("cancel")}>
              Cancel
            </button>
            <label class="actions">
              <span class="second">Go to</span>
              <input
                class="input"
                type="number"
                min={1}
                value={workers}
                style={{ width: "76px" }}
                onInput={(event) => setWorkers(Number(event.currentTarget.value))}
              />
              <span class="second">workers instead</span>
            </label>
            <button
              type="button"
              class="button"
              disabled={!(workers >= 1) || workers === move.workers_after.length}
              onClick={() => void tell("retarget", { workers })}
            >
              Retarget
            </button>
            {said !== null && <span role="status">{said}</span>}
          </div>
        )}
      </div>
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

/** Bytes a second since the last look. */
function useRate(move: Move): number | null {
  const [rate, setRate] = useState<number | null>(null);
  const [seen, setSeen] = useState({ seconds: move.seconds, bytes: move.bytes });
  useEffect(() => {
    const elapsed = move.seconds - seen.seconds;
    if (elapsed < 0.8) return;
    setRate(Math.max(0, move.bytes - seen.bytes) / elapsed);
    setSeen({ seconds: move.seconds, bytes: move.bytes });
  }, [move]);
  return rate;
}

/** How long each batch of a move waited for its state, beside what it took. */
function Pauses(props: { move: Move }) {
  const batches = props.move.batches.slice(-48);
  if (batches.length === 0) return <p class="quiet">No batch has ended since it began.</p>;
  const most = Math.max(...batches.map((batch) => batch.seconds ?? 0), 0.001);
  const longest = Math.max(...batches.map((batch) => batch.load_ms / 1000));
  const label = `Of ${batches.length} batches the one that waited longest waited ${seconds(longest)}`;
  return (
    <div>
      <p class="second" style={{ marginBottom: "4px" }}>
        Each batch meanwhile: what it took, and of it the pause
      </p>
      <div role="img" aria-label={label} style={{ display: "flex", gap: "3px", alignItems: "flex-end", height: "56px" }}>
        {batches.map((batch) => (
          <div
            key={`${batch.operator}${batch.epoch}`}
            title={`${batch.operator} ${batch.epoch}: ${seconds(batch.seconds ?? 0)}, paused ${seconds(batch.load_ms / 1000)}`}
            style={{
              width: "14px",
              height: `${(100 * (batch.seconds ?? 0)) / most}%`,
              minHeight: "2px",
              background: "var(--tasks)",
              borderRadius: "2px",
              display: "flex",
              alignItems: "flex-end",
              overflow: "hidden",
            }}
          >
            <i
              style={{
                display: "block",
                width: "100%",
                height: `${(100 * batch.load_ms) / 1000 / (batch.seconds || 1)}%`,
                background: "var(--load)",
              }}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

function History(props: { moves: TapeMove[] }) {
  return (
    <Panel title="History">
      {props.moves.length === 0 ? (
        <p class="empty">None in this time.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="History of reconfigurations">
          <table class="table">
            <thead>
              <tr>
                <th>Began</th>
                <th>Asked by</th>
                <th>Strategy</th>
                <th>Workers</th>
                <th>Outcome</th>
                <th class="number">Key groups</th>
                <th class="number">Bytes</th>
                <th class="number">Took</th>
                <th class="number">Longest pause</th>
              </tr>
            </thead>
            <tbody>
              {props.moves.map((move) => (
                <tr key={`${move.number} ${move.started}`}>
                  <td class="mono">{clock(move.started)}</td>
                  <td>{move.cause}</td>
                  <td>{move.strategy}</td>
                  <td>
                    {move.workers_before.length} → {move.workers_after.length}
                  </td>
                  <td>
                    <Outcome outcome={move.outcome ?? "running"} />
                  </td>
                  <td class="number">{count(move.groups ?? 0)}</td>
                  <td class="number">{bytes(move.bytes ?? 0)}</td>
                  <td class="number">{seconds(move.seconds ?? 0)}</td>
                  <td class="number">{seconds(move.pause_seconds ?? 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
