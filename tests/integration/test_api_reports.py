"""The report of a call over the API: a page of what was said, pressed and recorded."""

import dataclasses
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cc_tts.config.schema import TokenConfig
from cc_tts.recorder.info import RecordingInfo
from cc_tts.recorder.wav import WavFormat
from cc_tts.ua.messages import TracedMessage
from tests.fakes.running_api import RunningApi, make_config, running_api

pytestmark = pytest.mark.integration

READER, LISTENER = "may-only-read", "may-have-recordings"
TOKENS = (
    TokenConfig("may-do-everything"),
    TokenConfig(READER, ("read",)),
    TokenConfig(LISTENER, ("read", "recordings")),
)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    config = make_config(tokens=TOKENS)
    async with running_api(
        dataclasses.replace(config, record=dataclasses.replace(config.record, dir=str(tmp_path)))
    ) as it:
        it.registry.add("c1", answered=True)
        yield it


async def report(api: RunningApi, token: str = LISTENER) -> str:
    answered = await api.ask("GET", "/v1/calls/c1/report", headers={"Authorization": f"Bearer {token}"})
    assert answered.status == 200
    assert answered.headers["Content-Type"].startswith("text/html")
    assert "sandbox" in answered.headers["Content-Security-Policy"]
    return answered.raw.decode()


def record(folder: Path, call_id: str, **info: object) -> None:
    kept = RecordingInfo(recording_id=f"r-{call_id}", call_id=call_id, channels="dual", state="saved", **info)  # type: ignore[arg-type]
    data = bytes([0x80, 0xFF]) * 8000  # loud on the left, silent on the right
    (folder / f"{kept.recording_id}.wav").write_bytes(WavFormat.of(kept).header(len(data)) + data)
    (folder / f"{kept.recording_id}.json").write_bytes(msgspec.json.encode(kept))


async def test_it_shows_what_was_said_and_pressed(api: RunningApi) -> None:
    headers = {"Authorization": "Bearer may-do-everything"}
    spoken = await api.ask("POST", "/v1/calls/c1/speak", {"text": "Press one."}, headers=headers)
    assert spoken.status == 201
    api.registry.ua.digit("c1", "7", at_ns=1)
    api.registry.ua.ended("c1")
    page = await report(api)
    assert "sip:alice@127.0.0.1" in page
    assert ">7</text>" in page
    assert "call.terminated" in page
    assert "en-us (fake)" in page


async def test_recordings_are_outlined_for_those_who_may_have_them(api: RunningApi, tmp_path: Path) -> None:
    record(tmp_path, "c1")
    record(tmp_path, "of-somebody-else")
    assert len(re.findall("<polygon", await report(api))) == 2
    assert "<polygon" not in await report(api, READER)


async def test_a_recording_that_cannot_be_read_is_left_out(api: RunningApi, tmp_path: Path) -> None:
    record(tmp_path, "c1")
    (tmp_path / "r-c1.wav").write_bytes(b"RIFF")
    assert "<polygon" not in await report(api)


async def test_a_call_that_rings_has_a_report(api: RunningApi) -> None:
    api.registry.add("c2")
    answered = await api.ask("GET", "/v1/calls/c2/report", headers={"Authorization": f"Bearer {READER}"})
    assert answered.status == 200
    assert "rings" in answered.raw.decode()


async def test_it_has_the_ladder_of_the_sip_messages(api: RunningApi) -> None:
    text = b"INVITE sip:bob@127.0.0.1 SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n"
    here, there = ("192.0.2.1", 5060), ("192.0.2.9", 5062)
    api.registry.ua.traced = (
        TracedMessage(at_ns=1, is_sent=False, transport="udp", local=here, remote=there, text=text),
    )
    assert "INVITE sip:bob@127.0.0.1" in await report(api)
    api.registry.ua.traced = ()
    assert "<h2>SIP</h2>" not in await report(api)
