// The live calls, those that sound worst first.

import { button, duration, field, h, heading, ms, number, setText, showLevels, svg, t, table, word } from "./dom.js";
import { calls, isLive, levels, now, readUtterance, saidNow, soundOf } from "./live.js";

const MAX_ROWS = 300; // more are found by the filter: unmeasured
const ASK_MS = 250; // one question about the prompt of a call that is in sight each, however many calls there are
const UNKNOWN_SCORE = 9;

/** The far side as people know it: the number or the user of its SIP URI. */
export function farSide(call) {
  const uri = (call.direction === "inbound" ? call.caller : call.callee) ?? "";
  return /^(?:.*<)?sips?:([^@;>]+)@/.exec(uri)?.[1] ?? (uri || call.id);
}
export const lasted = (call) => duration((call.ended_at ?? now()) - (call.answered_at ?? call.created_at));
export const stateOf = (call) => (call.ending ? word(call.ending.reason) : call.held ? t("held") : word(call.state));

/** Write how a call sounds into an element, in words beside the colour. */
export function showSound(element, call) {
  const { score, problems, isBad } = soundOf(call);
  setText(element, [number(score, 1), ...problems.map(([key, values]) => t(key, values))].join(" · "));
  element.className = `sound ${score === null ? "" : isBad ? "bad" : "good"}`;
}

/** Write what is being said into an element, with how far that is. */
export function showSaid(cell, { said, heard }) {
  if (!cell.firstChild) {
    const bar = svg("rect", { height: 4 });
    cell.append(h("span"), svg("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, bar));
  }
  const [words, picture] = cell.children;
  setText(words, said ? `${duration(now() - said.since)} ${said.text}` : heard && t("last said", { text: heard }));
  words.className = said ? "" : "soft";
  picture.setAttribute("class", said ? "" : "gone");
  picture.firstChild.setAttribute("width", Math.round(100 * (said?.share ?? 0)));
}

function showParty(cell, call) {
  if (!cell.firstChild) cell.append(h("a", { href: `#/calls/${encodeURIComponent(call.id)}` }), h("small"));
  setText(cell.firstChild, farSide(call));
  setText(cell.lastChild, `${stateOf(call)} ${lasted(call)} ${call.said?.text ?? ""}`);
}

export function callsPage(main) {
  const filter = h("input", { type: "search", autocomplete: "off" });
  const ended = h("input", { type: "checkbox" });
  const summary = h("p", { class: "soft" });
  const scoreOf = (call) => soundOf(call).score ?? UNKNOWN_SCORE;
  const list = table(t("calls"), [
    { label: t("sound"), class: "sounds", sort: scoreOf, show: (cell, call) =>
      showSound(cell.firstChild ?? cell.appendChild(h("span")), call) },
    { label: t("party"), show: showParty, sort: farSide },
    { label: t("way"), class: "wide", text: (call) => word(call.direction) },
    { label: t("state"), class: "wide", text: stateOf, sort: stateOf },
    { label: t("time"), class: "wide figure", text: lasted, sort: (call) => -call.created_at },
    { label: t("first audio"), class: "wide figure", text: (call) => ms(call.firstAudio), sort: (call) => -call.firstAudio },
    { label: t("levels"), class: "wide", show: (cell, call) => showLevels(cell, call.levels) },
    { label: t("saying"), class: "words wide", show: showSaid },
  ], (call) => call.id, { sortBy: 0, header: 1, empty: "no calls", unseen: true });

  const update = () => {
    const wanted = filter.value.trim().toLowerCase();
    const textOf = ({ id, caller, callee, sip_call_id, tenant, trunk, metadata }) =>
      JSON.stringify([id, caller, callee, sip_call_id, tenant, trunk, metadata]).toLowerCase();
    const found = [...calls.values()].filter((call) => (isLive(call) || ended.checked) && textOf(call).includes(wanted));
    const bad = found.filter((call) => isLive(call) && soundOf(call).isBad);
    setText(summary, t("summary", { calls: found.length, bad: bad.length }));
    list.update(found.toSorted((a, b) => scoreOf(a) - scoreOf(b)).slice(0, MAX_ROWS));
  };
  filter.addEventListener("input", update);
  ended.addEventListener("change", update);
  main.append(heading(t("calls")), h("div", { class: "bar" }, field(t("filter"), filter), h("label", {}, ended, t("ended too")),
    summary), list.element);

  let next = 0;
  const ask = () => {
    const isInSight = ({ top, bottom }) => bottom > 0 && top < innerHeight;
    const rows = [...main.querySelectorAll("tbody tr")].filter((row) => isInSight(row.getBoundingClientRect()));
    const asked = rows.map((row) => calls.get(row.dataset.key)).filter((call) => call && isLive(call) && saidNow(call));
    const call = asked[(next += 1) % asked.length];
    if (call && !document.hidden) readUtterance(call, saidNow(call)).catch(() => {});
  };
  const timer = setInterval(ask, ASK_MS);
  levels.wanted = true;
  const close = () => {
    clearInterval(timer);
    levels.wanted = false;
  };
  return { update, close };
}

export const backToCalls = () => button(t("back"), () => (location.hash = "#/calls"));
