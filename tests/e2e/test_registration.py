"""Registering with a PBX, and calls that the server places."""

import asyncio
import contextlib
import itertools
import re
import signal
from pathlib import Path

import pytest

from lab.configured import logged, server_with, ua_starts, until_readyz
from lab.peers import Sipp
from lab.ports import HOST
from lab.raw_sip import RawCaller, RawPeer, digest_response
from lab.server_under_test import Json, Server
from lab.waiting import until

pytestmark = pytest.mark.e2e

PASSWORD = "open sesame"
CHALLENGE = 'Digest realm="pbx", nonce="abcdef", algorithm=MD5'


async def place(server: Server, peer: RawPeer, **body: object) -> Json:
    """``POST /v1/calls`` to the peer; returns the call."""
    return await server.create("/v1/calls", {"to": f"sip:bob@{HOST}:{peer.port}", **body})


def registering(registrar: RawPeer | Sipp, **more: str) -> dict[str, str]:
    """Settings with which the server registers, and again after a second."""
    return {
        "registration__registrar": f"sip:{HOST}:{registrar.port}",
        "registration__username": "greet",
        "registration__retry_s": "1",
        **more,
    }


async def test_registers_and_takes_calls_for_the_account(tmp_path: Path) -> None:
    registrar = await Sipp.answer("registrar", folder=tmp_path)
    settings = registering(registrar, registration__password=PASSWORD)
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        await until(lambda: "SIP/2.0 200 OK" in registrar.messages)
        binding = re.search(r"^Contact: <sip:greet@[\d.]+:(\d+)", registrar.messages, re.MULTILINE)
        assert binding is not None
        assert int(binding[1]) == server.sip_port
        assert "sesame" not in registrar.messages
        async with RawCaller("greet", server.sip_port) as caller:
            await caller.establish()
            assert (await log.wait("call.incoming"))["data"]["callee"].startswith("<sip:greet@")
            await log.wait("call.established")
            assert (await caller.bye()).status == 200
        assert (await server.get("/readyz"))[0] == 200
    await registrar.passed()
    assert "sesame" not in server.log


async def test_a_registrar_is_asked_again_after_every_refusal_and_challenged_invites_have_its_password(
    tmp_path: Path,
) -> None:
    """Each refusal comes from a registrar of its own: the pause before the next try doubles with each failure."""
    refusals = ("503 Service Unavailable", "302 Moved Temporarily", "501 Not Implemented", "603 Decline")
    async with contextlib.AsyncExitStack() as stack:
        registrar, *others = [await stack.enter_async_context(RawPeer()) for _ in ("403 Forbidden", *refusals)]
        settings = registering(registrar, registration__password=PASSWORD, registration__expires_s="60")
        for status, other in zip(refusals, others, strict=True):
            trunk = {"registrar": f"sip:{HOST}:{other.port}", "username": "greet", "retry_s": "1"}
            settings |= {f"trunks__of{status[:3]}__{key}": value for key, value in trunk.items()}
        async with server_with(tmp_path, **settings) as server:
            for status, each in zip(("403 Forbidden", *refusals), (registrar, *others), strict=True):
                await each.expect("REGISTER")
                each.answer(status, headers=f"Contact: <sip:greet@{HOST}:9>\r\n" if status[0] == "3" else "")
            for other in others:
                await other.expect("REGISTER")
                other.answer("200 OK")
            await until_readyz(server, 503, reason="not registered with the PBX")
            assert (await server.get("/healthz"))[0] == 200
            register = await registrar.expect("REGISTER")
            assert f"Contact: <sip:greet@{HOST}:{server.sip_port}" in register
            async with server.events() as log, RawCaller("silent", server.sip_port) as caller:
                await caller.establish()
                await log.wait("call.established")
                registrar.answer("403 Forbidden")
                await registrar.expect("REGISTER")
                registrar.answer("200 OK", headers="Contact: *\r\nExpires: 60\r\n")
                await until_readyz(server, 200)
                assert (await caller.bye()).status == 200
            for status, asks, answers in (
                ("401 Who are you", "WWW-Authenticate", "Authorization"),
                ("407 Who are you", "Proxy-Authenticate", "Proxy-Authorization"),
            ):
                await challenged(server, status, asks, answers)
            assert "assertion_failed" not in server.log
            assert len(ua_starts(server)) == 1, "the UA process lives"


async def challenged(server: Server, status: str, asks: str, answers: str) -> None:
    """A call whose far side asks for the account's password before it takes it."""
    async with RawPeer() as peer, server.events() as log:
        await place(server, peer)
        await peer.expect("INVITE")
        peer.answer(status, headers=f"{asks}: {CHALLENGE}\r\n")
        await peer.expect("ACK")
        invite = await peer.expect("INVITE")
        given = re.search(rf"^{answers}: (.*?)\r$", invite, re.MULTILINE)
        assert given is not None
        response = re.search(r'response="(\w+)"', given[1])
        assert response is not None
        assert response[1] == digest_response(given[1], method="INVITE", password=PASSWORD)
        peer.answer("200 OK", formats="0 101")
        await peer.expect("ACK")
        call_id = (await log.wait("call.established"))["call_id"]
        assert (await server.post(f"/v1/calls/{call_id}/hangup", {}))[0] == 200
        await peer.take_bye()
        await log.wait("call.terminated")


