"""The caller speaks into a prompt: real RTP, the real model."""

import asyncio
from pathlib import Path

import pytest

from bench.softphone import SoftphoneProcess
from cc_tts.media.g711 import ulaw_encode
from tests.e2e.server_under_test import LONG_GREETING, Server
from tests.support import needs
from tests.support.caller_audio import Samples, pcm_of, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PROMPT = {"text": LONG_GREETING, "utterance_id": "long"}
SPEECH = {"speech": True}


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


def octets(folder: Path, *parts: Samples) -> Path:
    """A file for the softphone to say."""
    path = folder / "said.ulaw"
    path.write_bytes(b"".join(ulaw_encode(pcm_of(part)) for part in parts))
    return path


async def test_speech_stops_the_prompt(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        call_id = (await log.wait("call.established"))["call_id"]
        status, answer = await server.post(f"/v1/calls/{call_id}/speak", PROMPT | {"barge_in": SPEECH})
        assert status == 201, answer
        await log.wait("speak.started")
        await asyncio.sleep(1.5)
        saying = await phone.say(octets(tmp_path, said()))
        started = await log.wait("call.speech_started")
        complete = await log.wait("speak.complete", utterance_id="long")
        stopped = await log.wait("call.speech_stopped")
        report = await phone.hangup()
    assert started["data"]["during"] == "long"
    assert complete["data"] | {"completion_cause": "barge_in", "interrupted_by": "speech"} == complete["data"]
    assert complete["data"]["speech_id"] == started["data"]["speech_id"] == stopped["data"]["speech_id"]
    assert complete["seq"] > started["seq"]
    (prompt,) = report["talkspurts"]
    assert prompt["end_at_ns"] > saying["at_ns"]
