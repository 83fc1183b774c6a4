"""Chunks join to the text, the first is short, and no chunk cuts a number in two or has nothing to say."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts.text import chunker
from cc_tts.text.chunker import Chunker, Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunk_text, chunks_of

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


def chunked(text: str, language: str | None = None) -> list[TextChunk]:
    return chunk_text(text, NORMALIZER, language=language)


def sources(text: str, *, first: int = 60, later: int = 200, language: str | None = "en") -> list[str]:
    chunks = chunk_text(text, Echo(), language=language, first_chunk_max_chars=first, chunk_max_chars=later)
    return [chunk.source for chunk in chunks]


def test_a_prompt() -> None:
    chunks = chunked(LONG)
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
    chunks = chunked("😀 ... \nHello. 🎉🎉\n\n")
    assert [(chunk.source, chunk.spoken) for chunk in chunks] == [("😀 ... \nHello. 🎉🎉\n\n", "Hello.")]


@pytest.mark.parametrize("text", ["", " ", "😀", "...", "\x00", "😀" * 1000])
def test_text_without_speech_has_no_chunks(text: str) -> None:
    assert chunked(text) == []


def test_chinese_is_cut_at_its_own_marks_and_sooner() -> None:
    chunks = chunked("您好，感谢您的来电，您的订单将于11月20日送达，请保持电话畅通。谢谢。")
    assert [chunk.source for chunk in chunks] == [
        "您好，感谢您的来电，",
        "您的订单将于11月20日送达，请保持电话畅通。谢谢。",
    ]
    assert {chunk.language for chunk in chunks} == {"zh"}


def test_each_chunk_has_the_language_of_its_script_unless_one_was_asked_for() -> None:
    text = "您好，欢迎您。 Hello and welcome. 123."
    assert [(chunk.language, chunk.spoken) for chunk in chunked(text)] == [
        ("zh", "您好，欢迎您。"),
        ("en", "Hello and welcome. one hundred twenty-three."),
    ]
    assert {chunk.language for chunk in chunked(text, "zh-CN")} == {"zh-CN"}


def test_digits_alone_are_in_the_language_of_the_whole_text() -> None:
    (first, *_) = chunked("12! 您好，这是您的号码。")
    assert first == TextChunk(0, "12!", "十二!", "zh", ((0, 2, 0, 2),))
    assert chunked("12! Hello there.")[0] == TextChunk(0, "12!", "twelve!", "en", ((0, 6, 0, 2),))


def test_the_first_clauses_are_given_out_before_the_sentence_ends() -> None:
    text = f"Thank you for calling Acme, your call {'is important to us and ' * 5}will be answered soon."
    (first, *_), *rest = [chunks for chunks, _ in Chunker(NORMALIZER, Chunking(), text).slices()]
    assert first.source == "Thank you for calling Acme,"
    assert first.source + "".join(chunk.source for chunks in rest for chunk in chunks) == text
    assert rest


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


@given(text=texts, slice_chars=st.integers(1, 400), language=st.sampled_from([None, "en"]))
@settings(max_examples=200)
def test_the_slices_make_no_difference(text: str, slice_chars: int, language: str | None) -> None:
    chunking = Chunking(language=language, first_chunk_max_chars=30, chunk_max_chars=80)
    expected = chunks_of(Echo(), text, chunking)
    with mock.patch.object(chunker, "SLICE_CHARS", slice_chars):
        assert chunks_of(Echo(), text, chunking) == expected


@pytest.mark.parametrize("before", ["Your **card** <b>number</b>", "Your [card](https://a.io/1) `number`"])
def test_a_number_is_read_by_the_words_before_the_text_without_their_markup(before: str) -> None:
    chunks = chunks_of(Normalizer(), "4417 now.", Chunking(language="en-US", before=f"{before} is: "))
    assert [chunk.spoken for chunk in chunks] == ["four four one seven now."]
