"""What callers and clients see when something goes wrong: a child dies, the server stops, a peer misbehaves."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from lab.configured import Lend, is_running, logged, of_kind, server_with, ua_pid, until_readyz
from lab.peers import Sipp
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawCaller, invite_once, tcp_options
from lab.server_under_test import EventLog, Server
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.test_direct_media import media_address

pytestmark = pytest.mark.e2e

EXIT_TIMEOUT_S = 20.0
SOCKETS_REST_S = 1.0
"""PJLIB keeps those of an ended call for half of it."""


async def speaking(server: Server, phone: SoftphoneProcess, log: EventLog, user: str = "long") -> str:
    """A call on which something is being said; returns its id."""
    await phone.dial(server.uri(user))
    started = await log.wait("speak.started")
    call_id: str = started["call_id"]
    return call_id


async def test_the_ua_process_dies_in_the_middle_of_a_prompt(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call_id = await speaking(server, phone, log)
        old = ua_pid(server)
        os.kill(old, signal.SIGKILL)
        assert (await server.get("/healthz"))[0] == 200
        complete = await log.wait("speak.complete")
        terminated = await log.wait("call.terminated")
        assert complete["seq"] + 1 == terminated["seq"]
        assert complete["data"]["completion_cause"] == "call_ended"
        assert terminated["data"]["ending"] == {"result": "failed", "reason": "ua_process_died", "sip_code": None}
        status, call = await server.get(f"/v1/calls/{call_id}")
        assert (status, call["state"]) == (200, "terminated")
        utterance = await server.utterance(call)
        assert (utterance["state"], utterance["completion_cause"]) == ("complete", "call_ended")
        assert utterance["error"] is None
        status, problem = await server.post(f"/v1/calls/{call_id}/speak", {"text": "too late"})
        assert (status, problem["code"]) == (409, "wrong_state")
        await until(lambda: ua_pid(server) != old)
        await until_readyz(server, 200)
        assert (await phone.hangup())["ending"]["by"] == "us"  # nobody told it; its RTP would go on
        await phone.dial(server.uri("greet"), call="2")
        await log.wait("speak.complete", completion_cause="normal")
        report = await phone.hangup(call="2")
        assert report["talkspurts"]
        assert report["ending"]["result"] == "completed"
    ended = await server.until_all_terminated()
    assert [each["ending"]["reason"] for each in ended] == ["ua_process_died", "remote_hangup"]
    assert len(logged(server, "sip_down")) == 1


async def test_the_ua_process_may_die_again_and_again(server: Server) -> None:
    """Its end of a TCP connection then rests in TIME_WAIT for a minute (RFC 9293 §3.6.1), and does not keep its port."""
    for _ in range(3):
        reader, writer = await asyncio.open_connection(HOST, server.sip_port)
        writer.write(tcp_options(server.sip_port))
        async with asyncio.timeout(EXIT_TIMEOUT_S):
            assert (await reader.readline()).startswith(b"SIP/2.0 200 ")
            os.kill(ua_pid(server), signal.SIGKILL)
            await until_readyz(server, 503)
            status, problem = await server.post("/v1/calls", {"to": "sip:x@127.0.0.1:9"})
            assert (status, problem["code"]) == (503, "user_agent_unavailable")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
        await until_readyz(server, 200)
    assert (await invite_once("silent", server.sip_port)).status == 200
    assert len(logged(server, "ua_cannot_start")) == 0


async def test_a_thousand_queued_prompts(tmp_path: Path, phone: SoftphoneProcess) -> None:
    settings = {"calls__max_queued_prompts": "1000", "http__event_queue_size": "10000"}
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        assert (await server.post(f"/v1/calls/{call_id}/pause", {}))[0] == 200
        ids = [f"u{number}" for number in range(1000)]
        for id_ in ids:
            await server.create(f"/v1/calls/{call_id}/speak", {"text": "one", "utterance_id": id_})
        status, problem = await server.post(f"/v1/calls/{call_id}/speak", {"text": "one too many"})
        assert (status, problem["code"]) == (429, "queue_full")
        assert (await server.get("/healthz"))[0] == 200
        await phone.hangup()
        await log.wait("call.terminated")
        complete = of_kind(log.events, "speak.complete")
        assert [event["data"]["utterance_id"] for event in complete] == ids
        assert {event["data"]["completion_cause"] for event in complete} == {"call_ended"}
        seqs = [event["seq"] for event in log.events if event["call_id"] == call_id]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_sigterm_lets_a_prompt_end_and_a_second_one_ends_the_calls_at_once(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    async with server_with(tmp_path, calls__drain_timeout_s="1000") as server:
        async with server.events() as log:
            text = "This%20sentence%20is%20said%20to%20its%20very%20end."
            await phone.dial(server.uri("silent"), headers={"X-TTS-Text": text, "X-TTS-Then": "hangup"})
            await phone.dial(server.uri("long"), call="2")
            await log.several("speak.started", 2)
            server.signal(signal.SIGTERM)
            await log.wait("server.draining")
            complete = await log.wait("speak.complete")
            assert complete["data"]["completion_cause"] == "normal"
            assert complete["data"]["spoken_text"] == "This sentence is said to its very end."
            report = await phone.report()
            assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
            assert is_running(server.pid)
            server.signal(signal.SIGTERM)
            await log.wait("speak.complete", completion_cause="call_ended")
            _, terminated = await log.several("call.terminated", 2)
        assert terminated["data"]["ending"] == {"result": "completed", "reason": "draining", "sip_code": 200}
        report = await phone.report(call="2")
        assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
        assert await server.ended(EXIT_TIMEOUT_S) == 0


async def test_the_ua_process_ends_with_its_server(tmp_path: Path) -> None:
    server = await Server.start(tmp_path)
    try:
        child = ua_pid(server)
        server.signal(signal.SIGKILL)
        await server.ended(EXIT_TIMEOUT_S)
        await until(lambda: not is_running(child))
    finally:
        await server.end()


async def test_silence_from_the_peer_ends_the_call_but_not_a_held_one(lend: Lend, phone: SoftphoneProcess) -> None:
    async with lend(rtp__inactivity_timeout_s="2") as server, server.events() as log:
        await phone.dial(server.uri("silent"))
        talking = (await log.wait("call.established"))["call_id"]
        await phone.hold()
        await log.wait("call.held")
        async with RawCaller("silent", server.sip_port) as silent:
            await silent.establish()
            bye = await silent.request("BYE")
        assert silent.call_id in bye
        terminated = await log.wait("call.terminated")
        assert terminated["call_id"] != talking
        assert terminated["data"]["ending"]["result"] == "failed"
        assert terminated["data"]["ending"]["reason"] == "rtp_inactivity"
        assert (await server.get(f"/v1/calls/{talking}"))[1]["state"] == "established"
        await phone.unhold()
        await asyncio.sleep(3.0)  # longer than the timeout: the phone sends again
        assert (await server.get(f"/v1/calls/{talking}"))[1]["state"] == "established"
        await phone.hangup()


async def test_what_is_not_utf8_is_answered_and_holds_no_line(server: Server) -> None:
    port = server.sip_port
    for _ in range(3):  # more than there are lines
        assert (await invite_once("silent", port, headers=b"X-Foo: \xff\xfe\r\n")).status == 200
        assert (await invite_once("silent", port, from_name=b'"\xc3\x28"')).status == 200
        assert (await invite_once("silent", port, headers=b"X-TTS-Text: hi\xff\r\n")).status == 400
    assert (await invite_once("silent", port, from_name='"Grüße, 世界"'.encode())).status == 200
    calls = await server.until_all_terminated()
    assert calls[0]["headers"] == {"X-Foo": "\ufffd\ufffd"}
    assert "Grüße, 世界" in calls[-1]["caller"]


async def test_calls_that_end_make_room_and_a_storm_of_calls_gets_503_and_breaks_nothing(server: Server) -> None:
    """PJLIB aborts the UA process when more sockets rest than it has slots for (2 a call, 500 ms)."""
    await asyncio.sleep(SOCKETS_REST_S)  # those of the test before
    for _ in range(8):  # fewer than MIN_CLOSING_CALLS
        assert (await invite_once("silent", server.sip_port)).status == 200
        assert (await invite_once("nobody", server.sip_port)).status == 404
    assert len(await server.until_all_terminated()) == 16
    process = ua_pid(server)
    statuses = [(await invite_once("nobody", server.sip_port)).status for _ in range(100)]
    assert set(statuses) <= {404, 503}
    await asyncio.sleep(SOCKETS_REST_S)
    assert (await invite_once("silent", server.sip_port)).status == 200
    assert ua_pid(server) == process
    assert logged(server, "child_down") == []


async def test_answer_by_request_where_the_route_has_answered(server: Server) -> None:
    async with RawCaller("greet", server.sip_port) as caller:
        caller.invite()
        assert (await caller.final()).status == 200
        call = await server.only_call()
        status, problem = await server.post(f"/v1/calls/{call['id']}/answer", {})
        assert (status, problem["code"]) == (409, "wrong_state")
        caller.ack()
        await server.until_call(lambda each: each["state"] == "established")
        assert (await caller.bye()).status == 200
    assert (await server.until_terminated())["ending"]["reason"] == "remote_hangup"


async def test_the_last_words_before_the_hangup_of_the_caller(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call(
            "bye_during_speak", folder=tmp_path, target_port=server.sip_port, service="long", pause_ms=1000, tcp=True
        )
        complete = await log.wait("speak.complete")
        terminated = await log.wait("call.terminated")
        await caller.passed()
    assert complete["data"]["completion_cause"] == "call_ended"
    assert complete["seq"] < terminated["seq"]
    assert terminated["data"]["ending"]["reason"] == "remote_hangup"


@pytest.mark.both_builds
async def test_a_caller_who_sends_rtcp_alone_is_there(lend: Lend) -> None:
    async with (
        lend(rtp__inactivity_timeout_s="2") as server,
        RtpPeer() as phone,
        RawCaller("silent", server.sip_port) as caller,
        server.events() as log,
    ):
        caller.invite(rtp_port=phone.port)
        answer = await caller.final()
        caller.ack()
        await log.wait("call.established")
        for _ in range(10):
            phone.report(media_address(answer.text))
            await asyncio.sleep(0.5)
        assert (await server.only_call())["state"] == "established"
        await caller.request("BYE")
        assert (await server.until_terminated())["ending"]["reason"] == "rtp_inactivity"
