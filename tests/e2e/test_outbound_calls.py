"""Calls that the server places and what becomes of them, identities, hold that meets another re-INVITE."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.configured import Lend, of_kind
from lab.ports import HOST
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import Server
from tests.e2e.test_registration import place

pytestmark = pytest.mark.e2e


@pytest_asyncio.fixture(loop_scope="session")
async def following(lend: Lend) -> AsyncIterator[Server]:
    async with lend(sip__follow_redirects="true", sip__nameservers='["127.0.0.53"]') as running:
        yield running


def contact(*peers: RawPeer) -> str:
    return "Contact: " + ", ".join(f'"a,b" <sip:bob@{HOST}:{peer.port}>;q=0.5' for peer in peers) + "\r\n"


async def test_a_redirection_is_reported_with_its_contacts(server: Server) -> None:
    for status, headers, contacts in (
        (
            "302 Moved Temporarily",
            f"Contact: <sip:carol@{HOST}:9;x=y>;q=1, tel:+491\r\n",
            [f"sip:carol@{HOST}:9;x=y", "tel:+491"],
        ),
        (
            "300 Multiple Choices",
            f"m: <sip:a@{HOST}>\r\nContact: <sip:b@{HOST}>\r\n",
            [f"sip:a@{HOST}", f"sip:b@{HOST}"],
        ),
        ("305 Use Proxy", "", []),
    ):
        async with RawPeer() as peer, server.events() as log:
            await place(server, peer)
            await peer.expect("INVITE")
            peer.answer(status, headers=headers)
            await peer.expect("ACK")
            ending = (await log.wait("call.terminated"))["data"]["ending"]
            wanted = {"result": "rejected", "reason": "redirected", "sip_code": int(status[:3]), "contacts": contacts}
            assert ending == wanted


@pytest.mark.parametrize(
    ("status", "header", "reason"),
    [
        ("302 Moved Temporarily", "Contact: <sip:carol@[", "redirected"),
        ("302 Moved Temporarily", "Record-Route: <sip:p;hide>", "redirected"),
        ("486 Busy Here", "To: <sip:carol@example.org>", "busy"),
    ],
)
async def test_a_refusal_that_pjsip_cannot_be_shown_ends_the_call(
    server: Server, status: str, header: str, reason: str
) -> None:
    async with RawPeer() as peer, server.events() as log:
        await place(server, peer, timeout_s=60)
        await peer.expect("INVITE")
        peer.answer("180 Ringing")
        await log.wait("call.early")
        peer.answer(status, headers=f"{header}\r\n")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
        assert (ending["reason"], ending["sip_code"]) == (reason, int(status[:3]))
        await peer.expect("CANCEL")
        peer.answer("481 Call/Transaction Does Not Exist")


@pytest.mark.parametrize("header", ["Contact: <sip:carol@[", "Record-Route: <sip:p;hide>"])
async def test_an_answer_that_pjsip_cannot_be_shown_ends_the_call(server: Server, header: str) -> None:
    async with RawPeer() as peer, server.events() as log:
        await place(server, peer, timeout_s=60)
        await peer.expect("INVITE")
        peer.answer("180 Ringing")
        await log.wait("call.early")
        peer.answer("200 OK", headers=f"{header}\r\n")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
        assert ending == {"result": "failed", "reason": "not_acceptable", "sip_code": 488}


async def test_a_redirection_is_followed_where_the_configuration_says_so(following: Server) -> None:
    async with RawPeer() as first, RawPeer() as second, following.events() as log:
        call = await place(following, first)
        await first.expect("INVITE")
        first.answer("302 Moved Temporarily", headers=contact(second))
        await first.expect("ACK")
        invite = await second.expect("INVITE")
        assert invite.startswith(f"INVITE sip:bob@{HOST}:{second.port} SIP/2.0\r\n")
        second.answer("200 OK", formats="0 101")
        await second.expect("ACK")
        assert (await log.wait("call.established"))["call_id"] == call["id"]
        assert (await following.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
        await second.take_bye()
        await log.wait("call.terminated")


async def test_redirections_in_a_circle_end_with_the_last(following: Server) -> None:
    async with RawPeer() as first, RawPeer() as second, following.events() as log:
        await place(following, first)
        await first.expect("INVITE")
        first.answer("302 Moved Temporarily", headers=contact(second))
        await second.expect("INVITE")
        second.answer("301 Moved Permanently", headers=contact(first))
        ending = (await log.wait("call.terminated"))["data"]["ending"]
        assert (ending["reason"], ending["sip_code"]) == ("redirected", 301)
        with pytest.raises(TimeoutError):
            await first.expect("INVITE", timeout_s=1)


async def test_redirections_without_end_end(following: Server) -> None:
    async with contextlib.AsyncExitStack() as stack, following.events() as log:
        peers = [await stack.enter_async_context(RawPeer()) for _ in range(7)]
        await place(following, peers[0])
        for peer, after in itertools.pairwise(peers):
            await peer.expect("INVITE")
            peer.answer("302 Moved Temporarily", headers=contact(after))
        ending = (await log.wait("call.terminated"))["data"]["ending"]
        assert (ending["reason"], ending["contacts"]) == ("redirected", [f"sip:bob@{HOST}:{peers[6].port}"])


async def test_redirections_that_are_not_followed(following: Server) -> None:
    """To a URI with headers, over IPv6, over a transport that is not served, with an asserted identity to a stranger."""
    body = {"asserted_identity": "tel:+4930123"}
    for uri, more in (
        (f"sip:bob@{HOST}:9?X-TTS-Text=hi", {}),
        ("sip:bob@[::1]:9", {}),
        (f"sips:bob@{HOST}:9", {}),
        (f"sip:bob@{HOST}:9;transport=tls", {}),
        ("sip:bob@192.0.2.1:9", body),
    ):
        async with RawPeer() as peer, following.events() as log:
            await place(following, peer, **more)
            invite = await peer.expect("INVITE")
            assert ("P-Asserted-Identity: <tel:+4930123>" in invite) == bool(more)
            peer.answer("302 Moved Temporarily", headers=f"Contact: <{uri}>\r\n")
            ending = (await log.wait("call.terminated"))["data"]["ending"]
            assert (ending["reason"], ending["sip_code"]) == ("redirected", 302), uri


async def test_a_call_that_cannot_be_sent_is_unreachable_and_not_overload(following: Server) -> None:
    for to in ("sip:bob@nobody.example", f"sip:bob@{HOST}:9;transport=tcp"):
        async with following.events() as log:
            assert (await following.post("/v1/calls", {"to": to}))[0] == 201
            ending = (await log.wait("call.terminated"))["data"]["ending"]
            assert ending == {"result": "failed", "reason": "unreachable", "sip_code": None}, to


async def test_the_identity_of_an_outbound_call(server: Server) -> None:
    own = f"sip:cc-tts@{HOST}"
    name = '"Bär, \\"Co\\""'
    for body, caller, sender in (
        ({}, own, f"<?{own}>?"),
        ({"from": "sip:desk@example.com"}, "sip:desk@example.com", "<?sip:desk@example.com>?"),
        (
            {"display_name": 'Bär, "Co"', "asserted_identity": f"sip:desk@{HOST}"},
            f"{name} <{own}>",
            re.escape(f"{name} <{own}>"),
        ),
    ):
        async with RawPeer() as peer, server.events() as log:
            call = await place(server, peer, **body)
            assert call["caller"] == caller
            invite = await peer.expect("INVITE")
            assert re.search(rf"^From: {sender};tag=", invite, re.MULTILINE), invite
            asserted = re.findall(r"^P-Asserted-Identity: (.*?)\r$", invite, re.MULTILINE)
            assert asserted == ([f"<sip:desk@{HOST}>"] if "asserted_identity" in body else [])
            peer.answer("486 Busy Here")
            await log.wait("call.terminated")


IDENTITY = (
    b"P-Asserted-Identity: <sip:alice@example.com>\r\nP-Asserted-Identity: <tel:+4930123>\r\n"
    b'Remote-Party-ID: "Alice" <sip:alice@example.com>;party=calling\r\nDiversion: <sip:1000@pbx>;reason=no-answer\r\n'
    b"History-Info: <sip:1000@pbx>;index=1\r\nX-Ref: 7\r\n"
)


@pytest.mark.parametrize("trusted", [True, False])
async def test_who_is_calling_is_told_of_trusted_peers(lend: Lend, *, trusted: bool) -> None:
    peers = '["127.0.0.0/8"]' if trusted else '["192.0.2.0/24"]'
    async with (
        lend(sip__trusted_peers=peers) as server,
        server.events() as log,
        RawCaller("silent;tenant=red;x", server.sip_port) as caller,
    ):
        await caller.establish(headers=IDENTITY)
        data = (await log.wait("call.incoming"))["data"]
        call = await server.only_call()
        assert (await caller.bye()).status == 200
    wanted = {"X-Ref": "7"}
    if trusted:
        wanted |= {
            "P-Asserted-Identity": "<sip:alice@example.com>, <tel:+4930123>",
            "Remote-Party-ID": '"Alice" <sip:alice@example.com>;party=calling',
            "Diversion": "<sip:1000@pbx>;reason=no-answer",
            "History-Info": "<sip:1000@pbx>;index=1",
        }
    parameters = {"tenant": "red", "x": ""} if trusted else {}
    for seen in (data, call):
        assert (seen["headers"], seen["uri_parameters"]) == (wanted, parameters)


async def test_the_codec_of_a_call_follows_a_reinvite(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish(formats="0 101")
        await server.until_call(lambda call: call["codec"] == "PCMU")
        await caller.establish(formats="8 101")
        await server.until_call(lambda call: call["codec"] == "PCMA")
        assert (await caller.bye()).status == 200


async def next_invite(caller: RawCaller, timeout_s: float = 10.0) -> str:
    seen = getattr(caller, "seen", None)
    if seen is None:
        seen = caller.seen = set()  # type: ignore[attr-defined]
    async with asyncio.timeout(timeout_s):
        while True:
            text = await caller.received.get()
            cseq = re.search(r"^CSeq: (\d+ INVITE)\r$", text, re.MULTILINE)
            if text.startswith("INVITE ") and cseq is not None and cseq[1] not in seen:
                seen.add(cseq[1])
                return text


async def test_a_hold_of_a_call_that_came_in_is_tried_again_after_491(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
        await caller.establish()
        call_id = (await log.wait("call.established"))["call_id"]
        assert (await server.post(f"/v1/calls/{call_id}/hold", {}))[0] == 200
        for _ in range(2):
            respond(caller, await next_invite(caller), "491 Request Pending")
        again = await next_invite(caller)
        assert "a=sendonly" in again
        respond(caller, again, "200 OK", body=SDP.format(port=9, formats="0 101") + "a=recvonly\r\n")
        await log.wait("call.held", by="local")
        assert not of_kind(log.events, "call.command_failed")
        assert (await server.post(f"/v1/calls/{call_id}/unhold", {}))[0] == 200
        respond(caller, await next_invite(caller), "491 Request Pending")
        again = await next_invite(caller)
        assert "a=sendonly" not in again
        respond(caller, again, "200 OK", body=SDP.format(port=9, formats="0 101"))
        await log.wait("call.unheld")
        assert (await caller.bye()).status == 200


async def test_a_hold_that_is_refused_is_reported(server: Server) -> None:
    async with RawPeer() as peer, server.events() as log:
        call = await place(server, peer)
        await peer.expect("INVITE")
        peer.answer("200 OK", formats="0 101")
        await peer.expect("ACK")
        await log.wait("call.established")
        assert (await server.post(f"/v1/calls/{call['id']}/hold", {}))[0] == 200
        await peer.expect("INVITE")
        peer.answer("491 Request Pending")
        answered_s = asyncio.get_running_loop().time()
        await peer.expect("INVITE")
        # nothing comes before 2.1 s, RFC 3261 §14.1; the clock of the test started a moment before
        assert asyncio.get_running_loop().time() - answered_s >= 2.0
        peer.answer("488 Not Acceptable Here")
        failed = await log.wait("call.command_failed")
        assert failed["data"] == {"command": "hold", "detail": "the far side answered 488"}
        assert (await server.get(f"/v1/calls/{call['id']}"))[1]["held"] is False
        assert (await server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
        await peer.take_bye()
        await log.wait("call.terminated")


def respond(caller: RawCaller, request: str, status: str, *, body: str = "") -> None:
    lines = re.findall(r"^((?:Via|From|To|Call-ID|CSeq)\s*:.*)\r$", request, re.MULTILINE | re.IGNORECASE)
    head = "".join(f"{line}\r\n" for line in lines) + f"Contact: <sip:raw@{caller.own}>\r\n"
    kind = "Content-Type: application/sdp\r\n" if body else ""
    caller.transmit(f"SIP/2.0 {status}\r\n{head}{kind}Content-Length: {len(body)}\r\n\r\n{body}".encode())
