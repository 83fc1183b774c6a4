"""Parts of a text that are said otherwise: no cut goes through them, and the caller's own words stay known."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text import chunker
from cc_tts.text.chunker import Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.replacements import Replacement
from cc_tts.voices.inline_ipa import pronounced, pronounced_parts, without_pronunciations
from lab import chunk_text

pytestmark = pytest.mark.unit


def chunks_of(text: str, *replacements: Replacement, slice_chars: int = 1000, **chunking: object) -> list[TextChunk]:
    with mock.patch.object(chunker, "SLICE_CHARS", slice_chars):
        return chunk_text.chunks_of(Normalizer(), text, Chunking(**chunking), replacements)  # type: ignore[arg-type]


def test_words_around_a_replaced_part_are_read_as_ever() -> None:
    text = "Call Siobhan, on 0800. Then pay $5: thanks."
    first, second = chunks_of(text, Replacement(5, 12, "Shivawn"), Replacement(17, 21, say_as="digits"))
    assert first == TextChunk(
        0,
        "Call Siobhan, on 0800.",
        "Call Shivawn, on zero eight zero zero.",
        "en",
        replaced=((5, 12, 5, 12), (17, 37, 17, 21)),
    )
    assert second.spoken == "Then pay five dollars: thanks."
    assert first.source + second.source == text


def test_a_pronunciation_travels_with_its_words() -> None:
    (chunk,) = chunks_of("Ask Nguyen.", Replacement(4, 10, ipa="wɪn"))
    assert chunk.spoken == f"Ask {pronounced('Nguyen', 'wɪn')}."
    assert pronounced_parts(chunk.spoken) == [("Ask ", ""), ("Nguyen", "wɪn"), (".", "")]
    assert without_pronunciations(chunk.spoken) == "Ask Nguyen."


def test_a_chunk_of_nothing_but_a_replaced_part() -> None:
    (chunk,) = chunks_of("12345", Replacement(0, 5, say_as="telephone"), language="zh")
    assert (chunk.source, chunk.spoken) == ("12345", "幺二三四五")


def test_say_as_is_read_in_the_language_of_its_chunk() -> None:
    (chunk,) = chunks_of("请拨 123", Replacement(3, 6, say_as="digits"))
    assert chunk.spoken == "请拨 一二三"


def test_private_use_characters_of_the_caller_are_no_placeholders() -> None:
    text = "a \ue000 b \ue001 cd"
    (chunk,) = chunks_of(text, Replacement(8, 10, "see dee"))
    assert (chunk.source, chunk.spoken) == (text, "a b see dee")
    (without,) = chunks_of("Hello \ue000 world \ue123")
    assert without.spoken == "Hello world"
    (alone,) = chunks_of("a \uf8f0x\uf8f1y\uf8f2 b")
    assert alone.spoken == "a x y b"


def test_markup_around_a_replaced_part_is_stripped() -> None:
    (chunk,) = chunks_of("Ask **Mobivox** now.", Replacement(6, 13, "mo bee vox"))
    assert chunk.spoken == "Ask mo bee vox now."


@given(
    st.text(alphabet="ab .,1\n好。", min_size=1, max_size=300),
    st.lists(st.integers(0, 299), max_size=12),
    st.integers(1, 50),
)
def test_no_cut_goes_through_a_replaced_part_and_no_character_is_lost(
    text: str, edges: list[int], slice_chars: int
) -> None:
    places = sorted({min(edge, len(text)) for edge in edges})
    replacements = tuple(
        Replacement(a, b, f"word{a}") for a, b in zip(places[::2], places[1::2], strict=False) if a < b
    )
    chunks = chunks_of(text, *replacements, slice_chars=slice_chars, first_chunk_max_chars=20, chunk_max_chars=40)
    assert text.startswith("".join(chunk.source for chunk in chunks))
    spoken = " ".join(chunk.spoken for chunk in chunks)
    for each in replacements:
        assert each.spoken in spoken


def test_a_place_in_the_spoken_words_is_found_in_the_text() -> None:
    text = "  Say W3C now, and 42."
    (chunk,) = chunks_of(text, Replacement(6, 9, "World Wide Web Consortium"))
    assert chunk.spoken == "Say World Wide Web Consortium now, and forty-two."
    at = {
        word: round(chunk.source_share(chunk.spoken.index(word)) * len(text)) for word in ("Say", "World", "Web", "now")
    }
    assert at == {"Say": 0, "World": 6, "Web": 6, "now": 10}
    assert chunk.source_share(len(chunk.spoken)) == 1.0
