// The public API: requests, and the stream of events. The token is kept for this tab alone and travels in a header only.

const BASE = new URL("..", document.baseURI); // a proxy may put a path before it
const SILENCE_MS = 40_000; // a heartbeat comes every 15 s
const RETRY_MS = 2000; // unmeasured
let token = sessionStorage.getItem("token") ?? "";
let onUnauthorized = () => {};

export const hasToken = () => token !== "";
export const whenUnauthorized = (listener) => (onUnauthorized = listener);

export function setToken(given) {
  token = given;
  if (given) sessionStorage.setItem("token", given);
  else sessionStorage.removeItem("token");
}

/** A response that is no success; the status is 0 where no server answered. */
class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function request(method, path, { body, headers = {}, signal } = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const options = { method, headers, signal, cache: "no-store", redirect: "error", body: body && JSON.stringify(body) };
  const response = await fetch(new URL(path, BASE), options).catch(() => null);
  if (!response) throw new Problem(0, "");
  if (response.ok) return response;
  const { title, detail, errors = [] } = await response.json().catch(() => ({}));
  if (response.status === 401) onUnauthorized();
  const faults = errors.map((each) => `${each.pointer}: ${each.detail}`);
  throw new Problem(response.status, [title ?? response.status, detail, ...faults].filter(Boolean).join(" – "));
}

export const get = async (path, signal) => (await request("GET", path, { signal })).json();
export const send = async (method, path, body) => (await request(method, path, { body })).json();
export const text = async (path, signal) => (await request("GET", path, { signal })).text();
/** What a response has, as an address that an audio element or a download takes. */
export const blobUrl = async (method, path, body) =>
  URL.createObjectURL(await (await request(method, path, { body })).blob());
export const callPath = (id, action = "") => `v1/calls/${encodeURIComponent(id)}${action}`;

/** The calls that a query asks for; `server_s` is what time it is at the server. */
export async function readCalls(query, signal) {
  const wanted = `?${new URLSearchParams(query)}`;
  const response = await request("GET", `v1/calls${wanted === "?" ? "" : wanted}`, { signal });
  return { ...(await response.json()), server_s: Date.parse(response.headers.get("Date")) / 1000 };
}

/** Read server-sent events to the end of the stream; `awake` is told of each part that comes. */
async function readEvents(stream, position, onEvent, awake) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    awake();
    const blocks = (rest + part.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const valueOf = (name) => block.split("\n").find((line) => line.startsWith(name))?.slice(name.length);
      position.id = valueOf("id: ") ?? position.id;
      const data = valueOf("data: ");
      if (data) onEvent(JSON.parse(data));
    }
  }
}

/**
 * Follow the events as server-sent events, which take the token in a header as WebSockets of browsers cannot. After a break
 * it goes on with the event after that of `position.id`; where that is no longer kept, it begins anew. `onBreak` is told why
 * the server refuses, if it does.
 */
export async function followEvents({ onEvent, onOpen, onBreak, signal, position }) {
  while (!signal.aborted) {
    const connection = new AbortController();
    const stop = () => connection.abort();
    let [watchdog, problem] = [undefined, null];
    const awake = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE_MS);
    };
    signal.addEventListener("abort", stop);
    try {
      awake();
      const headers = { Accept: "text/event-stream", ...(position.id && { "Last-Event-ID": position.id }) };
      const response = await request("GET", "v1/events", { headers, signal: connection.signal });
      onOpen(position.id === "");
      await readEvents(response.body, position, onEvent, awake);
    } catch (error) {
      if (error.status === 410) position.id = "";
      else if (error.status) problem = error;
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return;
    onBreak(problem);
    if (problem?.status === 401 || problem?.status === 403) return;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
