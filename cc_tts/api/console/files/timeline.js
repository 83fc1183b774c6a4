// What happened on a call, on one axis: bars that last, marks at an instant.

import { duration, h, svg, t } from "./dom.js";
import { now } from "./live.js";

const [WIDTH, LEFT, LANE, LETTER] = [900, 110, 26, 7];
const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];
const NUM_TICKS = 8;
const IN_OTHER_LANES = /^(speak\.(queued|started|complete|mark)|call\.(incoming|outgoing|established|dtmf|speech_))/;
const FAULT = /failed$|refused$/;

function speech(call, utterances) {
  const begun = new Map();
  for (const { type, data, time } of call.events) if (type === "speak.started") begun.set(data.utterance_id, time);
  return utterances.filter((each) => each.time_to_first_audio_ms !== null).flatMap((each) => {
    const wait_s = each.time_to_first_audio_ms / 1000;
    const begin = begun.get(each.id) ?? each.accepted_at + wait_s;
    const kind = each.error ? "failed" : [null, "normal"].includes(each.completion_cause) ? "speech" : "cut";
    const waited = t("waited", { ms: Math.round(1000 * wait_s) });
    return [
      { begin: begin - wait_s, end: begin, kind: "waiting", title: waited },
      { begin, end: begin + each.played_ms / 1000, kind, title: each.spoken_text, label: each.spoken_text },
    ];
  });
}

function lanesOf(call, utterances, end_s) {
  const { events, created_at: begin, answered_at: answered } = call;
  const mark = (event, label) =>
    ({ begin: event.time, label, title: event.type, kind: FAULT.test(event.type) ? "failed" : "mark" });
  return [
    [t("call"), [{ begin, end: answered ?? end_s, kind: "waiting", title: t("rings") },
      ...(answered ? [{ begin: answered, end: end_s, kind: "plain", title: t("answered") }] : [])]],
    [t("we say"), speech(call, utterances)],
    [t("caller says"), events.filter((each) => each.type === "call.speech_stopped").map(({ data }) => {
      const began = events.find((each) => each.type === "call.speech_started" && each.data.speech_id === data.speech_id);
      const from = answered + (began?.data.at_ms ?? 0) / 1000;
      return { begin: from, end: from + data.duration_ms / 1000, kind: "caller", title: t("caller says") };
    })],
    [t("keys"), events.filter((each) => each.type === "call.dtmf").map((each) => mark(each, each.data.digit))],
    [t("steps"), events.filter((each) => !IN_OTHER_LANES.test(each.type)).map((each) => mark(each, each.type.split(".")[1]))],
  ];
}

export function timeline() {
  const picture = svg("svg", { role: "img", "aria-label": t("timeline"), class: "timeline" });
  const note = h("p", { class: "soft" }, t("timeline note"));
  const update = (call, utterances) => {
    const end_s = Math.max(call.ended_at ?? now(), call.created_at + 1);
    const length_s = end_s - call.created_at;
    const x = (at) => LEFT + ((WIDTH - LEFT - 10) * Math.min(Math.max(at - call.created_at, 0), length_s)) / length_s;
    const lanes = lanesOf(call, utterances, end_s);
    const height = LANE * (lanes.length + 1);
    const step_s = STEPS_S.find((each) => length_s / each <= NUM_TICKS) ?? STEPS_S.at(-1);
    const parts = [];
    for (let at = 0; at <= length_s; at += step_s) {
      const place = x(call.created_at + at);
      parts.push(svg("line", { x1: place, x2: place, y1: 0, y2: height - LANE, class: "grid" }),
        svg("text", { x: place, y: height - 8, class: "soft", "text-anchor": "middle" }, duration(at)));
    }
    lanes.forEach(([name, items], index) => {
      const y = index * LANE + 4;
      parts.push(svg("text", { x: 0, y: y + 13 }, name));
      for (const { begin, end, label = "", title, kind } of items) {
        const width = end === undefined ? 3 : Math.max(1, x(end) - x(begin));
        const room = end === undefined ? 12 : Math.floor(width / LETTER);
        parts.push(svg("rect", { x: x(begin), y, width, height: LANE - 8, class: kind, rx: 2 }, svg("title", {}, title)),
          svg("text", { x: x(begin) + 5, y: y + 13, class: end !== undefined && "in" }, label.slice(0, room)));
      }
    });
    picture.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    picture.replaceChildren(...parts);
    note.hidden = call.events[0]?.seq === 1;
  };
  return { element: h("section", {}, h("h2", {}, t("timeline")), h("div", { class: "scroll" }, picture), note), update };
}
