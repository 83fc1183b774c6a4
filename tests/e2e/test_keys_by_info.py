"""Keys that we send to a far side without telephone events: by INFO if it allows that, else not at all."""

import pytest

from lab.raw_rtp import RtpPeer
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import Server
from tests.e2e.test_registration import place

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

PLAIN = SDP.replace("a=rtpmap:101 telephone-event/8000\r\n", "")
ALLOWS_INFO = "Allow: INVITE, ACK, BYE, CANCEL, INFO\r\n"
ALLOWS_NONE = "Allow: INVITE, ACK, BYE, CANCEL\r\n"


async def test_a_callee_that_allows_info_gets_each_key_in_turn(server: Server) -> None:
    async with RawPeer() as peer, RtpPeer() as phone, server.events() as log:
        call = await place(server, peer)
        await peer.expect("INVITE")
        peer.answer("200 OK", headers=ALLOWS_INFO, body=PLAIN.format(port=phone.port, formats="0"))
        await peer.expect("ACK")
        await log.wait("call.established")
        status, _ = await server.post(f"/v1/calls/{call['id']}/dtmf", {"digits": "4#", "duration_ms": 120})
        assert status == 200
        for key in "4#":
            info = await peer.expect("INFO")
            assert "Content-Type: application/dtmf-relay" in info
            assert info.endswith(f"Signal={key}\r\nDuration=120\r\n")
            peer.answer("200 OK")
        await server.post(f"/v1/calls/{call['id']}/dtmf", {"digits": "12"})
        await peer.expect("INFO")
        peer.answer("415 Unsupported Media Type")
        failed = (await log.wait("call.command_failed"))["data"]
        assert (failed["command"], failed["detail"]) == ("dtmf", "the far side answered 415 to INFO")
        with pytest.raises(TimeoutError):
            await peer.expect("INFO", timeout_s=0.5)
        assert (await server.only_call())["state"] == "established"
        await server.post(f"/v1/calls/{call['id']}/hangup", {})
        await peer.take_bye()


@pytest.mark.parametrize("allow", [ALLOWS_NONE, ""])
async def test_a_caller_that_takes_neither_is_told_of_at_once(server: Server, allow: str) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RtpPeer() as phone, server.events() as log:
        caller.send("INVITE", headers=allow.encode(), body=PLAIN.format(port=phone.port, formats="0"))
        await caller.acknowledge(200)
        call_id = (await log.wait("call.established"))["call_id"]
        status, answer = await server.post(f"/v1/calls/{call_id}/dtmf", {"digits": "4"})
        assert (status, answer["code"]) == (409, "dtmf_unsupported")
        assert (await caller.bye()).status == 200
        await log.wait("call.terminated")
        assert [event for event in log.events if event["type"] == "call.command_failed"] == []


async def test_telephone_events_go_before_info(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RtpPeer() as phone, server.events() as log:
        caller.send("INVITE", headers=ALLOWS_INFO.encode(), body=SDP.format(port=phone.port, formats="0 101"))
        await caller.acknowledge(200)
        call_id = (await log.wait("call.established"))["call_id"]
        status, _ = await server.post(f"/v1/calls/{call_id}/dtmf", {"digits": "4"})
        assert status == 200
        await phone.hears_type(101)
        assert (await caller.bye()).status == 200
