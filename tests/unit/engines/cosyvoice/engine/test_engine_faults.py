"""What goes wrong in the engine goes wrong for those concerned, and leaves nothing behind."""

import random

import pytest

from cc_tts.engines.cosyvoice.engine.device import PagesExhausted
from cc_tts.engines.engine_core import DeviceLost, StreamDone
from cc_tts.errors import EngineFailed, EngineOverloaded, Unprocessable
from tests.fakes.fake_device import UNUSABLE, FakeCosts
from tests.support.engine_hall import Hall, Heard, alone, words

pytestmark = pytest.mark.unit

TEXTS = tuple(words(random.Random(number), 12) for number in range(3))
BROKEN = words(random.Random(99), 12)


def open_some(hall: Hall, num_streams: int = 3) -> None:
    for stream_id in range(num_streams):
        hall.open(stream_id, *TEXTS)


def check_others(hall: Hall, *failed: int) -> None:
    """All but those who failed were spoken to the end, as if nothing had been."""
    for stream_id, heard in hall.heard.items():
        if stream_id not in failed:
            assert heard.done == [StreamDone(stream_id)]
            assert heard.pcm == alone(*TEXTS)
    hall.check_empty()


def error_of(hall: Hall, stream_id: int) -> Exception:
    (done,) = hall.heard[stream_id].done
    assert done.error is not None
    return done.error


@pytest.mark.parametrize("where", ["broken_sampling", "broken_speech"])
def test_numbers_that_are_not_finite_end_one_stream_and_are_wiped(where: str) -> None:
    hall = Hall()
    open_some(hall)
    hall.open(9, TEXTS[0], BROKEN)
    getattr(hall.device, where).add(hall.front.seed("anna", BROKEN))
    hall.run()
    assert isinstance(error_of(hall, 9), EngineFailed)
    assert alone(TEXTS[0]).startswith(hall.heard[9].pcm)
    assert len(hall.device.wiped) >= 1
    assert hall.engine.load_report().num_not_finite == 1
    check_others(hall, 9)


@pytest.mark.parametrize("stage", ["decode", "speak"])
@pytest.mark.parametrize("error", [RuntimeError("a kernel"), MemoryError(), EngineFailed("of its own")])
def test_a_stage_that_breaks_ends_those_of_its_batch(stage: str, error: Exception) -> None:
    hall = Hall()
    deaf = hall.open(0, *TEXTS * 2, reads=False)
    hall.run()
    open_some_more = [hall.open(stream_id, *TEXTS) for stream_id in (1, 2)]
    silent = hall.open(3, end=False)
    hall.device.errors[stage] = [error]
    num_calls = len(hall.device.calls)
    while hall.device.errors[stage]:
        hall.step()
    failed = [stream_id for stream_id, heard in hall.heard.items() if heard.done]
    (concerned,) = [slots for name, slots in hall.device.calls[num_calls:][-1:] if name == stage]
    assert len(failed) == len(concerned) <= len(open_some_more)
    assert set(concerned) <= set(hall.device.wiped)
    for stream_id in failed:
        assert isinstance(error_of(hall, stream_id), EngineFailed)
        assert error_of(hall, stream_id).__traceback__ is None
    for index, text in enumerate(TEXTS):
        hall.engine.push(3, text, index)
    hall.engine.end(3)
    deaf.is_reading = True
    hall.take(0)
    hall.run()
    assert silent.done
    assert deaf.pcm == alone(*TEXTS * 2)
    del hall.heard[0]
    check_others(hall, *failed)


def test_a_prefill_that_breaks_ends_those_of_its_batch() -> None:
    hall = Hall()
    hall.open(0, *TEXTS)
    hall.play(60)
    hall.device.errors["start"] = [RuntimeError("a kernel")]
    hall.open(1, *TEXTS)
    hall.run()
    assert isinstance(error_of(hall, 1), EngineFailed)
    check_others(hall, 1)


def test_a_feeding_that_is_refused_harms_no_other_of_its_batch() -> None:
    hall = Hall()
    open_some(hall)
    hall.device.errors["start"] = [EngineFailed("one does not fit"), EngineFailed("it is this one")]
    hall.run()
    assert str(error_of(hall, 0)) == "it is this one"
    check_others(hall, 0)


