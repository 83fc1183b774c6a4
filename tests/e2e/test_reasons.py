"""The far side's Reason header (RFC 3326) in the API and in the last event of a call."""

import pytest

from lab.raw_sip import RawCaller, RawPeer
from lab.server_under_test import Json, Server
from tests.e2e.test_registration import place

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

REJECTED = {"protocol": "Q.850", "cause": 21, "text": "CALL_REJECTED"}
ELSEWHERE = {"protocol": "SIP", "cause": 200, "text": "Call completed elsewhere"}


async def ending_of(server: Server, event: Json) -> Json:
    call = await server.until_terminated()
    assert call["ending"] == event["data"]["ending"]
    return dict(call["ending"])


async def test_a_bye_says_why(server: Server) -> None:
    """As FreeSWITCH sends it after ``uuid_kill UUID CALL_REJECTED``."""
    async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
        await caller.establish()
        await log.wait("call.established")
        caller.send("BYE", headers=b'Reason: Q.850;cause=21;text="CALL_REJECTED"\r\n')
        assert (await caller.final()).status == 200
        ending = await ending_of(server, await log.wait("call.terminated"))
    assert (ending["result"], ending["reason"], ending["sip_code"]) == ("completed", "remote_hangup", 200)
    assert ending["remote_reasons"] == [REJECTED]


async def test_a_cancel_says_why(server: Server) -> None:
    async with RawCaller("ring", server.sip_port) as caller, server.events() as log:
        caller.invite()
        await log.wait("call.early")
        caller.send("CANCEL", cseq=1, headers=b'Reason: SIP;cause=200;text="Call completed elsewhere"\r\n')
        ending = await ending_of(server, await log.wait("call.terminated"))
        caller.ack()
    assert ending["reason"] == "cancelled"
    assert ending["remote_reasons"] == [ELSEWHERE]


async def test_a_refusal_says_why(server: Server) -> None:
    async with RawPeer() as peer, server.events() as log:
        await place(server, peer)
        await peer.expect("INVITE")
        header = 'Reason: SIP;cause=603, Q.850;cause=21;text="CALL_REJECTED"\r\nReason: Q.850;cause=oops\r\n'
        peer.answer("603 Decline", headers=header)
        ending = await ending_of(server, await log.wait("call.terminated"))
    assert ending["reason"] == "declined"
    assert ending["remote_reasons"] == [{"protocol": "SIP", "cause": 603, "text": ""}, REJECTED]


async def test_a_bye_without_a_reason_has_none_and_ours_is_not_taken_for_theirs(server: Server) -> None:
    for ends_by_itself in (True, False):
        async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
            await caller.establish()
            call_id = (await log.wait("call.established"))["call_id"]
            if ends_by_itself:
                assert (await caller.bye()).status == 200
            else:
                await server.post(f"/v1/calls/{call_id}/hangup", {})
                await caller.request("BYE", headers="Reason: Q.850;cause=31\r\n")
            assert "remote_reasons" not in (await log.wait("call.terminated"))["data"]["ending"]
