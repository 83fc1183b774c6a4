"""How long a key was pressed, and that a prompt is interrupted when it goes down."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from cc_tts.softphone.rtp.packets import EVENT_PAYLOAD_TYPE, SAMPLES_PER_PACKET, RtpPacket, TelephoneEvent, event_code
from lab.configured import of_kind
from lab.raw_rtp import Address, RtpPeer
from lab.raw_sip import RawCaller
from lab.server_under_test import Server
from tests.e2e.test_rtp_security import media_address

pytestmark = pytest.mark.e2e


@contextlib.asynccontextmanager
async def call(server: Server, phone: RtpPeer, user: str = "silent", formats: str = "0 101") -> AsyncIterator[Address]:
    """A call; where our RTP is to be sent."""
    async with RawCaller(user, server.sip_port) as caller:
        answer = await caller.establish(rtp_port=phone.port, formats=formats)
        yield media_address(answer)
        assert (await caller.bye()).status == 200


def event_packets(digit: str, duration_ms: int, *, num_ends: int = 3) -> list[RtpPacket]:
    """A key as RFC 4733 §2.5.1 has it, a packet each 20 ms."""
    full = duration_ms * 8
    steps = [*range(SAMPLES_PER_PACKET, full, SAMPLES_PER_PACKET), *[full] * num_ends]
    events = [
        TelephoneEvent(event_code(digit), at >= len(steps) - num_ends, ticks).to_bytes()
        for at, ticks in enumerate(steps)
    ]
    return [RtpPacket(EVENT_PAYLOAD_TYPE, 0, 0, 0, each, not at) for at, each in enumerate(events)]


@pytest.mark.parametrize("formats", ["0 101", "8 101", "9 101"])
async def test_the_length_of_a_key_is_what_its_sender_says(server: Server, formats: str) -> None:
    async with RtpPeer() as phone, server.events() as log, call(server, phone, formats=formats) as address:
        for digit, duration_ms in (("1", 100), ("2", 160), ("3", 250), ("3", 40), ("3", 1000)):
            await phone.send(address, event_packets(digit, duration_ms))
            await phone.say(address, 3)
        await log.wait("call.dtmf", duration_ms=1000)
        keys = [(each["data"]["digit"], each["data"]["duration_ms"]) for each in of_kind(log.events, "call.dtmf")]
    assert keys == [("1", 100), ("2", 160), ("3", 250), ("3", 40), ("3", 1000)]


async def test_a_key_whose_ends_are_lost_is_reported_once(server: Server) -> None:
    async with RtpPeer() as phone, server.events() as log, call(server, phone) as address:
        await phone.send(address, event_packets("7", 120, num_ends=0))
        key = await log.wait("call.dtmf", digit="7")
        assert key["data"]["duration_ms"] == 100, "as far as was heard"
        await phone.send(address, event_packets("7", 80, num_ends=1))
        await log.wait("call.dtmf", duration_ms=80)
        await phone.send(address, event_packets("8", 80)[:2])
        await phone.send(address, event_packets("9", 80))
        await log.wait("call.dtmf", digit="9")
        keys = [(each["data"]["digit"], each["data"]["duration_ms"]) for each in of_kind(log.events, "call.dtmf")]
    assert keys == [("7", 100), ("7", 80), ("8", 40), ("9", 80)]


@pytest.mark.both_builds
async def test_a_key_that_is_held_for_two_segments_is_one(server: Server) -> None:
    full, rest, step = 0xFFFF, 6_480, 480
    said = [(0, each, False) for each in (*range(step, full, step), full)]
    said += [(full, each, False) for each in range(step, rest, step)] + 3 * [(full, rest, True)]
    held = [
        RtpPacket(EVENT_PAYLOAD_TYPE, 0, begin, 0, TelephoneEvent(event_code("5"), end, ticks).to_bytes())
        for begin, ticks, end in said
    ]
    async with RtpPeer() as phone, server.events() as log, call(server, phone) as address:
        await phone.send(address, held)
        await phone.press(address, "6")
        await log.wait("call.dtmf", digit="6")
        keys = [(each["data"]["digit"], each["data"]["duration_ms"]) for each in of_kind(log.events, "call.dtmf")]
    assert keys == [("5", (full + rest) // 8), ("6", 100)]


@pytest.mark.both_builds
async def test_ends_that_are_repeated_inside_the_next_key_are_no_keys(server: Server) -> None:
    async with RtpPeer() as phone, server.events() as log, call(server, phone) as address:
        first, second = event_packets("1", 100), event_packets("2", 100)
        await phone.send(address, first, spend=False)
        later = [dataclasses.replace(each, timestamp=2_000) for each in second]
        for packet in later:
            await phone.send(address, [packet, first[-1]], spend=False)
        await phone.send(
            address, [dataclasses.replace(each, timestamp=4_000) for each in event_packets("3", 60)], spend=False
        )
        await log.wait("call.dtmf", digit="3")
        assert [each["data"]["digit"] for each in of_kind(log.events, "call.dtmf")] == ["1", "2", "3"]


async def test_a_prompt_is_interrupted_while_the_key_is_still_down(server: Server) -> None:
    async with RtpPeer() as phone, server.events() as log, call(server, phone, "long") as address:
        await phone.say(address, 5)
        await log.wait("speak.started")
        held = event_packets("4", 4000)
        await phone.send(address, held[:25])
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "barge_in"
        assert not of_kind(log.events, "call.dtmf")
        await phone.send(address, held[25:])
        key = await log.wait("call.dtmf")
    assert (key["data"]["digit"], key["data"]["duration_ms"]) == ("4", 4000)


async def test_a_key_that_is_down_when_the_call_ends_is_reported(server: Server) -> None:
    async with server.events() as log:
        async with RtpPeer() as phone, call(server, phone) as address:
            await phone.send(address, event_packets("6", 200)[:4])
        await log.wait("call.terminated")
        kinds = [event["type"] for event in log.events]
        assert kinds.index("call.dtmf") < kinds.index("call.terminated")
        assert of_kind(log.events, "call.dtmf")[0]["data"]["duration_ms"] == 80


@pytest.mark.parametrize(
    ("body", "duration_ms"), [("Signal=5\r\nDuration=230\r\n", 230), ("Signal=*\r\nDuration=0\r\n", 0)]
)
async def test_the_length_of_a_key_by_info(server: Server, body: str, duration_ms: int) -> None:
    async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
        await caller.establish()
        caller.send("INFO", body=body, content_type="application/dtmf-relay")
        assert (await caller.final()).status == 200
        key = await log.wait("call.dtmf")
        assert (key["data"]["method"], key["data"]["duration_ms"]) == ("sip_info", duration_ms)
        assert (await caller.bye()).status == 200
