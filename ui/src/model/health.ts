/** One line that says how the service is. */
import type { Finding, Status } from "../api/types";
import { ago, plural, seconds } from "./format";
import type { Summary } from "./series";

export type Tone = "good" | "warning" | "bad" | "quiet";

export interface Health {
  tone: Tone;
  word: string;
  line: string;
}

export function health(
  status: Status,
  findings: readonly Finding[],
  recent: Summary | null,
  lastCommit: number | null,
  now: number,
): Health {
  const workers = Object.values(status.workers);
  const up = workers.filter((worker) => worker.status === "up").length;
  const parts = [up === workers.length ? plural(up, "worker") : `${up} of ${workers.length} workers`];
  if (recent !== null) parts.push(`batches of ${seconds(recent.median)}`);
  if (lastCommit !== null) parts.push(`last commit ${ago(lastCommit, now)}`);
  else parts.push("no batch yet");
  const worst = findings[0]?.severity;
  const line = parts.join(", ");
  const isStarting = workers.every((worker) => worker.status === "up" || worker.status === "starting");
  if (up < workers.length && isStarting && worst !== "bad") {
    return { tone: "warning", word: "Workers start", line };
  }
  if (up < workers.length || worst === "bad") return { tone: "bad", word: "Needs you", line };
  if (status.reconfiguration !== null) return { tone: "good", word: "Moving", line };
  if (worst === "warning") return { tone: "warning", word: "Worth a look", line };
  return { tone: lastCommit === null ? "quiet" : "good", word: "Healthy", line };
}
