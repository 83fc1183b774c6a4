"""What a WebSocket client sends is passed on while its frames are masked, however the bytes are divided."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.api.http.masked_frames import MaskedFrames

pytestmark = pytest.mark.unit

LENGTHS = (0, 1, 125, 126, 127, 300, 65_535, 65_536, 70_000)


class Reader:
    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        self.data += b"eof"


def frame(length: int, *, is_masked: bool = True) -> bytes:
    mask, key = (0x80, b"\x80\x00\x7f\xff") if is_masked else (0, b"")
    if length < 126:
        size = bytes([mask | length])
    elif length < 65_536:
        size = bytes([mask | 126]) + length.to_bytes(2)
    else:
        size = bytes([mask | 127]) + length.to_bytes(8)
    return b"\x82" + size + key + bytes(length)


def fed(data: bytes, cuts: list[int]) -> bytes:
    reader = Reader()
    frames = MaskedFrames(reader)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        frames.feed_data(data[start:end])
    return reader.data


CUTS = st.lists(st.integers(0, 500), max_size=20)


@given(st.lists(st.sampled_from(LENGTHS), max_size=4), CUTS)
def test_masked_frames_are_passed_on(lengths: list[int], cuts: list[int]) -> None:
    data = b"".join(map(frame, lengths))
    assert fed(data, cuts) == data


@given(st.lists(st.sampled_from(LENGTHS), max_size=3), st.sampled_from(LENGTHS), CUTS)
def test_a_frame_without_a_mask_is_a_protocol_error(before: list[int], length: int, cuts: list[int]) -> None:
    data = b"".join(map(frame, before))
    passed_on = fed(data + frame(length, is_masked=False)[:2], cuts)
    assert passed_on == data + b"\xff\x80"


def test_the_end_is_passed_on() -> None:
    reader = Reader()
    MaskedFrames(reader).feed_eof()
    assert reader.data == b"eof"
