"""Relays on real calls: keys, speech over words, a server that is killed."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cc_tts import wav_file
from cc_tts.media.g711 import ulaw_encode
from lab import needs
from lab.caller_audio import pcm_of, said
from lab.configured import Lend, of_kind
from lab.server_under_test import EventLog
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.support.relay_application import Application, running_application

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LONG = "One moment please, while I look for everything that we know about your last order and its delivery. " * 3


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def route(application: Application, **relay: Any) -> dict[str, str]:
    return {"routes__agent__relay": toml({"url": application.url, **relay})}


def noise_pcm(ms: int) -> bytes:
    return np.random.default_rng(1).integers(-8000, 8000, ms * 8).astype("<i2").tobytes()


async def begun(log: EventLog, number: int) -> None:
    await until(lambda: len(of_kind(log.events, "speak.started")) >= number)


async def test_keys_and_speech_interrupt_an_application(lend: Lend, phone: SoftphoneProcess, tmp_path: Path) -> None:
    needs.voice_model()
    words = tmp_path / "said.ulaw"
    words.write_bytes(ulaw_encode(pcm_of(said())))
    async with running_application() as application:
        wav_file.write(audio := tmp_path / "audio.wav", noise_pcm(300), rate_hz=8000)
        application.file = audio
        parameters = {"customer": "4711"}
        settings = route(application, welcome_greeting="Hello.", interruptible="any", parameters=parameters)
        async with lend(**settings) as server, server.events() as log:
            await phone.dial(server.uri("agent"))
            call = await server.only_call()
            await log.wait("speak.complete", completion_cause="normal")
            (setup,) = application.last
            assert (setup["callSid"], setup["customParameters"]["customer"]) == (call["id"], "4711")

            for token in LONG.split(" "):
                await application.say(type="text", token=f"{token} ", last=False)
            await application.say(type="text", token="", last=True)
            await begun(log, 2)
            await asyncio.sleep(1.0)
            await phone.dtmf("7")
            await until(lambda: application.of("dtmf"))
            interrupt, dtmf = application.last[1:]
            assert LONG.startswith(interrupt["utteranceUntilInterrupt"])
            assert interrupt["utteranceUntilInterrupt"]
            assert 500 <= interrupt["durationUntilInterruptMs"] <= 5000
            assert dtmf == {"type": "dtmf", "digit": "7"}

            await application.say(type="text", token=LONG, last=True)
            await begun(log, 3)
            await asyncio.sleep(1.0)
            await phone.say(words)
            await until(lambda: len(application.of("interrupt")) == 2)
            assert 500 <= application.last[-1]["durationUntilInterruptMs"] <= 8000
            assert LONG.startswith(application.last[-1]["utteranceUntilInterrupt"])

            music_of = {"source": application.audio_url, "loop": 0, "interruptible": False, "preemptible": True}
            await application.say(type="play", **music_of)  # the caller is still speaking
            await begun(log, 4)
            await asyncio.sleep(1.0)
            await application.say(type="text", token="Good bye.", last=True)
            await application.say(type="end", handoffData="to sales")
            ended = await server.until_terminated()
            over = (await log.wait("call.relay_ended"))["data"]
            *_, music, bye = [each["data"] for each in of_kind(log.events, "speak.complete")]
        assert (over["cause"], over["handoff_data"]) == ("completed", "to sales")
        assert (ended["ending"]["result"], ended["ending"]["reason"]) == ("completed", "relay_ended")
        assert (bye["spoken_text"], bye["completion_cause"]) == ("Good bye.", "normal")
        assert (music["completion_cause"], music["interrupted_by"]) == ("cancelled", "replace")
        assert music["played_ms"] > 900, "the file lasts 300 ms and was played again and again"
        assert not application.of("error")
        assert not server.has_logged("4711")
        assert not server.has_logged("Good bye.")


async def test_a_relay_outlives_the_server(lend: Lend, phone: SoftphoneProcess) -> None:
    async with running_application() as application, lend(**route(application, welcome_greeting="Hello.")) as server:
        async with server.events() as earlier:
            await phone.dial(server.uri("agent"))
            await earlier.wait("speak.complete")
        await server.replace(signal.SIGKILL)
        async with server.events(after=earlier) as log:
            await log.wait("call.adopted")
            await until(lambda: len(application.told) == 2 and application.last)
            first, second = (told[0] for told in application.told)
            assert (second["type"], second["sessionId"]) == ("setup", first["sessionId"])
            await phone.dtmf("5")
            await until(lambda: application.of("dtmf"))
            await application.say(type="text", token="I am back.", last=True)
            spoken = await log.wait("speak.complete", completion_cause="normal")
            assert spoken["data"]["spoken_text"] == "I am back."
            await phone.hangup()
            over = (await log.wait("call.relay_ended"))["data"]
            await log.wait("call.terminated")
        assert over["cause"] == "call_ended"
        assert len(of_kind(log.events, "call.relay_ended")) == 1
