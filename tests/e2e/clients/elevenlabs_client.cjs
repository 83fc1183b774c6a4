// What a program with a package of ElevenLabs for Node.js, the fourth argument, sees: one JSON object for each step.
// Packages are at the first argument, the API at the second.
const { createRequire } = require("node:module");
const { ElevenLabsClient } = createRequire(process.argv[2])(process.argv[4]);

const TEXT = "Your order has been shipped. It will arrive on Friday.";
const VOICE = "en-us";
const isOld = process.argv[4] === "elevenlabs"; // which writes fields as the API does
const pcm = isOld ? { text: TEXT, output_format: "pcm_16000" } : { text: TEXT, outputFormat: "pcm_16000" };
const show = (step, seen) => console.log(JSON.stringify({ step, ...seen }));

async function collected(stream) {
  const parts = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

async function main() {
  const url = process.argv[3];
  const client = new ElevenLabsClient(isOld ? { apiKey: "none", environment: { base: url, wss: url } } : { apiKey: "none", baseUrl: url });
  const speech = client.textToSpeech;
  const made = await collected(await speech.convert(VOICE, { text: TEXT }));
  show("default", { head: made.subarray(0, 4).toString("base64"), bytes: made.length });
  const stream = isOld ? speech.convertAsStream : speech.stream;
  show("pcm", { bytes: (await collected(await stream.call(speech, VOICE, pcm))).length });
  const timed = await speech.convertWithTimestamps(VOICE, pcm);
  const audio = isOld ? timed.audio_base64 : timed.audioBase64;
  show("timed", { bytes: Buffer.from(audio, "base64").length, text: timed.alignment.characters.join("") });
  const long = { ...pcm, text: "This sentence is said again and again. ".repeat(100) };
  for await (const chunk of await stream.call(speech, VOICE, long)) {
    show("interrupted", { bytes: chunk.length });
    break;
  }
  const { voices } = await client.voices.getAll();
  show("voices", { ids: voices.map((each) => each.voice_id ?? each.voiceId) });
  show("voice", { name: (await client.voices.get(VOICE)).name });
  const models = isOld ? await client.models.getAll() : await client.models.list();
  show("models", { ids: models.map((each) => each.model_id ?? each.modelId) });
  try {
    await collected(await speech.convert("nobody", { text: TEXT }));
  } catch (error) {
    show("error", { shown: error.message, status: error.statusCode });
  }
}

main().then(() => process.exit(0), (error) => { console.log(error); process.exit(1); });
