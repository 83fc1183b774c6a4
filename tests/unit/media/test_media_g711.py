"""G.711 against the reference algorithms of ITU-T G.191, written out here literally, for every 16-bit sample."""

from collections.abc import Callable

import numpy as np
import pytest

from cc_tts.media.g711 import alaw_decode, alaw_encode, ulaw_decode, ulaw_encode
from tests.support import alaw

pytestmark = pytest.mark.unit

ALL_CODES = bytes(range(256))
ALL_SAMPLES = np.arange(-32768, 32768).astype("<i2").tobytes()


def reference_ulaw(sample: int) -> int:
    """G.191 ``ulaw_compress``."""
    magnitude = min(((~sample if sample < 0 else sample) >> 2) + 33, 0x1FFF)
    segment = 1
    rest = magnitude >> 6
    while rest:
        segment += 1
        rest >>= 1
    code = (8 - segment) << 4 | (0x0F - (magnitude >> segment & 0x0F))
    return code | 0x80 if sample >= 0 else code


def test_every_sample_is_encoded_as_the_reference_does() -> None:
    assert ulaw_encode(ALL_SAMPLES) == bytes(reference_ulaw(sample) for sample in range(-32768, 32768))
    assert alaw_encode(ALL_SAMPLES) == alaw.alaw_encode(ALL_SAMPLES)


@pytest.mark.parametrize(
    ("decode", "code", "expected"),
    [
        (ulaw_decode, 0x00, -32124),
        (ulaw_decode, 0x80, 32124),
        (ulaw_decode, 0xFF, 0),
        (ulaw_decode, 0x7F, 0),
        (ulaw_decode, 0xFE, 8),
        (alaw_decode, 0xD5, 8),
        (alaw_decode, 0x55, -8),
        (alaw_decode, 0xAA, 32256),
        (alaw_decode, 0x2A, -32256),
    ],
)
def test_known_values(decode: Callable[[bytes], bytes], code: int, expected: int) -> None:
    assert np.frombuffer(decode(bytes([code])), "<i2").tolist() == [expected]


@pytest.mark.parametrize(("encode", "decode"), [(ulaw_encode, ulaw_decode), (alaw_encode, alaw_decode)])
def test_decoding_and_encoding_again_changes_nothing(
    encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
) -> None:
    levels = decode(ALL_CODES)
    assert decode(encode(levels)) == levels
    changed = [code for code, again in zip(ALL_CODES, encode(levels), strict=True) if code != again]
    assert changed == ([0x7F] if encode is ulaw_encode else [])  # μ-law has two zeros


def test_silence() -> None:
    assert ulaw_encode(bytes(4)) == b"\xff\xff"
    assert alaw_encode(bytes(4)) == b"\xd5\xd5"
    assert ulaw_encode(b"") == alaw_decode(b"") == b""


@pytest.mark.parametrize(("encode", "decode"), [(ulaw_encode, ulaw_decode), (alaw_encode, alaw_decode)])
def test_the_error_is_a_few_percent(encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]) -> None:
    before = np.frombuffer(ALL_SAMPLES, "<i2").astype(int)
    error = np.abs(np.frombuffer(decode(encode(ALL_SAMPLES)), "<i2") - before)
    inside = np.abs(before) < 32000
    assert (error[inside] <= 12 + np.abs(before[inside]) / 30).all()
