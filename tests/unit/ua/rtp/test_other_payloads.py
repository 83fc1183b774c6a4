"""Packets of other payload types than a stream decodes."""

import ctypes

import numpy as np
import pytest

from cc_tts.media import g711
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.rtp.other_payloads import Decoded, OtherPayloads

pytestmark = pytest.mark.unit

PCM = (8_000 * np.sin(2 * np.pi * 500 * np.arange(160) / 8_000)).astype("<i2").tobytes()
ULAW, ALAW = g711.ulaw_encode(PCM), g711.alaw_encode(PCM)
PCMU_STREAM = Decoded("PCMU", 0, 0, 101)


@pytest.fixture(scope="module")
def library() -> CLibrary:
    return CLibrary()


def rtp(payload_type: int, payload: bytes, *, first: int = 0x80, marker: int = 0, more: bytes = b"") -> bytes:
    return bytes((first, marker | payload_type)) + bytes(10) + more + payload


def changed(others: OtherPayloads, packet: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(packet, len(packet))
    others.change(ctypes.addressof(buffer), len(packet))
    return buffer.raw


def test_what_the_stream_decodes_is_left(library: CLibrary) -> None:
    others = OtherPayloads(library, PCMU_STREAM)
    for packet in (rtp(0, ULAW), rtp(101, b"\5\x0a\0\xa0"), rtp(0, ULAW, marker=0x80), b"", b"\x80\x08"):
        assert changed(others, packet) == packet


@pytest.mark.parametrize("marker", [0, 0x80])
def test_g711_of_the_other_law_is_taken(library: CLibrary, marker: int) -> None:
    pcma_stream = Decoded("PCMA", 8, 8, 101)
    to_ulaw = changed(OtherPayloads(library, PCMU_STREAM), rtp(8, ALAW, marker=marker))
    assert to_ulaw == rtp(0, g711.ulaw_encode(g711.alaw_decode(ALAW)), marker=marker)
    to_alaw = changed(OtherPayloads(library, pcma_stream), rtp(0, ULAW, marker=marker))
    assert to_alaw == rtp(8, g711.alaw_encode(g711.ulaw_decode(ULAW)), marker=marker)


def test_the_payload_is_found_behind_sources_and_extension_and_before_padding(library: CLibrary) -> None:
    head = bytes(4) + b"\xbe\xde\0\1" + bytes(4)  # one CSRC, an extension of one word
    packet = rtp(8, ALAW + b"\0\0\0\4", first=0x80 | 0x20 | 0x10 | 1, more=head)
    wanted = rtp(0, g711.ulaw_encode(g711.alaw_decode(ALAW)) + b"\0\0\0\4", first=0xB1, more=head)
    assert changed(OtherPayloads(library, PCMU_STREAM), packet) == wanted


@pytest.mark.parametrize(
    "packet",
    [
        rtp(8, b"", first=0x8F),
        rtp(8, b"\xff", first=0xA0),
        rtp(8, b"\0\0\xff\xff", first=0x90),
        rtp(9, b"", first=0x80),
    ],
)
@pytest.mark.parametrize("stream", [PCMU_STREAM, Decoded("G722", 9, 9, 101)])
def test_a_packet_without_payload_is_left(library: CLibrary, packet: bytes, stream: Decoded) -> None:
    assert changed(OtherPayloads(library, stream), packet) == packet


def test_g722_is_taken_both_ways(library: CLibrary) -> None:
    to_g722 = OtherPayloads(library, Decoded("G722", 9, 9, 101))
    back = OtherPayloads(library, PCMU_STREAM)
    heard = b""
    phase = np.arange(160 * 25)
    pcm = (8_000 * np.sin(2 * np.pi * 500 * phase / 8_000)).astype("<i2").tobytes()
    for begin in range(0, len(pcm), 320):
        wide = changed(to_g722, rtp(0, g711.ulaw_encode(pcm[begin : begin + 320])))
        assert (wide[1], len(wide)) == (9, 172)
        narrow = changed(back, wide)
        assert narrow[1] == 0
        heard += g711.ulaw_decode(narrow[12:])
    samples = np.frombuffer(heard, "<i2").astype(float)[800:]
    turns = np.exp(-2j * np.pi * 500 * np.arange(len(samples)) / 8_000)
    assert 2 * abs(np.mean(samples * turns)) ** 2 / np.mean(samples**2) > 0.95
    assert 0.6 < np.sqrt(np.mean(samples**2)) / (8_000 / np.sqrt(2)) < 1.2


def test_a_key_by_any_dynamic_number_is_one(library: CLibrary) -> None:
    others = OtherPayloads(library, PCMU_STREAM)
    for number in (96, 100, 120, 127):
        assert changed(others, rtp(number, b"\5\x0a\0\xa0", marker=0x80)) == rtp(101, b"\5\x0a\0\xa0", marker=0x80)
    for packet in (rtp(96, b"\x11\x0a\0\xa0"), rtp(96, ULAW), rtp(96, b"\5\x0a\0"), rtp(13, b"\5\x0a\0\xa0")):
        assert changed(others, packet) == packet


def test_the_codec_by_the_number_of_the_far_side_is_it(library: CLibrary) -> None:
    others = OtherPayloads(library, Decoded("L16", 70, 97, 101))
    assert changed(others, rtp(97, bytes(320))) == rtp(70, bytes(320))
    assert changed(others, rtp(0, ULAW)) == rtp(0, ULAW), "of another rate"


def test_what_nothing_is_made_of_is_counted(library: CLibrary) -> None:
    others = OtherPayloads(library, PCMU_STREAM)
    for packet in (rtp(0, ULAW), rtp(8, ALAW), rtp(101, b"\5\x0a\0\xa0"), rtp(96, b"\5\x0a\0\xa0"), rtp(13, b"\x40")):
        changed(others, packet)
    assert others.num_unknown == 0
    changed(others, rtp(18, bytes(20)))
    changed(others, rtp(96, bytes(40)))
    assert others.num_unknown == 2
