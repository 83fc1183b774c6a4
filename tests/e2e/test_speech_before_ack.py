"""Text that comes with an INVITE is speech by the time of the ACK, which the caller then hears at once."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.configured import Lend, logged, of_kind
from lab.raw_rtp import RtpPeer
from lab.raw_sip import SDP, RawCaller
from lab.server_under_test import Server
from tests.e2e.test_line_timing import is_loud
from tests.e2e.test_lost_workers import AUTO, worker_pid

pytest.importorskip("onnxruntime")

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(120)]

TEXT = b"X-TTS-Text: Thank%20you%20for%20your%20call.\r\n"
MADE_S = 5.0
"""A sentence of the CPU's voice takes 0.1 to 1 s on the machines of CI (unmeasured beyond that)."""
MAX_SILENT_PACKETS = 5
"""From the ACK on: up to 40 ms to the first word, and what is on its way or held up by a busy machine."""


@pytest_asyncio.fixture(loop_scope="session")
async def neural(lend: Lend) -> AsyncIterator[Server]:
    """A server that makes each speech anew."""
    routes = {"routes__rings__answer": "ring", "routes__rings__ring_ms": "4000"}
    more = {"tts__fallback_engine": "", "rtp__unacked_ms": "32000"}
    async with lend(**AUTO, **routes, **more) as server:
        yield server


async def speech_begins(phone: RtpPeer, packet: int) -> int:
    at = packet
    while True:
        await phone.hears(1)
        for heard in phone.heard[at:]:
            if is_loud(heard.payload):
                return at - packet
            at += 1


@pytest.mark.parametrize("user", ["silent", "rings"])
async def test_what_was_made_before_the_ack_is_heard_though_the_engine_stands_still(neural: Server, user: str) -> None:
    """Between the 200 and the ACK, or while it rings, the speech is made: from then on nothing else can make it."""
    async with RtpPeer() as phone, RawCaller(user, neural.sip_port) as caller, neural.events() as log:
        caller.invite(rtp_port=phone.port, headers=TEXT + b"X-TTS-Then: hangup\r\n")
        if user == "silent":
            assert (await caller.final()).status == 200
        await asyncio.sleep(3 if user == "rings" else MADE_S)
        worker = worker_pid(neural)
        os.kill(worker, signal.SIGSTOP)
        try:
            if user == "rings":
                assert (await caller.final()).status == 200
                await phone.hears(5)
            assert not any(is_loud(packet.payload) for packet in phone.heard)
            assert of_kind(log.events, "speak.started") == []
            acked = await phone.num_heard()
            caller.ack()
            assert await speech_begins(phone, acked) <= MAX_SILENT_PACKETS
        finally:
            os.kill(worker, signal.SIGCONT)
        started = await log.wait("speak.started")
        assert started["data"]["time_to_first_pcm_ms"] == 0.0
        assert started["data"]["time_to_first_audio_ms"] < 20 * (MAX_SILENT_PACKETS + 1)
        complete = (await log.wait("speak.complete"))["data"]
        assert (complete["completion_cause"], complete["underruns"]) == ("normal", 0)
        await caller.request("BYE", 20)


async def test_the_answer_to_a_late_offer_opens_it_too(neural: Server) -> None:
    async with RtpPeer() as phone, RawCaller("silent", neural.sip_port) as caller, neural.events() as log:
        caller.send("INVITE", headers=TEXT)
        assert (await caller.final()).status == 200
        await asyncio.sleep(MADE_S)
        caller.ack(body=SDP.format(port=phone.port, formats="0 101"))
        assert await speech_begins(phone, 0) <= MAX_SILENT_PACKETS
        await log.wait("speak.complete")
        assert (await caller.bye()).status == 200


@pytest.mark.parametrize("user", ["silent", "rings"])
async def test_a_caller_who_goes_before_the_ack_leaves_nothing_behind(neural: Server, user: str) -> None:
    long = b"X-TTS-Text: " + b"%20".join([b"and"] * 300) + b".\r\n"
    async with RtpPeer() as phone, RawCaller(user, neural.sip_port) as caller, neural.events() as log:
        caller.invite(rtp_port=phone.port, headers=long)
        if user == "silent":
            assert (await caller.final()).status == 200
            await asyncio.sleep(1)
            assert (await caller.bye()).status == 200
        else:
            await log.wait("call.early")
            await asyncio.sleep(1)
            caller.send("CANCEL", cseq=1)
        complete = (await log.wait("speak.complete"))["data"]
        assert (complete["completion_cause"], complete["played_ms"], complete["spoken_text"]) == ("call_ended", 0.0, "")
        await neural.until_terminated()
        assert of_kind(log.events, "speak.started") == []
        assert not any(is_loud(packet.payload) for packet in phone.heard)
    await neural.until_metrics('cctts_engine_streams{worker="worker"} 0.0')
    assert "Traceback" not in neural.log
    assert logged(neural, "report_failed") == []


async def test_a_prompt_can_be_stopped_before_anybody_could_hear_it(server: Server) -> None:
    """The leg has no media while it rings, and reports all the same that it has dropped the prompt."""
    async with RawCaller("ring", server.sip_port) as caller, server.events() as log:
        caller.invite(headers=TEXT)
        queued = await log.wait("speak.queued")
        await log.wait("call.early")
        await asyncio.sleep(0.5)
        status, stopped = await server.post(f"/v1/calls/{queued['call_id']}/stop", {"scope": "all"})
        assert (status, stopped["stopped"]) == (200, [queued["data"]["utterance_id"]])
        assert stopped["discarded_ms"] > 0
        complete = (await log.wait("speak.complete"))["data"]
        assert (complete["completion_cause"], complete["played_ms"]) == ("cancelled", 0.0)
        caller.send("CANCEL", cseq=1)
        await server.until_terminated()


@pytest.mark.parametrize("why", ["the application hangs up", "the prompt failed"])
async def test_a_hang_up_before_the_ack_waits_for_it_and_says_why(neural: Server, why: str) -> None:
    """The called side sends no BYE before the ACK (RFC 3261 §15)."""
    async with RawCaller("silent", neural.sip_port) as caller, neural.events() as log:
        is_failure = why == "the prompt failed"
        if is_failure:
            os.kill(worker_pid(neural), signal.SIGSTOP)
        caller.invite(headers=TEXT + b"X-TTS-Then: hangup\r\n" if is_failure else b"")
        assert (await caller.final()).status == 200
        if is_failure:
            assert (await log.wait("speak.complete"))["data"]["error"] == "engine_failed"
        else:
            assert (await neural.post(f"/v1/calls/{(await neural.only_call())['id']}/hangup", {}))[0] == 200
        with pytest.raises(TimeoutError):
            await caller.request("BYE", 1)
        assert of_kind(log.events, "call.terminated") == []
        caller.ack()
        bye = await caller.request("BYE", 5)
        assert ("X-TTS-Cause: error" in bye) == is_failure
        assert "Reason: Q.850;" in bye
        ending = (await neural.until_terminated())["ending"]
        expected = ("failed", "prompt_failed") if is_failure else ("completed", "local_hangup")
        assert (ending["result"], ending["reason"]) == expected
