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
        ("Le hemos devuelto $35.90 a su tarjeta.", "en", "es"),
        ("85 % de nos clients utilisent Apple Pay ou PayPal.", "en", "fr"),
        ("85 % unserer Kunden nutzen WhatsApp oder Google Pay.", "en", "de"),
        ("Il suo ordine n. 48213 arriverà il 12/03/2027 tra le 14:30 e le 18:00.", "en", "it"),
        ("Take two 200 mg tablets, but no more than 1,200 mg in 24 hours.", "en", "en"),
        ("Temp: 98.6°F; pulse 64; O2 98%; RR 14.", "en", "en"),
    ],
)
def test_words_that_several_languages_have_decide_for_none(text: str, base: str, expected: str) -> None:
    assert latin_language_of(text, base) == expected
