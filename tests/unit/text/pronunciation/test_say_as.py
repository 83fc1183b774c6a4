"""``<say-as>``: what each reading says in each language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.pronunciation.say_as import KINDS, say_as

pytestmark = pytest.mark.unit

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


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
        ("3/4", "date:mdy", "en", "March fourth"),
        ("3/4", "date", "en-GB", "the third of April"),
        ("3/4", "date", "zh", "三月四日"),
        ("20", "date:d", "en", "the twentieth"),
        ("1999", "date:y", "en", "nineteen ninety-nine"),
        ("2026-11-20", "date:ymd", "zh", "二零二六年十一月二十日"),
        ("13/45/2026", "date:mdy", "en", ""),
        ("1430", "time:hms24", "en", "fourteen thirty"),
        ("1'21\"", "time", "en", "one minute twenty-one seconds"),
        ("2:30pm", "time:hms12", "en", ""),
        ("1-800-FLOWERS", "telephone", "en", "one, eight zero zero, FLOWERS"),
        ("555-CARE", "telephone", "en", "five five five, CARE"),
        ("*69", "telephone", "en", "star six nine"),
        ("#123#", "telephone", "en", "pound one two three pound"),
        ("(415) 555-2671 ext. 204", "telephone", "en",
         "four one five, five five five, two six seven one, extension two zero four"),
        ("+44 20 7946 0958", "telephone", "en", "plus four four, two zero, seven nine four six, zero nine five eight"),
        ("555-0100;ext=12", "telephone", "en", "five five five, zero one zero zero, extension one two"),
        ("212-555-0147 or 212-555-0148", "telephone", "en",
         "two one two, five five five, zero one four seven, or, two one two, five five five, zero one four eight"),
        ("12A4", "digits", "en", "one two, A, four"),
        ("*12#", "digits", "en", "star one two pound"),
        ("4711-A", "digits", "en", "four seven one one, A"),
        ("-12.5", "digits", "en", "minus one two point five"),
        ("12345678", "digits", "en", "one two three, four five six, seven eight"),
        ("-5", "currency:USD", "en", "minus five US dollars"),
        (".5", "currency:USD", "en", "fifty cents"),
        ("42.50", "currency:USD", "en", "forty-two US dollars and fifty cents"),
        ("$42.50", "currency:USD", "en", ""),
        ("42.50 USD", "currency:USD", "en", ""),
        ("1,200", "currency:EUR", "en", "one thousand two hundred euros"),
        ("5", "currency:usd", "en", "five US dollars"),
        ("$5", "currency", "en", ""),
        ("500", "currency:XAF", "en", "XAF five hundred"),
        ("10086转2", "telephone", "zh", "幺零零八六，转二"),
        ("*100#", "telephone", "zh", "星号幺零零井号"),
        ("400-820-8820", "telephone", "zh", "四零零，八二零，八八二零"),
        ("400-CALL", "telephone", "zh", "四零零，CALL"),
        ("+86 138 0013 8000", "telephone", "zh", "加八六，幺三八，零零幺三，八零零零"),
        ("12A4", "digits", "zh", "一二, A, 四"),
        ("*12#", "digits", "zh", "星号一二井号"),
        ("42.5", "currency:CNY", "zh", "四十二点五元"),
        ("-5", "currency:CNY", "zh", "负五元"),
        (".5", "currency:USD", "zh", "零点五美元"),
        ("¥42.5", "currency:CNY", "zh", ""),
        ("1,200", "currency:EUR", "zh", "一千二百欧元"),
        ("5-10", "currency:USD", "en", "five to ten US dollars"),
        ("Friday 12/25", "date:md", "en", ""),
        ("21 A", "ordinal", "en", ""),
        ("A€]", "characters", "en", "A euro sign right square bracket"),
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


@given(st.text(alphabet="0123456789ABXYZ*#+-(). ", max_size=20), st.sampled_from(["telephone", "digits"]))
def test_no_digit_letter_or_key_is_lost(written: str, kind: str) -> None:
    """Digits and letters come back in their order; only an extension's x becomes a word."""
    said = say_as(written.replace("X", "Y"), kind, "en")
    words = {word: str(number) for number, word in enumerate(WORDS)} | {"star": "*", "pound": "#", "plus": "+"}
    heard = "".join(words.get(word, word) for word in said.replace(",", "").split() if word not in ("minus", "point"))
    assert heard == "".join(each for each in written.replace("X", "Y") if each.isalnum() or each in "*#+")
