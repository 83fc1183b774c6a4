// One call: what it is, what to do with it, and what happened when.

import { blobUrl, callPath, get, send, text } from "./api.js";
import { backToCalls, farSide, lasted, showSaid, showSound, stateOf } from "./calls.js";
import { attempt, button, field, form, h, heading, ms, number, percent, setText, showLevels, t, table, time, word } from "./dom.js";
import { player } from "./lists.js";
import { calls, isLive, readUtterance } from "./live.js";
import { timeline } from "./timeline.js";

const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"];
const ASK_MS = 500;
const LEVELS_MS = 1000; // the server measures a second at a time
const MAX_UTTERANCES = 20; // the last ones: unmeasured
const SURE_MS = 4000; // how long a second press ends the call: unmeasured

/** The fields of an event that say what happened, without those of the call itself. */
function detailOf({ data }) {
  const { metadata, client_state, headers, uri_parameters, quality, caller, callee, sip_call_id, utterance_id, ...rest } = data;
  const shown = Object.entries(rest).filter(([, value]) => value !== null && value !== "");
  return shown.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

function factsOf(call) {
  const { packets_lost: lost, packets_received: received, jitter_ms, round_trip_ms, mos, underruns } = call.quality;
  const named = {
    caller: call.caller, callee: call.callee, state: stateOf(call), time: lasted(call), "first audio": ms(call.firstAudio),
    mos: number(mos, 2), loss: percent(lost + received ? lost / (lost + received) : null), jitter: ms(jitter_ms),
    "round trip": ms(round_trip_ms), gaps: number(underruns), "sip call id": call.sip_call_id,
    codec: [call.codec ?? "–", call.srtp && "SRTP", call.transport].filter(Boolean).join(", "),
    trunk: call.trunk, tenant: call.tenant, bridged: call.bridged_to, "client state": call.client_state,
  };
  const facts = Object.entries(named).map(([name, value]) => [t(name), value]);
  return [...facts, ...Object.entries({ ...call.headers, ...call.metadata })].filter(([, value]) => value);
}

/** What is done with a call that is up. */
function commands(id) {
  const post = (action, body = {}, done = "done") => attempt(send("POST", callPath(id, action), body), done);
  const words = h("textarea", { rows: 2, required: true });
  const instead = h("input", { type: "checkbox" });
  const speak = async () => {
    const queue = instead.checked ? "replace" : "append";
    if (await post("/speak", { text: words.value, queue }, "accepted")) words.value = "";
  };
  const target = h("input", { required: true, placeholder: "sip:agent@example.com" });
  const hold = button("", () => post(calls.get(id).held ? "/unhold" : "/hold"));
  const answer = button(t("answer"), () => post("/answer"));
  let isSure = false;
  const hangUp = button(t("hang up"), () => {
    if (isSure) return void post("/hangup");
    isSure = true;
    setTimeout(() => (isSure = false), SURE_MS);
    setText(hangUp, t("sure"));
  }, { class: "danger" });
  const element = h("div", { hidden: true },
    form(speak, field(t("words"), words), h("div", { class: "bar" }, h("button", { type: "submit" }, t("speak")),
      button(t("stop"), () => post("/stop", { scope: "all" })), button(t("pause"), () => post("/pause")),
      button(t("resume"), () => post("/resume")), h("label", {}, instead, t("instead")))),
    h("div", { class: "bar" }, answer, hold, hangUp,
      button(t("record"), () => post("/record", {}, "recording begun")),
      button(t("record end"), () => attempt(send("DELETE", callPath(id, "/record")), "recording over"))),
    h("div", { class: "keys", role: "group", "aria-label": t("keys") },
      KEYS.map((key) => button(key, () => post("/dtmf", { digits: key })))),
    form(() => post("/transfer", { to: target.value.trim() }, "transfer begun"),
      h("div", { class: "bar" }, field(t("transfer to"), target), h("button", { type: "submit" }, t("transfer")))));
  const update = (call) => {
    element.hidden = !isLive(call);
    answer.hidden = call.direction !== "inbound" || Boolean(call.answered_at);
    setText(hold, t(call.held ? "unhold" : "hold"));
    if (!isSure) setText(hangUp, t("hang up"));
  };
  return { element, update };
}

/** What is kept of a call: recordings, its report, its SIP messages. */
function records(id) {
  const [audio, play] = player();
  audio.hidden = true;
  const kept = table(t("recordings"), [
    { label: t("begun"), text: (each) => time(each.created_at) },
    { label: t("state"), text: (each) => word(each.state) },
    { label: t("length"), class: "figure", text: (each) => (each.duration_ms === null ? "" : `${(each.duration_ms / 1000).toFixed(1)} s`) },
    { label: t("listen"), can: (each) => each.state === "saved", act: (each) => {
      audio.hidden = false;
      play("GET", `v1/recordings/${encodeURIComponent(each.recording_id)}/audio`);
    } },
  ], (each) => each.recording_id);
  const ladder = h("pre", { hidden: true, tabindex: "0", "aria-label": t("trace") });
  const list = async () => {
    const found = await attempt(get(`v1/recordings?call_id=${encodeURIComponent(id)}`));
    kept.element.hidden = !found;
    if (found) kept.update(found.recordings);
  };
  const report = async () => {
    const href = await attempt(blobUrl("GET", callPath(id, "/report")));
    if (href) h("a", { href, download: `${id}.html` }).click();
  };
  const trace = async () => {
    setText(ladder, await attempt(text(callPath(id, "/trace?format=ladder"))));
    ladder.hidden = !ladder.textContent;
    ladder.focus();
  };
  kept.element.hidden = true;
  return h("section", {}, h("div", { class: "bar" }, button(t("recordings"), list), button(t("report"), report),
    button(t("trace"), trace)), kept.element, audio, ladder);
}

export function callPage(main, id) {
  const said = new Map(); // the utterances, by id
  const [title, sound, words, facts] = [heading(id), h("strong"), h("p", { class: "words" }), h("dl")];
  const [doing, axis] = [commands(id), timeline()];
  const loud = h("p");
  const prompts = table(t("prompts said"), [
    { label: t("words"), class: "words", text: (each) => each.spoken_text },
    { label: t("first audio"), class: "figure", text: (each) => ms(each.time_to_first_audio_ms) },
    { label: t("played"), class: "figure", text: (each) => ms(each.played_ms) },
    { label: t("state"), text: (each) => word(each.error?.code ?? each.completion_cause ?? each.state) },
    { label: t("voice"), class: "wide", text: (each) => each.voice },
    { label: t("gaps"), class: "wide figure", text: (each) => each.underruns },
  ], (each) => each.id);
  const steps = table(t("events"), [
    { label: t("at"), class: "figure", text: (event) => time(event.time) },
    { label: t("event"), text: (event) => event.type },
    { label: t("detail"), class: "words", text: detailOf },
  ], (event) => event.id);

  const update = () => {
    const call = calls.get(id);
    if (!call) return;
    setText(title, t(`call ${call.direction}`, { party: farSide(call) }));
    showSound(sound, call);
    showSaid(words, call);
    showLevels(loud, call.levels);
    loud.hidden = !isLive(call);
    const shown = factsOf(call);
    while (facts.children.length > shown.length) facts.lastChild.remove();
    shown.forEach(([name, value], index) => {
      const { firstChild, lastChild } = facts.children[index] ?? facts.appendChild(h("div", {}, h("dt"), h("dd")));
      setText(firstChild, name);
      setText(lastChild, value);
    });
    doing.update(call);
    axis.update(call, [...said.values()]);
    prompts.update([...said.values()].reverse());
    steps.update([...call.events].reverse());
  };
  const ask = async () => {
    const call = calls.get(id);
    if (!call || document.hidden) return;
    const wanted = call.utterances.slice(-MAX_UTTERANCES).filter((each) => said.get(each)?.state !== "complete");
    await Promise.all(wanted.map(async (each) => said.set(each, await readUtterance(call, each)))).catch(() => {});
  };
  const listen = async () => {
    const call = calls.get(id);
    if (!call || document.hidden || !isLive(call)) return;
    const { levels } = await get(callPath(id, "?levels=true")).catch(() => ({}));
    call.levels = levels;
    update();
  };
  const timers = [setInterval(ask, ASK_MS), setInterval(listen, LEVELS_MS)];
  main.append(h("p", {}, backToCalls()), title, h("p", {}, `${t("sound")}: `, sound), loud, words, doing.element, axis.element,
    records(id), facts, prompts.element, steps.element);
  if (!calls.has(id)) attempt(get(callPath(id)));
  return { update, close: () => timers.forEach(clearInterval) };
}
