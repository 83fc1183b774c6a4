"""What holds for any text: no exception, no lost words, bounded growth, and hostile repeats come to an end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts.config.sections.models import TtsConfig
from cc_tts.text.characters import has_speech
from cc_tts.text.en.short_forms.abbreviations import CHAT_WORDS
from cc_tts.text.en.short_forms.contractions import written_out
from cc_tts.text.en.units import UNIT_SYMBOLS
from cc_tts.text.language import detect_language
from cc_tts.text.normalizer import Normalizer

pytestmark = pytest.mark.unit

NORMALIZER = Normalizer()
MAX_GROWTH = 30
LONGEST = TtsConfig().max_text_chars

any_text = st.text(st.characters(), max_size=200)
written_text = st.lists(
    st.sampled_from(
        [*"0123456789 .,:/-+()#$€%@&'\"\n\\{}°", "Dr.", "am", "kg", "May", "Nov ", "account ", "1st", "您", "元"]
    ),
    max_size=60,
).map("".join)


@given(text=any_text | written_text)
@settings(max_examples=400)
def test_english_leaves_no_digit_and_grows_by_a_bound(text: str) -> None:
    spoken = NORMALIZER.normalize(text, "en")
    assert not any(character.isdigit() for character in spoken)
    assert len(spoken) <= MAX_GROWTH * len(text) + 50
    assert "\n" not in spoken
    NORMALIZER.normalize(spoken, "en")


@given(text=any_text | written_text)
@settings(max_examples=150)
def test_chinese_leaves_no_digit_and_grows_by_a_bound(text: str) -> None:
    spoken = NORMALIZER.normalize(text, "zh")
    assert not any(character.isdigit() and character.isascii() for character in spoken)
    assert len(spoken) <= MAX_GROWTH * len(text) + 50
    NORMALIZER.normalize(spoken, "zh")


@given(
    text=any_text, language=st.none() | st.text(max_size=8) | st.sampled_from(["de", "fr-CA", "x-klingon", "-", "_"])
)
@settings(max_examples=200)
def test_any_tag_is_taken(text: str, language: str | None) -> None:
    spoken = NORMALIZER.normalize(text, language)
    assert bool(spoken) == has_speech(spoken)


@given(words=st.lists(st.from_regex(r"[a-z]{2,12}", fullmatch=True), min_size=1, max_size=20))
def test_plain_words_come_through_unchanged(words: list[str]) -> None:
    short = {*CHAT_WORDS, *UNIT_SYMBOLS}
    text = " ".join(word for word in words if word not in short and written_out(word, may_be_cut=False) is None)
    assert NORMALIZER.normalize(text, "en") == text


HOSTILE = (
    "1", "1,", "(", "1.", "1 ", "a", "a.", "A1", "A-", "1-", "$", "$1", "+1", "code ", "code 1 ", "#", "@", "a@",
    "http://", "/", "1/", "1:", "Dr. ", "1 Elm ", "Nov 1,", "\n", "\n\n", "—", " - ", ", ", "e.g.", "A.", "1/2 ",
    "12:30 ", "1-800-", "4111 ", "  ", "½", "1st", "AB1-", "1°", "1k", "\x00", "😀",
    "@a_", "a_", "*#1", "*1#", "score a ", "PIN, 1234", "*" * 200 + "a", "8 ft x ", "send a to ", "Mon, ", "M/", "0 12 ",
    "R$ 1.000 ", "1Z AB", "code a b is ", "1–", "a–", "AB–1", "1/2", "(1/2", "due 1/2 ", "Rm 3-2 ", "1-800-A-",
    'number: "1', "1-800-", "5 mg/", "5 mg/5 ", "~~a", "~~", "bit.ly/", "a.bc/", "50-50 ", "111-1 ",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_repeats_come_to_an_end(unit: str) -> None:
    text = (unit * LONGEST)[:LONGEST]
    assert len(NORMALIZER.normalize(text, "en")) <= MAX_GROWTH * len(text) + 50


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1,",
        "好1",
        "好",
        "(",
        "1-",
        "\\1",
        "，",
        "*#1",
        "a_",
        "+1 22 ",
        "2②",
        "*" * 200 + "a",
        "按*1",
        "按#",
        "1#",
        "码“（1",
        "24.1.",
        "2026.1-",
        "还剩1:",
        "1mg/",
        "Ⅱ",
        "1k-",
        "（2.1",
    ],
)
def test_hostile_repeats_in_chinese_come_to_an_end(unit: str) -> None:
    text = (unit * LONGEST)[:LONGEST]
    assert len(NORMALIZER.normalize(text, "zh")) <= MAX_GROWTH * len(text) + 50


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t", "😀👍🏽", "...!?", "\x00\x01", "—", "\ud800", "🇩🇪", "\u200b", "***", "()"]
)
@pytest.mark.parametrize("language", ["en", "zh", "de", None])
def test_nothing_to_say(text: str, language: str | None) -> None:
    assert not has_speech(text)
    assert NORMALIZER.normalize(text, language) == ""


@pytest.mark.parametrize("text", ["a", "1", "好", "é", "½", "😀 ok", "٣"])
def test_something_to_say(text: str) -> None:
    assert has_speech(text)
    assert NORMALIZER.normalize(text, None)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello", "en"),
        ("你好", "zh"),
        ("您好 John，您的 order 4 已发货", "zh"),
        ("Please ask for 张伟 at the front desk", "en"),
        ("12345", "en"),
        ("", "en"),
        ("Grüße", "de"),
    ],
)
def test_detected_language(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_other_languages_are_cleaned() -> None:
    assert NORMALIZER.normalize("Sie haben  3 neue\nNachrichten 😀\x00", "de-DE") == "Sie haben 3 neue Nachrichten"


async def test_threads_and_the_event_loop_may_use_one_normalizer() -> None:
    normalizer = Normalizer()
    texts = [f"您的余额为{number}元，2026-11-{number:02}" for number in range(1, 29)]
    expected = [NORMALIZER.normalize(text, "zh") for text in texts]
    with ThreadPoolExecutor(max_workers=4) as pool:
        loop = asyncio.get_running_loop()
        said = await asyncio.gather(*(loop.run_in_executor(pool, normalizer.normalize, text, "zh") for text in texts))
    assert list(said) == expected
