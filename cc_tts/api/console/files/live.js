// What is known of the calls: a full reading at the beginning, then events, and every few seconds the figures of quality.

import { followEvents, get, readCalls, text } from "./api.js";

const [START_MS, CALLS_MS, SERVER_MS] = [200, 3000, 5000];
const ENDED_S = 300; // ended calls are forgotten, as calls.ended_retention_s has the server do
const MAX_EVENTS = 300;
const MAX_SAMPLES = 120; // ten minutes
const GOOD_MOS = 3.6; // below it "some users are dissatisfied" or worse (ITU-T G.107 Annex B)
// Unmeasured: what a gap in our speech takes off the score, for how many gaps, and the score of a caller who is not heard
// for so many polls; losses from this share on, and first audio after so long are told; a loss is half forgotten after 10 s.
const [GAP_COST, MAX_GAPS, SILENT_SCORE, SILENT_POLLS, TOLD_LOSS, LATE_MS, FADING] = [0.2, 5, 1.2, 3, 0.01, 1500, 0.8];

export const calls = new Map();
let [skew_s, isOpen, isRead, position, running] = [0, false, false, { id: "" }, new AbortController()];
/** The state of the connection, and of the server and its figures where the token may see them. */
export const server = { get connected() { return isOpen && isRead; }, status: null, samples: [] };
/** Whether a page shows how loud calls are: the server measures it for those who ask. */
export const levels = { wanted: false };
let held = null; // events that wait for the full reading
let changed = () => {};

export const whenChanged = (listener) => (changed = listener);
export const now = () => Date.now() / 1000 + skew_s;
export const isLive = (call) => call.state !== "terminated";

/** Note a call as the API shows it. */
function take(call) {
  const entry = calls.get(call.id) ?? { events: [], said: null, heard: "", firstAudio: null, recentLoss: 0, silentPolls: 0 };
  const { packets_lost: lostBefore, packets_received: receivedBefore } = entry.quality ?? {};
  const lost = Math.max(0, call.quality.packets_lost - lostBefore);
  const received = call.quality.packets_received - receivedBefore;
  entry.recentLoss = Math.max(lost + received > 0 ? lost / (lost + received) : 0, FADING * entry.recentLoss);
  const isSilent = received === 0 && lost === 0 && call.state === "established" && !call.held;
  entry.silentPolls = isSilent ? entry.silentPolls + 1 : 0;
  calls.set(call.id, Object.assign(entry, call));
}

async function readAll(signal) {
  held = [];
  try {
    const read = await readCalls({}, signal);
    skew_s = read.server_s + 0.5 - Date.now() / 1000; // the header Date has whole seconds
    const ids = new Set(read.calls.map((call) => call.id));
    for (const id of calls.keys()) if (!ids.has(id)) calls.delete(id);
    read.calls.forEach(take);
    isRead = true;
  } finally {
    const waiting = held;
    held = null;
    if (!signal.aborted) waiting.forEach(apply);
  }
}

async function poll(signal) {
  if (!isRead) return readAll(signal);
  const read = await readCalls({ state: "established", levels: levels.wanted }, signal);
  const isEnded = (call) => calls.get(call.id)?.state === "terminated"; // its event was faster
  read.calls.filter((call) => !isEnded(call)).forEach(take);
  for (const [id, call] of calls) if (call.ended_at < now() - ENDED_S && isEnded(call)) calls.delete(id);
}

const CHANGES = {
  "call.adopted": (call, data) => {
    call.state = data.state;
    isRead = false; // the server was started again: nothing tells of the calls that it has not adopted
  },
  "call.early": (call) => (call.state = "early"),
  "call.established": (call, { codec }, at) => Object.assign(call, { state: "established", codec, answered_at: at }),
  "call.held": (call) => (call.held = true),
  "call.unheld": (call) => (call.held = false),
  "call.terminated": (call, { ending, quality }, at) =>
    Object.assign(call, { state: "terminated", ending, quality, ended_at: at, said: null }),
  "speak.queued": (call, data) => call.utterances.push(data.utterance_id),
  "speak.started": (call, { utterance_id: id, time_to_first_audio_ms }, at) =>
    Object.assign(call, { said: { id, since: at, text: "", share: 0 }, firstAudio: time_to_first_audio_ms }),
  "speak.complete": (call, { utterance_id: id, spoken_text: heard }) =>
    Object.assign(call, { heard, said: call.said?.id === id ? null : call.said }),
};

function apply(event) {
  if (held) return void held.push(event);
  const { call_id: id, type, data, time } = event;
  if (!calls.has(id) && data.direction) {
    const state = data.direction === "inbound" ? "incoming" : "outgoing";
    const nothing = { quality: {}, utterances: [], metadata: {}, answered_at: null, ended_at: null, held: false };
    take({ ...data, ...nothing, id, state, created_at: time });
  }
  const call = calls.get(id);
  if (!call) return; // it is no call, or one that is no longer kept
  CHANGES[type]?.(call, data, time);
  call.events.push(event);
  if (call.events.length > MAX_EVENTS) call.events.shift();
  changed();
}

