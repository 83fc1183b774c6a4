"""In which language a text without a tag is."""

import pytest

from cc_tts.text.language import latin_language_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "base", "expected"),
    [
        ("La factura de la luz vence a fin de mes.", "es", "es"),
        ("La factura de la luz vence a fin de mes.", "en", "es"),
        ("Gare de Lyon, rue de Bercy.", "fr", "fr"),
        ("A taxa de juros e a data de vencimento.", "pt", "pt"),
        ("De factuur en de betaling zijn verwerkt.", "en", "nl"),
        ("The bill of de Vries is due.", "en", "en"),
    ],
)
def test_words_that_several_languages_have_decide_for_none(text: str, base: str, expected: str) -> None:
    assert latin_language_of(text, base) == expected