@pytest.mark.parametrize("stage", ["start", "decode", "speak"])
def test_a_device_that_is_lost_ends_everything(stage: str) -> None:
    hall = Hall()
    open_some(hall)
    hall.device.errors[stage] = [DeviceLost("CUDA error: an illegal memory access was encountered")]
    with pytest.raises(DeviceLost):
        for _ in range(100):
            hall.engine.step()


def test_a_text_that_cannot_be_said_ends_its_stream() -> None:
    hall = Hall()
    open_some(hall, 2)
    hall.open(5, TEXTS[0], UNUSABLE, TEXTS[1])
    hall.run()
    assert isinstance(error_of(hall, 5), Unprocessable)
    assert alone(TEXTS[0]).startswith(hall.heard[5].pcm)
    check_others(hall, 5)


def test_a_front_end_that_breaks_ends_the_stream_whose_text_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    open_some(hall, 2)
    hall.step()

    def broken(_voice_id: str, _text: str, **_: object) -> None:
        raise KeyError("secret text")

    with monkeypatch.context() as patch:
        patch.setattr(hall.front, "prepare", broken)
        hall.open(5, TEXTS[0])
        hall.step()
    hall.run()
    assert str(error_of(hall, 5)) == "text: KeyError"
    check_others(hall, 5)


@pytest.mark.parametrize("speech", [False, True])
def test_speech_beyond_the_room_of_the_device_ends_its_stream(*, speech: bool) -> None:
    hall = Hall()
    hall.open(0, *TEXTS)
    hall.device.max_tokens = len(alone(TEXTS[0])) // 1920 + (0 if speech else -20)
    hall.run()
    assert str(error_of(hall, 0)) == "the speech would not end"
    hall.check_empty()


# --- memory


@pytest.mark.parametrize("reads", [True, False], ids=["all are heard", "one is paused"])
def test_where_pages_are_short_each_stream_gets_its_turn_and_sounds_the_same(*, reads: bool) -> None:
    hall = Hall(num_slots=4, num_pages=8, max_streams=3)
    hall.open(0, *TEXTS, reads=reads)
    for stream_id in (1, 2):
        hall.open(stream_id, *TEXTS)
    hall.run()
    if not reads:
        for stream_id in (1, 2):
            assert hall.heard[stream_id].pcm == alone(*TEXTS)
        hall.heard[0].is_reading = True
        hall.take(0)
        hall.run()
    check_others(hall)


@pytest.mark.parametrize("num_pages", range(6, 40))
def test_no_number_of_pages_makes_streams_fail_whose_texts_fit(num_pages: int) -> None:
    hall = Hall(num_slots=12, num_pages=num_pages, max_streams=10)
    open_some(hall, 9)
    hall.open(9, *TEXTS, speed=2.0)
    hall.run()
    check_others(hall, 9)
    assert hall.heard[9].pcm == alone(*TEXTS, speed=2.0)


@pytest.mark.parametrize("speed", [1.0, 2.0])
@pytest.mark.parametrize("num_pages", [8, 16, 24])
def test_a_text_longer_than_all_pages_ends_its_stream_and_no_other(num_pages: int, speed: float) -> None:
    hall = Hall(num_slots=4, num_pages=num_pages, max_streams=4)
    open_some(hall, 2)
    hall.open(2, words(random.Random(3), 150), speed=speed)
    hall.open(3, *TEXTS)
    hall.run()
    assert isinstance(error_of(hall, 2), PagesExhausted)
    check_others(hall, 2)


def test_interleaved_texts_that_pause_hold_their_pages_and_nobody_waits_for_them() -> None:
    hall = Hall(num_slots=6, num_pages=16, max_streams=6, interleaved=True)
    for stream_id in (0, 1):
        hall.open(stream_id, *TEXTS[:2], end=False)
    hall.run()
    for stream_id in (2, 3):
        hall.open(stream_id, *TEXTS)
    hall.run()
    for stream_id in (2, 3):
        assert hall.heard[stream_id].pcm == alone(*TEXTS, interleaved=True)
    for stream_id in (0, 1):
        hall.engine.push(stream_id, TEXTS[2], 2)
        hall.engine.end(stream_id)
    hall.run()
    for heard in hall.heard.values():
        assert heard.pcm == alone(*TEXTS, interleaved=True)
    hall.check_empty()


