"""Formats that are written oddly and that nobody needs do not cost the call: FreeSWITCH's ``sofia recover`` and its like."""

import re

import pytest

from lab.configured import ua_pid
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawCaller
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

HEAD = f"v=0\r\no=FreeSWITCH 1 {{version}} IN IP4 {HOST}\r\ns=FreeSWITCH\r\nc=IN IP4 {HOST}\r\nt=0 0\r\n"
RECOVERED = (
    HEAD + "m=audio {port} RTP/AVP 0 101 13\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/0\r\n"
    "a=fmtp:101 0-15\r\na=rtpmap:13 CN/0\r\na=ptime:20\r\n"
)
ODD = (
    "101 telephone-event/0",
    "101 telephone-event",
    "101 /8000",
    "101 x/8000/0",
    "101 x/99999999999",
    "101 ",
    "101 \u00e9/8000",
    "13 CN/0",
    "13 CN",
    "0 PCMU/0",
    "0 PCMU",
    "300 x/8000",
    "x",
)


def address(answer: str) -> tuple[str, int]:
    return HOST, int(re.findall(r"^m=audio (\d+)", answer, re.MULTILINE)[0])


async def test_a_call_goes_on_after_a_recovery_of_freeswitch(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RtpPeer() as phone, server.events() as log:
        caller.send("INVITE", body=RECOVERED.format(version=1, port=phone.port).replace("/0", "/8000"))
        await caller.acknowledge(200)
        call_id = (await log.wait("call.established"))["call_id"]
        async with RtpPeer() as recovered:
            caller.send("INVITE", body=RECOVERED.format(version=2, port=recovered.port))
            answer = await caller.acknowledge(200)
            await recovered.hears(20)
            await recovered.say(address(answer.text), 10)
            await recovered.press(address(answer.text), "5")
            assert (await log.wait("call.dtmf"))["data"]["digit"] == "5"
            await server.post(f"/v1/calls/{call_id}/speak", {"text": "We are back."})
            assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "normal"
        assert (await caller.bye()).status == 200


async def test_an_odd_format_beside_a_good_one_is_passed_over(server: Server) -> None:
    first_pid = ua_pid(server)
    async with RawCaller("silent", server.sip_port) as caller, RtpPeer() as phone:
        for version, odd in enumerate(ODD):
            media = f"m=audio {phone.port} RTP/AVP 0 101 13\r\na=rtpmap:{odd}\r\na=rtpmap:101 x/8000\r\n"
            caller.send("INVITE", body=HEAD.format(version=version) + media)
            answer = await caller.final()
            caller.ack()
            assert (answer.status, answer.formats[:1]) == (200, [0]), (odd, answer.text)
            await phone.hears(3)
        assert (await caller.bye()).status == 200
    assert ua_pid(server) == first_pid
