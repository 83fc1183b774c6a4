"""How much of a growing text is spoken next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.characters import has_speech
from cc_tts.text.cuts import long_cut
from cc_tts.text.segments import ALL_IDLE_MS, GROWING_IDLE_MS, WORD_IDLE_MS, Segmenting, segment_end

pytestmark = pytest.mark.unit

SEGMENTING = Segmenting()


def first(text: str, **how: float | bool) -> str:
    return text[: segment_end(text, SEGMENTING, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Sure.", ""),
        ("Sure. ", "Sure."),
        ("Sure. I can help. And", "Sure. I can help."),
        ("Hello there,", ""),
        ("Hello there, how", "Hello there,"),
        ("Well, I th", ""),
        ("Your balance is 12.", ""),
        ("Your balance is 12.50", ""),
        ("Your balance is 12.50 do", ""),
        ("Your balance is 12. ", "Your balance is 12."),
        ("Your balance is 1,2", ""),
        ("Your balance is 1,234, so", ""),
        ("Your balance is 1,234, so it is", "Your balance is 1,234,"),
        ("On Tuesday the third, Ja", ""),
        ("Please ask Dr. Smith ab", ""),
        ("This is Acme, Inc. and", ""),
        ("# Title\nAnd then", "# Title\n"),
        ("您好，请", ""),
        ("您的余额是，请问您", ""),
        ("您的余额是，请问您还需", "您的余额是，"),
        ("您好。请", "您好。"),
        ("  \n ", ""),
        ("", ""),
    ],
)
def test_what_is_complete(text: str, spoken: str) -> None:
    assert first(text) == spoken


@pytest.mark.parametrize(
    "beginning",
    ["It is **very important, and this ", "Run `first, and then ", "See [the page, which is ", "**Note. It "],
)
def test_markup_is_not_cut_in_two_while_its_other_half_may_come(beginning: str) -> None:
    assert first(beginning) == ""
    assert first(beginning + "is long " * 12) != "", "but it does not wait for ever"


def test_a_long_clause_is_cut_at_a_word() -> None:
    spoken = first("I would like to know whether there is anything else that I could do to make your stay better")
    assert 40 < len(spoken) <= SEGMENTING.word_cut_chars
    assert not spoken.endswith(" ")


def test_idle_text_is_spoken_up_to_its_last_word_then_whole() -> None:
    assert first("Your balance is 12.5", idle_ms=WORD_IDLE_MS - 1) == ""
    assert first("Your balance is 12.5", idle_ms=WORD_IDLE_MS) == "Your balance is"
    assert first("balance 12.5", idle_ms=WORD_IDLE_MS) == "", "fewer than three words"
    assert first("Your balance is du", idle_ms=ALL_IDLE_MS) == "Your balance is du"
    assert first("Your balance is 12.5", idle_ms=GROWING_IDLE_MS) == "Your balance is 12.5"
    assert first("Call me on 1 80", idle_ms=WORD_IDLE_MS) == "Call me on", "a number is kept whole"
    assert first("  ", idle_ms=60_000) == ""


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Your code is 48", "Your code is"),
        ("Your code is 48 21 ", "Your code is"),
        ("You owe $", "You owe"),
        ("Call (415) 555-", "Call"),
        ("Write to me@exam", "Write to"),
        ("See www.exa", "See"),
        ("We booked Flight UA ", "We booked Flight"),
        ("We are open Mon. - F", "We are open"),
        ("Come by on Tue,", "Come by on"),
        ("您的验证码是48", "您的验证码是"),
        ("48", ""),
    ],
)
def test_what_may_still_grow_waits_a_second_longer_than_words(text: str, spoken: str) -> None:
    assert first(text, idle_ms=ALL_IDLE_MS) == spoken
    assert first(text, idle_ms=GROWING_IDLE_MS) == text


@pytest.mark.parametrize(
    "text", ["Thank you Anna", "It is ready.", "Is it ready?", "Your bal", "您的余额", "Thanks Anna."]
)
def test_mere_words_are_spoken_after_a_second(text: str) -> None:
    assert first(text, idle_ms=ALL_IDLE_MS) == text


WHOLE = [
    "400-820-8820", "6222 0202 0001 2345 678", "138 1234 5678", "E12345678", "service@example.com.cn", "100 Mbps",
    "www.example.cn/help", "DE89 3704 0044 0532 0130 00", "2026年12月31日", "Flight UA 1549", "PO Box 4417",
    "10 ft. x 12 ft.", "$20 to $30", "Mon. - Fri.", "14A - 14C", "March 4, 2027", "2.5 million", "Dr. Alvarez",
]  # fmt: skip


@pytest.mark.parametrize("item", WHOLE)
@pytest.mark.parametrize(
    ("words", "behind"),
    [
        ("please remember that the value we have for you is {} and nothing but that which you were told before", 25),
        ("请您记住我们这里登记的资料内容是{}如果有任何问题请随时与我们的客服人员联系谢谢您的配合", 8),
    ],
)
def test_no_token_boundary_cuts_what_is_kept_whole(item: str, words: str, behind: int) -> None:
    for num_dropped in range(behind):
        text, position = words.format(item)[num_dropped:], 0
        inside = range(text.index(item) + 1, text.index(item) + len(item))
        for end in range(1, len(text) + 1):
            position += segment_end(text[position:end], SEGMENTING)
            assert position not in inside, text[:position]


@pytest.mark.parametrize("item", WHOLE)
def test_no_chunk_boundary_cuts_what_is_kept_whole(item: str) -> None:
    for num_before in range(40, 66):
        text = "请您记住我们这里登记的资料内容" * 5
        text = text[:num_before] + item + text
        assert long_cut(text, 66) not in range(num_before + 1, num_before + len(item))


def test_a_whole_text_is_spoken_as_far_as_a_segment_goes() -> None:
    assert first("and 12", is_whole=True) == "and 12"
    assert first("...", is_whole=True) == ""
    text = "A sentence of some length. " * 40
    assert SEGMENTING.max_chars / 2 < len(first(text, is_whole=True)) <= SEGMENTING.max_chars
    assert len(first("." * 5000 + "a")) == SEGMENTING.max_chars, "no endless wait for something to say"


TEXTS = st.lists(
    st.sampled_from(
        ["word ", "12", ".", ",", "50", " ", "**", "`", "[", "]", "\n", "您好", "，", "。", "Dr. ", "A", "!", "…"]
    ),
    max_size=300,
).map("".join)


@given(TEXTS, st.sampled_from([0.0, WORD_IDLE_MS, ALL_IDLE_MS]), st.booleans())
def test_a_segment_is_a_part_of_the_text_with_something_to_say(text: str, idle_ms: float, is_whole: bool) -> None:
    end = segment_end(text, SEGMENTING, idle_ms=idle_ms, is_whole=is_whole)
    assert 0 <= end <= min(len(text), SEGMENTING.max_chars)
    assert end in (0, SEGMENTING.max_chars) or has_speech(text[:end])
    if is_whole and has_speech(text[: SEGMENTING.max_chars]):
        assert end


@given(TEXTS)
def test_tokens_of_one_character_never_cut_a_number(text: str) -> None:
    """What is cut while the text grows does not end between two digits, or between a digit and a point and a digit."""
    position = 0
    for end in range(1, len(text) + 1):
        pending = text[position:end]
        cut = segment_end(pending, SEGMENTING)
        following = text[position + cut : position + cut + 1]
        if cut and cut < SEGMENTING.word_cut_chars // 3 and following.isdigit() and following.isascii():
            assert not text[position + cut - 1].isdigit()
            assert not (text[position + cut - 1] in ".," and text[max(0, position + cut - 2)].isdigit())
        position += cut
