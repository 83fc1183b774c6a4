"""Frames between the media clock and the SIP thread."""

import pytest

from cc_tts.ua.rtp.frame_queue import MAX_FRAMES, FrameQueue

pytestmark = pytest.mark.unit

MS = 1_000_000


def test_what_came_since_the_last_time_is_joined() -> None:
    queue = FrameQueue()
    assert queue.take() is None
    queue.add(20 * MS, b"aa")
    queue.add(40 * MS, b"bb")
    assert queue.take() == (20 * MS, 0, b"aabb")
    queue.add(60 * MS, b"cc")
    assert queue.take() == (60 * MS, 0, b"cc")
    assert queue.take() is None


def test_what_finds_it_full_is_dropped_and_counted_where_it_is_missing() -> None:
    queue = FrameQueue()
    for tick in range(MAX_FRAMES + 3):
        queue.add(tick * MS, bytes([tick]))
    assert queue.take() == (0, 0, bytes(range(MAX_FRAMES)))
    queue.add(30 * MS, b"next")
    assert queue.take() == (30 * MS, 3, b"next")
    queue.add(31 * MS, b"last")
    assert queue.take() == (31 * MS, 0, b"last")


def test_a_block_ends_before_a_gap() -> None:
    queue = FrameQueue()
    for tick in range(MAX_FRAMES + 1):
        queue.add(tick * MS, b"x")
    queue._frames.popleft()  # the taker has begun while the clock goes on
    queue.add(100 * MS, b"y")
    assert queue.take() == (1 * MS, 0, b"x" * (MAX_FRAMES - 1))
    assert queue.take() == (100 * MS, 1, b"y")
