"""The tools that make the tables of languages."""

import json
from pathlib import Path

import pytest

from cc_tts.text.language import ZERO_WEIGHT, letter_sequences, prose_words
from lab import cldr_words, language_weights

pytestmark = pytest.mark.unit

TEXTS = {
    "en": ["hello there", "thank you", "please hold the line", "what is your name", "the parcel is on the way"],
    "es": ["hola", "muchas gracias", "espere en la línea", "cómo se llama usted", "el paquete está en camino"],
    "hu": ["jó napot", "köszönöm szépen", "kérem, várjon", "hogy hívják önt", "a csomag úton van"],
}


def scores(table: str, text: str) -> dict[str, float]:
    rows = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
    weights = {sequence: [ord(each) - ZERO_WEIGHT for each in row] for sequence, row in rows[1:]}
    found = [weights[each] for word in prose_words(text) for each in letter_sequences(word) if each in weights]
    return dict(zip(rows[0][1].split(), map(sum, zip(*found, strict=True)), strict=True))


def test_a_table_of_a_few_texts_tells_their_languages_and_is_the_same_again() -> None:
    rows = [(language, text) for language, said in TEXTS.items() for text in said for _ in range(300)]
    table = language_weights.table(rows, num_sequences=80, steps=200)
    assert table == language_weights.table(rows, num_sequences=80, steps=200)
    told = [(language, scores(table, text)) for language, said in TEXTS.items() for text in said]
    assert [language for language, _ in told] == [max(of, key=of.__getitem__) for _, of in told]


def test_each_known_language_has_a_row_of_sources_and_words() -> None:
    table = language_weights.TABLE.read_text("utf-8")
    languages = next(line for line in table.splitlines() if line.startswith("languages\t")).split("\t")[1].split()
    assert languages == [row.language for row in language_weights.sources()]
    assert set(languages) - {"en"} <= set(json.loads(Path(cldr_words.WORDS).read_text("utf-8")))
    assert {row.language for row in language_weights.sources() if row.phrases.count("|") < 37} == set()
