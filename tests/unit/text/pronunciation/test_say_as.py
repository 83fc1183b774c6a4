"""``<say-as>``: what each reading says in each language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.pronunciation.say_as import KINDS, say_as

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("written", "how", "language", "said"),
    [
        ("AB-12c", "characters", "en", "A B dash one two C"),
        ("a@b.com", "characters", "en", "A at B dot C O M"),
        ("AB 12", "characters", "zh", "A B, 一 二"),
        ("AB12", "characters", "de", "A B 1 2"),
        ("4111", "digits", "en", "four one one one"),
        ("12345", "digits", "en", "one two three, four five"),
        ("12 34-5", "digits", "en", "one two, three four, five"),
        ("12345", "digits", "zh", "一二三, 四五"),
        ("12345", "digits", "de", "1 2 3, 4 5"),
        ("١٢٣", "digits", "ar", "1 2 3"),
        ("8005550199", "telephone", "en", "eight zero zero, five five five, zero one nine nine"),
        ("+1 800 555 0199 x12", "telephone", "en",
         "plus one, eight zero zero, five five five, zero one nine nine, extension one two"),
        ("138 1234 5678", "telephone", "zh", "幺三八，幺二三四，五六七八"),
        ("0800 123456", "telephone", "de", "0 8 0 0, 1 2 3 4 5 6"),
        ("1,234.5", "cardinal", "en", "one thousand two hundred thirty-four point five"),
        ("-42", "cardinal", "en", "minus forty-two"),
        ("1999", "cardinal", "en", "one thousand nine hundred ninety-nine"),
        ("1999", "cardinal", "de", ""),
        ("3", "ordinal", "en", "third"),
        ("21st", "ordinal", "en", "twenty-first"),
        ("3", "ordinal", "de", "dritte"),
        ("3", "ordinal", "zh", "第三"),
        ("3", "ordinal", "tlh", ""),
        ("2 1/2", "fraction", "en", "two and a half"),
        ("3/4", "fraction", "en", "three quarters"),
        ("42.01", "currency:USD", "en", "forty-two US dollars and one cent"),
        ("11/12/2026", "date:mdy", "en", "November twelfth, twenty twenty-six"),
        ("11/12/2026", "date:dmy", "en", "December eleventh, twenty twenty-six"),
        ("11/12/2026", "date:dmy", "en-GB", "the eleventh of December, twenty twenty-six"),
        ("20261120", "date:yyyymmdd", "en", "November twentieth, twenty twenty-six"),
        ("11/26", "date:my", "en", "November twenty twenty-six"),
        ("11/20", "date:md", "en", "November twentieth"),
        ("20", "date:d", "en", "the twentieth"),
        ("1999", "date:y", "en", "nineteen ninety-nine"),
        ("2026-11-20", "date:ymd", "zh", "二零二六年十一月二十日"),
        ("13/45/2026", "date:mdy", "en", ""),
        ("1430", "time:hms24", "en", "fourteen thirty"),
        ("1'21\"", "time", "en", "one minute twenty-one seconds"),
        ("2:30pm", "time:hms12", "en", ""),
    ],
)  # fmt: skip
def test_say_as(written: str, how: str, language: str, said: str) -> None:
    assert say_as(written, how, language) == said


@given(
    st.text(max_size=40),
    st.sampled_from(sorted(set(KINDS.values()))),
    st.sampled_from(["", "mdy", "ymd", "yyyymmdd", "hms24", "USD", "x"]),
    st.sampled_from(["en", "en-GB", "zh", "de", "fr", "xx"]),
)
def test_any_text_is_said_somehow(written: str, kind: str, form: str, language: str) -> None:
    assert isinstance(say_as(written, f"{kind}:{form}", language), str)
