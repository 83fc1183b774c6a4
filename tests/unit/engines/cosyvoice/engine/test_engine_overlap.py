"""The language model goes on while a call of flow and vocoder is under way; nothing is heard that is not there yet."""

import random

import pytest

from cc_tts.engines.cosyvoice.engine.device import PagesExhausted
from cc_tts.engines.engine_core import DeviceLost, StreamDone
from cc_tts.errors import EngineFailed
from tests.fakes.fake_device import FakeCosts
from tests.support.engine_hall import Hall, alone, words

pytestmark = pytest.mark.unit

TEXTS = tuple(words(random.Random(number), 12) for number in range(3))
LONG_CALLS = FakeCosts(lm_step_ms=2.0, call_ms=60.0)


def test_streams_sound_the_same_and_are_heard_sooner() -> None:
    instants = []
    for overlaps in (False, True):
        hall = Hall(costs=LONG_CALLS, overlaps=overlaps)
        for stream_id in range(6):
            hall.open(stream_id, *TEXTS)
            hall.play(35.0)
        hall.run()
        hall.check_empty()
        assert all(heard.pcm == alone(*TEXTS) for heard in hall.heard.values())
        assert (hall.device.num_beside > 0) is overlaps
        instants.append([heard.pieces[0][0] for heard in hall.heard.values()])
    assert sum(instants[1]) < sum(instants[0])


def test_a_stream_that_comes_during_a_call_is_prefilled_at_once() -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    hall.open(0, TEXTS[0])
    hall.until_a_call_is_under_way()
    call = hall.device.under_way
    hall.open(1, TEXTS[0])
    hall.step()
    assert hall.device.under_way is call
    assert [name for name, _ in hall.device.calls[-2:]] == ["start", "decode"]


def test_a_round_does_not_outlast_the_call_by_more_than_a_step() -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    for stream_id in range(4):
        hall.open(stream_id, *TEXTS)
    late_ms = []
    while hall.engine.has_work:
        call = hall.device.under_way
        hall.step()
        if call is not None and hall.device.under_way is not call:
            late_ms.append(hall.clock.at_ns / 1e6 - call.end_ms)
    assert len(late_ms) > 4
    prefills_and_steps_ms = LONG_CALLS.start_ms + 2 * LONG_CALLS.lm_step_ms
    assert max(late_ms) <= prefills_and_steps_ms


def test_without_anything_to_sample_a_step_waits_a_little_and_no_longer() -> None:
    hall = Hall(costs=FakeCosts(call_ms=500.0), overlaps=True)
    hall.open(0, "one two")
    while hall.device.under_way is None or not all(slot.is_stopped for slot in hall.device.slots.values()):
        hall.step()
    before_ms = hall.clock.at_ns / 1e6
    assert hall.step() == []
    assert 0.0 < hall.clock.at_ns / 1e6 - before_ms <= 5.0


def test_cancelled_during_its_call_a_stream_is_wiped_and_its_audio_goes_nowhere() -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    for stream_id, text in enumerate(TEXTS):
        hall.open(stream_id, text)
    gone = hall.until_a_call_is_under_way()[0]
    assert hall.device.under_way is not None
    slot = hall.device.under_way.slots[0]
    num_pieces = len(hall.heard[gone].pieces)
    hall.engine.cancel(gone)
    assert slot in hall.device.wiped
    newcomer = hall.open(9, *TEXTS)  # takes the slot that has become free
    hall.run()
    assert len(hall.heard[gone].pieces) == num_pieces
    assert newcomer.pcm == alone(*TEXTS)
    for stream_id in {0, 1, 2} - {gone}:
        assert hall.heard[stream_id].pcm == alone(TEXTS[stream_id])
    hall.check_empty()


@pytest.mark.parametrize("error", [RuntimeError("a kernel"), EngineFailed("of its own"), PagesExhausted("late")])
def test_a_call_that_breaks_at_its_end_ends_those_of_it_who_are_left(error: Exception) -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    for stream_id, text in enumerate(TEXTS):
        hall.open(stream_id, text)
    hall.device.errors["batch"] = [error]
    concerned = hall.until_a_call_is_under_way()
    assert hall.device.under_way is not None
    slots = hall.device.under_way.slots
    hall.engine.cancel(concerned[0])
    late = hall.open(9, *TEXTS)
    hall.run()
    assert hall.heard[concerned[0]].done == []
    assert len(concerned) > 1
    for stream_id in concerned[1:]:
        (done,) = hall.heard[stream_id].done
        assert done.error is not None
    assert late.done == [StreamDone(9)]
    assert late.pcm == alone(*TEXTS)
    assert set(slots) <= set(hall.device.wiped)
    hall.check_empty()


def test_a_device_that_is_lost_during_a_call_is_lost() -> None:
    hall = Hall(overlaps=True)
    hall.open(0, *TEXTS)
    hall.device.errors["batch"] = [DeviceLost("a CUDA error")]
    with pytest.raises(DeviceLost):
        hall.run()


def test_numbers_that_are_not_finite_end_one_stream_and_are_wiped() -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    hall.open(0, *TEXTS)
    broken = hall.open(1, "this one breaks in the middle of what it says")
    hall.device.broken_speech.add(hall.front.seed("anna", "this one breaks in the middle of what it says"))
    hall.run()
    (done,) = broken.done
    assert isinstance(done.error, EngineFailed)
    assert hall.heard[0].pcm == alone(*TEXTS)
    assert len(hall.device.wiped) == 1
    hall.check_empty()


def test_the_clock_of_a_stream_does_not_stop_while_its_audio_is_made() -> None:
    """All that has come is sampled and under way, and more text comes: the piece is late all the same."""
    hall = Hall(costs=FakeCosts(call_ms=5000.0), overlaps=True, interleaved=True)
    heard = hall.open(0, *TEXTS[:2], end=False)
    while not heard.pieces or hall.device.under_way is None or hall.clock.at_ns / 1e6 <= heard.dry_ms:
        hall.step()
    assert all(slot.is_stopped for slot in hall.device.slots.values())
    hall.engine.push(0, TEXTS[2], 2)
    while len(heard.pieces) == 1:
        hall.step()
    assert hall.engine.load_report().num_underruns == 1
    hall.engine.end(0)
    hall.run()
    assert heard.pcm == alone(*TEXTS, interleaved=True)


def test_an_engine_that_is_closed_during_a_call_leaves_nothing() -> None:
    hall = Hall(costs=LONG_CALLS, overlaps=True)
    hall.open(0, *TEXTS)
    hall.until_a_call_is_under_way()
    hall.engine.close()
    assert len(hall.device.wiped) == 1
    assert not hall.device.slots
