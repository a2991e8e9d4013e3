/** The strip at the bottom: goes back in time; everything above shows that moment. */
import { useEffect, useRef, useState } from "preact/hooks";
import { store, present } from "../live/state";
import { useStore } from "../live/store";
import { isStill, useTheme } from "../live/theme";
import { clock } from "../model/format";
import { latency } from "../model/series";
import type { Tape } from "../model/tape";

const STEPS = 1000;
const PLAY_SECONDS = 20;
/** A replay of everything takes so long. */

export function Scrubber() {
  const state = useStore(store, (s) => s);
  const [isPlaying, setPlaying] = useState(false);
  const end = present(state);
  const [first] = state.tape.span;
  const from = Math.min(first, end - 1);
  const isStored = state.connection === "stored";
  const at = state.at ?? end;
  const go = (time: number) => store.set({ at: time >= end && !isStored ? null : Math.min(time, end) });
  usePlaying(isPlaying, from, end, setPlaying);
  const play = () => {
    if (!isPlaying && (state.at === null || state.at >= end - 1)) store.set({ at: from });
    setPlaying(!isPlaying);
  };
  const step = (end - from) / STEPS;
  return (
    <div class="scrub" role="group" aria-label="Replay">
      <button type="button" class="button small" onClick={play}>
        {isPlaying ? "Pause" : "Replay"}
      </button>
      <div class="track">
        <Strip tape={state.tape} revision={state.tapeRevision} from={from} to={end} at={at} />
        <input
          type="range"
          min={0}
          max={STEPS}
          step={1}
          value={Math.round((at - from) / step)}
          aria-label="Moment"
          aria-valuetext={state.at === null ? "now" : clock(at)}
          onInput={(event) => {
            setPlaying(false);
            go(from + Number(event.currentTarget.value) * step);
          }}
        />
      </div>
      <div class="when">
        {state.at === null ? (
          <span>now</span>
        ) : (
          <>
            <span class="mono">{clock(at)}</span>{" "}
            {!isStored && (
              <button
                type="button"
                class="button small"
                onClick={() => {
                  setPlaying(false);
                  store.set({ at: null });
                }}
              >
                Back to now
              </button>
            )}
          </>
        )}
      </div>
    </div>
  );
}

function usePlaying(
  isPlaying: boolean,
  from: number,
  end: number,
  stop: (isPlaying: boolean) => void,
): void {
  useEffect(() => {
    if (!isPlaying) return;
    let last = performance.now();
    let frame = 0;
    const advance = (now: number) => {
      const pace = (end - from) / PLAY_SECONDS;
      // Who wants less motion sees a picture a second.
      if (!isStill() || now - last >= 1000) {
        const next = (store.get().at ?? from) + (pace * (now - last)) / 1000;
        last = now;
        store.set({ at: Math.min(next, end) });
        if (next >= end) return stop(false);
      }
      frame = requestAnimationFrame(advance);
    };
    frame = requestAnimationFrame(advance);
    return () => cancelAnimationFrame(frame);
  }, [isPlaying]);
}

/** Latency as a silhouette, moves shaded, deaths as ticks. */
function Strip(props: { tape: Tape; revision: number; from: number; to: number; at: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    const scale = devicePixelRatio || 1;
    const width = (element.width = Math.max(1, Math.round(element.clientWidth * scale)));
    const height = (element.height = Math.round(22 * scale));
    const pen = element.getContext("2d") as CanvasRenderingContext2D;
    const colour = (name: string) => getComputedStyle(element).getPropertyValue(name);
    const x = (time: number) => ((time - props.from) / (props.to - props.from)) * width;
    pen.fillStyle = colour("--shade");
    for (const move of props.tape.moves) {
      pen.fillRect(x(move.started), 0, Math.max(2, x(move.ended ?? props.to) - x(move.started)), height);
    }
    const span = { from: props.from, to: props.to };
    const [times, values] = latency(props.tape.batches, span, Math.min(400, width));
    const most = values.reduce<number>((top, value) => Math.max(top, value ?? 0), 0);
    pen.fillStyle = colour("--line-strong");
    times.forEach((time, index) => {
      const tall = (Math.sqrt((values[index] ?? 0) / (most || 1)) * height * 0.9) | 0;
      pen.fillRect(x(time) - scale, height - tall, 2 * scale, tall);
    });
    pen.fillStyle = colour("--bad");
    for (const mark of props.tape.marks) {
      if (mark.kind === "worker-ended" || mark.kind === "batch-failed") {
        pen.fillRect(x(mark.time) - scale, 0, 2 * scale, height);
      }
    }
  }, [props.tape, theme, Math.round(props.to), Math.floor(props.revision / 5)]);
  return <canvas ref={canvas} aria-hidden="true" />;
}
