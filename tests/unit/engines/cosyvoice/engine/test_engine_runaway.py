"""Speech that has run away is stopped before it is audio, sampled once more, and then given up."""

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from cc_tts.engines.cosyvoice.engine.sequence import MAX_SILENT_IN_A_ROW
from cc_tts.engines.cosyvoice.runaway import LENGTH_FACTOR, LENGTH_SPARE, MAX_REPEATED, MAX_SILENT, WINDOW
from cc_tts.engines.engine_core import StreamDone
from tests.fakes.fake_device import BYTES_PER_TOKEN
from tests.support.captured_logs import capture_logs
from tests.support.engine_hall import Hall, Heard, alone, words

pytestmark = pytest.mark.unit

TEXT: Final = words(random.Random(7), 12)
LIKELY: Final = 60
"""Speech tokens that it takes as a rule, in the fake front."""
OTHER: Final = words(random.Random(8), 6)
SILENT: Final = (3, 4, 5)
SOME: Final = random.Random(1).choices(range(10, 100), k=30)
REST: Final = random.Random(2).choices(range(100, 200), k=30)


def loop(period: int) -> Iterator[int]:
    return itertools.cycle(random.Random(period).choices(range(10, 200), k=period))


def babble(*ids: int) -> Iterator[int]:
    rng = random.Random(3)
    return iter(lambda: rng.choice(ids), None)


def hall_with(*scripts: Iterable[int], **config: Any) -> Hall:
    hall = Hall(**config)
    hall.device.silent_tokens = frozenset(SILENT)
    hall.device.scripts[hall.front.seed("anna", TEXT)] = list(scripts)
    return hall


def spoken(hall: Hall, *texts: str, **options: Any) -> Heard:
    heard = hall.open(0, *texts, **options)
    hall.run()
    assert heard.done == [StreamDone(0)]
    hall.check_empty()
    return heard


def tokens_of(heard: Heard) -> list[int]:
    return list(heard.pcm[::BYTES_PER_TOKEN])


def given_up(heard: Heard) -> list[tuple[int, float]]:
    return [(out.text_chunk_index, out.gave_up_after) for _, out in heard.pieces if out.gave_up_after is not None]


def num_runaways(hall: Hall) -> dict[str, int]:
    return hall.engine.load_report().num_runaways


@pytest.mark.parametrize("period", [1, 2, 3, 7, 12, 40])
@pytest.mark.parametrize("reads", [True, False])
def test_a_loop_is_heard_for_two_seconds_at_most(period: int, *, reads: bool) -> None:
    """A second of it before it is sampled again, and one after."""
    hall = hall_with(itertools.chain(SOME, loop(period)), loop(period))
    heard = tokens_of(spoken(hall, TEXT, reads=reads))
    begins = list(itertools.islice(itertools.chain(SOME, loop(period)), 30 + period))
    assert heard[: len(begins)] == begins
    assert len(heard) <= len(begins) + 2 * MAX_REPEATED
    assert num_runaways(hall) == {"repeats": 2}


def test_a_loop_that_never_repeats_exactly_is_heard_for_four_seconds_at_most() -> None:
    hall = hall_with(itertools.chain(SOME, babble(*range(20, 30))), babble(*range(20, 30)))
    heard = tokens_of(spoken(hall, TEXT))
    assert heard[:30] == SOME
    assert len(heard) <= 30 + 2 * WINDOW
    assert num_runaways(hall) == {"repeats": 2}


def test_of_silence_less_than_half_a_second_is_heard() -> None:
    hall = hall_with(itertools.chain(SOME, babble(*SILENT)), babble(*SILENT))
    heard = tokens_of(spoken(hall, TEXT))
    assert heard[:30] == SOME
    assert len(heard) <= 30 + 2 * MAX_SILENT_IN_A_ROW
    assert num_runaways(hall) == {"silence": 2}


def test_babble_ends_when_a_text_has_taken_twice_its_time_and_a_second() -> None:
    hall = hall_with(babble(*range(10, 200)), babble(*range(10, 200)))
    heard = spoken(hall, TEXT)
    assert len(tokens_of(heard)) <= LENGTH_FACTOR * LIKELY + LENGTH_SPARE
    assert num_runaways(hall) == {"length": 1}  # it is not sampled again then
    assert given_up(heard) == [(0, 1.0)]  # all of it was said, by the pace of the voice


