"""The caller speaks into a prompt: real RTP, the real model."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from cc_tts.media.g711 import ulaw_encode
from lab import needs
from lab.caller_audio import Samples, cough, pcm_of, said, silence, sound
from lab.configured import Lend, server_with
from lab.server_under_test import LONG_GREETING, EventLog, Json, Server, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SHORT = "Yes, and no."
"""Under 600 ms of speech at once."""


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


def octets(folder: Path, *parts: Samples) -> Path:
    path = folder / "said.ulaw"
    path.write_bytes(b"".join(ulaw_encode(pcm_of(part)) for part in parts))
    return path


async def speak(server: Server, call_id: str, log: EventLog, text: str = LONG_GREETING, **prompt: object) -> str:
    """Speak, and wait until it is heard; returns the utterance's id."""
    answer = await server.create(f"/v1/calls/{call_id}/speak", {"text": text} | prompt)
    await log.wait("speak.started", utterance_id=answer["id"])
    return str(answer["id"])


async def vad_pid(server: Server) -> int:
    await until(lambda: vad_starts(server))
    pid: int = vad_starts(server)[-1]["pid"]
    return pid


def vad_starts(server: Server) -> list[Json]:
    return [each for each in entries(server.whole_log, "child_ready") if each["child"] == "vad"]


async def test_speech_stops_the_prompt(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        spoken = await speak(server, call_id, log, barge_in={"speech": True})
        await asyncio.sleep(1.5)
        await phone.say(octets(tmp_path, said()))
        started = await log.wait("call.speech_started")
        complete = await log.wait("speak.complete", utterance_id=spoken)
        stopped = await log.wait("call.speech_stopped")
        await phone.hangup()
    assert started["data"]["during"] == spoken
    assert complete["data"] | {"completion_cause": "barge_in", "interrupted_by": "speech"} == complete["data"]
    assert complete["data"]["speech_id"] == started["data"]["speech_id"] == stopped["data"]["speech_id"]
    assert started["seq"] < complete["seq"] < stopped["seq"]
    assert 0 < len(complete["data"]["spoken_text"]) < len(LONG_GREETING)
    assert stopped["data"]["duration_ms"] > 300
    _, metrics = await server.get_text("/metrics")
    assert 'cctts_barge_in_seconds_count{by="speech"}' in metrics


async def test_speech_is_heard_at_16_khz_as_well(tmp_path: Path, phone: SoftphoneProcess) -> None:
    settings = {"rtp__clock_rate_hz": "16000", "calls__barge_in_speech": "true"}
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        spoken = await speak(server, call_id, log)
        await asyncio.sleep(1.0)
        await phone.say(octets(tmp_path, said()))
        complete = await log.wait("speak.complete", utterance_id=spoken)
        await log.wait("call.speech_stopped")
        await phone.hangup()
    assert complete["data"]["interrupted_by"] == "speech"


async def test_other_sounds_stop_nothing(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    noises = octets(tmp_path, cough(), silence(700), sound("dtmf:159#", 800), silence(700), said("mhm")[:1600])
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await speak(server, call_id, log, barge_in={"speech": True, "dtmf": False})
        await asyncio.sleep(1.0)
        await phone.say(noises)
        complete = await log.wait("speak.complete")
        await phone.hangup()
    assert complete["data"]["completion_cause"] == "normal"
    assert not [event for event in log.events if event["type"].startswith("call.speech")]


async def test_a_prompt_is_held_and_goes_on(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    policy = {"speech": {"action": "pause", "min_speech_ms": 200, "confirm_ms": 2000, "resume_after_ms": 800}}
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        spoken = await speak(server, call_id, log, barge_in=policy)
        await asyncio.sleep(1.5)
        await phone.say(octets(tmp_path, said(SHORT)))
        paused = await log.wait("speak.paused", utterance_id=spoken)
        resumed = await log.wait("speak.resumed", utterance_id=spoken)
        complete = await log.wait("speak.complete")
        report = await phone.hangup()
    assert paused["data"]["by"] == "speech"
    assert paused["seq"] < resumed["seq"] < complete["seq"]
    assert complete["data"]["completion_cause"] == "normal"
    assert complete["data"]["spoken_text"] == LONG_GREETING
    gaps_ms = [
        (after["start_at_ns"] - before["end_at_ns"]) / 1e6
        for before, after in zip(report["talkspurts"], report["talkspurts"][1:], strict=False)
    ]
    assert max(gaps_ms) > 800, "the line was silent while it was held"


async def test_a_held_prompt_ends_when_the_caller_goes_on(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await speak(server, call_id, log, barge_in={"speech": {"action": "pause", "confirm_ms": 800}})
        await asyncio.sleep(1.0)
        await phone.say(octets(tmp_path, said()))
        complete = await log.wait("speak.complete")
        await log.wait("call.speech_stopped")
        following = await speak(server, call_id, log, "How can I help you?", barge_in={"speech": False})
        after = await log.wait("speak.complete", utterance_id=following)
        await phone.hangup()
    paused = await log.wait("speak.paused")
    assert paused["seq"] < complete["seq"]
    assert complete["data"]["interrupted_by"] == "speech"
    assert after["data"]["completion_cause"] == "normal"


async def test_an_answer_that_is_still_being_written_is_interrupted(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await server.patch(f"/v1/calls/{call_id}", {"barge_in": {"speech": True}})
        told: list[Json] = []
        async with server.http.ws_connect(f"{server.url}/v1/calls/{call_id}/stream") as socket:
            await socket.send_json({"type": "tokens", "text": LONG_GREETING})
            await log.wait("speak.started")
            await asyncio.sleep(1.0)
            await phone.say(octets(tmp_path, said()))
            while not told or told[-1]["type"] != "speak.interrupted":
                told.append(json.loads((await socket.receive(timeout=10)).data))
        await phone.hangup()
    assert told[-1]["by"] == "speech"
    assert told[-1]["spoken_text"] + told[-1]["pending_text"] == LONG_GREETING


async def test_calls_go_on_when_the_vad_process_dies(lend: Lend, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with lend(routes__silent__barge_in_speech="true") as server, server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await speak(server, call_id, log)
        await asyncio.sleep(0.5)
        first = await vad_pid(server)
        os.kill(first, signal.SIGKILL)
        await until(lambda: vad_starts(server)[-1]["pid"] != first)
        assert (await server.get(f"/v1/calls/{call_id}"))[1]["state"] == "established"
        await phone.say(octets(tmp_path, said()))
        complete = await log.wait("speak.complete")
        await log.wait("call.speech_stopped")
        await phone.hangup()
        _, metrics = await server.get_text("/metrics")
    assert complete["data"]["interrupted_by"] == "speech"
    assert 'cctts_process_restarts_total{process="vad"} 1.0' in metrics
