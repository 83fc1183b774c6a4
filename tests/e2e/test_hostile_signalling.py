"""Requests nobody should send, and offers that are unusual but legal: each is answered, and no line is lost."""

import asyncio

import pytest

from lab.configured import Lend
from lab.ports import HOST
from lab.raw_sip import RawCaller, RawPeer, invite_once
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

HEAD = "v=0\r\no=raw 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
AUDIO = "m=audio 9 RTP/AVP 0\r\n"


async def test_requests_outside_a_dialog_are_answered(server: Server) -> None:
    statuses = {
        **dict.fromkeys(("MESSAGE", "REGISTER", "REFER", "PUBLISH", "TELEPORT"), 405),
        **dict.fromkeys(("BYE", "CANCEL", "INFO", "NOTIFY"), 481),
        "SUBSCRIBE": 489,
    }
    for method, status in statuses.items():
        async with RawCaller("silent", server.sip_port) as caller:
            caller.send(method, headers=b"Event: presence\r\nRefer-To: <sip:a@127.0.0.1>\r\n")
            answer = await caller.final()
        assert answer.status == status, method
        if status == 405:
            assert "INVITE" in (answer.header("Allow") or "")


async def test_a_caller_cannot_make_the_server_call_somebody(server: Server) -> None:
    async with RawCaller("victim", 0) as victim, RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        caller.send("REFER", headers=f"Refer-To: <sip:victim@{victim.own}>\r\n".encode())
        assert (await caller.final()).status == 603
        await asyncio.sleep(0.5)  # time for an INVITE that must not come
        assert victim.received.empty()
        assert (await caller.bye()).status == 200


async def test_a_caller_cannot_take_over_the_call_of_another(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RawCaller("silent", server.sip_port) as thief:
        answer = await caller.establish()
        ours = (answer.header("To") or "").rpartition(";tag=")[2]
        theirs = (answer.header("From") or "").rpartition(";tag=")[2]
        thief.invite(headers=f"Replaces: {caller.call_id};to-tag={ours};from-tag={theirs}\r\n".encode())
        assert (await thief.final()).status == 603
        assert (await caller.bye()).status == 200, "the call is still there"


async def test_a_called_party_cannot_send_the_server_elsewhere(server: Server) -> None:
    async with RawCaller("victim", 0) as victim, RawPeer() as peer, server.events() as log:
        assert (await server.post("/v1/calls", {"to": f"sip:bob@{HOST}:{peer.port}"}))[0] == 201
        await peer.expect("INVITE")
        peer.answer("302 Moved Temporarily", headers=f"Contact: <sip:victim@{victim.own}>\r\n")
        await peer.expect("ACK")
        await log.wait("call.terminated")
        assert victim.received.empty()


@pytest.mark.parametrize(
    "media",
    ["m=audio 9 RTP/SAVP 0\r\n" + AUDIO, "m=video 11 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n" + AUDIO],
    ids=["SRTP offered beside plain RTP", "video before audio"],
)
async def test_audio_behind_another_media_line(server: Server, media: str) -> None:
    for _ in range(5):  # one more than there are lines
        async with server.events() as log, RawCaller("greet", server.sip_port) as caller:
            caller.send("INVITE", body=HEAD + media)
            await caller.acknowledge(200)
            await log.wait("speak.started")
            assert (await caller.bye()).status == 200
            await log.wait("call.terminated")
    assert {call["codec"] for call in await server.calls()} == {"PCMU"}
    assert (await server.get("/readyz"))[0] == 200


async def test_a_caller_that_only_listens_owes_no_rtp(lend: Lend) -> None:
    async with (
        lend(rtp__inactivity_timeout_s="2") as server,
        server.events() as log,
        RawCaller("greet", server.sip_port) as caller,
    ):
        caller.send("INVITE", body=HEAD + AUDIO + "a=recvonly\r\n")
        await caller.acknowledge(200)
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert complete["data"]["played_ms"] > 2500, "longer than the timeout, or this shows nothing"
        assert (await caller.bye()).status == 200


async def test_what_is_not_a_digit_interrupts_nothing(server: Server) -> None:
    async with server.events() as log, RawCaller("greet", server.sip_port) as caller:
        caller.send("INVITE", body=HEAD + AUDIO)
        await caller.acknowledge(200)
        await log.wait("speak.started")
        for signal in ("\u00fc", "e", " ", "?"):
            caller.send("INFO", body=f"Signal={signal}\r\nDuration=160\r\n", content_type="application/dtmf-relay")
            assert (await caller.final()).status in (200, 400, 415)
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert (await caller.bye()).status == 200
    assert "callback_failed" not in server.log


async def test_the_lines_are_free_afterwards(server: Server) -> None:
    assert (await invite_once("silent", server.sip_port)).status == 200
