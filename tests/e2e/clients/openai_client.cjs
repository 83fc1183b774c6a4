// What a program with the package openai for Node.js sees: one JSON object for each step. Packages are at the first
// argument, the API at the second.
const { createRequire } = require("node:module");
const OpenAI = createRequire(process.argv[2])("openai");

const show = (step, seen) => console.log(JSON.stringify({ step, ...seen }));
const words = { model: "gpt-4o-mini-tts", voice: "alloy", input: "Your order has been shipped." };

async function main() {
  const client = new OpenAI({ apiKey: "none", baseURL: process.argv[3], maxRetries: 0 });
  const speech = client.audio.speech;
  const whole = Buffer.from(await (await speech.create(words)).arrayBuffer());
  show("default", { head: whole.subarray(0, 4).toString("base64"), bytes: whole.length });
  let bytes = 0;
  const pcm = await speech.create({ ...words, response_format: "pcm" });
  for await (const chunk of pcm.body) bytes += chunk.length;
  show("pcm", { bytes, content_type: pcm.headers.get("content-type") });
  const long = { ...words, input: "This sentence is said again and again. ".repeat(100), response_format: "pcm" };
  for await (const chunk of (await speech.create(long)).body) {
    show("interrupted", { bytes: chunk.length });
    break;
  }
  const models = await client.models.list();
  show("models", { ids: models.data.map((each) => each.id) });
  for (const wrong of [{ voice: "nobody" }, { input: "..." }]) {
    try {
      await speech.create({ ...words, ...wrong });
    } catch (error) {
      show(Object.keys(wrong)[0], { shown: error.message, status: error.status, param: error.param });
    }
  }
}

main().then(() => process.exit(0), (error) => { console.log(error); process.exit(1); });
