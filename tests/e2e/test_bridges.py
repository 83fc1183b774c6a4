"""Two calls that are bridged, on the wire: what each far side hears of the other, how late, and how it ends."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from cc_tts.media.g711 import ulaw_decode
from cc_tts.softphone.rtp.packets import EVENT_PAYLOAD_TYPE, SAMPLES_PER_PACKET, event_code
from lab import audio_match
from lab.configured import Lend, until_readyz
from lab.ports import HOST
from lab.raw_rtp import Address, RtpPeer
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import EventLog, Json, Server
from lab.waiting import until
from tests.e2e.test_call_audio import MAX_TRIES, missing_in, noise, say
from tests.e2e.test_keys_by_info import ALLOWS_INFO, PLAIN
from tests.e2e.test_recording import channels, saved
from tests.e2e.test_rtp_security import media_address
from tests.e2e.test_ua_processes import TWO, until_both

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(120)]

MAX_DELAY_MS = 60
"""From mouth to ear without the network."""
SECONDS = 100
"""Packets of two seconds."""


class Phone(RtpPeer):
    def __init__(self) -> None:
        super().__init__()
        self.sent_s: list[float] = []
        self.came_s: list[float] = []

    def take(self, data: bytes, *, rtcp: bool) -> None:
        before = len(self.heard)
        super().take(data, rtcp=rtcp)
        self.came_s += [asyncio.get_running_loop().time()] * (len(self.heard) - before)

    def next_packet(self, to: Address, payload: bytes, payload_type: int) -> None:
        self.sent_s.append(asyncio.get_running_loop().time())
        super().next_packet(to, payload, payload_type)

    @property
    def pcm(self) -> bytes:
        return b"".join(ulaw_decode(packet.payload) for packet in self.heard if packet.payload_type == 0)


@dataclass(frozen=True)
class Side:
    caller: RawCaller
    phone: Phone
    to: Address
    call_id: str

    async def lacks(self, said: list[bytes]) -> list[int]:
        """Which of these frames it does not hear, of which it must hear most; waits until the last one can have come."""
        await self.phone.hears(10)
        return missing_in(self.phone.pcm, said)

    async def say(self, seed: int, num_packets: int = SECONDS) -> list[bytes]:
        """Say noise; returns its PCM, frame by frame."""
        said = noise(num_packets, seed)
        await say(self.phone, self.to, said)
        return [ulaw_decode(each) for each in said]


@contextlib.asynccontextmanager
async def side(server: Server) -> AsyncIterator[Side]:
    async with Phone() as phone, RawCaller("silent", server.sip_port) as caller:
        answer = await caller.establish(rtp_port=phone.port)
        call_id = await server.call_id(caller.call_id)
        await phone.hears(5)
        yield Side(caller, phone, media_address(answer), call_id)
        with contextlib.suppress(TimeoutError):
            caller.send("BYE")
            await caller.final(timeout_s=2)


@dataclass(frozen=True)
class Pair:
    """Two calls that are up, and what is told of them."""

    server: Server
    log: EventLog
    first: Side
    second: Side

    async def bridge(self, **body: Any) -> Json:
        wanted = {"call_id": self.second.call_id} | body
        status, answer = await self.server.post(f"/v1/calls/{self.first.call_id}/bridge", wanted)
        assert status == 202, answer
        for each in (self.first, self.second):
            await self.log.wait("call.bridged", call_id=each.call_id)
        return answer

    def kinds(self, which: Side) -> list[str]:
        return [event["type"] for event in self.log.events if event["call_id"] == which.call_id]


@contextlib.asynccontextmanager
async def pair_on(server: Server) -> AsyncIterator[Pair]:
    async with server.events() as log, side(server) as first, side(server) as second:
        yield Pair(server, log, first, second)


@pytest_asyncio.fixture(loop_scope="session")
async def pair(server: Server) -> AsyncIterator[Pair]:
    async with pair_on(server) as made:
        yield made


def delay_ms(said: list[bytes], speaker: Phone, listener: Phone) -> float:
    """How much later the listener's line has a frame than the speaker's, where it was least: a busy machine adds to it."""
    sent_s = speaker.sent_s[-len(said) :]
    places = {index: listener.pcm.find(frame) for index, frame in enumerate(said)}
    delays_s = [
        listener.came_s[at // (2 * SAMPLES_PER_PACKET)] - sent_s[index] for index, at in places.items() if at >= 0
    ]
    return 1000 * min(delays_s)


async def test_each_hears_all_that_the_other_says_and_soon(pair: Pair) -> None:
    first, second = pair.first, pair.second
    await pair.bridge()
    missing = set(range(2 * SECONDS))
    for number in range(MAX_TRIES):
        said = await asyncio.gather(first.say(10 + number), second.say(20 + number))
        lacking = [await second.lacks(said[0]), await first.lacks(said[1])]
        missing &= {*lacking[0], *(SECONDS + index for index in lacking[1])}
        for frames, speaker, listener in zip(said, (first, second), (second, first), strict=True):
            assert 0 < delay_ms(frames, speaker.phone, listener.phone) < MAX_DELAY_MS
        if len(missing) < 8:  # those at the ends are faded
            break
    assert len(missing) < 8, f"frames are missing in each of {MAX_TRIES} tries: {missing}"
    for each in (first, second):
        sequence = [packet.sequence for packet in each.phone.heard]
        assert all((after - before) % 65_536 == 1 for before, after in pairwise(sequence))


async def test_each_gets_the_keys_of_the_other_but_for_secret_ones(pair: Pair) -> None:
    first, second = pair.first, pair.second
    await pair.bridge()
    await first.phone.press(first.to, "7")
    await second.phone.hears_type(EVENT_PAYLOAD_TYPE)
    assert key_of(second.phone) == "7"
    await pair.log.wait("call.dtmf", digit="7")
    await pair.server.post(
        f"/v1/calls/{first.call_id}/gather", {"sensitive": True, "max_digits": 1, "flush_buffer": True}
    )
    await first.phone.press(first.to, "8")
    await pair.log.wait("call.gather_complete")
    await first.phone.press(first.to, "9")
    await pair.log.wait("call.dtmf", digit="9")
    await until(lambda: keys_of(second.phone) == "79")


def keys_of(phone: Phone) -> str:
    codes: dict[int, int] = {}
    for packet in phone.heard:
        if packet.payload_type == EVENT_PAYLOAD_TYPE:
            codes[packet.timestamp] = packet.payload[0]
    return "".join(key for code in codes.values() for key in "0123456789*#" if event_code(key) == code)


def key_of(phone: Phone) -> str:
    return keys_of(phone)[-1]


async def test_a_key_comes_by_info_where_the_far_side_takes_that(server: Server) -> None:
    async with RawPeer() as peer, side(server) as caller, server.events() as log:
        call = await server.ask(
            "/v1/calls", {"to": f"sip:bob@{HOST}:{peer.port}", "bridge": {"call_id": caller.call_id}}
        )
        await peer.expect("INVITE")
        peer.answer("200 OK", headers=ALLOWS_INFO, body=PLAIN.format(port=9, formats="8"))
        await peer.expect("ACK")
        await log.wait("call.bridged", call_id=call["id"])
        await caller.phone.press(caller.to, "5")
        info = await peer.expect("INFO")
        assert "Signal=5\r\n" in info
        peer.answer("200 OK")
        await caller.caller.bye()
        bye = await peer.take_bye()
        assert "X-TTS-Cause: bridge_ended" in bye


async def test_who_hangs_up_takes_the_other_one_with_it(pair: Pair) -> None:
    await pair.bridge()
    assert (await pair.first.caller.bye()).status == 200
    bye = await pair.second.caller.request("BYE")
    assert "X-TTS-Cause: bridge_ended" in bye
    ended = await pair.log.wait("call.terminated", call_id=pair.second.call_id)
    assert ended["data"]["ending"]["reason"] == "bridge_ended"
    for each in (pair.first, pair.second):
        assert pair.kinds(each)[-2:] == ["call.unbridged", "call.terminated"]


async def test_who_is_kept_hears_the_application_again(pair: Pair) -> None:
    await pair.bridge(on_hangup="keep")
    assert (await pair.first.caller.bye()).status == 200
    unbridged = await pair.log.wait("call.unbridged", call_id=pair.second.call_id)
    assert unbridged["data"]["reason"] == "call_ended"
    await pair.server.ask(f"/v1/calls/{pair.second.call_id}/speak", {"text": "He is gone."})
    done = await pair.log.wait("speak.complete")
    assert done["data"]["completion_cause"] == "normal"
    assert (await pair.server.read(f"/v1/calls/{pair.second.call_id}"))["state"] == "established"


async def test_they_part_on_request_and_can_be_bridged_again(pair: Pair) -> None:
    await pair.bridge()
    status, _ = await pair.server.post(f"/v1/calls/{pair.second.call_id}/unbridge", {})
    assert status == 202
    for each in (pair.first, pair.second):
        event = await pair.log.wait("call.unbridged", call_id=each.call_id)
        assert event["data"]["reason"] == "requested"
    heard = len(pair.second.phone.pcm)
    await pair.first.say(1, 20)
    assert not any(audio_match.samples(pair.second.phone.pcm[heard + 1600 :]))
    await pair.bridge()


async def test_a_prompt_is_heard_by_its_own_far_side_and_recorded_with_the_other(pair: Pair, tmp_path: Path) -> None:
    first, second = pair.first, pair.second
    await pair.bridge()
    await record(pair)
    await pair.server.ask(f"/v1/calls/{first.call_id}/play", {"tone": "440", "duration_ms": 1000})
    await pair.log.wait("speak.complete")
    assert audio_match.samples(first.phone.pcm).any()
    assert not audio_match.samples(second.phone.pcm).any()
    missing: list[int] = []
    for number in range(MAX_TRIES):
        if number:
            await record(pair)
        said = await asyncio.gather(first.say(10 + number), second.say(20 + number))
        sides = channels(await recorded(pair, tmp_path), 2)
        missing = [len(missing_in(side.tobytes(), frames)) for side, frames in zip(sides, said, strict=True)]
        if max(missing) < 12:
            return
    pytest.fail(f"frames are missing in each of {MAX_TRIES} recordings: {missing}")


async def record(pair: Pair) -> None:
    await pair.server.ask(f"/v1/calls/{pair.first.call_id}/record", {"channels": "dual"})
    await pair.log.wait("call.recording", state="started")


async def recorded(pair: Pair, folder: Path) -> Path:
    """End the recording; returns its file."""
    recording = await pair.server.read(f"/v1/calls/{pair.first.call_id}/record")
    await pair.server.delete(f"/v1/calls/{pair.first.call_id}/record")
    await saved(pair.log, recording["recording_id"])
    status, body = await pair.server.get_bytes(f"/v1/recordings/{recording['recording_id']}/audio")
    assert status == 200
    file = folder / "bridged.wav"
    file.write_bytes(body)
    return file


async def test_who_is_on_hold_gets_silence_and_the_other_way_round_nothing_changes(pair: Pair) -> None:
    first, second = pair.first, pair.second
    await pair.bridge()
    held = SDP.format(port=first.phone.port, formats="0 101") + "a=sendonly\r\n"
    first.caller.send("INVITE", body=held)
    assert (await first.caller.final()).status == 200
    first.caller.ack()
    await pair.log.wait("call.held")
    heard = len(first.phone.pcm)
    said = await asyncio.gather(first.say(1), second.say(2))
    assert not np.frombuffer(first.phone.pcm[heard + 1600 :], "<i2").any()
    await second.lacks(said[0])
    first.caller.invite(rtp_port=first.phone.port)
    assert (await first.caller.final()).status == 200
    first.caller.ack()
    await pair.log.wait("call.unheld")
    await first.lacks(await second.say(3))


async def test_a_bridge_outlives_the_server(server: Server) -> None:
    async with pair_on(server) as pair:
        bridge_id = (await pair.bridge())["bridge_id"]
        await server.replace(signal.SIGKILL)
        await until_readyz(server, 200)
        first, second = pair.first, pair.second
        assert (await server.read(f"/v1/calls/{first.call_id}"))["bridged_to"] == second.call_id
        await second.lacks(await first.say(1))
        async with server.events() as log:
            assert (await first.caller.bye()).status == 200
            await second.caller.request("BYE")
            told = await log.wait("call.unbridged", call_id=second.call_id)
            assert told["data"]["bridge_id"] == bridge_id
            ended = await log.wait("call.terminated", call_id=second.call_id)
            assert ended["data"]["ending"]["reason"] == "bridge_ended"


async def test_calls_in_two_processes_are_not_bridged_but_one_can_be_placed_for_the_other(lend: Lend) -> None:
    async with lend(**TWO) as server:
        await until_both(server)
        async with pair_on(server) as pair, RawPeer() as peer:
            path = f"/v1/calls/{pair.first.call_id}/bridge"
            status, problem = await server.post(path, {"call_id": pair.second.call_id})
            assert (status, problem["code"]) == (409, "bridge_impossible")
            wanted = {"to": f"sip:bob@{HOST}:{peer.port}", "bridge": {"call_id": pair.second.call_id}}
            call = await server.ask("/v1/calls", wanted)
            await peer.expect("INVITE")
            peer.answer("200 OK", formats="0 101")
            await peer.expect("ACK")
            await pair.log.wait("call.bridged", call_id=call["id"])
            await pair.second.caller.bye()
            await peer.take_bye()
