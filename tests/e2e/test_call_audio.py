"""The audio of real calls over WebSockets: what the caller says, and what is played to him."""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from cc_tts.media.g711 import alaw_decode, ulaw_decode, ulaw_encode
from lab.children import Child
from lab.configured import Lend
from lab.media_client import media
from lab.ports import HOST
from lab.raw_rtp import PACKET_MS, Address, RtpPeer
from lab.raw_sip import SDP, RawCaller
from lab.server_under_test import Json, Server
from lab.waiting import PATIENCE_S
from tests.architecture.state_tables import ROOT
from tests.e2e.test_rtp_security import media_address
from tests.support.served_app import served_app

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(120)]

TEN_SECONDS = 500
"""Packets."""
MAX_TRIES = 5
SILENCE = b"\xff" * 160
Payloads = Sequence[bytes]


def noise(num_packets: int, seed: int = 1) -> list[bytes]:
    """G.711 of which no packet is like another."""
    source = random.Random(seed)
    return [source.randbytes(160) for _ in range(num_packets)]


async def say(phone: RtpPeer, to: Address, payloads: Payloads, *, payload_type: int = 0) -> None:
    """Send a packet every 20 ms."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    for index, payload in enumerate(payloads):
        await asyncio.sleep(max(0.0, begun_s + index * PACKET_MS / 1000 - loop.time()))
        phone.next_packet(to, payload, payload_type)


def missing_in(pcm: bytes, said: Sequence[bytes]) -> list[int]:
    """Which of the frames ``said`` PCM has not, as they were sent. Those it has are in order, and most of them.

    On a busy machine packets and ticks of the media clock come late: then the jitter buffer replaces a frame and later drops
    one, with a crossfade. Which ones differs from call to call.
    """
    places = [pcm.find(frame) for frame in said]
    found = [place for place in places if place >= 0]
    assert found == sorted(found)
    assert len(found) > len(said) // 2
    return [index for index, place in enumerate(places) if place < 0]


@contextlib.asynccontextmanager
async def talking(
    server: Server, phone: RtpPeer, user: str = "silent"
) -> AsyncIterator[tuple[RawCaller, Address, Json]]:
    """A call that is established, where its RTP goes, and what the API says of it."""
    async with RawCaller(user, server.sip_port) as caller:
        answer = await caller.establish(rtp_port=phone.port)
        call = await server.until_call(lambda call: call["state"] == "established")
        yield caller, media_address(answer), call
        status, call = await server.get(f"/v1/calls/{call['id']}")
        if status == 200 and call["state"] != "terminated":
            assert (await caller.bye()).status == 200


async def test_what_the_caller_says_arrives_bit_exact_and_whole(server: Server) -> None:
    said, missing = noise(TEN_SECONDS), set(range(TEN_SECONDS))
    for _ in range(MAX_TRIES):
        async with (
            RtpPeer() as phone,
            talking(server, phone) as (caller, to, call),
            media(server, call["id"]) as client,
        ):
            await client.hears(5)
            await say(phone, to, said)
            await client.hears(10)
            await caller.bye()
            assert (await client.wait("stop"))["reason"] == "remote_hangup"
            assert await client.closed() == 1000
        assert client.all("dropped") == []
        assert len(client.pcm) / 320 >= TEN_SECONDS
        missing &= set(missing_in(bytes(client.pcm), [ulaw_decode(each) for each in said]))
        if missing <= {0, TEN_SECONDS - 1}:  # those at the ends are faded
            return
    pytest.fail(f"frames are missing in each of {MAX_TRIES} calls: {missing}")


async def test_one_who_listens_later_hears_what_is_said_then(server: Server) -> None:
    said = noise(200)
    async with RtpPeer() as phone, talking(server, phone) as (_, to, call):
        await say(phone, to, said[:100])  # nobody listens
        async with media(server, call["id"]) as client:
            await say(phone, to, said[100:])
            await client.hears(10)
    found = [index for index, each in enumerate(said) if ulaw_decode(each) in client.pcm]
    assert found == sorted(found)
    assert found[0] >= 98, "not what was said before"
    assert len(found) > 50


async def test_what_a_client_sends_is_heard(server: Server) -> None:
    spoken = b"".join(noise(150, seed=2))
    pcm = ulaw_decode(spoken)
    async with RtpPeer() as phone, talking(server, phone) as (_, _, call), server.events() as events:
        async with media(server, call["id"], "direction=talk") as client:
            for at in range(0, len(pcm), 5000):
                await client.socket.send_bytes(pcm[at : at + 5000])
            await client.socket.send_json({"type": "mark", "name": "all of it"})
            await client.socket.send_json({"type": "end"})
            done = await client.wait("speak.complete")
            assert (done["completion_cause"], done["played_ms"]) == ("normal", 3000.0)
            assert client.all("mark") == [{"type": "mark", "name": "all of it", "cleared": False}]
            assert (await client.wait("speak.started"))["utterance_id"] == done["utterance_id"]
        complete = await events.wait("speak.complete")
        assert complete["data"]["utterance_id"] == done["utterance_id"]
        await phone.num_heard()
        heard = b"".join(packet.payload for packet in phone.heard)
    # 0xFF and 0x7F are both zero
    assert ulaw_encode(pcm) in heard
    assert complete["data"]["underruns"] == 0


async def test_clear_stops_within_moments(server: Server) -> None:
    pcm = ulaw_decode(b"".join(noise(1000, seed=3)))
    async with (
        RtpPeer() as phone,
        talking(server, phone) as (_, _, call),
        media(server, call["id"], "direction=talk") as client,
    ):
        await client.socket.send_bytes(pcm[:200_000])
        await client.socket.send_json({"type": "mark", "name": "never"})
        await client.wait("speak.started")
        await asyncio.sleep(0.5)
        await client.socket.send_json({"type": "clear"})
        stopped = await client.wait("speak.interrupted")
        assert client.all("mark") == [{"type": "mark", "name": "never", "cleared": True}]
        assert stopped["by"] == "clear"
        assert stopped["played_ms"] < 12_500
        await client.socket.send_bytes(pcm[-16_000:])
        await client.socket.send_json({"type": "end"})
        assert (await client.wait("speak.complete"))["played_ms"] == 1000.0


async def renegotiate(
    caller: RawCaller, rtp_port: int, *, version: int, formats: str = "0 101", mode: str = ""
) -> Address:
    body = SDP.format(port=rtp_port, formats=formats).replace("raw 1 1", f"raw 1 {version}")
    caller.send("INVITE", body=body + (f"a={mode}\r\n" if mode else ""))
    answer = await caller.acknowledge(200)
    return media_address(answer)


@pytest.mark.parametrize("mode", ["sendonly", "inactive"])
async def test_hold_shifts_no_time_and_the_audio_goes_on(server: Server, mode: str) -> None:
    said = noise(100)
    async with (
        RtpPeer() as phone,
        talking(server, phone) as (caller, _, call),
        server.events() as events,
        media(server, call["id"], "direction=both") as client,
    ):
        await client.hears(2 * 5)
        await renegotiate(caller, phone.port, version=2, mode=mode)
        await events.wait("call.held")
        await client.hears(2 * 20)
        await client.hears(2 * 20)
        to_again = await renegotiate(caller, phone.port, version=3, mode="sendrecv")
        await events.wait("call.unheld")
        await say(phone, to_again, said)
        await client.hears(2 * 10)
    left = b"".join(bytes(client.pcm[at : at + 2]) for at in range(0, len(client.pcm), 4))
    missing_in(left, [ulaw_decode(each) for each in said])


async def test_a_re_invite_to_another_port_and_codec(server: Server) -> None:
    said = noise(100)
    async with (
        RtpPeer() as phone,
        RtpPeer() as other,
        talking(server, phone) as (caller, to, call),
        media(server, call["id"]) as client,
    ):
        await say(phone, to, said)
        await client.hears(10)
        missing_in(bytes(client.pcm), [ulaw_decode(each) for each in said])
        to_other = await renegotiate(caller, other.port, version=2, formats="8 101")
        client.pcm.clear()
        await say(other, to_other, said, payload_type=8)
        await client.hears(10)
        missing_in(bytes(client.pcm), [alaw_decode(each) for each in said])


async def test_keys_and_gaps_are_silence_of_their_length(server: Server) -> None:
    before, after = noise(50, seed=5), noise(50, seed=6)
    async with RtpPeer() as phone, talking(server, phone) as (_, to, call), media(server, call["id"]) as client:
        await client.hears(5)
        await say(phone, to, before)
        await phone.press(to, "7")
        await asyncio.sleep(1)
        await say(phone, to, after)
        await client.hears(10)
        assert [each["digit"] for each in client.all("dtmf")] == ["7"]
    pcm = bytes(client.pcm)
    end, num_left = next(
        (at, left) for left, each in enumerate(reversed(before), 1) if (at := pcm.find(ulaw_decode(each))) >= 0
    )
    start, num_missing = next(
        (at, number) for number, each in enumerate(after) if (at := pcm.find(ulaw_decode(each))) >= 0
    )
    gap_ms = (start - end) / 16 - (num_left + num_missing) * PACKET_MS
    assert gap_ms > 900


async def test_a_call_that_is_not_answered(server: Server) -> None:
    async with RtpPeer() as phone, RawCaller("ring", server.sip_port) as caller:
        caller.invite(rtp_port=phone.port)
        call = await server.until_call(lambda call: call["state"] in ("incoming", "early"))
        async with media(server, call["id"], "direction=talk") as client:
            await client.socket.send_bytes(bytes(1600))
            caller.send("CANCEL", cseq=1)
            assert (await client.wait("stop"))["reason"] == "cancelled"
            assert await client.closed() == 1000


async def test_nothing_that_is_said_or_pressed_is_logged(server: Server) -> None:
    async with (
        RtpPeer() as phone,
        talking(server, phone) as (_, to, call),
        media(server, call["id"], "direction=talk") as client,
    ):
        await client.socket.send_json({"type": "mark", "name": "a-secret-name"})
        await client.socket.send_str('{"type": "mark", "name": 4711}')
        await phone.press(to, "9")
        await client.wait("dtmf")
        await client.wait("error")
    assert "a-secret-name" not in server.log
    assert '"digit"' not in server.log
    assert "media_stream_opened" in server.log


async def test_the_example_of_the_documents_is_an_echo(server: Server, tmp_path: Path) -> None:
    page = (ROOT / "docs/developers/agents.md").read_text(encoding="utf-8")
    script = tmp_path / "example.py"
    script.write_text(page.partition("\n## Media stream\n")[2].partition("```python\n")[2].partition("```")[0])
    said = noise(100, seed=9)
    async with RtpPeer() as phone, talking(server, phone) as (caller, to, call):
        child = await Child.start([sys.executable, str(script), server.url, call["id"]], log_path=tmp_path / "echo.log")
        async with asyncio.timeout(PATIENCE_S):
            while all(each.payload == SILENCE for each in phone.heard):  # the example is not connected yet
                await say(phone, to, noise(10))
        await say(phone, to, [*said, *[SILENCE] * 25])
        assert (await caller.bye()).status == 200
        assert await child.wait() == 0, child.log
    heard = b"".join(packet.payload for packet in phone.heard)
    assert sum(ulaw_encode(ulaw_decode(each)) in heard for each in said) > 20
    assert child.log.splitlines()[0].strip() == "start"
    assert child.log.splitlines()[-1] == "stop remote_hangup"


async def test_a_route_connects_to_its_application(lend: Lend) -> None:
    told: list[Json] = []
    heard, spoken = bytearray(), ulaw_decode(b"".join(noise(50, seed=7)))

    async def application(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                told.append(json.loads(message.data))
            else:
                heard.extend(message.data)
            if ulaw_decode(said[20]) in heard:
                await socket.send_bytes(spoken)
                break
        return socket

    said = noise(100, seed=8)
    async with (
        served_app(web.get("/calls", application)) as port,
        lend(routes__silent__media_url=f"ws://{HOST}:{port}/calls?secret=4711") as server,
        RtpPeer() as phone,
    ):
        async with RawCaller("silent", server.sip_port) as caller:
            answer = await caller.establish(rtp_port=phone.port)
            speaking = asyncio.create_task(say(phone, media_address(answer), said))
            await caller.request("BYE")
            await speaking
        ended = await server.until_terminated()
        assert (ended["ending"]["result"], ended["ending"]["reason"]) == ("completed", "media_closed")
        assert not server.has_logged("4711")
    assert told[0]["call_id"] == ended["id"]
    # the last samples are faded: nothing followed them at first
    assert ulaw_encode(spoken)[:7900] in b"".join(packet.payload for packet in phone.heard)
