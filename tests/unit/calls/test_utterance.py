"""What was heard of a prompt, and how long it took to begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.calls.call_state import UtteranceEvent
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.speech.prompt import Prompt, SilenceContent, TextContent
from cc_tts.speech.timing.spans import SpokenSpan, Word
from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit


def make(text: str = "", *spans: SpokenSpan, played_ms: float = 0.0) -> Utterance:
    return Utterance(
        id="u",
        call_id="c",
        prompt=Prompt(content=TextContent(text)),
        voice="v",
        engine="e",
        accepted_at_s=0.0,
        origin_ns=1_000_000_000,
        barge_in_dtmf=True,
        spans=list(spans),
        played_ms=played_ms,
    )


@pytest.mark.parametrize(
    ("played_ms", "heard"),
    [
        (0, ""),
        (500, "One"),
        (999, "One two."),
        (1000, "One two."),
        (1500, "One two. Three"),
        (2000, "One two. Three four."),
    ],
)
def test_whole_spans_and_a_share_of_the_last(played_ms: float, heard: str) -> None:
    spans = (SpokenSpan("One two. ", 0.0, 1000.0), SpokenSpan("Three four.", 1000.0, 2000.0))
    assert make("", *spans, played_ms=played_ms).spoken_text == heard


def test_the_engines_word_marks_decide_where_there_are_some() -> None:
    span = SpokenSpan("One two three.", 100.0, 1100.0, words=[(0.0, 0.0), (700.0, 4 / 14), (900.0, 8 / 14)])
    assert make("", span, played_ms=750).spoken_text == ""
    assert make("", span, played_ms=850).spoken_text == "One"
    assert make("", span, played_ms=1000).spoken_text == "One two"
    assert make("", span, played_ms=1100).spoken_text == "One two three."


@given(
    st.lists(st.tuples(st.text("ab 好.", max_size=12), st.floats(0, 500)), max_size=5),
    st.floats(0, 3000),
    st.floats(0, 3000),
)
def test_never_less_is_heard_than_before(chunks: list[tuple[str, float]], played_ms: float, more_ms: float) -> None:
    spans: list[SpokenSpan] = []
    for source, length_ms in chunks:
        start_ms = spans[-1].end_ms if spans else 0.0
        assert start_ms is not None
        spans.append(SpokenSpan(source, start_ms, start_ms + length_ms))
    utterance = make("", *spans, played_ms=played_ms)
    before = utterance.spoken_text
    utterance.played_ms += more_ms
    assert utterance.spoken_text.startswith(before)
    assert "".join(span.source for span in spans).startswith(utterance.spoken_text)


WORDS = [(0.0, 0.0), (400.0, 0.4), (900.0, 0.8)]


@pytest.mark.parametrize(
    ("text", "span", "played_ms", "heard"),
    [
        (" \n Hello.", SpokenSpan(" \n Hello.", 0.0, 900.0), 900, " \n Hello."),
        ("Hello.\n\n", SpokenSpan("Hello.", 0.0, 900.0), 900, "Hello.\n\n"),
        ("Hello 👋\n", SpokenSpan("Hello", 0.0, 900.0), 900, "Hello 👋\n"),
        ("Hello. Then", SpokenSpan("Hello. ", 0.0, 900.0), 900, "Hello."),
        ("One\ntwo\tthree", SpokenSpan("One\ntwo\tthree", 0.0, 1300.0), 600, "One"),
        ("One\ntwo\tthree", SpokenSpan("One\ntwo\tthree", 0.0, 1300.0), 800, "One\ntwo"),
        ("  One two", SpokenSpan("  One two", 0.0, 900.0), 200, ""),
        ("  One two", SpokenSpan("  One two", 0.0, 900.0), 600, "  One"),
        ("It is $1,234.56 now", SpokenSpan("It is $1,234.56 now", 0.0, 1900.0), 1000, "It is"),
        ("It is $1,234.56 now", SpokenSpan("It is $1,234.56 now", 0.0, 1900.0), 1600, "It is $1,234.56"),
        ("今天 天气很好", SpokenSpan("今天 天气很好", 0.0, None), 1200, "今天 天气"),
        ("我在 Berlin 工作", SpokenSpan("我在 Berlin 工作", 0.0, None), 1000, "我在"),
        ("Hello there.", SpokenSpan("", 0.0, 0.0), 0, ""),
        ("今天天气很好。", SpokenSpan("今天天气很好。", 0.0, 700.0), 300, "今天天"),
        ("10 ０１２ 年", SpokenSpan("10 ０１２ 年", 0.0, 1000.0, words=WORDS), 500, "10"),
    ],
)
def test_the_text_comes_back_as_it_was_sent(text: str, span: SpokenSpan, played_ms: float, heard: str) -> None:
    assert make(text, span, played_ms=played_ms).spoken_text == heard
    assert text.startswith(heard)


def test_times_count_from_the_origin_and_are_never_negative() -> None:
    utterance = make("Hi")
    assert (utterance.time_to_first_pcm_ms, utterance.time_to_first_audio_ms) == (None, None)
    utterance.first_pcm_ns, utterance.first_speech_ns = 900_000_000, 1_042_500_000
    assert (utterance.time_to_first_pcm_ms, utterance.time_to_first_audio_ms) == (0.0, 42.5)


def test_states_and_size() -> None:
    utterance = make("Grüße 世界")
    assert utterance.text_chars == 8
    utterance.machine.fire(UtteranceEvent.COMPLETE)
    assert utterance.is_complete
    assert Prompt(content=SilenceContent(10)).then == "stay"
    assert utterance != make("Grüße 世界"), "an utterance is itself, not its values"


def test_the_times_of_words_come_from_the_engine_where_it_reports_them() -> None:
    span = SpokenSpan("One two, 3.", 100.0, 1100.0, words=[(0.0, 0.0), (400.0, 4 / 11), (700.0, 9 / 11)])
    words = make("", span, played_ms=1100.0).words
    assert words == [
        Word("One", 0, 3, 100, 500, "engine"),
        Word("two,", 4, 8, 500, 800, "engine"),
        Word("3.", 9, 11, 800, 1100, "engine"),
    ]


def test_the_times_of_words_are_estimated_by_their_length_where_it_does_not() -> None:
    spans = (SpokenSpan("aa bb ", 0.0, 600.0), SpokenSpan("", 600.0, 1000.0), SpokenSpan("好吗", 1000.0, 1200.0))
    words = make("", *spans, played_ms=1200.0).words
    assert words == [
        Word("aa", 0, 2, 0, 300, "estimated"),
        Word("bb", 3, 5, 300, 600, "estimated"),
        Word("好", 6, 7, 1000, 1100, "estimated"),
        Word("吗", 7, 8, 1100, 1200, "estimated"),
    ]


def test_only_words_that_have_begun_are_given() -> None:
    span = SpokenSpan("One two three", 0.0, None, words=[(0.0, 0.0), (400.0, 4 / 13)])
    utterance = make("", span, played_ms=450.0)
    assert [(word.text, word.start_ms, word.end_ms) for word in utterance.words] == [("One", 0, 400), ("two", 400, 400)]
    utterance.forget_text()
    assert [word.text for word in utterance.words] == ["One", "two"]


def test_a_mark_is_reached_when_its_place_is_played() -> None:
    span = SpokenSpan(
        "One two", 100.0, 1100.0, words=[(0.0, 0.0), (600.0, 4 / 7)], marks=[(0.0, "a"), (4 / 7, "b"), (1.0, "c")]
    )
    utterance = make("", span, SpokenSpan("", 1100.0, 1500.0, marks=[(0.0, "d")]))
    taken = []
    for played_ms in (0.0, 100.0, 500.0, 700.0, 1099.5, 1500.0):
        utterance.played_ms = played_ms
        taken.append(utterance.take_marks())
    assert taken == [[], [("a", 100.0)], [], [("b", 700.0)], [("c", 1100.0), ("d", 1100.0)], []]


def test_a_mark_waits_for_the_words_that_are_not_fed_yet() -> None:
    span = SpokenSpan("One two three four", 0.0, None, words=[(0.0, 0.0), (300.0, 4 / 18)], marks=[(14 / 18, "x")])
    utterance = make("", span, played_ms=2000.0)
    assert utterance.take_marks() == []
    span.words.append((900.0, 14 / 18))
    assert utterance.take_marks() == [("x", 900.0)]


def test_without_timed_words_a_sum_counts_once_its_last_word_was_heard() -> None:
    text = "Your balance is $1,234.56 today my friend."
    (chunk,) = chunks_of(Normalizer(), text, Chunking(language="en-US"))
    span = SpokenSpan(text, 0.0, 5600.0, paces=chunk.paces)
    heard = {ms: make(text, span, played_ms=ms).spoken_text for ms in (2005, 2605, 4000, 5000, 5600)}
    assert heard == {
        2005: "Your balance is",
        2605: "Your balance is",
        4000: "Your balance is",
        5000: "Your balance is $1,234.56 today",
        5600: text,
    }
    sum_word, today = make(text, span, played_ms=5600).words[3:5]
    assert (sum_word.text, today.text) == ("$1,234.56", "today")
    assert sum_word.start_ms < 1000
    assert 4200 < sum_word.end_ms == today.start_ms < 4800


def test_text_that_is_not_spoken_takes_no_time() -> None:
    chunk = SpeechChunk(b"", "One two.", paces=((8, 1.0, False),))
    chunk.begin_with("<think>A long thought of the model.</think> ")
    assert chunk.begins_source is not None
    span = SpokenSpan(chunk.begins_source, 0.0, 1000.0, paces=chunk.paces)
    assert make("", span, played_ms=0.5).spoken_text == "<think>A long thought of the model.</think>"
    assert make("", span, played_ms=600).spoken_text.endswith("</think> One")
