"""In which language a text without a tag is."""

import json
from collections import Counter
from pathlib import Path

import pytest

from cc_tts.text.language import detect_language, latin_language_of

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[2] / "data" / "text"


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
        ("Su iPhone 15 Pro Max llegará mañana.", "en", "es"),
        ("Please ask for Monsieur François Lefèvre at the desk.", "en", "en"),
        ("Please hold the line.", "es", "en"),
        ("Kedves ügyfelünk", "hu", "hu"),
    ],
)
def test_words_that_several_languages_have_decide_for_none(text: str, base: str, expected: str) -> None:
    assert latin_language_of(text, base) == expected


@pytest.mark.parametrize(("file", "of_each", "of_all"), [("languages", 0.75, 0.92), ("languages_more", 0.58, 0.86)])
def test_nearly_all_short_texts_are_taken_for_their_language(file: str, of_each: float, of_all: float) -> None:
    rows = [row.split("\t") for row in (DATA / f"{file}.tsv").read_text().splitlines()]
    right = Counter(language for language, text in rows if detect_language(text) == language)
    texts = Counter(language for language, _ in rows)
    assert {language for language in texts if right[language] < of_each * texts[language]} == set()
    assert right.total() >= of_all * texts.total()


def test_english_of_call_centers_is_english_however_dense() -> None:
    lines = [json.loads(line)["written"] for line in (DATA / "callcenter_en.jsonl").read_text().splitlines()]
    others = [line for line in lines if detect_language(line) != "en"]
    assert len(others) <= 0.005 * len(lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("合計1,250円", "ja"),
        ("営業時間", "ja"),
        ("您的订单", "zh"),
        ("日元1000円优惠", "zh"),
        ("Дякую", "uk"),
        ("Благодаря ви, изчакайте един момент.", "bg"),
        ("لطفا منتظر بمانید", "fa"),
        ("براہ کرم انتظار کریں", "ur"),
        ("Спасибо", "ru"),
    ],
)
def test_scripts_of_two_languages_are_told_by_characters_and_words(text: str, expected: str) -> None:
    assert detect_language(text) == expected
