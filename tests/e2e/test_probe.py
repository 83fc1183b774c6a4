"""``cc-tts call --probe`` against agents of every temper: real SIP, real RTP, the real model of speech."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cc_tts import wav_file
from cc_tts.media.g711 import ulaw_encode
from cc_tts.softphone.rtp.packets import RtpPacket
from lab import needs
from lab.baresip import Baresip
from lab.caller_audio import RATE_HZ, pcm_of, said
from lab.children import Child
from lab.configured import Lend
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawPeer
from lab.server_under_test import Server
from lab.waiting import until
from tests.architecture.state_tables import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

DETECTOR_MS = 100
"""How far off the end of speech may be."""
WITHOUT_PAUSE = "Your balance is twelve dollars and fifty cents"
"""Between two sentences the detector may hear the half second of silence that is a stop."""
BEGIN_MS = 40
"""How far off its begin may be: a packet, and a piece of the search."""


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


async def probed(uri: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Probe an agent with words of files; returns the exit status and the document."""
    for name, text in (("sentence", "What can you do for me?"), ("interruption", "Please wait a moment.")):
        wav_file.write(folder / f"{name}.wav", pcm_of(said(text, -20.0)), rate_hz=8000)
    argv = [sys.executable, "-m", "cc_tts.cli", "call", uri, "--probe", "--json", str(folder / "probe.json")]
    argv += ["--interruption", str(folder / "interruption.wav")]
    if "--sentence" not in more:
        argv += ["--sentence", str(folder / "sentence.wav")]
    child = await Child.start([*argv, *more], log_path=folder / "probe.log")
    status = await child.wait()
    assert (folder / "probe.json").exists(), child.log
    return status, json.loads((folder / "probe.json").read_text("utf-8"))


def begins_ms(document: dict[str, Any]) -> list[tuple[float, float]]:
    """Where the detector found the agent to begin, with the arrival of the first packet with sound next to it."""
    heard = [each["start_ms"] for each in document["call"]["talkspurts"]]
    return [
        (each["begin_ms"], min(heard, key=lambda at_ms, begin=each["begin_ms"]: abs(at_ms - begin)))  # type: ignore[misc]
        for each in document["agent_speech"]
    ]


async def test_a_voice_agent_is_measured(lend: Lend, tmp_path: Path) -> None:
    async with lend(routes__agent__greeting='""', routes__agent__barge_in_speech="true") as server:
        agent = await Child.start(
            [sys.executable, str(ROOT / "examples/agent.py"), server.url], log_path=tmp_path / "agent.log"
        )
        await until(lambda: "ready" in agent.log)
        page = tmp_path / "probe.html"
        status, found = await probed(server.uri("agent"), tmp_path, "--report", str(page))
        await agent.end()
    assert status == 0
    assert found["findings"] == []
    assert 0 <= found["first_speech_ms"] < 2000
    sentence, interruption, key = found["turns"]
    assert (sentence["is_interruption"], interruption["is_interruption"]) == (False, True)
    assert 550 - DETECTOR_MS < sentence["response_ms"] < 3000, "the server waits 550 ms for more"
    assert 300 - DETECTOR_MS < interruption["stop_ms"] < 1500, "300 ms of speech interrupt"
    assert interruption["response_ms"] is not None
    assert key["what"] == "key"
    assert found["response_ms"]["count"] == 2
    assert [each for each in found["cut_words"] if each["why"] != "late"] == [], "a busy machine sends late"
    for found_ms, heard_ms in begins_ms(found):
        assert found_ms == pytest.approx(heard_ms, abs=BEGIN_MS)
    shown = page.read_text("utf-8")
    assert shown.count("<polygon") == 2
    assert "Probe of sip:agent@" in shown
    assert page.stat().st_mode & 0o077 == (tmp_path / "probe.json").stat().st_mode & 0o077 == 0


async def test_a_phone_that_plays_a_file_never_stops(tmp_path: Path) -> None:
    speech = np.frombuffer(pcm_of(said(WITHOUT_PAUSE, -20.0)), "<i2")
    audio = np.concatenate((np.zeros(8000, np.int16), np.tile(speech, 60_000 * RATE_HZ // 1000 // len(speech))))
    peer = await Baresip.start(tmp_path / "baresip", audio=audio, answers=True)
    try:
        status, found = await probed(f"sip:bot@{HOST}:{peer.sip_port}", tmp_path, "--wait", "2")
    finally:
        await peer.end()
    assert status == 0
    assert found["num_not_stopped"] == 1
    assert found["stop_ms"]["count"] == 0
    assert [each.partition(",")[0] for each in found["findings"]] == [
        "the greeting was not over after 2 s: the caller spoke into it",
        "the agent did not stop within 2 s of an interruption",
    ]
    (begin_ms, heard_ms), *_ = begins_ms(found)
    assert begin_ms == pytest.approx(heard_ms, abs=BEGIN_MS)


async def test_an_agent_that_says_nothing_fails_the_probe(server: Server, tmp_path: Path) -> None:
    words = ("--sentence", "Hello, is anybody there?", "--voice", "en-us")
    status, found = await probed(server.uri("silent"), tmp_path, "--wait", "1", *words)
    assert status == 1
    assert found["first_speech_ms"] is None
    assert found["findings"][0].startswith("the agent never spoke: ")
    assert found["findings"][1:] == ["no greeting within 1 s of the answer", *found["findings"][2:]]
    assert found["call"]["ending"]["by"] == "us"
    assert max(map(abs, found["detector"]["begin_error_ms"])) < BEGIN_MS
    assert max(map(abs, found["detector"]["end_error_ms"])) < DETECTOR_MS


async def test_an_agent_that_hangs_up_and_one_that_refuses(server: Server, tmp_path: Path) -> None:
    headers = ("--header", "X-TTS-Text: We%20are%20closed%20today.", "--header", "X-TTS-Then: hangup")
    status, found = await probed(server.uri("silent"), tmp_path, *headers)
    assert status == 0
    assert [each for each in found["cut_words"] if each["why"] != "late"] == [], "a busy machine sends late"
    assert "before the caller did anything" in found["findings"][0]
    status, found = await probed(server.uri("nobody"), tmp_path)
    assert status == 1
    assert found["findings"][0].startswith("the agent did not answer: refused, 404")


async def test_an_agent_that_is_busy_after_an_announcement(tmp_path: Path) -> None:
    octets = ulaw_encode(pcm_of(said("All lines are busy.", -20.0)))
    packets = [RtpPacket(0, 0, at, 0, octets[at : at + 160]) for at in range(0, len(octets) - 160, 160)]
    async with RawPeer() as agent, RtpPeer() as line:
        probing = asyncio.create_task(probed(f"sip:bot@{agent.own}", tmp_path))
        invite = await agent.expect("INVITE", 30)
        agent.answer("183 Session Progress", formats="0 101", rtp_port=line.port)
        port = int(re.findall(r"^m=audio (\d+)", invite, re.MULTILINE)[0])
        await line.send((HOST, port), packets)
        await asyncio.sleep(0.2)  # the last packets are on their way
        agent.answer("486 Busy Here")
        status, found = await probing
    assert status == 1
    assert found["findings"] == [
        "the agent did not answer: refused, 486 Busy Here",
        "audio came before the answer (early media), with speech",
    ]
    assert found["agent_speech"]
    assert found["turns"] == []
