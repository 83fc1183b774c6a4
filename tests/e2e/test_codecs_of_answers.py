"""Who answers our offer with several codecs may speak any of them, and press keys by the number of its own SDP."""

import asyncio
import base64
import contextlib
import ctypes
import math
import re
import struct
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from cc_tts.media import g711
from cc_tts.softphone.rtp.packets import RtpPacket, TelephoneEvent, event_code
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.rtp.other_payloads import Decoded, OtherPayloads
from lab.configured import Lend, logged, of_kind
from lab.media_client import media
from lab.raw_rtp import Address, RtpPeer
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import EventLog, Json, Server
from lab.waiting import until
from tests.e2e.test_direct_media import media_address
from tests.support.alaw import alaw_encode

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(90)]

TONE_HZ = 1_000
PACKET = 160
PCMU, PCMA, G722 = 0, 8, 9


def tone(payload_type: int, *, num_packets: int = 10_000) -> Iterator[bytes]:
    others = OtherPayloads(CLibrary(), Decoded("G722", G722, G722, 101))
    for index in range(num_packets):
        at = np.arange(index * PACKET, (index + 1) * PACKET)
        pcm = (10_000 * np.sin(2 * math.pi * TONE_HZ * at / 8_000)).astype("<i2").tobytes()
        if payload_type == G722:
            packet = ctypes.create_string_buffer(bytes([0x80, PCMU]) + bytes(10) + g711.ulaw_encode(pcm), 12 + PACKET)
            others.change(ctypes.addressof(packet), len(packet))
            yield packet.raw[12:]
        else:
            yield alaw_encode(pcm) if payload_type == PCMA else g711.ulaw_encode(pcm)


def purity(pcm: bytes) -> float:
    """Which part of the energy is the tone's; 0 for silence."""
    samples = np.frombuffer(pcm, "<i2").astype(float)
    if np.sqrt(np.mean(samples**2)) < 1_000:
        return 0.0
    turns = np.exp(-2j * math.pi * TONE_HZ * np.arange(len(samples)) / 8_000)
    return float(2 * abs(np.mean(samples * turns)) ** 2 / np.mean(samples**2))


async def say(phone: RtpPeer, to: Address, payload_type: int, num_packets: int = 10_000) -> None:
    """Send the tone, a packet each 20 ms."""
    begun = asyncio.get_running_loop().time()
    for index, payload in enumerate(tone(payload_type, num_packets=num_packets)):
        phone.next_packet(to, payload, payload_type)
        await asyncio.sleep(max(0.0, begun + 0.02 * (index + 1) - asyncio.get_running_loop().time()))


async def heard(server: Server, call_id: str, phone: RtpPeer, to: Address, payload_type: int) -> float:
    speaking = asyncio.create_task(say(phone, to, payload_type))
    try:
        async with media(server, call_id) as client:
            await client.hears(25)  # the jitter buffer has found its size
            client.pcm.clear()
            await client.hears(50)
            return max(purity(bytes(client.pcm[begin : begin + 3_200])) for begin in range(0, 12_800, 3_200))
    finally:
        speaking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await speaking


@contextlib.asynccontextmanager
async def placed(
    server: Server, phone: RtpPeer, formats: str, *, extra: str = "", event_type: int = 101
) -> AsyncIterator[tuple[Json, str, RawPeer, EventLog]]:
    """A call that we place and that is answered so: its event, our INVITE, the far side."""
    async with RawPeer() as peer, server.events() as log:
        await server.create("/v1/calls", {"to": f"sip:b@{peer.own}"})
        offer = await peer.expect("INVITE")
        sdp = SDP.format(port=phone.port, formats=formats).replace("101 tele", f"{event_type} tele") + extra
        sdp = sdp.replace("RTP/AVP", re.findall(r"m=audio \d+ (\S+)", offer)[0]) if extra else sdp
        peer.answer("200 OK", body=sdp)
        await peer.expect("ACK")
        call = await log.wait("call.established")
        yield call, offer, peer, log
        await server.delete(f"/v1/calls/{call['call_id']}")
        await peer.take_bye()


