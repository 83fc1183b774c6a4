// The console's knowledge of the calls over a made-up server, in made-up time. Each scenario prints what it found as JSON.

const server = { calls: [], run: "aa", number: 0, streams: new Set(), answers: {} };
const SPEED = 20;
const real = setTimeout;
globalThis.setTimeout = (work, ms) => real(work, ms / SPEED);
globalThis.document = { baseURI: "http://console.invalid/console/", hidden: false };
globalThis.sessionStorage = { getItem: () => "a-token" };

const json = (body, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { Date: new Date().toUTCString() } });
const call = (id) => ({ id, state: "established", direction: "inbound", utterances: [], held: false, answered_at: 1, ended_at: null,
  created_at: 1, quality: { packets_lost: 0, packets_received: 1, mos: 4.4, underruns: 0 } });
const idNow = () => `evt_${server.run}_${server.number}`;

function stream(signal, since) {
  const body = new ReadableStream({ start(stream) {
    stream.enqueue(new TextEncoder().encode(`retry: 1000\nid: ${since ?? idNow()}\n\n`));
    server.streams.add(stream);
    signal.addEventListener("abort", () => server.streams.delete(stream) && stream.error(new Error("aborted")));
  } });
  return new Response(body);
}

/** An answer that comes when it is let go, unless the request is aborted before. */
function late(answer) {
  let letGo;
  const wait = new Promise((resolve) => (letGo = resolve));
  const asked = (signal) => new Promise((resolve, reject) => {
    asked.count += 1;
    signal?.addEventListener("abort", () => reject(new Error("aborted")));
    wait.then(() => resolve(answer()));
  });
  return Object.assign(asked, { letGo, count: 0 });
}

globalThis.fetch = async (url, { signal, headers }) => {
  const path = url.pathname + url.search;
  if (server.answers[path]) return server.answers[path](signal);
  if (path === "/v1/events") return stream(signal, headers["Last-Event-ID"]);
  if (path.startsWith("/v1/calls")) return json({ calls: structuredClone(server.calls) });
  return path === "/metrics" ? new Response("cctts_x 1\n") : json({ draining: false });
};

function publish(type, call_id, data) {
  server.number += 1;
  const event = JSON.stringify({ id: idNow(), type, call_id, time: 5, data });
  for (const stream of server.streams) stream.enqueue(new TextEncoder().encode(`id: ${idNow()}\ndata: ${event}\n\n`));
}

function restart(calls) {
  Object.assign(server, { calls, run: "bb", number: 0 });
  for (const stream of server.streams) stream.close();
  server.streams.clear();
}

const { calls, server: known, start, stop } = await import("./live.js");

async function until(condition) {
  while (!condition()) await new Promise((resolve) => real(resolve, 5));
}
const knows = (...ids) => JSON.stringify([...calls.keys()].sort()) === JSON.stringify(ids);

const SCENARIOS = {
  async "a call that was not adopted"() {
    server.calls = [call("a"), call("b")];
    start(() => {});
    await until(() => knows("a", "b"));
    restart([call("a")]);
    await until(() => server.streams.size);
    publish("call.adopted", "a", { state: "established" });
    await until(() => knows("a") && known.connected);
  },
  async "a reading that fails after a restart"() {
    server.calls = [call("a")];
    start(() => {});
    await until(() => knows("a"));
    let refusals = 0;
    server.answers["/v1/events"] = () => { // the first time: these events are gone
      delete server.answers["/v1/events"];
      return json({ title: "Gone" }, 410);
    };
    server.answers["/v1/calls"] = () => (refusals += 1, json({ title: "Timeout" }, 504));
    restart([call("b")]);
    await until(() => refusals);
    const wasConnected = known.connected;
    delete server.answers["/v1/calls"];
    await until(() => knows("b"));
    return { wasConnected };
  },
  async "figures that come after signing out"() {
    const figures = late(() => json({ draining: false }));
    server.answers["/v1/admin/status"] = figures;
    start(() => {});
    await until(() => figures.count);
    stop({ forget: true });
    server.answers["/v1/admin/status"] = () => json({ title: "Forbidden" }, 403);
    server.calls = [call("a")];
    start(() => {});
    figures.letGo();
    await until(() => knows("a"));
    await new Promise((resolve) => real(resolve, 50));
    return { status: known.status, samples: known.samples.length };
  },
  async "no room for another reader"() {
    const told = [];
    server.answers["/v1/events"] = () => json({ title: "No room", detail: "100 read already" }, 503);
    start((what) => told.push(what.message ?? what));
    await until(() => told.length);
    delete server.answers["/v1/events"];
    await until(() => known.connected);
    return { first: told[0], last: told.at(-1) };
  },
};

process.stdout.write(JSON.stringify((await SCENARIOS[process.argv[2]]()) ?? {}));
process.exit();
