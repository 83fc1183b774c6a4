"""Silence before the first prompt, after the last, and no RTP for those who never acknowledge."""

import asyncio
import time

import pytest

from lab.configured import Lend
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawCaller
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

SILENT = b"\xff"
"""Every byte of a silent packet of PCMU."""
TEXT = b"X-TTS-Text: Good%20bye.\r\n"
HANGUP = b"X-TTS-Then: hangup\r\n"


AT_ONCE = {"calls__hangup_tail_ms": "0", "rtp__unacked_ms": "0"}
LATER = {"calls__hangup_tail_ms": "1000", "rtp__unacked_ms": "500"}


def is_loud(payload: bytes) -> bool:
    return any(byte & 0x7F < 0x60 for byte in payload)


async def packets_after_the_prompt(server: Server, user: str, headers: bytes) -> int:
    """Call, listen to the BYE, and count the packets that came after the last loud one."""
    async with RtpPeer() as phone, RawCaller(user, server.sip_port) as caller:
        await caller.establish(rtp_port=phone.port, headers=headers)
        await caller.request("BYE", 30)
        loud = [at for at, packet in enumerate(phone.heard) if is_loud(packet.payload)]
        assert loud
        return len(phone.heard) - 1 - loud[-1]


@pytest.mark.parametrize(
    ("user", "headers"), [("silent", TEXT + HANGUP), ("annc;play=tts:Good%20bye.", b"")], ids=["header", "annc"]
)
async def test_silence_is_sent_between_a_prompt_and_our_bye(lend: Lend, user: str, headers: bytes) -> None:
    num_packets = {}
    for tail_ms, settings in ((0, AT_ONCE), (1000, LATER)):
        async with lend(**settings) as server:
            num_packets[tail_ms] = await packets_after_the_prompt(server, user, headers)
    assert num_packets[1000] - num_packets[0] >= 25, "a media clock that is held up sends fewer than 50"


async def test_the_first_prompt_waits_for_the_lead_in(server: Server) -> None:
    complete, started = {}, {}
    for delay_ms in (0, 3000):
        async with RtpPeer() as phone, RawCaller("silent", server.sip_port) as caller, server.events() as log:
            caller.invite(rtp_port=phone.port, headers=TEXT + HANGUP + b"X-TTS-Delay: %d\r\n" % delay_ms)
            assert (await caller.final()).status == 200
            acked_s = time.monotonic()
            caller.ack()
            while not any(is_loud(packet.payload) for packet in phone.heard):
                await phone.hears(1)
            waited_ms = (time.monotonic() - acked_s) * 1000
            assert waited_ms >= delay_ms
            started[delay_ms] = (await log.wait("speak.started"))["data"]
            complete[delay_ms] = (await log.wait("speak.complete"))["data"]
            await caller.request("BYE", 10)
    assert started[3000]["time_to_first_audio_ms"] < 3000, "counted from the end of the lead-in"
    assert abs(complete[3000]["played_ms"] - complete[0]["played_ms"]) < 100, "it is no part of the prompt"
    assert complete[3000]["underruns"] == 0


async def test_a_lead_in_that_is_no_number_is_refused(server: Server) -> None:
    for value in ("soon", "-1", "10001", "1e3"):
        async with RawCaller("silent", server.sip_port) as caller:
            caller.invite(headers=TEXT + f"X-TTS-Delay: {value}\r\n".encode())
            await caller.acknowledge(400)


async def test_rtp_stops_when_nobody_acknowledges_and_goes_on_at_the_ack(lend: Lend) -> None:
    async with (
        lend(**LATER) as server,
        RtpPeer() as phone,
        RawCaller("greet", server.sip_port) as caller,
        server.events() as log,
    ):
        caller.invite(rtp_port=phone.port)
        assert (await caller.final()).status == 200
        await phone.hears(10)
        await asyncio.sleep(5)
        before = await phone.num_heard()
        assert before <= 125, "250 packets in five seconds"
        await asyncio.sleep(1)
        assert await phone.num_heard() == before
        caller.ack()
        await phone.hears(10)
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert any(is_loud(packet.payload) for packet in phone.heard[before:])
        assert not any(is_loud(packet.payload) for packet in phone.heard[:before])
        assert (await caller.bye()).status == 200


async def test_no_rtp_at_all_before_the_ack_if_so_configured(lend: Lend) -> None:
    async with (
        lend(**AT_ONCE, routes__wait__answer="manual") as server,
        RtpPeer() as phone,
        RawCaller("greet", server.sip_port) as caller,
        server.events() as log,
    ):
        caller.invite(rtp_port=phone.port)
        assert (await caller.final()).status == 200
        await asyncio.sleep(1)
        assert phone.heard == []
        caller.ack()
        await log.wait("speak.started")
        await phone.hears(10)
        assert (await caller.bye()).status == 200


async def test_early_media_is_not_held_back(lend: Lend) -> None:
    async with (
        lend(**AT_ONCE, routes__wait__answer="manual") as server,
        RtpPeer() as phone,
        RawCaller("wait", server.sip_port) as caller,
        server.events() as log,
    ):
        caller.invite(rtp_port=phone.port)
        call_id = (await log.wait("call.incoming"))["call_id"]
        assert (await server.post(f"/v1/calls/{call_id}/ring", {"early_media": True}))[0] < 300
        assert (await server.post(f"/v1/calls/{call_id}/speak", {"text": "Please wait."}))[0] == 201
        await phone.hears(20)
        await log.wait("speak.complete")
        assert (await server.post(f"/v1/calls/{call_id}/answer", {}))[0] < 300
        await caller.acknowledge(200)
        await log.wait("call.established")
        await phone.hears(10)
        assert (await caller.bye()).status == 200


async def test_a_call_is_hung_up_at_once_where_nothing_is_left_to_hear(lend: Lend) -> None:
    async with (
        lend(calls__hangup_tail_ms="10000") as server,
        RtpPeer() as phone,
        RawCaller("long", server.sip_port) as caller,
        server.events() as log,
    ):
        await caller.establish(rtp_port=phone.port, headers=HANGUP)
        await log.wait("speak.started")
        caller.send("INFO", body="Signal=5\r\nDuration=160\r\n", content_type="application/dtmf-relay")
        await caller.request("BYE", 8)
        assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "barge_in"


async def test_hanging_up_cuts_the_silence_short(lend: Lend) -> None:
    async with (
        lend(calls__hangup_tail_ms="10000") as server,
        RawCaller("silent", server.sip_port) as caller,
        server.events() as log,
    ):
        await caller.establish(headers=TEXT + HANGUP)
        await log.wait("speak.complete")
        assert (await server.only_call())["state"] == "established"
        assert (await caller.bye()).status == 200
        ended = await server.until_terminated()
    assert ended["state"] == "terminated"
