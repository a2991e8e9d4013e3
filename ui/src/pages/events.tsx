/** What has happened, the newest first. */
import { useMemo, useState } from "preact/hooks";
import { type State, store } from "../live/state";
import { useStore } from "../live/store";
import { type Event, eventsOf, GROUPS, type Group } from "../model/events";
import { clock, plural } from "../model/format";
import { Choice, Panel } from "../parts/bits";
import { VirtualRows } from "../parts/virtual";

const TONES: Record<Event["tone"], string> = {
  bad: "bad", warning: "warning", good: "good", plain: "", accent: "accent",
};

export function Events() {
  const state = useStore(store, (s: State) => s);
  const [group, setGroup] = useState<Group>("all");
  const [text, setText] = useState("");
  const all = useMemo(() => eventsOf(state.tape), [state.tape, state.tapeRevision]);
  const wanted = text.trim().toLowerCase();
  const shown = all.filter(
    (event) =>
      (state.at === null || event.time <= state.at) &&
      (group === "all" || event.group === group) &&
      (wanted === "" || `${event.about} ${event.text}`.toLowerCase().includes(wanted)),
  );
  return (
    <div class="stack">
      <div class="title">
        <h1>Events</h1>
        <div class="actions">
          <label class="hidden" for="filter">Filter</label>
          <input
            class="input"
            id="filter"
            placeholder="worker, operator or text"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <Choice label="Kinds" options={GROUPS} value={group} onChange={setGroup} />
        </div>
      </div>
      <Panel flush title={plural(shown.length, "event")}>
        {shown.length === 0 ? (
          <p class="empty" style={{ padding: "10px 16px 14px" }}>
            Nothing of this kind. Single batches are in the <a href="#/timeline">timeline</a>.
          </p>
        ) : (
          <VirtualRows
            label="Events"
            length={shown.length}
            rowHeight={32}
            height={560}
            columns="150px 150px 90px minmax(200px,1fr)"
            columnCount={4}
            head={
              <>
                <span role="columnheader">Time</span>
                <span role="columnheader">What</span>
                <span role="columnheader">About</span>
                <span role="columnheader">Details</span>
              </>
            }
            row={(at) => {
              const event = shown[at] as Event;
              return (
                <>
                  <span role="cell" class="mono">{clock(event.time)}</span>
                  <span role="cell">
                    <span class={`pill ${TONES[event.tone]}`}>{event.what}</span>
                  </span>
                  <span role="cell">{event.about}</span>
                  <span role="cell" class="second" title={event.text}>{event.text}</span>
                </>
              );
            }}
          />
        )}
      </Panel>
    </div>
  );
}
