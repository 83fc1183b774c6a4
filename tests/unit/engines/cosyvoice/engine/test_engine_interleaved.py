"""Text that comes in pieces extends one sequence (§3.5)."""

import random
from collections.abc import Sequence

import pytest

from cc_tts.engines.engine_core import StreamDone
from tests.support.engine_hall import Hall, Heard, alone, words

pytestmark = pytest.mark.unit

TEXTS = tuple(words(random.Random(number), 7) for number in range(6))


def spoken(texts: tuple[str, ...], *, pause: int, end_late: bool = False) -> Heard:
    """Text chunks with so many steps between them."""
    hall = Hall(interleaved=True)
    heard = hall.open(0, end=False)
    for index, text in enumerate(texts):
        hall.engine.push(0, text, index)
        for _ in range(pause):
            hall.step()
    if end_late:
        hall.run()
    hall.engine.end(0)
    hall.run()
    assert heard.done == [StreamDone(0)]
    hall.check_empty()
    return heard


def test_it_speaks_before_the_text_has_ended_in_one_sequence() -> None:
    hall = Hall(interleaved=True)
    heard = hall.open(0, *TEXTS, end=False)
    hall.run()
    assert heard.pieces
    assert not heard.done
    assert len(hall.device.slots) == 1
    num_pieces = len(heard.pieces)
    hall.engine.end(0)
    hall.run()
    assert heard.done == [StreamDone(0)]
    assert len(heard.pieces) > num_pieces
    hall.check_empty()


@pytest.mark.parametrize("pause", [0, 1, 2, 5, 50])
@pytest.mark.parametrize("end_late", [False, True])
def test_the_words_decide_what_is_said_not_when_they_come(pause: int, *, end_late: bool) -> None:
    assert spoken(TEXTS, pause=pause, end_late=end_late).pcm == spoken(TEXTS, pause=9, end_late=True).pcm


def test_a_text_that_ends_at_once_is_said_as_a_whole() -> None:
    assert len(spoken(("so few words",), pause=0).pcm) > 0
    assert len(spoken(("two", "words"), pause=7, end_late=True).pcm) > 0


def test_text_chunks_are_told_in_their_order_and_all_of_them() -> None:
    indices = [out.text_chunk_index for _, out in spoken(TEXTS, pause=3).pieces]
    assert indices == sorted(indices)
    assert indices[0] == 0
    assert indices[-1] == len(TEXTS) - 1


def test_many_interleaved_streams_sound_as_if_alone() -> None:
    rng = random.Random(5)
    hall = Hall(num_slots=8, interleaved=True)
    texts = {number: [words(rng, rng.randint(1, 9)) for _ in range(5)] for number in range(8)}
    for number in texts:
        hall.open(number, end=False)
    for index in range(5):
        for number in rng.sample(sorted(texts), 8):
            hall.engine.push(number, texts[number][index], index)
            hall.step() if hall.engine.has_work else None
    for number in texts:
        hall.engine.end(number)
    hall.run()
    hall.check_empty()
    for number, parts in texts.items():
        assert hall.heard[number].pcm == alone(*parts, interleaved=True)


def test_a_long_text_goes_on_in_a_new_sequence() -> None:
    texts = tuple(words(random.Random(number), 20) for number in range(8))
    heard = spoken(texts, pause=1)
    indices = [out.text_chunk_index for _, out in heard.pieces]
    assert indices == sorted(indices)
    assert len(heard.pcm) / 1920 >= 3 * 160  # fifteen speech tokens to five words, at least


def test_words_of_two_text_chunks_are_not_run_together() -> None:
    hall = Hall(interleaved=True)
    pieces: list[str] = []
    text_ids = hall.front.text_ids

    def noting(voice_id: str, text: str, instruction: Sequence[int] = ()) -> tuple[int, ...]:
        pieces.append(text)
        return text_ids(voice_id, text, instruction)

    hall.front.text_ids = noting  # type: ignore[method-assign]
    hall.open(0, '"', "hello", "world ", "and", "你好", "世界", "", "again", ", you")
    hall.run()
    assert pieces == ['" hello', " world ", "and", "你好", "世界", "", "again", " , you"]


def test_a_changed_speed_is_not_interleaved() -> None:
    hall = Hall(interleaved=True)
    heard = hall.open(0, *TEXTS, speed=2.0)
    hall.run()
    assert len(heard.pieces) == len(TEXTS)


def test_cancels_leave_nothing() -> None:
    rng = random.Random(6)
    hall = Hall(num_slots=6, interleaved=True)
    for stream_id in range(200):
        hall.open(stream_id, *TEXTS[: rng.randint(0, 6)], end=rng.random() < 0.5)
        for _ in range(rng.randint(0, 12)):
            if hall.engine.has_work:
                hall.step()
        hall.engine.cancel(stream_id)
    hall.check_empty()
