/** Requests as commands of the command line. */
import type { MoveRequest } from "../api/types";

export function command(location: string, request: MoveRequest): string {
  const parts: string[] = ["anabranch", request.kind, quoted(location)];
  if (request.workers !== undefined) parts.push(String(request.workers));
  if (request.worker !== undefined) parts.push(request.worker);
  if (request.key_groups !== undefined) parts.push(request.key_groups.join(" "));
  if (request.to !== undefined) parts.push(`--to ${request.to}`);
  if (request.strategy !== undefined && request.strategy !== "live") {
    parts.push(`--strategy ${request.strategy}`);
  }
  if (request.bytes_per_second !== undefined) {
    parts.push(`--bytes-per-second ${request.bytes_per_second}`);
  }
  if (request.timeout_s !== undefined) parts.push(`--timeout ${request.timeout_s}s`);
  parts.push("--wait", "--yes");
  return parts.join(" ");
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}
