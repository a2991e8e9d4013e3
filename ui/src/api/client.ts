/** Calls of the server's API, with the session's cookie. */
import type { Session } from "./types";

/** An answer that is an error: the server's sentence says what to do. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    detail: string,
  ) {
    super(detail);
  }
}

type Query = Record<string, string | number | undefined>;

export class Client {
  private csrf: string | null = null;

  async open(): Promise<Session> {
    const session = await this.get<Session>("/session");
    this.csrf = session.csrf;
    return session;
  }

  get<T>(path: string, query: Query = {}): Promise<T> {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) asked.set(name, String(value));
    }
    const text = asked.toString();
    return this.call<T>("GET", text ? `${path}?${text}` : path);
  }

  post<T>(path: string, body: object = {}, headers: Record<string, string> = {}): Promise<T> {
    return this.call<T>("POST", path, body, headers);
  }

  private async call<T>(
    method: string,
    path: string,
    body?: object,
    more: Record<string, string> = {},
  ): Promise<T> {
    const headers: Record<string, string> = { "X-Anabranch-Cause": "page", ...more };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (body !== undefined && this.csrf !== null) headers["X-CSRF-Token"] = this.csrf;
    let answer: Response;
    try {
      answer = await fetch(`/api/v1${path}`, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(60_000),
      });
    } catch {
      throw new Problem(0, "no answer", "The service does not answer.");
    }
    if (answer.ok) return (await answer.json()) as T;
    throw await problemOf(answer);
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  try {
    const said = (await answer.json()) as { title: string; detail: string };
    return new Problem(answer.status, said.title, said.detail);
  } catch {
    return new Problem(answer.status, answer.statusText, `The server answered ${answer.status}.`);
  }
}

/** The sentence of whatever went wrong. */
export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
