/** The frame around all pages: where one is, how the service is, and a way back in time. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type State, store } from "./live/state";
import { useStore } from "./live/store";
import { choose, useTheme } from "./live/theme";
import { clock, percent } from "./model/format";
import { Events } from "./pages/events";
import { Moves } from "./pages/moves";
import { Overview } from "./pages/overview";
import { RecoveryPage } from "./pages/recovery";
import { StatePage } from "./pages/state";
import { Timeline } from "./pages/timeline";
import { Workers } from "./pages/workers";
import { Scrubber } from "./parts/scrubber";

const PAGES: [string, string, ComponentType][] = [
  ["overview", "Overview", Overview],
  ["workers", "Workers and key groups", Workers],
  ["timeline", "Timeline", Timeline],
  ["moves", "Reconfigurations", Moves],
  ["state", "State", StatePage],
  ["recovery", "Recovery", RecoveryPage],
  ["events", "Events", Events],
];

function usePage(): string {
  const read = () => location.hash.replace(/^#\//, "") || "overview";
  const [page, setPage] = useState(read);
  useEffect(() => {
    const follow = () => setPage(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return page;
}

export function App() {
  const name = usePage();
  const connection = useStore(store, (s) => s.connection);
  const isKnown = useStore(store, (s) => s.status !== null);
  const [, title, Page] = PAGES.find(([each]) => each === name) ?? (PAGES[0] as (typeof PAGES)[0]);
  useEffect(() => {
    document.title = `${title} · Anabranch`;
  }, [title]);
  if (connection === "refused") return <Refused />;
  return (
    <div class="frame">
      <Side current={name} />
      <main class="main" aria-label={title} tabIndex={-1}>
        <Banner />
        {isKnown ? <Page /> : <p class="empty">Looking …</p>}
      </main>
      <footer class="foot">{isKnown && <Scrubber />}</footer>
    </div>
  );
}

function Side(props: { current: string }) {
  const session = useStore(store, (s) => s.session);
  const moving = useStore(store, (s) => s.status?.reconfiguration?.progress ?? null);
  const theme = useTheme();
  return (
    <header class="side">
      <div class="brand">
        <Mark />
        Anabranch
      </div>
      <nav class="nav" aria-label="Pages">
        {PAGES.map(([name, title]) => (
          <a key={name} href={`#/${name}`} aria-current={name === props.current ? "page" : undefined}>
            {title}
            {name === "moves" && moving !== null && <span class="tag">{percent(moving)}</span>}
          </a>
        ))}
      </nav>
      <div class="about">
        <div class="where">{session?.location}</div>
        <div>{session && `Version ${session.version}, may ${session.role}`}</div>
        <button
          type="button"
          class="button small bare"
          onClick={() => choose(theme === "dark" ? "light" : "dark")}
        >
          {theme === "dark" ? "Light colours" : "Dark colours"}
        </button>
      </div>
    </header>
  );
}

function Banner() {
  const state = useStore(store, (s: State) => s);
  if (state.connection === "lost") {
    return (
      <div class="banner bad" role="alert">
        {state.trouble} What you see is old; the page tries again. Has the driver ended?
        <code> anabranch ui {state.session?.location}</code> replays its journal.
      </div>
    );
  }
  if (state.connection === "stored") {
    const alive = state.tape.aliveAt;
    return (
      <div class="banner plain">
        No service runs here. This is its journal
        {alive !== null && <>; it lived until {clock(alive)} at least</>}.
        {state.tape.damaged.length > 0 && ` ${state.tape.damaged.length} damaged segments were left out.`}
      </div>
    );
  }
  return null;
}

function Refused() {
  return (
    <div class="main">
      <h1>This page needs a link</h1>
      <p class="empty">
        Sessions end after twelve hours and with their service. Ask for a new link, which works once:{" "}
        <code>anabranch ui LOCATION</code>, or <code>service.url</code> in the program.
      </p>
    </div>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0f5e6b" />
      <path
        d="M16 3v6c0 3-7 4-7 8s7 5 7 8v4M16 9c0 3 7 4 7 8s-7 5-7 8"
        fill="none"
        stroke="#eaf6f4"
        stroke-width="3"
        stroke-linecap="round"
      />
    </svg>
  );
}
