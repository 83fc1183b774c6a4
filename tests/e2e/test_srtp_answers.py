"""Answers to our offers of SRTP that say something else than we asked for: they end the call, and not the process."""

import pytest

from lab.configured import Lend, logged, ua_pid
from lab.ports import HOST
from lab.raw_sip import RawCaller, RawPeer
from lab.server_under_test import Json, Server
from lab.tls_peer import CRYPTO, UNUSABLE, offer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

EMPTY_KEY = offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 inline:")
USELESS = UNUSABLE | {
    "an empty key": EMPTY_KEY,
    "the suite of another tag": offer("RTP/SAVP", f"2{CRYPTO[1:]}"),
    "a tag we did not offer": offer("RTP/SAVP", f"999999999999{CRYPTO[1:]}"),
    "two keys": offer("RTP/SAVP", CRYPTO, f"2{CRYPTO[1:]}"),
    "a line cut short": offer("RTP/SAVP", "1"),
    "no m-line": offer("RTP/SAVP", CRYPTO).partition("m=")[0],
    "no SDP": "hello",
}
"""Whether SRTP is optional or required, in the 200 to an INVITE."""
IN_THE_CLEAR = {"no SRTP": offer("RTP/AVP"), "RTP/AVP with a key": offer("RTP/AVP", CRYPTO)}
"""Taken where SRTP is optional."""


async def answered(server: Server, peer: RawPeer, sdp: str) -> str:
    """Call ``peer``, which takes the call with this SDP; returns our name of the call."""
    call = await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{peer.port}"})
    assert "a=crypto:1 " in await peer.expect("INVITE")
    peer.answer("200 OK", body=sdp)
    return str(call["id"])


async def until_ended(server: Server, call_id: str) -> Json:
    return await server.until_call(lambda call: call["id"] == call_id and call["state"] == "terminated")


@pytest.mark.parametrize("srtp", ["optional", "required"])
async def test_useless_answers_end_the_call(lend: Lend, srtp: str) -> None:
    answers = USELESS if srtp == "optional" else USELESS | IN_THE_CLEAR
    async with lend(rtp__srtp=srtp) as server:
        first_pid = ua_pid(server)
        for name, sdp in answers.items():
            async with RawPeer() as peer:
                call_id = await answered(server, peer, sdp)
                await peer.take_bye()
                ended = await until_ended(server, call_id)
                assert ended["ending"]["reason"] == "not_acceptable", name
                assert ended["ending"]["sip_code"] == 488, name
                assert ended["srtp"] is None, name
        async with RawPeer() as peer:
            call_id = await answered(server, peer, offer("RTP/SAVP", CRYPTO))
            call = await server.until_call(lambda call: call["id"] == call_id and call["state"] == "established")
            assert call["srtp"] is True
            await server.post(f"/v1/calls/{call_id}/hangup", {})
            await peer.take_bye()
            await until_ended(server, call_id)
        assert ua_pid(server) == first_pid


@pytest.mark.parametrize(("name", "is_encrypted"), [("no SRTP", False), ("RTP/AVP with a key", True)])
async def test_an_optional_answer_in_the_clear_is_taken(lend: Lend, name: str, *, is_encrypted: bool) -> None:
    async with lend(rtp__srtp="optional") as server, RawPeer() as peer:
        call_id = await answered(server, peer, IN_THE_CLEAR[name])
        call = await server.until_call(lambda call: call["state"] == "established" and call["srtp"] is not None)
        assert call["srtp"] is is_encrypted
        await server.ask(f"/v1/calls/{call_id}/hangup")
        await peer.take_bye()


@pytest.mark.parametrize("name", ["an empty key", "no key", "the suite of another tag", "no SRTP"])
async def test_an_answer_to_hold_that_drops_the_key_ends_the_call(lend: Lend, name: str) -> None:
    async with lend(rtp__srtp="required") as server, RawPeer() as peer:
        call_id = await answered(server, peer, offer("RTP/SAVP", CRYPTO))
        await server.until_call(lambda call: call["state"] == "established" and call["srtp"])
        await server.post(f"/v1/calls/{call_id}/hold", {})
        await peer.expect("INVITE")
        peer.answer("200 OK", body=(USELESS | IN_THE_CLEAR)[name] + "a=recvonly\r\n")
        await peer.take_bye()
        assert (await until_ended(server, call_id))["ending"]["reason"] == "not_acceptable"


@pytest.mark.parametrize("name", ["an empty key", "a master key index", "no encryption"])
async def test_an_answer_in_the_ack_that_is_of_no_use_ends_the_call(lend: Lend, name: str) -> None:
    async with lend(rtp__srtp="required") as server, RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", body="", from_name=b'"SRTP status: Active"')  # a name is no fact
        taken = await caller.final()
        assert taken.status == 200
        assert "a=crypto:1 " in taken.text
        caller.ack(body=USELESS[name])
        await caller.request("BYE")
        ended = await server.until_terminated()
        assert ended["ending"]["reason"] == "not_acceptable"
        if name == "an empty key":
            assert ended["srtp"] is None


async def test_who_is_encrypted_is_not_for_the_caller_to_say(lend: Lend) -> None:
    async with lend(rtp__srtp="optional") as server, RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", body=offer("RTP/AVP"), from_name=b'"SRTP status: Active"')
        await caller.acknowledge(200)
        call = await server.until_call(lambda call: call["state"] == "established" and call["srtp"] is not None)
        assert call["srtp"] is False
        assert (await caller.bye()).status == 200


async def test_a_200_without_an_answer_ends_the_call(lend: Lend) -> None:
    async with lend(rtp__srtp="optional") as server, RawPeer() as peer:
        call = await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{peer.port}"})
        await peer.expect("INVITE")
        peer.answer("200 OK", headers=f"Contact: <sip:peer@{peer.own}>\r\n")
        await peer.take_bye()
        ended = await until_ended(server, call["id"])
        assert (ended["ending"]["result"], ended["ending"]["reason"]) == ("failed", "not_acceptable")


async def test_a_refusal_that_says_what_it_could_do_is_a_refusal(lend: Lend) -> None:
    """488 may carry SDP (RFC 3261 §21.4.26). After the one to an offer without keys nothing is left to offer."""
    async with lend(rtp__srtp="optional") as server, RawPeer() as peer:
        call = await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{peer.port}"})
        for keys in (3, 0):
            assert (await peer.expect("INVITE")).count("a=crypto:") == keys
            peer.answer("488 Not Acceptable Here", body=USELESS["DTLS-SRTP"])
        ended = await until_ended(server, call["id"])
        assert ended["ending"] == {"result": "rejected", "reason": "not_acceptable", "sip_code": 488}
        assert not logged(server, "media_refused")