def test_new_requests_are_refused_when_there_are_pages_for_nobody() -> None:
    hall = Hall(num_slots=16, num_pages=40, admits_all=False, first_audio_target_ms=60_000.0)
    hall.open(0, *TEXTS)
    hall.play(100)
    num_free = hall.engine.load_report().room
    assert 0 < num_free < 10
    with pytest.raises(EngineOverloaded, match="no memory for the flow's state"):
        for stream_id in range(1, 16):
            hall.open(stream_id, *TEXTS)
    assert len(hall.heard) == num_free + 1
    hall.run()
    check_others(hall)


def test_a_voice_without_a_place_is_refused_alone() -> None:
    hall = Hall(num_slots=4, num_pages=8, max_streams=4)
    hall.open(0, *TEXTS, voice="ben")
    hall.play(1)
    hall.device.num_pages = hall.device.num_pages - hall.device.num_free_pages  # nothing is free
    hall.open(1, *TEXTS, voice="cleo")
    hall.open(2, *TEXTS, voice="ben")
    hall.step()
    hall.device.num_pages = 8
    hall.run()
    assert isinstance(error_of(hall, 1), PagesExhausted)
    for stream_id in (0, 2):
        assert hall.heard[stream_id].pcm == alone(*TEXTS, voice="ben")
    hall.check_empty()


def test_a_device_that_lacks_pages_all_the_same_ends_the_batch() -> None:
    hall = Hall()
    hall.open(0, *TEXTS)
    hall.device.errors["speak"] = [PagesExhausted("always")]
    hall.run()
    assert isinstance(error_of(hall, 0), PagesExhausted)
    hall.check_empty()


# --- cancels


def stage_of(hall: Hall, heard: Heard, texts: tuple[str, ...]) -> str:
    if heard.done:
        return "over"
    slots = list(hall.device.slots.values())
    if not slots:
        return "waiting" if texts else "silent"
    if not heard.pieces:
        return "drawing"
    return "spoken" if len(slots) == 1 else "two sequences"


@pytest.mark.parametrize("stage", ["silent", "waiting", "drawing", "spoken", "two sequences", "over"])
def test_a_cancel_frees_everything_at_once_whatever_is_going_on(stage: str) -> None:
    hall = Hall(max_streams=7, costs=FakeCosts(call_ms=150.0))
    texts = () if stage == "silent" else TEXTS
    heard = hall.open(0, *texts, end=stage == "over")
    for _ in range(1000):
        if stage_of(hall, heard, texts) == stage:
            break
        hall.step()
    assert stage_of(hall, heard, texts) == stage
    num_pieces = len(heard.pieces)
    hall.engine.cancel(0)
    hall.check_empty()
    assert not hall.engine.step()
    assert len(heard.pieces) == num_pieces
    assert bool(heard.done) == (stage == "over")


def test_a_thousand_cancels_at_random_moments_leave_nothing() -> None:
    rng = random.Random(4)
    hall = Hall(num_slots=10, max_streams=8, num_pages=60)
    open_ids: list[int] = []
    steady = hall.open(10_000, *TEXTS * 3)
    num_cancelled = stream_id = 0
    while num_cancelled < 1000:
        while len(open_ids) < 7:
            texts = [words(rng, rng.randint(1, 12)) for _ in range(rng.randint(0, 3))]
            hall.open(stream_id, *texts, voice=rng.choice(["anna", "ben", "cleo"]), end=rng.random() < 0.7)
            open_ids.append(stream_id)
            stream_id += 1
        for _ in range(rng.randint(0, 4)):
            hall.step()
        open_ids = [each for each in open_ids if not hall.heard[each].done]
        if open_ids:
            hall.engine.cancel(open_ids.pop(rng.randrange(len(open_ids))))
            num_cancelled += 1
    for each in open_ids:
        hall.engine.cancel(each)
    hall.run()
    assert steady.pcm == alone(*TEXTS * 3)
    hall.check_empty()
