// The figures of the server since this page was opened: first audio, refusals, quality, workers.

import { h, heading, ms, number, percent, setText, svg, t, table, word } from "./dom.js";
import { server } from "./live.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [320, 150, 34, 18];
const WINDOW = 12; // a figure is made of so many samples, which take a minute

/** A quantile of what a histogram counted between two samples, by linear interpolation as Prometheus does it. */
function quantile(share, after = {}, before = {}) {
  const names = Object.keys(after).sort((a, b) => Number(a) - Number(b));
  const counts = names.map((name) => after[name] - (before[name] ?? 0));
  const wanted = share * (counts.at(-1) ?? 0);
  if (!wanted) return null;
  const index = counts.findIndex((count) => count >= wanted);
  const [low, under] = index ? [Number(names[index - 1]), counts[index - 1]] : [0, 0];
  const high = Number(names[index]); // NaN for +Inf
  return Number.isNaN(high) ? low : low + ((high - low) * (wanted - under)) / (counts[index] - under);
}

const FIRST_AUDIO = "cctts_time_to_first_audio_seconds_bucket";
const firstAudio = (share) => (after, before) => {
  const found_s = quantile(share, after.metrics[FIRST_AUDIO], before.metrics[FIRST_AUDIO]);
  return found_s === null ? null : 1000 * found_s;
};
const perMinute = (name) => (after, before) =>
  after === before ? null : (60 * ((after.metrics[name] ?? 0) - (before.metrics[name] ?? 0))) / (after.at - before.at);

/** A chart of lines, each with its name and what it is made of. Its figures of now are in words too. */
function chart(title, unit, [bottom, top], lines) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart" });
  const legend = h("p", { class: "legend" }, lines.map(([label], index) => h("span", {}, svg("svg", { viewBox: "0 0 24 8",
    "aria-hidden": "true" }, svg("line", { x1: 0, x2: 24, y1: 4, y2: 4, class: `line${index}` })), ` ${label} `, h("b"))));
  const update = () => {
    const { samples } = server;
    const values = lines.map(([, of]) => samples.map((each, index) => of(each, samples[Math.max(0, index - WINDOW)])));
    const highest = Math.max(top, ...values.flat());
    const x = (index) => LEFT + ((WIDTH - LEFT - 4) * index) / Math.max(1, samples.length - 1);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 8) * (value - bottom)) / (highest - bottom);
    const label = (text, place, height, anchor) =>
      svg("text", { x: place, y: height, "text-anchor": anchor, class: "soft" }, text);
    const parts = [bottom, (bottom + highest) / 2, highest].flatMap((value) => [
      svg("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), class: "grid" }),
      label(number(value, highest < 10 ? 1 : 0), LEFT - 6, y(value) + 4, "end"),
    ]);
    const seconds = samples.length ? (samples.at(-1).at - samples[0].at).toFixed(0) : 0;
    parts.push(label(t("seconds ago", { seconds }), LEFT, HEIGHT - 4, "start"), label(t("now"), WIDTH - 2, HEIGHT - 4, "end"));
    values.forEach((found, line) => {
      const path = found.map((value, index) => {
        const verb = found[index - 1] == null ? "M" : "L"; // a line is broken where there is no figure
        return value === null ? "" : `${verb}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      });
      parts.push(svg("path", { d: path.join(" "), class: `line${line}` }));
      setText(legend.children[line].lastChild, found.at(-1) == null ? "–" : `${number(found.at(-1), 1)} ${unit}`);
    });
    picture.replaceChildren(...parts);
    picture.setAttribute("aria-label", `${title}: ${legend.textContent}`);
  };
  return { element: h("section", { class: "card" }, h("h2", {}, title), picture, legend), update };
}

export function chartsPage(main) {
  const facts = h("p");
  const charts = [
    chart(t("first audio"), "ms", [0, 100], [["p50", firstAudio(0.5)], ["p95", firstAudio(0.95)]]),
    chart(t("refusals"), t("per minute"), [0, 5], ["sip_refused", "engine_refusals", "tenant_refused"].map((name) =>
      [t(name), perMinute(`cctts_${name}_total`)])),
    chart(t("quality"), "MOS", [1, 4.5], [
      [t("lowest"), ({ scores }) => scores[0] ?? null],
      [t("median"), ({ scores }) => scores[Math.floor(scores.length / 2)] ?? null]]),
    chart(t("gaps"), t("per minute"), [0, 5], [
      [t("gaps"), perMinute("cctts_playout_underruns_total")], [t("late frames"), perMinute("cctts_ua_late_frames_total")]]),
  ];
  const workers = table(t("workers"), [
    { label: t("name"), text: (each) => each.name },
    { label: t("state"), text: (each) => (each.draining ? t("draining") : word(each.state)) },
    { label: t("streams"), class: "figure", text: (each) => each.streams ?? "–" },
    { label: t("room"), class: "figure wide", text: (each) => each.room ?? "–" },
    { label: t("load"), class: "figure wide", text: (each) => percent(each.utilisation) },
    { label: t("first audio"), class: "figure wide", text: (each) => ms(each.first_audio_ms) },
    { label: t("device"), class: "wide", text: (each) => `${each.device} ${each.generation}` },
    { label: t("problem"), class: "words", text: (each) => each.problem },
  ], (each) => each.name);
  const shown = [h("div", { class: "cards" }, charts.map((each) => each.element)), workers.element];
  main.append(heading(t("charts")), facts, ...shown);
  const update = () => {
    const { status } = server;
    shown.forEach((each) => (each.hidden = !status));
    if (!status) return setText(facts, t("no figures"));
    const state = status.draining ? t("draining") : (status.not_ready_because ?? status.degraded_because ?? t("ready"));
    setText(facts, t("server is", { ...status, node: status.node || location.host, state }));
    charts.forEach((each) => each.update());
    workers.update(status.workers);
  };
  return { update };
}
