// The server's own API, and what can go wrong on the way.

const ROOT = new URL("api/v1/", document.baseURI);
const LONGEST = 30_000; // milliseconds that an answer may take
const TOKEN = "longtail.token";

let token = "";
try {
  token = sessionStorage.getItem(TOKEN) ?? "";
} catch {
  // A browser that keeps nothing asks again after a reload.
}

export function setToken(value) {
  token = value;
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    // See above.
  }
}

/**
 * What went wrong.
 * kind: "unreachable" | "busy" | "broken", which pass, so that asking again helps; "token"; "missing"; "refused", which
 * does not.  wait: seconds that the server asks for.
 */
export class Problem extends Error {
  constructor(kind, message, wait = null) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }

  get passes() {
    return ["unreachable", "busy", "broken"].includes(this.kind);
  }
}

export const address = (path) => new URL(path, ROOT).href;
export const modelPath = (name, rest = "") => `models/${encodeURIComponent(name)}${rest}`;

/** The answer as an object; a Problem where there is none. An AbortError passes through. */
export async function ask(path, { body, signal } = {}) {
  const timer = new AbortController();
  const timeout = setTimeout(() => timer.abort(), LONGEST);
  const stop = () => timer.abort();
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  try {
    const answer = await fetch(address(path), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: timer.signal,
      cache: "no-store",
    });
    if (answer.ok) return await answer.json();
    throw await problemOf(answer);
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw new Problem("unreachable", timer.signal.aborted ? "The server takes too long." : "The server does not answer.");
  } finally {
    clearTimeout(timeout);
    signal?.removeEventListener("abort", stop);
  }
}

async function problemOf(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // No JSON: the status says enough.
  }
  const message = String(said?.detail || said?.title || `The server says ${answer.status}.`);
  const wait = Number.parseFloat(answer.headers.get("Retry-After"));
  const kind =
    { 401: "token", 403: "token", 404: "missing", 429: "busy", 502: "unreachable", 503: "busy", 504: "unreachable" }[
      answer.status
    ] ?? (answer.status >= 500 ? "broken" : "refused");
  return Object.assign(new Problem(kind, message, Number.isFinite(wait) ? wait : null), { status: answer.status });
}

/** How long to wait before trying again for the nth time (from 0): what the server asks for, else more each time. */
export const patience = (problem, tries) => Math.min(60, problem.wait ?? Math.min(8, 2 ** tries));
