"""A warm transfer on the wire: music, a call to an agent, a key, a bridge."""

import asyncio
import re

import pytest

from lab import audio_match
from lab.ports import HOST
from lab.raw_rtp import Address
from lab.raw_sip import RawPeer
from lab.server_under_test import Json, Server
from tests.e2e.test_bridges import Phone, Side, side
from tests.e2e.test_call_audio import missing_in, noise, say

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(120)]


def rtp_address(invite: str) -> Address:
    port = re.search(r"^m=audio (\d+) ", invite, re.MULTILINE)
    assert port is not None, invite
    return HOST, int(port[1])


async def transfer(server: Server, caller: Side, peer: RawPeer, **body: object) -> Json:
    wanted = {"to": f"sip:agent@{HOST}:{peer.port}", "mode": "warm"} | body
    status, answer = await server.post(f"/v1/calls/{caller.call_id}/transfer", wanted)
    assert status == 202, answer
    return answer


async def test_an_agent_is_briefed_takes_the_call_and_talks_with_the_caller(server: Server) -> None:
    music = {"tone": "300/400,0/100", "duration_ms": 500}
    async with server.events() as log, side(server) as caller, RawPeer() as peer, Phone() as phone:
        begun = await transfer(
            server, caller, peer, brief={"text": "A caller. Press one."}, accept_key="1", music=music
        )
        invite = await peer.expect("INVITE")
        peer.answer("180 Ringing")
        await log.wait("call.transfer", state="ringing")
        peer.answer("200 OK", formats="0 101", rtp_port=phone.port)
        await peer.expect("ACK")
        to = rtp_address(invite)
        await log.wait("speak.complete", call_id=begun["agent_call_id"])
        assert audio_match.samples(phone.pcm).any()
        assert audio_match.samples(caller.phone.pcm).any()
        await phone.press(to, "1")
        done = await log.wait("call.transfer", state="succeeded")
        assert done["data"]["agent_call_id"] == begun["agent_call_id"]
        await log.wait("speak.complete", call_id=caller.call_id, completion_cause="cancelled")
        said = noise(100, 5)
        frames, _ = await asyncio.gather(caller.say(4), say(phone, to, said))
        await phone.hears(10)
        missing_in(phone.pcm, frames)
        assert await caller.caller.bye()
        bye = await peer.take_bye()
        assert "X-TTS-Cause: bridge_ended" in bye
        await log.wait("call.unbridged", call_id=begun["agent_call_id"], reason="call_ended")
