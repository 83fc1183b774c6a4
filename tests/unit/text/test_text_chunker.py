"""Chunks join to the text, the first is short, and no chunk cuts a number in two or has nothing to say."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts.text.chunker import Chunker, Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunk_text

pytestmark = pytest.mark.unit

NORMALIZER = Normalizer()
LONG = (
    "Hello, thank you for calling Acme Inc., your balance as of Nov 20, 2026 is $1,234.56, and the next payment of "
    "$20.00 is due on 12/01/2026. Press 1 to pay. Press 2 to wait. Or say agent, to speak to someone now."
)
texts = st.lists(
    st.sampled_from(
        [
            *'aB1 .,!?"\n。，；:—',
            "word ",
            "balance, ",
            "Dr. Smith ",
            "$1,234.56 ",
            "Nov 20, 2026 ",
            "您好",
            "订单，",
            "😀",
            "12 ",
        ]
    ),
    max_size=100,
).map("".join)


class Echo(Normalizer):
    """A normalizer that leaves words alone, for tests of the cutting."""

    def normalize(self, text: str, language: str | None) -> str:
        return text.strip() if any(character.isalnum() for character in text) else ""


def chunks_of(text: str, language: str | None = None) -> list[TextChunk]:
    return chunk_text(text, NORMALIZER, language=language)


def sources(text: str, *, first: int = 60, later: int = 200, language: str | None = "en") -> list[str]:
    chunks = chunk_text(text, Echo(), language=language, first_chunk_max_chars=first, chunk_max_chars=later)
    return [chunk.source for chunk in chunks]


def test_a_prompt() -> None:
    chunks = chunks_of(LONG)
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    assert chunks[0] == TextChunk(
        0,
        "Hello, thank you for calling Acme Inc.,",
        "Hello, thank you for calling Acme Incorporated,",
        "en",
        ((34, 46, 34, 38),),
    )
    assert chunks[1].spoken.startswith("your balance as of November twentieth, twenty twenty-six is one thousand")
    assert chunks[2].spoken == "Press two to wait. Or say agent, to speak to someone now."
    assert "".join(chunk.source for chunk in chunks) == LONG


def test_a_short_first_sentence_is_the_first_chunk() -> None:
    assert sources("Hello. How are you today? Fine.") == ["Hello.", " How are you today? Fine."]


def test_a_first_sentence_without_clause_marks_stays_whole() -> None:
    text = "This sentence goes on for quite a while but it has no comma anywhere at all."
    assert sources(text) == [text]


def test_a_first_clause_longer_than_the_limit_ends_at_its_mark() -> None:
    text = "This first clause is already a good deal longer than sixty characters, and this is the second."
    assert sources(text) == [text[:70], text[70:]]


@pytest.mark.parametrize(
    "kept",
    [
        "$1,234,567.89",
        "Nov 20, 2026",
        "20 November, 2026",
        "Monday, Nov 20",
        "1,234,567",
        "1, 2, 3",
        "+1 (415) 555-0123, ext. 5",
        "Smith, Jr.",
        "e.g., this",
        "10:30",
    ],
)
def test_the_first_chunk_never_ends_inside(kept: str) -> None:
    text = f"We would like to mention {kept} which is as important as anything, that anyone could say."
    assert sources(text, first=50)[0].count(kept) == 1


@pytest.mark.parametrize(
    "kept",
    [
        "4111 1111 1111 1111",
        "+1 (415) 555-0123",
        "Dr. Smith",
        "$2.5 million",
        "3 1/2",
        "14 November 2026",
        "9 a.m.",
        "1234567890",
    ],
)
def test_a_long_sentence_is_never_cut_inside(kept: str) -> None:
    for lead in range(60, 110):
        text = "ab " * (lead // 3) + "c" * (lead % 3) + f" {kept} " + "words and more of them " * 6
        assert any(kept in source for source in sources(text, first=40, later=100))


def test_short_sentences_are_merged_and_long_ones_cut() -> None:
    parts = sources("Go. " + "One two. " * 30 + "three four five six, " * 30, later=100)
    assert parts[0] == "Go."
    assert all(len(part) <= 100 for part in parts)
    assert all(len(part) >= 50 for part in parts[1:-1])


def test_silent_text_joins_its_neighbours() -> None:
    chunks = chunks_of("😀 ... \nHello. 🎉🎉\n\n")
    assert [(chunk.source, chunk.spoken) for chunk in chunks] == [("😀 ... \nHello. 🎉🎉\n\n", "Hello.")]


@pytest.mark.parametrize("text", ["", " ", "😀", "...", "\x00", "😀" * 1000])
def test_text_without_speech_has_no_chunks(text: str) -> None:
    assert chunks_of(text) == []


def test_chinese_is_cut_at_its_own_marks_and_sooner() -> None:
    chunks = chunks_of("您好，感谢您的来电，您的订单将于11月20日送达，请保持电话畅通。谢谢。")
    assert [chunk.source for chunk in chunks] == [
        "您好，感谢您的来电，",
        "您的订单将于11月20日送达，请保持电话畅通。谢谢。",
    ]
    assert {chunk.language for chunk in chunks} == {"zh"}


def test_each_chunk_has_the_language_of_its_script_unless_one_was_asked_for() -> None:
    text = "您好，欢迎您。 Hello and welcome. 123."
    assert [(chunk.language, chunk.spoken) for chunk in chunks_of(text)] == [
        ("zh", "您好，欢迎您。"),
        ("en", "Hello and welcome. one hundred twenty-three."),
    ]
    assert {chunk.language for chunk in chunks_of(text, "zh-CN")} == {"zh-CN"}


def test_digits_alone_are_in_the_language_of_the_whole_text() -> None:
    (first, *_) = chunks_of("12! 您好，这是您的号码。")
    assert first == TextChunk(0, "12!", "十二!", "zh", ((0, 2, 0, 2),))
    assert chunks_of("12! Hello there.")[0] == TextChunk(0, "12!", "twelve!", "en", ((0, 6, 0, 2),))


def test_a_stream_gives_the_first_clauses_out_before_the_sentence_ends() -> None:
    chunker = Chunker(NORMALIZER, Chunking(language=None))
    assert chunker.push("Thank you for calling Acme, your call ") == []
    assert [chunk.source for chunk in chunker.push("is important to us and will be answered")] == [
        "Thank you for calling Acme,"
    ]
    rest = chunker.push(" soon. ") + chunker.flush()
    assert [chunk.source for chunk in rest] == [" your call is important to us and will be answered soon. "]
    assert [chunk.index for chunk in rest] == [1]


def in_tokens(text: str, chunker: Chunker) -> list[tuple[int, TextChunk]]:
    """The chunks of a text that comes word by word, each with how many characters had come."""
    chunks: list[tuple[int, TextChunk]] = []
    come = 0
    for token in re.findall(r"\S+\s*|\s+", text):
        come += len(token)
        chunks += [(come, chunk) for chunk in chunker.push(token)]
    return chunks + [(come, chunk) for chunk in chunker.flush()]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "The technician who was going to visit your house this afternoon will be there tomorrow morning instead.",
            "The technician who was going to visit your house this",
        ),
        (
            "We have sent the confirmation to the telephone number 555-867-5309 that you gave us when you signed up.",
            "We have sent the confirmation to the telephone",
        ),
        (
            "Your technician will be there by noon, as we had agreed on Monday.",
            "Your technician will be there by noon,",
        ),
    ],
)
def test_a_stream_in_which_no_clause_ends_is_cut_at_a_word(text: str, first: str) -> None:
    (come, chunk), *rest = in_tokens(text, Chunker(Echo(), Chunking(language="en", first_chunk_max_chars=60)))
    assert chunk.source == first
    assert come <= 60 + 20, "soon after the limit"
    assert chunk.source + "".join(each.source for _, each in rest) == text
    assert len(chunk_text(text, Echo(), language="en")) == 1 + ("," in text), "a whole text is not cut at a word"


def test_the_silent_tail_of_a_stream_is_told_apart() -> None:
    chunker = Chunker(NORMALIZER, Chunking(language="en"))
    assert [chunk.source for chunk in chunker.push("Bye. 😀 ")] == ["Bye."]
    assert chunker.flush() == []
    assert chunker.silent_tail == " 😀 "


def test_a_flush_in_the_middle_says_what_is_held_and_more_may_follow() -> None:
    chunker = Chunker(NORMALIZER, Chunking(language="en"))
    assert [chunk.source for chunk in chunker.push("Ok. Let me look")] == ["Ok."]
    assert [chunk.source for chunk in chunker.flush()] == [" Let me look"]
    assert chunker.push(" Found it. ") == []
    assert [(chunk.index, chunk.source) for chunk in chunker.flush()] == [(2, " Found it. ")]


@given(text=texts, language=st.sampled_from([None, "en"]))
@settings(max_examples=150)
def test_sources_join_to_the_text(text: str, language: str | None) -> None:
    chunks = chunk_text(text, NORMALIZER, language=language, first_chunk_max_chars=30, chunk_max_chars=80)
    assert all(chunk.spoken and chunk.language for chunk in chunks)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    if chunks:
        assert "".join(chunk.source for chunk in chunks) == text
    else:
        assert NORMALIZER.normalize(text, "en") == ""


@given(text=texts, cuts=st.lists(st.integers(0, 400), max_size=8), language=st.sampled_from([None, "en"]))
@settings(max_examples=200)
def test_the_pieces_of_a_stream_make_no_difference(text: str, cuts: list[int], language: str | None) -> None:
    def chunker() -> Chunker:
        return Chunker(Echo(), Chunking(language=language, first_chunk_max_chars=30, chunk_max_chars=80))

    whole, stream = chunker(), chunker()
    expected = whole.push(text) + whole.flush()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    streamed: list[TextChunk] = []
    for begin, end in pairwise(edges):
        streamed += stream.push(text[begin:end], next_is_there=True)
    streamed += stream.flush()
    assert streamed == expected
    assert "".join(chunk.source for chunk in streamed) + stream.silent_tail == text


@pytest.mark.parametrize("before", ["Your **card** <b>number</b>", "Your [card](https://a.io/1) `number`"])
def test_a_number_is_read_by_the_words_before_the_text_without_their_markup(before: str) -> None:
    chunker = Chunker(Normalizer(), Chunking(language="en-US", before=f"{before} is: "))
    chunks = chunker.push("4417 now.") + chunker.flush()
    assert [chunk.spoken for chunk in chunks] == ["four four one seven now."]
