// What jambonz' feature server does with a custom vendor, by its own package: one JSON object for each prompt. Packages
// are at the first argument, the API at the second.
const fs = require("node:fs");
const { createRequire } = require("node:module");
const synthAudio = createRequire(process.argv[2])("@jambonz/speech-utils/lib/synth-audio");

const show = (step, seen) => console.log(JSON.stringify({ step, ...seen }));
const kept = new Map();
const redis = {
  get: async (key) => kept.get(key) ?? null,
  set: async (key, value) => kept.set(key, value),
  setex: async (key, _seconds, value) => kept.set(key, value),
  expire: async () => 1,
};
const stats = { increment() {}, histogram() {} };
const quiet = () => {};
const logger = { info: quiet, error: quiet, debug: quiet };

async function said(text, voice = "en-us") {
  return synthAudio(redis, null, null, logger, stats, {
    account_sid: "a", vendor: "custom:cc-tts", language: "en-US", voice, text, renderForCaching: true,
    credentials: {
      vendor: "custom:cc-tts", auth_token: "none", custom_tts_url: `${process.argv[3]}/v1/jambonz/speech`,
    },
  });
}

async function main() {
  for (const [step, text] of [["text", "One moment please."], ["ssml", "<speak>One moment please.</speak>"]]) {
    const { filePath, servedFromCache } = await said(text);
    show(step, { path: filePath, bytes: fs.statSync(filePath).size, servedFromCache });
    fs.unlinkSync(filePath);
  }
  const again = await said("One moment please.");
  show("again", { servedFromCache: again.servedFromCache });
  fs.unlinkSync(again.filePath);
  try {
    await said("Hello.", "nobody");
  } catch (error) {
    show("error", { status: error.statusCode, shown: (await error.text()).slice(0, 400) });
  }
}

main().then(() => process.exit(0), (error) => { console.log(error); process.exit(1); });
