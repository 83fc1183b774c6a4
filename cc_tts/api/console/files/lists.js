// Voices to try by ear, staged prompts, and webhooks with their last answers.

import { blobUrl, get, send } from "./api.js";
import { attempt, field, form, h, heading, number, t, table, tell, time, word } from "./dom.js";

const POLL_MS = 3000;
const SAMPLES = { en: "Good morning. How can I help you today?", zh: "您好，请问有什么可以帮您？" };
const sampleFor = (language) => SAMPLES[language.split("-")[0]] ?? "1, 2, 3, 4, 5";

/** An audio element, and a function by which it plays what a request gives. */
export function player() {
  const element = h("audio", { controls: true });
  const play = async (...asked) => {
    const address = await attempt(blobUrl(...asked));
    if (!address) return;
    URL.revokeObjectURL(element.src);
    element.src = address;
    await attempt(element.play());
  };
  return [element, play];
}

/** Read a list now and every few seconds, until the token may not; `refresh` reads it at once. */
function polled(path, show) {
  const close = () => clearInterval(timer);
  const onProblem = (error) => {
    if (error.status === 403) close();
    if (error.status) tell(error); // that there is no server stands at the top of the page
  };
  const refresh = () => document.hidden || get(path).then(show).catch(onProblem);
  const timer = setInterval(refresh, POLL_MS);
  refresh();
  return { refresh, close };
}

export function voicesPage(main) {
  const words = h("textarea", { rows: 2, placeholder: t("sample") });
  const [audio, play] = player();
  const listen = ({ id: voice, language }) =>
    play("POST", "v1/audio/speech", { input: words.value || sampleFor(language), voice, response_format: "wav" });
  const list = table(t("voices"), [
    { label: t("voice"), text: (voice) => voice.id, sort: (voice) => voice.id },
    { label: t("listen"), act: listen },
    { label: t("language"), text: (voice) => voice.language, sort: (voice) => voice.language },
    { label: t("engine"), class: "wide", text: (voice) => voice.engine },
    { label: t("live"), class: "wide", text: (voice) => t(voice.live ? "yes" : "staged only") },
    { label: t("cost"), class: "wide figure", text: (voice) => number(voice.cost, 2) },
    { label: t("about"), class: "wide", text: (voice) => voice.description },
  ], (voice) => voice.id, { sortBy: 2, unseen: true });
  main.append(heading(t("voices")), field(t("words"), words), audio, list.element);
  attempt(get("v1/voices").then(({ voices }) => list.update(voices)));
  return {};
}

export function promptsPage(main) {
  const [name, words] = [h("input", { autocomplete: "off" }), h("textarea", { rows: 2, required: true })];
  const [audio, play] = player();
  const pathOf = (prompt, more = "") => `v1/prompts/${encodeURIComponent(prompt.prompt_id)}${more}`;
  const change = (...asked) => attempt(send(...asked), "done").then(() => list.refresh());
  const stage = () =>
    change("POST", "v1/prompts", { text: words.value, ...(name.value && { prompt_id: name.value.trim() }) });
  const prompts = table(t("prompts"), [
    { label: t("name"), text: (each) => each.prompt_id, sort: (each) => each.prompt_id },
    { label: t("state"), text: (each) => [word(each.state), each.error].filter(Boolean).join(": ") },
    { label: t("length"), class: "figure", text: (each) => `${(each.duration_ms / 1000).toFixed(1)} s` },
    { label: t("kind"), class: "wide", text: (each) => word(each.kind) },
    { label: t("expires"), class: "wide", text: (each) => time(each.expires_at) },
    { label: t("listen"), act: (each) => play("GET", pathOf(each, "/audio")), can: (each) => each.cached },
    { label: t("delete"), act: (each) => change("DELETE", pathOf(each)) },
  ], (each) => each.prompt_id, { sortBy: 0, unseen: true });
  main.append(heading(t("prompts")), form(stage, field(t("words"), words), field(t("prompt name"), name),
    h("button", { type: "submit" }, t("stage"))), audio, prompts.element);
  const list = polled("v1/prompts", (found) => prompts.update(found.prompts));
  return { close: list.close };
}

export function webhooksPage(main) {
  const test = async ({ name }) => {
    const answer = await attempt(send("POST", `v1/admin/webhooks/${encodeURIComponent(name)}/test`, {}));
    if (answer) tell(t(answer.taken ? "webhook taken" : "webhook refused", { reason: answer.error || answer.status }));
    await list.refresh();
  };
  const hooks = table(t("webhooks"), [
    { label: t("name"), text: (each) => each.name },
    { label: t("address"), class: "words", text: (each) => each.url },
    { label: t("state"), text: (each) => word(each.state) },
    { label: t("last answer"), text: (each) => [each.last_status, each.last_error].filter(Boolean).join(" ") || "–" },
    { label: t("at"), class: "wide", text: (each) => time(each.last_attempt_at) },
    { label: t("queued"), class: "wide figure", text: (each) => each.queued },
    { label: t("delivered"), class: "wide figure", text: (each) => each.delivered },
    { label: t("failed"), class: "wide figure", text: (each) => each.failed_attempts },
    { label: t("dropped"), class: "wide figure", text: (each) => each.dropped },
    { label: t("test"), act: test, can: (each) => each.name !== "call" },
  ], (each) => `${each.name} ${each.url}`, { unseen: true });
  main.append(heading(t("webhooks")), hooks.element);
  const list = polled("v1/admin/webhooks", (found) => hooks.update(found.webhooks));
  return { close: list.close };
}
