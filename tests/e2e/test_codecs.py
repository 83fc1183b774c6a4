"""Which codec is spoken, and that it carries what was said."""

import asyncio
import itertools
from pathlib import Path

import pytest

from cc_tts.media import g711
from lab import audio_match
from lab.configured import server_with
from lab.raw_sip import RawCaller, RtpEar
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess
from tests.e2e.test_l16 import PT
from tests.e2e.test_l16 import invite as invite_by_l16
from tests.support.alaw import alaw_encode

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

G722, PCMA, PCMU = 9, 8, 0
FRAME_BYTES = 160


async def test_pcma_carries_the_greeting_whole(fresh_server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    engine = await engine_pcm(GREETING, tmp_path)
    reference = audio_match.samples(g711.alaw_decode(alaw_encode(engine.astype("<i2").tobytes())))
    record = tmp_path / "heard.wav"
    async with fresh_server.events() as log:
        await phone.dial(fresh_server.uri("greet"), codec="pcma", record=record)
        await log.wait("speak.complete")
    await asyncio.sleep(0.3)  # the last packets
    report = await phone.hangup()
    heard, _ = audio_match.read_wav(record)
    match = audio_match.find(reference, heard)
    assert match.corr > 0.999
    assert match.overlap_ms == len(reference) / 8
    assert audio_match.find_gaps(reference, heard) == []
    assert set(report["rtp"]["payload_types"]) == {str(PCMA)}
    assert (await fresh_server.until_terminated())["codec"] == "PCMA"


async def test_g722_carries_speech(server: Server) -> None:
    async with RtpEar() as ear, RawCaller("greet", server.sip_port) as caller, server.events() as log:
        caller.invite(formats=f"{G722} 101", rtp_port=ear.port)
        answer = await caller.final()
        assert answer.status == 200
        assert answer.formats[0] == G722
        caller.ack()
        assert (await log.wait("call.established"))["data"]["codec"] == "G722"
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert (await caller.bye()).status == 200
    assert ear.payload_types == {G722}
    assert {len(payload) for payload in ear.payloads} == {FRAME_BYTES}
    loud = len(set(ear.payloads))
    assert loud >= complete["data"]["played_ms"] / 20 * 0.5, "silence would be the same packet again and again"
    stamps = [int.from_bytes(packet[4:8], "big") for packet in ear.packets]
    assert {(later - earlier) % 2**32 for earlier, later in itertools.pairwise(stamps)} == {FRAME_BYTES}


async def test_the_answer_follows_the_order_of_the_offer(server: Server) -> None:
    for formats, wanted in (("8 0 101", PCMA), ("0 8 101", PCMU), ("18 9 0 101", G722), ("18 4 8 101", PCMA)):
        async with RawCaller("silent", server.sip_port) as caller:
            caller.invite(formats=formats)
            answer = await caller.final()
            assert (answer.status, answer.formats[0]) == (200, wanted)
            caller.ack()
            assert (await caller.bye()).status == 200


async def test_only_configured_codecs_are_spoken(tmp_path: Path) -> None:
    async with server_with(tmp_path, rtp__codecs='["PCMA"]') as server:
        for formats, status in (("0 101", 488), ("9 0 101", 488), ("0 8 101", 200)):
            async with RawCaller("silent", server.sip_port) as caller:
                caller.invite(formats=formats)
                answer = await caller.final()
                caller.ack()
                assert answer.status == status
                if status == 200:
                    assert answer.formats[0] == PCMA
                    assert PCMU not in answer.formats
                    assert (await caller.bye()).status == 200
        async with RawCaller("silent", server.sip_port) as caller:
            invite_by_l16(caller, f"{PT} 101")
            await caller.acknowledge(488)
