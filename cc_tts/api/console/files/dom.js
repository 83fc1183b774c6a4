// Elements, tables that change in place, and texts in the chosen language. Every text becomes a text node: nothing that
// comes from the API is ever read as markup, and the page's Content-Security-Policy (Trusted Types) forbids it too.

const SVG = "http://www.w3.org/2000/svg";
const TELL_MS = 8000;
const LANGUAGES = ["en", "zh"];
const STRINGS = await (await fetch("strings.json")).json();
export let language = localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export function setLanguage(chosen) {
  language = chosen;
  localStorage.setItem("language", chosen);
}

/** A text of strings.json, with {names} replaced. */
export const t = (key, values = {}) =>
  STRINGS[key][LANGUAGES.indexOf(language)].replace(/\{(\w+)\}/g, (_, name) => values[name]);

/** A word of the API that people read: in their language if the table has it, else as it is. */
export const word = (value) => (STRINGS[`word ${value}`] ? t(`word ${value}`) : (value ?? ""));

/** An element. `on…` properties are listeners, false and null ones are left out; children are nodes or texts. */
export const h = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat());
  return element;
}

/** Change a text only if it is another one: most cells of most updates are the same. */
export function setText(node, text) {
  const wanted = String(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export const button = (label, onclick, properties) => h("button", { type: "button", onclick, ...properties }, label);
export const heading = (text) => h("h1", { tabindex: "-1" }, text);
export const field = (label, input) => h("label", { class: "field" }, h("span", {}, label), input);
export const form = (onsubmit, ...children) =>
  h("form", { onsubmit: (event) => (event.preventDefault(), onsubmit()) }, ...children);

export const number = (value, digits = 0) => (value == null ? "–" : value.toFixed(digits));
export const ms = (value) => (value == null ? "–" : `${value.toFixed(0)} ms`);
export const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(1)} %`);
export const time = (at_s) => (at_s == null ? "–" : new Date(at_s * 1000).toLocaleTimeString(language, { hour12: false }));

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const padded = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${padded(minutes)}:${padded(rest)}` : `${minutes}:${padded(rest)}`;
}

const MIN_DBOV = -60; // less is silence to the eye: unmeasured

/** Show how loud either direction of a call is in an element, as meters with their figures in words. */
export function showLevels(element, levels) {
  if (!element.firstChild) {
    element.append(...["level sent", "level received"].map((name) => h("span", { class: "level" }, h("span", {}, t(name)),
      h("meter", { min: MIN_DBOV, max: 0, value: MIN_DBOV, "aria-label": t(name) }), h("span", {}, "–"))));
  }
  for (const [index, level] of [levels?.sent_dbov, levels?.received_dbov].entries()) {
    const [name, meter, figure] = element.children[index].children;
    const words = level == null ? "–" : `${level} dBov`;
    if (meter.getAttribute("aria-valuetext") === words) continue;
    meter.value = level ?? MIN_DBOV;
    meter.setAttribute("aria-valuetext", words);
    meter.title = `${name.textContent}: ${words}`;
    setText(figure, words);
  }
}

export const told = h("p", { role: "status", class: "told" });
let telling;

/** Tell the person something: a sentence, or an error, which stays until there is something else to tell. */
export function tell(what) {
  const isProblem = what instanceof Error;
  const keys = { 0: "unreachable", 401: "token gone", 403: "forbidden" };
  const key = isProblem && keys[what.status];
  setText(told, key ? t(key, { detail: what.message }) : isProblem ? what.message : what);
  told.classList.toggle("problem", isProblem);
  clearTimeout(telling);
  if (!isProblem) telling = setTimeout(() => setText(told, ""), TELL_MS);
}

/** Tell how a request went: the text `done`, or what is wrong. Gives its result, undefined after an error. */
export const attempt = (request, done) =>
  request.then((result) => {
    if (done) tell(t(done));
    return result;
  }, tell);

/**
 * A table whose rows are kept by their key. Columns: `label`, then `text(item)`, `show(cell, item)` or `act(item)` for a
 * button, and `sort(item)` where it can be sorted; `unseen`: a heading says the caption. Rows stay in their places while somebody points at one or is in one.
 */
export function table(caption, columns, key, { sortBy, header = 0, empty = "nothing", unseen } = {}) {
  const rows = new Map();
  const body = h("tbody");
  const none = h("p", { class: "soft" }, t(empty));
  let [sorted, sign, items] = [columns[sortBy], 1, []];
  const heads = columns.map((column) => {
    const sort = () => {
      [sorted, sign] = [column, sorted === column ? -sign : 1];
      update(items);
    };
    return h("th", { scope: "col", class: column.class }, column.sort ? button(column.label, sort) : column.label);
  });

  function made(item) {
    const cells = columns.map((column, index) => {
      const cell = h(index === header ? "th" : "td", { scope: index === header && "row", class: column.class });
      if (column.act) cell.append(button(column.label, () => column.act(item), { "aria-label": `${column.label} ${key(item)}` }));
      return cell;
    });
    return { row: h("tr", { "data-key": key(item) }, cells), cells };
  }

  function fill(item) {
    if (!rows.has(key(item))) rows.set(key(item), made(item));
    const { row, cells } = rows.get(key(item));
    columns.forEach(({ show, text, can }, index) => {
      if (show) show(cells[index], item);
      else if (text) setText(cells[index], text(item));
      else cells[index].firstChild.hidden = can ? !can(item) : false;
    });
    return row;
  }

  function update(given) {
    items = given;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    const order = sorted ? items.toSorted((a, b) => sign * compare(sorted.sort(a), sorted.sort(b))) : items;
    const wanted = order.map(fill);
    for (const [id, { row }] of rows) {
      if (wanted.includes(row) || row.contains(document.activeElement)) continue;
      row.remove();
      rows.delete(id);
    }
    const isInUse = body.matches(":hover") || body.contains(document.activeElement);
    const places = isInUse ? [...new Set([...body.children, ...wanted])] : wanted;
    places.forEach((row, index) => {
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    columns.forEach((column, index) => {
      const direction = column !== sorted ? "none" : sign > 0 ? "ascending" : "descending";
      if (column.sort) heads[index].setAttribute("aria-sort", direction);
    });
    none.hidden = items.length > 0;
  }

  const shown = h("table", {}, h("caption", { class: unseen && "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body);
  return { element: h("div", { class: "scroll" }, shown, none), update };
}