/** The prompt of a call that is being said, or was said last; undefined if nothing new can be known of it. */
export function saidNow(call) {
  const id = call.said?.id ?? call.utterances.at(-1);
  return id === call.known ? undefined : id;
}

/** Ask how far a prompt is, and note it. */
export async function readUtterance(call, id) {
  const spoken = await get(`v1/utterances/${encodeURIComponent(id)}`);
  const { state, played_ms, spoken_text: heard, text_chars: length } = spoken;
  if (state === "in_progress") {
    const share = length ? Math.min(1, heard.length / length) : 0;
    call.said = { id, since: now() - played_ms / 1000, text: heard, share };
  } else if (call.said?.id === id) call.said = null;
  if (state !== "pending") call.firstAudio = spoken.time_to_first_audio_ms ?? call.firstAudio;
  if (state === "complete" && id === call.utterances.at(-1)) Object.assign(call, { known: id, heard });
  changed();
  return spoken;
}

/** The mean opinion score of G.711 for a loss, as cc_tts/media/quality.py reckons it, with no round trip. */
function scoreOf(loss) {
  const r = Math.max(0, 93.2 - 0.024 * 60 - (95 * 100 * loss) / (100 * loss + 25.1));
  return Math.max(1, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6);
}

/** How a call sounds: a score, the lower the worse, and what is wrong with it as keys of texts with their values. */
export function soundOf(call) {
  const { packets_lost: lost, packets_received: received, mos, underruns: gaps } = call.quality;
  if (!call.answered_at) return { score: null, problems: [], isBad: false };
  const loss = Math.max(lost + received ? lost / (lost + received) : 0, call.recentLoss);
  const isSilent = call.silentPolls >= SILENT_POLLS && isLive(call);
  const score = Math.max(1, Math.min(mos ?? 5, scoreOf(loss)) - GAP_COST * Math.min(gaps ?? 0, MAX_GAPS));
  const problems = [
    [isSilent, "problem silent", {}],
    [loss >= TOLD_LOSS, "problem loss", { share: (100 * loss).toFixed(0) }],
    [gaps > 0, "problem gaps", { count: gaps }],
    [call.firstAudio > LATE_MS, "problem late", { seconds: (call.firstAudio / 1000).toFixed(1) }],
  ].flatMap(([isThere, key, values]) => (isThere ? [[key, values]] : []));
  return { score: isSilent ? Math.min(score, SILENT_SCORE) : score, problems, isBad: score < GOOD_MOS || problems.length > 0 };
}

/** Series of /metrics, summed by name; of histograms the counts by their upper bounds. */
function parsed(page) {
  const found = {};
  for (const [, name, labels, value] of page.matchAll(/^(cctts_\w+)(?:\{(.*?)\})? (\S+)/gm)) {
    const bound = /(?:^|,)le="([^"]*)"/.exec(labels ?? "")?.[1];
    if (bound === undefined) found[name] = (found[name] ?? 0) + Number(value);
    else (found[name] ??= {})[bound] = (found[name][bound] ?? 0) + Number(value);
  }
  return found;
}

async function readServer(signal) {
  server.status = await get("v1/admin/status", signal);
  const metrics = parsed(await text("metrics", signal));
  const scores = [...calls.values()].filter(isLive).map((call) => call.quality.mos).filter((mos) => mos != null);
  server.samples.push({ at: now(), metrics, scores: scores.toSorted((a, b) => a - b) });
  if (server.samples.length > MAX_SAMPLES) server.samples.shift();
}

async function every(interval_ms, signal, work) {
  while (!signal.aborted) {
    try {
      if (isOpen) await work(signal);
      changed();
    } catch (error) {
      if (error.status === 403) return; // a token of a tenant sees no figures of the server
    }
    await new Promise((resolve) => setTimeout(resolve, isOpen ? interval_ms : START_MS));
  }
}

/** Follow the calls until `stop()`; `tell` is told why the server refuses, and "" when it does no more. */
export function start(tell) {
  stop();
  const { signal } = (running = new AbortController());
  let refused = null;
  const onOpen = (isAnew) => {
    isOpen = true;
    if (isAnew) isRead = false;
    if (refused) tell("");
    refused = null;
    changed();
  };
  const onBreak = (problem) => {
    isOpen = false;
    if (problem) tell((refused = problem));
    changed();
  };
  followEvents({ onEvent: apply, onOpen, onBreak, signal, position });
  every(CALLS_MS, signal, poll);
  every(SERVER_MS, signal, readServer);
}

/** Stop following; what is known is kept for the next start, or forgotten for somebody else. */
export function stop({ forget = false } = {}) {
  running.abort();
  isOpen = false;
  if (!forget) return;
  calls.clear();
  Object.assign(server, { status: null, samples: [] });
  [position, isRead] = [{ id: "" }, false];
}
