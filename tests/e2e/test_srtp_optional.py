"""``rtp.srtp = "optional"`` towards peers that take no ``a=crypto`` in RTP/AVP, as FreeSWITCH: they answer 488."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.configured import Lend, logged
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import Server
from lab.tls_peer import CRYPTO, offer
from tests.e2e.test_registration import place

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]


@pytest_asyncio.fixture(loop_scope="session")
async def optional(lend: Lend) -> AsyncIterator[Server]:
    async with lend(rtp__srtp="optional") as running:
        yield running


def keys(message: str) -> int:
    return len(re.findall(r"^a=crypto:\d", message, re.MULTILINE))


def call_id(message: str) -> str:
    (found,) = re.findall(r"^Call-ID: (\S+)", message, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("refusal", ["488 Not Acceptable Here", "606 Not Acceptable"])
async def test_a_peer_that_refuses_keys_gets_an_offer_without(optional: Server, refusal: str) -> None:
    async with RawPeer() as peer, RtpPeer() as phone, optional.events() as log:
        call = await place(
            optional, peer, speak={"text": "Good morning."}, headers={"X-Ref": "4711"}, display_name="Bob"
        )
        first = await peer.expect("INVITE")
        assert keys(first) == 3
        peer.answer(refusal)
        await peer.expect("ACK")
        second = await peer.expect("INVITE")
        assert keys(second) == 0
        assert re.search(r"^m=audio \d+ RTP/AVP ", second, re.MULTILINE)
        for header in ("X-Ref: 4711", 'From: "Bob" '):
            assert header in first
            assert header in second
        peer.answer("180 Ringing")
        await log.wait("call.early")
        peer.answer("200 OK", formats="0 101", rtp_port=phone.port)
        await peer.expect("ACK")
        assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "normal"
        now = await optional.only_call()
        assert (now["id"], now["state"], now["srtp"]) == (call["id"], "established", False)
        assert now["sip_call_id"] == call_id(second)
        assert await phone.num_heard() >= 20
        await optional.post(f"/v1/calls/{call['id']}/hangup", {})
        await peer.take_bye()
        await log.wait("call.terminated")
        assert len([event for event in log.events if event["type"] == "call.terminated"]) == 1
    assert len(logged(optional, "offered_again_without_srtp")) == 1


async def test_a_peer_that_refuses_both_offers_has_refused_the_call(optional: Server) -> None:
    async with RawPeer() as peer, optional.events() as log:
        await place(optional, peer)
        for number in (3, 0):
            assert keys(await peer.expect("INVITE")) == number
            peer.answer("488 Not Acceptable Here", headers="Reason: Q.850;cause=88\r\n")
            await peer.expect("ACK")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert (ending["result"], ending["reason"], ending["sip_code"]) == ("rejected", "not_acceptable", 488)
    assert ending["remote_reasons"] == [{"protocol": "Q.850", "cause": 88, "text": ""}]


async def test_other_refusals_are_final(optional: Server) -> None:
    for status in ("486 Busy Here", "415 Unsupported Media Type", "500 Server Error", "603 Decline"):
        async with RawPeer() as peer, optional.events() as log:
            await place(optional, peer)
            await peer.expect("INVITE")
            peer.answer(status)
            await peer.expect("ACK")
            assert (await log.wait("call.terminated"))["data"]["ending"]["sip_code"] == int(status[:3])
            with pytest.raises(TimeoutError):
                await peer.expect("INVITE", timeout_s=0.3)


async def test_a_call_that_is_hung_up_between_the_two_offers_ends(optional: Server) -> None:
    async with RawPeer() as peer, optional.events() as log:
        call = await place(optional, peer)
        await peer.expect("INVITE")
        peer.answer("488 Not Acceptable Here")
        await peer.expect("INVITE")
        await optional.post(f"/v1/calls/{call['id']}/hangup", {})
        peer.answer("180 Ringing")
        await peer.expect("CANCEL")
        peer.answer("200 OK")
        await log.wait("call.terminated")


async def test_early_media_before_the_refusal_does_no_harm(optional: Server) -> None:
    async with RawPeer() as peer, RtpPeer() as phone, optional.events() as log:
        call = await place(optional, peer)
        await peer.expect("INVITE")
        peer.answer("183 Session Progress", formats="0 101", rtp_port=phone.port)
        await phone.hears(5)
        peer.answer("488 Not Acceptable Here")
        await peer.expect("INVITE")
        peer.answer("200 OK", formats="0 101", rtp_port=phone.port)
        await peer.expect("ACK")
        await log.wait("call.established")
        await phone.hears(20)
        await optional.ask(f"/v1/calls/{call['id']}/hangup")
        await peer.take_bye()


async def hold_and_unhold(server: Server, caller: RawCaller, call: str, answers: tuple[str, str]) -> list[str]:
    """What a call is held and taken back with; it gets these answers."""
    requests = []
    for command, body in zip(("hold", "unhold"), answers, strict=True):
        await server.post(f"/v1/calls/{call}/{command}", {})
        requests.append(await caller.request("INVITE", body=body))
        await server.until_call(lambda each, held=command == "hold": each["held"] is held)  # type: ignore[misc]
    return requests


async def test_no_keys_are_offered_inside_a_call_that_is_not_encrypted(optional: Server) -> None:
    async with RawCaller("silent", optional.sip_port) as caller, RtpPeer() as phone, optional.events() as log:
        plain = SDP.format(port=phone.port, formats="0 101")
        caller.send("INVITE", body=plain)
        await caller.acknowledge(200)
        call = (await log.wait("call.established"))["call_id"]
        for request in await hold_and_unhold(optional, caller, call, (plain + "a=recvonly\r\n", plain)):
            assert keys(request) == 0
        await phone.hears(10)
        caller.send("INVITE")  # no offer: that is in our answer
        answer = await caller.final()
        assert (answer.status, keys(answer.text)) == (200, 0)
        caller.ack(body=plain)
        await phone.hears(10)
        assert (await optional.only_call())["srtp"] is False
        assert (await caller.bye()).status == 200


async def test_keys_are_offered_inside_a_call_that_is_encrypted(optional: Server) -> None:
    async with RawCaller("silent", optional.sip_port) as caller, optional.events() as log:
        caller.send("INVITE", body=offer("RTP/SAVP", CRYPTO))
        await caller.acknowledge(200)
        call = (await log.wait("call.established"))["call_id"]
        held, plain = offer("RTP/SAVP", CRYPTO) + "a=recvonly\r\n", offer("RTP/SAVP", CRYPTO)
        for request in await hold_and_unhold(optional, caller, call, (held, plain)):
            assert keys(request) >= 1
        assert (await optional.only_call())["srtp"] is True
        assert (await caller.bye()).status == 200


async def test_keys_may_come_later(optional: Server) -> None:
    """A plain call whose far side offers keys in a re-INVITE is encrypted from then on."""
    async with RawCaller("silent", optional.sip_port) as caller:
        for crypto in ((), (CRYPTO,)):
            caller.send("INVITE", body=offer("RTP/AVP", *crypto))
            answer = await caller.final()
            caller.ack()
            assert (answer.status, keys(answer.text)) == (200, len(crypto))
            await optional.until_call(lambda call, is_secure=bool(crypto): call["srtp"] is is_secure)  # type: ignore[misc]
        assert (await caller.bye()).status == 200


async def test_the_repeated_invite_goes_where_the_first_one_went(optional: Server) -> None:
    """Also after a redirection that is not followed, a call ends with what it was told."""
    async with RawPeer() as peer, optional.events() as log:
        await place(optional, peer)
        await peer.expect("INVITE")
        peer.answer("488 Not Acceptable Here")
        await peer.expect("ACK")
        await peer.expect("INVITE")
        peer.answer("302 Moved", headers=f"Contact: <sip:x@{HOST}:9>\r\n")
        assert (await log.wait("call.terminated"))["data"]["ending"]["contacts"] == [f"sip:x@{HOST}:9"]


async def test_where_srtp_is_required_or_off_no_second_offer_is_made(lend: Lend) -> None:
    for settings, number in (({"rtp__srtp": "required"}, 3), ({}, 0)):
        async with lend(**settings) as server, RawPeer() as peer, server.events() as log:
            await place(server, peer)
            assert keys(await peer.expect("INVITE")) == number
            peer.answer("488 Not Acceptable Here")
            await log.wait("call.terminated")
            with pytest.raises(TimeoutError):
                await peer.expect("INVITE", timeout_s=0.3)
