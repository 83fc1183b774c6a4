"""Frames of both directions on their way to a recording, tick by tick."""

from typing import NamedTuple

import numpy as np
import pytest

from cc_tts.audio import AudioFormat
from cc_tts.ua.recording.tap import (
    BEEP_EVERY_FRAMES,
    BEEP_FRAMES,
    BEEP_HZ,
    CAPTURE_FRAMES,
    MAX_FRAMES,
    RecordingTap,
    mixed,
)

pytestmark = pytest.mark.unit

SILENCE = bytes(320)
TICK_NS = 20_000_000


def frame(value: int) -> bytes:
    return np.full(160, value, "<i2").tobytes()


def values(pcm: bytes) -> list[int]:
    return [int(each) for each in np.frombuffer(pcm, "<i2")[::160]]


def tap(*, beeps: bool = False) -> RecordingTap:
    return RecordingTap(AudioFormat(8000), beeps=beeps)


class Taken(NamedTuple):
    received: bytes
    sent: bytes
    num_lost: int


def take(recorded: RecordingTap, *, is_last: bool = False) -> Taken:
    pieces = [Taken(*each) for each in recorded.take(is_last=is_last)]
    assert all(not each.num_lost for each in pieces[:-1])
    received, sent = b"".join(each.received for each in pieces), b"".join(each.sent for each in pieces)
    return Taken(received, sent, pieces[-1].num_lost if pieces else 0)


def ticks(recorded: RecordingTap, num: int, *, first: int = 1, received: int = 0) -> list[bytes]:
    sent = []
    for number in range(first, first + num):
        sent.append(recorded.sent(number * TICK_NS, frame(number)))
        recorded.received(frame(received or 100 + number))
    return sent


def test_each_tick_has_a_frame_of_either_direction() -> None:
    recorded = tap()
    assert ticks(recorded, 3) == [frame(1), frame(2), frame(3)]
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent), taken.num_lost) == ([101, 102, 103], [1, 2, 3], 0)
    assert take(recorded) == (b"", b"", 0)


def test_a_frame_that_was_not_received_is_silence_and_shifts_nothing() -> None:
    recorded = tap()
    ticks(recorded, 1)
    recorded.sent(2 * TICK_NS, frame(2))
    ticks(recorded, 1, first=3)
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent)) == ([101, 0, 103], [1, 2, 3])


def test_a_frame_beside_the_one_of_a_tick_is_left_out() -> None:
    recorded = tap()
    ticks(recorded, 1)
    recorded.received(frame(999))
    ticks(recorded, 1, first=2)
    assert values(take(recorded).received) == [101, 102]


def test_a_tick_that_is_not_over_is_taken_later() -> None:
    recorded = tap()
    recorded.sent(TICK_NS, frame(1))
    assert take(recorded).sent == b""
    recorded.received(frame(101))
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent)) == ([101], [1])


def test_frames_that_nobody_takes_are_left_out_and_counted() -> None:
    recorded = tap()
    ticks(recorded, MAX_FRAMES + 7)
    taken = take(recorded, is_last=True)
    assert len(taken.received) == len(taken.sent) == MAX_FRAMES * 320
    assert taken.num_lost == 7
    ticks(recorded, 3)
    assert values(take(recorded).received) == [101, 102, 103]


def test_frames_that_are_received_several_at_a_time_end_with_the_tick_in_which_they_come() -> None:
    recorded = tap()
    for number in range(1, 9):
        recorded.sent(number * TICK_NS, frame(number))
        if number == 7:
            recorded.received(frame(103) + frame(104) + frame(105) + frame(106) + frame(107))
    taken = take(recorded)
    assert values(taken.received) == [0, 0, 103, 104, 105, 106, 107]
    assert values(taken.sent) == [1, 2, 3, 4, 5, 6, 7]


def test_what_cannot_be_received_any_more_is_silence() -> None:
    recorded = tap()
    for number in range(1, CAPTURE_FRAMES + 3):
        recorded.sent(number * TICK_NS, frame(number))
    assert values(take(recorded).sent) == [1, 2]
    recorded.received(b"".join(frame(100 + number) for number in range(2, CAPTURE_FRAMES + 3)))
    rest = take(recorded, is_last=True)
    assert values(rest.received) == [100 + number for number in range(3, CAPTURE_FRAMES + 3)]


def test_what_is_received_in_a_pause_is_not_kept_with_what_came_before() -> None:
    recorded = tap()
    recorded.sent(TICK_NS, frame(1))
    recorded.set_paused(paused=True, skips=False)
    recorded.sent(2 * TICK_NS, frame(2))
    recorded.received(frame(101) + frame(102))
    assert values(take(recorded).received) == [101, 0]


def test_a_pause_is_silence() -> None:
    recorded = tap()
    recorded.set_paused(paused=True, skips=False)
    assert ticks(recorded, 2) == [frame(1), frame(2)], "the caller hears everything"
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent)) == ([0, 0], [0, 0])


def test_a_pause_that_skips_is_left_out() -> None:
    recorded = tap()
    ticks(recorded, 1)
    recorded.set_paused(paused=True, skips=True)
    ticks(recorded, 5, first=2)
    recorded.set_paused(paused=False, skips=False)
    ticks(recorded, 1, first=7)
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent)) == ([101, 107], [1, 7])


def test_a_recording_goes_on_after_its_delay() -> None:
    recorded = tap()
    recorded.set_paused(paused=True, skips=False)
    ticks(recorded, 1)
    recorded.set_paused(paused=False, skips=False, delay_ms=40)
    ticks(recorded, 3, first=2)
    assert values(take(recorded).sent) == [0, 0, 0, 4]


def test_time_goes_on_without_a_stream() -> None:
    recorded = tap()
    recorded.keep_time(5 * TICK_NS)
    ticks(recorded, 1)
    recorded.keep_time(4 * TICK_NS)
    ticks(recorded, 1, first=5)
    taken = take(recorded)
    assert (values(taken.received), values(taken.sent)) == ([101, 0, 0, 0, 105], [1, 0, 0, 0, 5])


def test_the_beep_is_heard_and_recorded_on_both_sides_every_15_s() -> None:
    recorded = tap(beeps=True)
    heard = []
    for number in range(1, BEEP_EVERY_FRAMES + BEEP_FRAMES + 10):
        heard.append(recorded.sent(number * TICK_NS, SILENCE))
        recorded.received(SILENCE)
        taken = take(recorded)
        assert taken.received == taken.sent
    loud = [number for number, each in enumerate(heard) if each != SILENCE]
    assert loud == [*range(BEEP_FRAMES), *range(BEEP_EVERY_FRAMES, BEEP_EVERY_FRAMES + BEEP_FRAMES)]
    spectrum = np.abs(np.fft.rfft(np.frombuffer(b"".join(heard[:BEEP_FRAMES]), "<i2").astype(float)))
    assert spectrum.argmax() * 2 == pytest.approx(BEEP_HZ, abs=4)


def test_two_at_once_are_added_and_do_not_wrap() -> None:
    loud, quiet = np.array([30_000, -30_000, 5], "<i2"), np.array([10_000, -10_000, -7], "<i2")
    assert np.frombuffer(mixed(loud.tobytes(), quiet.tobytes()), "<i2").tolist() == [32_767, -32_768, -2]
