"""Numbers in words for engines that read no digits."""

import json
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.others.names import names_of_signs
from cc_tts.text.others.numbers import say_numbers
from cc_tts.text.others.signs import say_signs
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[2] / "data" / "text"
TABLE = DATA / "numbers.tsv"


def test_table_of_written_and_spoken() -> None:
    rows = [row.split("\t") for row in TABLE.read_text().splitlines()]
    normalizer = Normalizer()
    heard = [(written, say_numbers(normalizer.normalize(written, language), language)) for language, written, _ in rows]
    assert heard == [(written, wanted) for _, written, wanted in rows]


def test_each_language_with_words_has_names_of_signs() -> None:
    words = resources.files("cc_tts.text.others").joinpath("words.json").read_text("utf-8")
    assert set(json.loads(words)) == set(names_of_signs())


def test_table_of_signs_and_dates() -> None:
    rows = [row.split("\t") for row in (DATA / "signs.tsv").read_text().splitlines()]
    normalizer = Normalizer()
    heard = [(written, normalizer.normalize(written, language)) for language, written, _ in rows]
    assert heard == [(written, wanted) for _, written, wanted in rows]


@pytest.mark.parametrize(("says_numbers", "spoken"), [(True, "Drei Anrufe."), (False, "3 Anrufe.")])
def test_only_engines_that_need_it_get_words(says_numbers: bool, spoken: str) -> None:
    (chunk,) = chunks_of(Normalizer(), "3 Anrufe.", Chunking(language="de", says_numbers=says_numbers))
    assert chunk.spoken.lower() == spoken.lower()


@given(
    st.text(alphabet="0123456789.,:/%€$£¥ -abh°C", max_size=40),
    st.sampled_from(["de", "fr", "es", "it", "pt", "nl", "ja", "ko", "ru", "pl", "tr", "xx"]),
)
def test_any_text_is_said_somehow(text: str, language: str) -> None:
    said = say_numbers(say_signs(text, language), language)
    assert language == "xx" or not any(character.isdigit() for character in said)