async def test_a_registrar_is_not_asked_again_after_an_answer_that_the_configuration_stops_on_and_the_next_server_knows_it(
    tmp_path: Path,
) -> None:
    """It answers once only, and the server is killed under a call."""
    async with RawPeer() as registrar:
        settings = registering(registrar, registration__stop_on="[403, 603]")
        async with server_with(tmp_path, **settings) as server:
            await registrar.expect("REGISTER")
            registrar.answer("603 Decline")
            await until(lambda: logged(server, "registration_stopped"))
            with pytest.raises(TimeoutError):
                await registrar.expect("REGISTER", timeout_s=4)  # four times registration.retry_s
            await until_readyz(server, 503, reason="not registered with the PBX")
            async with RawCaller("silent", server.sip_port) as caller:
                await caller.establish()
                await until(lambda: logged(server, "call_answered"))
                assert await server.replace(signal.SIGKILL) == -signal.SIGKILL
                await until_readyz(server, 503, reason="not registered with the PBX")
                assert len(logged(server, "registration")) == 2
                assert (await caller.bye()).status == 200


async def test_a_binding_that_is_granted_for_a_moment_is_refreshed_in_time(tmp_path: Path) -> None:
    async with RawPeer() as registrar, server_with(tmp_path, **registering(registrar)):
        loop, seconds = asyncio.get_running_loop(), []
        for _ in range(3):
            register = await registrar.expect("REGISTER")
            seconds.append(loop.time())
            contact = re.search(r"^Contact: .*?\r\n", register, re.MULTILINE)
            assert contact is not None
            registrar.answer("200 OK", headers=f"{contact[0]}Expires: 4\r\n")
        assert max(late - early for early, late in itertools.pairwise(seconds)) < 4


async def test_places_a_call_and_speaks(server: Server) -> None:
    async with RawPeer() as peer, server.events() as log:
        call = await place(
            server,
            peer,
            **{
                "from": "sip:desk@127.0.0.1",
                "headers": {"X-Campaign": "42"},
                "speak": {"text": "Hi.", "then": "hangup"},
            },
        )
        invite = await peer.expect("INVITE")
        assert re.search(r"^From: .*sip:desk@127\.0\.0\.1", invite, re.MULTILINE)
        assert re.search(r"^X-Campaign: 42\r$", invite, re.MULTILINE)
        assert re.search(r"^m=audio \d+ RTP/AVP 0 8 9 \d+", invite, re.MULTILINE), "the order of rtp.codecs"
        peer.answer("180 Ringing")
        assert (await log.wait("call.early"))["data"]["sip_code"] == 180
        peer.answer("200 OK", formats="8 101")
        await peer.expect("ACK")
        assert (await log.wait("call.established"))["data"]["codec"] == "PCMA"
        assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "normal"
        await peer.take_bye()
        ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert (ending["result"], ending["reason"]) == ("completed", "prompt_finished")
    assert (await server.get(f"/v1/calls/{call['id']}"))[1]["direction"] == "outbound"


async def test_refusals_of_the_far_side(server: Server) -> None:
    for status, result, reason in (
        ("486 Busy Here", "rejected", "busy"),
        ("404 Not Found", "rejected", "not_found"),
        ("603 Decline", "rejected", "declined"),
        ("503 Service Unavailable", "failed", "overload"),
        ("488 Not Acceptable Here", "rejected", "not_acceptable"),
        ("407 Proxy Authentication Required", "rejected", "auth_failed"),
    ):
        async with RawPeer() as peer, server.events() as log:
            call = await place(server, peer, speak="never said")
            await peer.expect("INVITE")
            more = f"Proxy-Authenticate: {CHALLENGE}\r\n" if status.startswith("407") else ""
            peer.answer(status, headers=more)
            await peer.expect("ACK")
            complete = await log.wait("speak.complete")
            ending = (await log.wait("call.terminated"))["data"]["ending"]
            assert complete["data"]["completion_cause"] == "call_ended"
            assert (ending["result"], ending["reason"], ending["sip_code"]) == (result, reason, int(status[:3]))
            assert (await server.get(f"/v1/calls/{call['id']}"))[1]["state"] == "terminated"


async def test_nobody_answers(server: Server) -> None:
    async with RawPeer() as peer, server.events() as log:
        await place(server, peer, timeout_s=1)
        invite = await peer.expect("INVITE")
        peer.answer("180 Ringing")
        await peer.expect("CANCEL")
        peer.answer("200 OK")
        peer.request = invite
        peer.answer("487 Request Terminated")
        await peer.expect("ACK")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert (ending["result"], ending["reason"]) == ("unanswered", "no_answer")