def test_speech_that_recovers_goes_on_where_it_ran_away_and_nothing_is_said_twice() -> None:
    hall = hall_with(itertools.chain(SOME, loop(5)), REST)
    heard = spoken(hall, TEXT)
    tokens = tokens_of(heard)
    repeated = tokens[30:-30]
    assert tokens[:30] == SOME
    assert tokens[-30:] == REST
    assert 5 <= len(repeated) <= 5 + MAX_REPEATED
    assert repeated == list(itertools.islice(loop(5), len(repeated)))
    assert given_up(heard) == []
    assert num_runaways(hall) == {"repeats": 1}


def test_a_pause_after_silence_that_ran_away_is_a_pause() -> None:
    hall = hall_with(itertools.chain(SOME, babble(*SILENT)), [*SILENT, *REST])
    heard = spoken(hall, TEXT)
    assert tokens_of(heard)[:30] == SOME
    assert tokens_of(heard)[-33:] == [*SILENT, *REST]
    assert num_runaways(hall) == {"silence": 1}


def test_what_was_not_heard_yet_begins_anew() -> None:
    """At another speed all is sampled before any of it is spoken."""
    hall = hall_with(babble(*range(10, 200)), REST)
    assert spoken(hall, TEXT, speed=2.0).pcm == b"".join(bytes([token]) * (BYTES_PER_TOKEN // 2) for token in REST)
    assert num_runaways(hall) == {"length": 1}


def test_a_pause_that_the_model_makes_is_no_runaway() -> None:
    pause = list(itertools.islice(itertools.cycle(SILENT), MAX_SILENT))
    hall = hall_with([*SOME, *pause, *REST])
    assert tokens_of(spoken(hall, TEXT)) == [*SOME, *pause[:MAX_SILENT_IN_A_ROW], *REST]
    assert num_runaways(hall) == {}


@pytest.mark.parametrize("num_more", range(8))
def test_speech_that_ends_in_the_round_in_which_it_ran_away_goes_on_all_the_same(num_more: int) -> None:
    first = [*SOME, *itertools.islice(loop(5), 5 + MAX_REPEATED + num_more)]
    hall = hall_with(first, REST)
    heard = spoken(hall, TEXT)
    assert tokens_of(heard)[-30:] == REST
    assert num_runaways(hall) == {"repeats": 1}


def test_where_it_was_given_up_is_told_after_its_audio_and_the_next_text_follows() -> None:
    hall = hall_with(itertools.chain(SOME, loop(1)), loop(1))
    heard = spoken(hall, TEXT, OTHER)
    ((index, share),) = given_up(heard)
    assert index == 0
    assert share == pytest.approx(0.5, abs=0.05)
    indices = [(out.text_chunk_index, out.gave_up_after is None) for _, out in heard.pieces]
    assert indices == sorted(indices, key=lambda each: (each[0], not each[1]))
    assert heard.pcm.endswith(alone(OTHER))


def test_a_text_of_which_nothing_is_said_is_given_up_whole() -> None:
    hall = hall_with(babble(*SILENT), babble(*SILENT))
    heard = spoken(hall, TEXT, OTHER)
    assert [index for index, _ in given_up(heard)] == [0]
    assert given_up(heard)[0][1] < 0.1
    assert heard.pcm.endswith(alone(OTHER))


def test_the_rest_of_a_text_chunk_that_was_cut_is_left_to_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = hall_with(itertools.chain(SOME, loop(1)), loop(1))
    whole = f"{TEXT} {TEXT[::-1]}"
    monkeypatch.setattr(hall.front, "cut", lambda text, _instruction: (text[: len(TEXT)], text[len(TEXT) :]))
    heard = spoken(hall, whole, OTHER)
    ((index, share),) = given_up(heard)
    assert index == 0
    assert share == pytest.approx(0.25, abs=0.05)
    assert heard.pcm.endswith(alone(OTHER))
    others = len(alone(OTHER)) // BYTES_PER_TOKEN
    assert len(tokens_of(heard)) <= len(SOME) + 1 + 2 * MAX_REPEATED + others


def test_a_text_that_comes_in_pieces_is_given_up_at_once_and_the_next_piece_follows() -> None:
    hall = Hall(interleaved=True)
    seed = hall.front.seed("anna", "")
    hall.device.scripts[seed] = [babble(20, 21, 22)]
    heard = hall.open(0, TEXT, OTHER, end=False)
    hall.run()
    hall.engine.push(0, OTHER, 2)
    hall.engine.end(0)
    hall.run()
    assert heard.done == [StreamDone(0)]
    hall.check_empty()
    assert [index for index, _ in given_up(heard)] == [0, 1]
    assert heard.pieces[-1][1].text_chunk_index == 2
    assert num_runaways(hall) == {"repeats": 1}


def test_nothing_is_stopped_where_that_is_off() -> None:
    hall = hall_with(loop(3), stops_runaways=False)
    heard = spoken(hall, TEXT)
    assert len(tokens_of(heard)) == 20 * 12
    assert given_up(heard) == [(0, 1.0)], "that it did not end is told all the same"
    assert num_runaways(hall) == {"length": 1}


def test_nothing_is_told_where_the_weights_are_not_trained_to_end() -> None:
    hall = hall_with(loop(3), ends_speech=False)
    heard = spoken(hall, TEXT)
    assert len(tokens_of(heard)) == 20 * 12
    assert (given_up(heard), num_runaways(hall)) == ([], {})


# --- the limit of the model


def few_words() -> str:
    """A text so short that the model's limit, 20 tokens for each of its, comes before twice its time and a second."""
    return words(random.Random(9), 2)


@pytest.mark.parametrize(("speed", "share"), [(1.0, 1.0), (1.5, 0.0)])
def test_speech_that_reaches_the_limit_of_the_model_is_never_plain_success(speed: float, share: float) -> None:
    """At another speed nothing is heard before all is sampled, so it is sampled again, and then none of it is heard."""
    text, hall = few_words(), Hall()
    hall.device.scripts[hall.front.seed("anna", text)] = [babble(*range(10, 200)), babble(*range(10, 200))]
    heard = spoken(hall, text, speed=speed)
    assert len(tokens_of(heard)) <= 20 * 2
    assert given_up(heard) == [(0, share)]
    assert num_runaways(hall) == {"length": 1 if share else 2}


def test_speech_that_ends_with_the_last_token_that_it_may_have_is_normal() -> None:
    text, hall = few_words(), Hall()
    hall.device.scripts[hall.front.seed("anna", text)] = [random.Random(1).choices(range(10, 200), k=20 * 2 - 1)]
    heard = spoken(hall, text)
    assert len(tokens_of(heard)) == 20 * 2 - 1
    assert (given_up(heard), num_runaways(hall)) == ([], {})


def test_an_interleaved_text_that_reaches_the_limit_is_told() -> None:
    hall = Hall(interleaved=True, stops_runaways=False)
    hall.device.scripts[hall.front.seed("anna", "")] = [babble(*range(10, 200))]
    heard = spoken(hall, few_words())
    assert given_up(heard) == [(0, 1.0)]


def test_what_follows_in_a_text_chunk_that_was_cut_is_said_by_the_voice_if_the_words_before_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hall = hall_with(babble(*range(10, 200)))
    monkeypatch.setattr(hall.front, "cut", lambda text, _instruction: (text[: len(TEXT)], text[len(TEXT) :]))
    heard = spoken(hall, f"{TEXT}{OTHER}")
    assert given_up(heard) == [(0, 1.0)]
    assert heard.pcm.endswith(alone(OTHER))


def test_others_are_not_disturbed() -> None:
    hall = hall_with(itertools.chain(SOME, loop(4)), REST)
    hall.open(0, TEXT)
    for number in range(1, 6):
        hall.open(number, OTHER, voice="ben")
    hall.run()
    hall.check_empty()
    assert all(hall.heard[number].pcm == alone(OTHER, voice="ben") for number in range(1, 6))


def test_the_log_names_the_text_chunk_and_has_no_text() -> None:
    hall = hall_with(itertools.chain(SOME, loop(4)), loop(4))
    with capture_logs() as lines:
        spoken(hall, TEXT)
    told = [line for line in lines if line["event"] == "speech_ran_away"]
    assert [(line["cause"], line["stream_id"], line["text_chunk"], line["again"]) for line in told] == [
        ("repeats", 0, 0, True),
        ("repeats", 0, 0, False),
    ]
    assert not any(word in repr(lines) for word in TEXT.split())