@pytest.mark.parametrize(
    ("formats", "spoken"),
    [
        ("0 8 101", PCMA),
        ("8 0 101", PCMU),
        ("0 9 101", G722),
        ("8 9 0 101", G722),
        ("9 0 8 101", PCMU),
        ("9 8 101", PCMA),
    ],
)
async def test_every_codec_of_an_answer_is_heard(server: Server, formats: str, spoken: int) -> None:
    async with RtpPeer() as phone, placed(server, phone, formats) as (call, offer, _, _):
        assert await heard(server, call["call_id"], phone, media_address(offer), spoken) > 0.8


async def test_the_codec_may_change_at_any_time(server: Server) -> None:
    async with RtpPeer() as phone, placed(server, phone, "0 8 101") as (call, offer, _, _):
        for spoken in (PCMU, PCMA, PCMU):
            assert await heard(server, call["call_id"], phone, media_address(offer), spoken) > 0.9


async def test_every_codec_of_an_answer_in_an_ack_is_heard(server: Server) -> None:
    async with RtpPeer() as phone, RawCaller("silent", server.sip_port) as caller, server.events() as log:
        caller.send("INVITE")
        answer = await caller.final()
        assert answer.status == 200
        caller.ack(body=SDP.format(port=phone.port, formats="0 8 101"))
        call = await log.wait("call.established")
        assert await heard(server, call["call_id"], phone, media_address(answer.text), PCMA) > 0.9
        assert (await caller.bye()).status == 200


async def test_every_codec_of_an_answer_to_a_re_invite_is_heard(server: Server) -> None:
    async with RtpPeer() as phone, placed(server, phone, "0 101") as (call, _, peer, log):
        for command, direction, told in (("hold", "a=recvonly\r\n", "call.held"), ("unhold", "", "call.unheld")):
            assert (await server.post(f"/v1/calls/{call['call_id']}/{command}", {}))[0] < 300
            offer = await peer.expect("INVITE")
            peer.answer("200 OK", body=SDP.format(port=phone.port, formats="0 8 101") + direction)
            await peer.expect("ACK")
            await log.wait(told)
        assert await heard(server, call["call_id"], phone, media_address(offer), PCMA) > 0.9


async def test_a_codec_that_nothing_is_made_of_is_logged_once(server: Server) -> None:
    async with RtpPeer() as phone, placed(server, phone, "0 101") as (call, offer, _, _):
        for _ in range(70):
            phone.next_packet(media_address(offer), bytes(20), 18)
            await asyncio.sleep(0.02)
        await until(lambda: logged(server, "rtp_discarded"))
        (line,) = logged(server, "rtp_discarded")
        assert line["call_id"] == call["call_id"]
        assert line["packets"] >= 50


def key(digit: str, payload_type: int) -> list[RtpPacket]:
    durations = [PACKET * each for each in (1, 2, 3, 4, 5, 5, 5)]
    events = [TelephoneEvent(event_code(digit), at >= 4, each).to_bytes() for at, each in enumerate(durations)]
    return [RtpPacket(payload_type, 0, 0, 0, each, not at) for at, each in enumerate(events)]


@pytest.mark.parametrize("event_type", [96, 100, 101, 120, 127])
async def test_keys_come_by_the_number_of_the_answer(server: Server, event_type: int) -> None:
    async with (
        RtpPeer() as phone,
        placed(server, phone, f"0 {event_type}", event_type=event_type) as (_, offer, _, log),
    ):
        to = media_address(offer)
        await phone.say(to, 10)
        for digit in "15#":
            await phone.send(to, key(digit, event_type))
            await phone.say(to, 5)
        await log.several("call.dtmf", 3)
        assert [each["data"]["digit"] for each in of_kind(log.events, "call.dtmf")] == ["1", "5", "#"]


