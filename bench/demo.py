"""``make demo``: a real call on loopback. Sentences by REST, one of them staged, a long one interrupted by a key, a hang-up.

The server and the caller are processes of their own; SIP and RTP between them are real. Leaves ``demo.wav`` (what the
caller heard) and ``demo.html`` (a picture of the call), and prints when everything happened on the wire.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from cc_tts.clock import NS_PER_MS, NS_PER_S
from lab.server_under_test import Json, Server
from lab.softphone import SoftphoneProcess

RECORDING = Path("demo.wav")
PICTURE = Path("demo.html")
ENGLISH = "Welcome. Your balance is $1,234.56, and your next payment is due on 3 December."
CHINESE = "您好，欢迎致电客服中心。您的余额是1234.5元。"
LONG = (
    "This announcement is long, so that there is time to interrupt it. Press any key and it will stop at once. "
    "If you do not, it will go on telling you that it is long, and that there is time to interrupt it."
)
KEY_AFTER_S = 2.0
VOICES = Path("voices")
"""``make voices`` puts voices there."""


async def main() -> int:
    print("starting the server …", flush=True)
    with tempfile.TemporaryDirectory() as recordings:
        return await call(f"record.dir={recordings}", *voice_settings())


async def call(*settings: str) -> int:
    async with (
        await Server.with_settings(
            "log.level=error", "tts.engine=auto", "record.min_free_bytes=0", *settings
        ) as server,
        await SoftphoneProcess.start() as phone,
    ):
        print(f"dialing {server.uri('demo')} …", flush=True)
        await phone.dial(server.uri("demo"), record=RECORDING)
        answered = await phone.wait_event("answered", timeout_s=10)
        call_id = await server.call_id(answered["sip_call_id"])
        spoken: list[tuple[str, int, Json, Json]] = []
        voice = chinese_voice((await server.read("/v1/voices"))["voices"])
        print(f"staging the Chinese prompt: {voice['id']} …", flush=True)
        await server.ask("/v1/prompts", {"prompt_id": "welcome", "text": CHINESE, "voice": voice["id"]})
        async with server.events() as log:
            await server.ask(f"/v1/calls/{call_id}/record", {"channels": "dual"})
            for name, body in (
                ("English", {"text": ENGLISH}),
                ("Chinese, live", {"text": CHINESE}),
                ("Chinese, staged", {"prompt_id": "welcome"}),
                ("long, interrupted", {"text": LONG, "barge_in": {"dtmf": True}}),
            ):
                print(f"speaking: {name} …", flush=True)
                posted_ns = time.monotonic_ns()
                utterance = await server.ask(f"/v1/calls/{call_id}/speak", body)
                if "interrupted" in name:
                    await phone.wait_event("speech_start", timeout_s=10, after_ns=posted_ns)
                    await asyncio.sleep(KEY_AFTER_S)
                    key = await phone.dtmf("5")
                done = await log.wait("speak.complete", utterance_id=utterance["id"], timeout_s=60)
                spoken.append((name, posted_ns, done["data"], utterance))
                await asyncio.sleep(0.6)
            await server.ask(f"/v1/calls/{call_id}/hangup")
            report = await phone.report(timeout_s=10)
            ended = await log.wait("call.terminated")
            await log.wait("call.recording", state="saved")
            _, page = await server.get_text(f"/v1/calls/{call_id}/report")
    await asyncio.to_thread(PICTURE.write_text, page, encoding="utf-8")
    show(report, spoken, key, ended["data"]["ending"])
    show_voice(voice)
    return 0 if report["talkspurts"] and not report["rtp"]["lost"] else 1


def voice_settings() -> list[str]:
    return [f"tts.voices_dir={VOICES.resolve()}"] if VOICES.is_dir() else []


def chinese_voice(voices: list[Json]) -> Json:
    """The first one, which is the most natural: a prompt that is staged may be made as slowly as it takes."""
    return next(voice for voice in voices if voice["language"].lower().startswith(("cmn", "zh")))


def show_voice(voice: Json) -> None:
    if voice["engine"] == "espeak":
        print("  Chinese is spoken by espeak-ng; `make voices LANGUAGE=zh` fetches a natural voice (93 MB)")
    else:
        streams = (
            f"{voice['streams']} listeners at a time" if voice["live"] else "too slow to be live, for staged prompts"
        )
        print(f"  {voice['id']}: {voice['cost']:.2f} s of a core for a second of speech on this machine, {streams}")


def show(report: Json, spoken: list[tuple[str, int, Json, Json]], key: Json, ending: Json) -> None:
    answered_ns = report["answered_at_ns"]
    spurts = report["talkspurts"]
    print("\n                      voice                       asked at   first speech   first audio   played   ended")
    for name, posted_ns, done, utterance in spoken:
        who = f"{utterance['voice']} ({utterance['engine']})" if utterance["voice"] else "made before"
        first_ns = next(spurt["start_at_ns"] for spurt in spurts if spurt["start_at_ns"] > posted_ns)
        print(
            f"  {name:18}  {who:25}"
            f" {(posted_ns - answered_ns) / NS_PER_S:9.3f} s {(first_ns - answered_ns) / NS_PER_S:11.3f} s"
            f" {(first_ns - posted_ns) / NS_PER_MS:10.1f} ms {done['played_ms'] / 1000:6.2f} s   {done['completion_cause']}"
        )
    cut_ms = (spurts[-1]["end_at_ns"] - key["at_ns"]) / NS_PER_MS
    print(
        f"\n  key pressed at {(key['at_ns'] - answered_ns) / NS_PER_S:.3f} s; the line was silent {cut_ms:.0f} ms later"
    )
    print(f'  the caller had heard: "{spoken[-1][2]["spoken_text"]}"')
    gaps, rtp = report["rtp"]["gap_ms"], report["rtp"]
    print(
        f"  packet gaps p50 {gaps['p50']:.1f}  p95 {gaps['p95']:.1f}  max {gaps['max']:.1f} ms;"
        f" {rtp['packets']} packets, {rtp['lost']} lost, jitter {rtp['jitter_ms']:.1f} ms"
    )
    print(f"  call ended: {ending['result']}, {ending['reason']}")
    print(f"  what the caller heard: {RECORDING}; the call as a picture: {PICTURE}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
