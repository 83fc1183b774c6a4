// The frame: signing in, the pages, the language.

import { get, hasToken, setToken, whenUnauthorized } from "./api.js";
import { callPage } from "./call.js";
import { callsPage } from "./calls.js";
import { chartsPage } from "./charts.js";
import { button, field, form, h, heading, language, setLanguage, setText, t, tell, told } from "./dom.js";
import { promptsPage, voicesPage, webhooksPage } from "./lists.js";
import { server, start, stop, whenChanged } from "./live.js";

const UPDATE_MS = 300; // at most three pictures a second, however many events come
const PAGES = { calls: callsPage, charts: chartsPage, voices: voicesPage, prompts: promptsPage, webhooks: webhooksPage };
const OTHER = { en: ["zh", "中文"], zh: ["en", "English"] };

const main = h("main");
const navigation = h("nav");
const connection = h("span", { class: "connection" });
const tools = h("div", { class: "bar" });
let page = {};
let isIn = false;
let updating;

function update() {
  updating = undefined;
  setText(connection, t(!server.connected ? "connecting" : server.status?.draining ? "draining" : "connected"));
  connection.classList.toggle("problem", !server.connected);
  page.update?.();
}

/** Draw everything but the page itself, whose name is `shown`. */
function frame(shown) {
  document.documentElement.lang = language;
  navigation.setAttribute("aria-label", t("pages"));
  navigation.replaceChildren(...Object.keys(PAGES).map((name) =>
    h("a", { href: `#/${name}`, "aria-current": name === shown && "page" }, t(name))));
  navigation.hidden = !isIn;
  const [code, name] = OTHER[language];
  const turn = () => {
    setLanguage(code);
    show();
  };
  tools.replaceChildren(...(isIn ? [connection] : []), button(name, turn, { lang: code }),
    ...(hasToken() ? [button(t("sign out"), () => signIn())] : []));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody has typed it
  }
}

function show() {
  const [, name, id] = location.hash.split("/").map(decoded);
  const shown = PAGES[name] ? name : "calls";
  page.close?.();
  main.replaceChildren();
  tell("");
  frame(shown);
  page = !isIn ? signInPage() : shown === "calls" && id ? callPage(main, id) : PAGES[shown](main);
  const head = main.querySelector("h1");
  document.title = `${head.textContent} – cc-tts`;
  (main.querySelector("[autofocus]") ?? head).focus();
  update();
}

function signInPage() {
  const input = h("input", { type: "password", required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
  main.append(form(() => enter(input.value.trim()), heading(t("sign in")), h("p", {}, t("sign in how")),
    field(t("token"), input), h("button", { type: "submit" }, t("sign in"))));
  return {};
}

function signIn(why = "") {
  stop({ forget: true });
  setToken("");
  isIn = false;
  show();
  if (why) tell(new Error(t(why)));
}

/** Go in with a token, or without one where the server has none. */
async function enter(token) {
  if (!/^[\x21-\x7e]*$/.test(token)) return signIn("wrong token");
  setToken(token);
  try {
    await get("v1/calls?state=early");
  } catch (error) {
    if (error.status === 401) return signIn(token && "wrong token");
    signIn();
    return tell(error);
  }
  isIn = true;
  show();
  start(tell);
}

document.body.prepend(h("header", {}, h("strong", {}, "cc-tts"), navigation, tools), told, main);
whenUnauthorized(() => isIn && signIn("token gone"));
whenChanged(() => (updating ??= setTimeout(update, UPDATE_MS)));
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => isIn && (document.hidden ? stop() : start(tell)));
enter(sessionStorage.getItem("token") ?? "");
