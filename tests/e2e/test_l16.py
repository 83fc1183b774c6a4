"""L16/8000, which a loopback leg of FreeSWITCH offers alone."""

import array
import asyncio
from pathlib import Path

import numpy as np
import pytest

from lab import audio_match
from lab.configured import Lend
from lab.raw_sip import SDP, RawCaller, RawPeer, RtpEar
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(90)]

PT = 70
DYNAMIC_PT = 97
LOOPBACK = SDP.replace("a=ptime:20", f"a=rtpmap:{PT} L16/8000\r\na=ptime:20")
"""What the loopback leg offers; the payload type is the one that FreeSWITCH gives L16."""


def invite(caller: RawCaller, formats: str, rtp_port: int = 9, sdp: str = LOOPBACK) -> None:
    caller.send("INVITE", body=sdp.format(port=rtp_port, formats=formats))


async def test_l16_carries_the_greeting_sample_by_sample(fresh_server: Server, tmp_path: Path) -> None:
    reference = await engine_pcm(GREETING, tmp_path)
    async with RtpEar() as ear, RawCaller("greet", fresh_server.sip_port) as caller, fresh_server.events() as log:
        invite(caller, f"{DYNAMIC_PT} 101", ear.port, LOOPBACK.replace(f":{PT} ", f":{DYNAMIC_PT} "))
        answer = await caller.final()
        assert answer.status == 200, answer.text
        assert answer.formats[0] == DYNAMIC_PT
        assert f"a=rtpmap:{DYNAMIC_PT} L16/8000" in answer.text
        caller.ack()
        assert (await log.wait("call.established"))["data"]["codec"] == "L16"
        await log.wait("speak.complete")
        await asyncio.sleep(0.2)
        assert (await caller.bye()).status == 200
    assert ear.payload_types == {DYNAMIC_PT}
    assert {len(payload) for payload in ear.payloads} == {320}
    pcm = array.array("h", b"".join(ear.payloads))
    pcm.byteswap()  # RFC 3551 §4.5.11: network byte order
    heard = np.frombuffer(pcm.tobytes(), dtype=np.int16).astype(reference.dtype)
    assert audio_match.find(reference, heard).corr > 0.999


async def test_l16_comes_after_every_other_codec(server: Server) -> None:
    for formats, wanted in ((f"{PT} 0 101", 0), (f"0 {PT} 101", 0), (f"{PT} 8 101", 8), (f"{PT} 9 101", 9)):
        async with RawCaller("silent", server.sip_port) as caller:
            invite(caller, formats)
            answer = await caller.final()
            assert (answer.status, answer.formats[0]) == (200, wanted)
            assert "L16" not in answer.text
            caller.ack()
            assert (await caller.bye()).status == 200


async def test_other_rates_of_l16_get_488(server: Server) -> None:
    for rtpmap in ("L16/16000", "L16/8000/2", "L16/44100"):
        async with RawCaller("silent", server.sip_port) as caller:
            invite(caller, f"{PT} 101", sdp=LOOPBACK.replace("L16/8000", rtpmap))
            await caller.acknowledge(488)


async def test_l16_is_not_offered(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RawPeer() as peer:
        invite(caller, f"{PT} 101")
        await caller.acknowledge(200)
        await server.create("/v1/calls", {"to": f"sip:b@{peer.own}"})
        offer = await peer.expect("INVITE")
        assert "L16" not in offer
        peer.answer("486 Busy Here")
        async with RawCaller("silent", server.sip_port) as late:
            late.send("INVITE")
            answer = await late.final()
            assert answer.status == 200
            assert "L16" not in answer.text
            late.ack(body=SDP.format(port=9, formats="0 101"))
            assert (await late.bye()).status == 200
        assert (await caller.bye()).status == 200


async def test_a_call_of_l16_that_waits_keeps_it_whatever_others_offer(lend: Lend) -> None:
    async with (
        lend(routes__wait__answer="manual") as server,
        RawCaller("wait", server.sip_port) as caller,
        server.events() as log,
    ):
        invite(caller, f"{PT} 101")
        call_id = (await log.wait("call.incoming"))["call_id"]
        async with RawCaller("nobody", server.sip_port) as other:
            other.invite()
            await other.final()
            other.ack()
        assert (await server.post(f"/v1/calls/{call_id}/answer", {}))[0] < 300
        answer = await caller.final()
        assert (answer.status, answer.formats[0]) == (200, PT)
        caller.ack()
        assert (await caller.bye()).status == 200


async def test_hold_from_our_side_goes_on_in_l16(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
        invite(caller, f"{PT} 101")
        await caller.acknowledge(200)
        call_id = (await log.wait("call.established"))["call_id"]
        assert (await server.post(f"/v1/calls/{call_id}/hold", {}))[0] < 300
        offer = await caller.request("INVITE", status="488 Not Acceptable Here")
        assert "L16/8000" in offer
        assert (await caller.bye()).status == 200


async def test_a_re_invite_may_change_to_l16_and_back(server: Server) -> None:
    async with RtpEar() as ear, RawCaller("long", server.sip_port) as caller, server.events() as log:
        await caller.establish(rtp_port=ear.port)
        await log.wait("speak.started")
        for formats, wanted in ((f"{PT} 101", PT), ("0 101", 0)):
            invite(caller, formats, ear.port)
            answer = await caller.final()
            assert (answer.status, answer.formats[0]) == (200, wanted)
            caller.ack()
            ear.packets.clear()
            await until(lambda wanted=wanted: wanted in ear.payload_types)  # type: ignore[misc]
        assert (await caller.bye()).status == 200