async def test_telephone_events_are_offered_as_101(server: Server) -> None:
    async with RtpPeer() as phone, placed(server, phone, "0 101") as (call, first, peer, log):
        await phone.press(media_address(first), "7")
        assert (await log.wait("call.dtmf"))["data"]["digit"] == "7"
        assert (await server.post(f"/v1/calls/{call['call_id']}/hold", {}))[0] < 300
        again = await peer.expect("INVITE")
        for offer in (first, again):
            assert "a=rtpmap:101 telephone-event/8000" in offer
            assert "a=fmtp:101 0-16" in offer
            assert re.search(r"^m=audio \d+ RTP/AVP [\d ]*\b101\r$", offer, re.MULTILINE)
            assert not re.search(r"^a=\w+:120\b", offer, re.MULTILINE)
        peer.answer("200 OK", body=SDP.format(port=phone.port, formats="0 101") + "a=recvonly\r\n")
        await peer.expect("ACK")


async def test_a_caller_keeps_its_number_in_our_re_invites(server: Server) -> None:
    async with RtpPeer() as phone, RawCaller("silent", server.sip_port) as caller, server.events() as log:
        sdp = SDP.format(port=phone.port, formats="0 97").replace("101 tele", "97 tele")
        caller.send("INVITE", body=sdp)
        answer = await caller.final()
        assert "a=rtpmap:97 telephone-event" in answer.text
        caller.ack()
        call = await log.wait("call.established")
        await phone.send(media_address(answer.text), key("4", 97))
        await log.wait("call.dtmf", digit="4")
        assert (await server.post(f"/v1/calls/{call['call_id']}/hold", {}))[0] < 300
        offer = await caller.request("INVITE", status="488 Not Acceptable Here")
        assert "a=rtpmap:97 telephone-event/8000" in offer
        assert (await caller.bye()).status == 200


class SrtpPhone(RtpPeer):
    """Encrypts what it sends, by the libsrtp of pjsua2."""

    KEY = bytes(range(30))
    ANY_OUTBOUND = 3
    """``ssrc_any_outbound`` (srtp2/srtp.h)."""

    def __init__(self) -> None:
        super().__init__()
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        library = CLibrary()
        assert library.bind("srtp_init", integer)() == 0
        policy, self._session = ctypes.create_string_buffer(256), pointer()
        ctypes.memmove(policy, struct.pack("=i", self.ANY_OUTBOUND), 4)
        self._key = ctypes.create_string_buffer(self.KEY)
        for at in (8, 32):  # of RTP, of RTCP
            library.bind("srtp_crypto_policy_set_rtp_default", None, pointer)(ctypes.addressof(policy) + at)
        ctypes.c_size_t.from_address(ctypes.addressof(policy) + 56).value = ctypes.addressof(self._key)
        create = library.bind("srtp_create", integer, pointer, pointer)
        assert create(ctypes.byref(self._session), ctypes.byref(policy)) == 0
        self._protect = library.bind("srtp_protect", integer, pointer, pointer, pointer)

    @property
    def crypto(self) -> str:
        return f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{base64.b64encode(self.KEY).decode()}\r\n"

    def on_the_wire(self, packet: RtpPacket) -> bytes:
        plain = packet.to_bytes()
        data, length = ctypes.create_string_buffer(plain, len(plain) + 144), ctypes.c_int(len(plain))
        assert self._protect(self._session, ctypes.byref(data), ctypes.byref(length)) == 0
        return data.raw[: length.value]


async def test_every_codec_of_an_encrypted_answer_is_heard(lend: Lend) -> None:
    async with (
        lend(rtp__srtp="optional") as server,
        SrtpPhone() as phone,
        placed(server, phone, "0 8 96", extra=phone.crypto, event_type=96) as (call, offer, _, log),
    ):
        assert await heard(server, call["call_id"], phone, media_address(offer), PCMA) > 0.9
        await phone.send(media_address(offer), key("8", 96))
        await log.wait("call.dtmf", digit="8")
        assert (await server.only_call())["srtp"] is True
