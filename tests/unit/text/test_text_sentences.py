"""Sentences of a whole text and of a stream are the same."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_tts.text.characters import has_speech
from cc_tts.text.sentences import MAX_SENTENCE_CHARS, SentenceSplitter

pytestmark = pytest.mark.unit

texts = st.lists(
    st.sampled_from(
        [
            *"aB1 .,!?\"'\n。，；)…-$",
            "Dr.",
            "U.S. ",
            "e.g.",
            "3.14",
            "word ",
            "您好",
            "p.m. ",
            "Vol.",
            "II",
            "X-",
            "no.",
            "Mon.",
            "AM",
            "18-mo.",
            "U.S.",
            "N",
            "The ",
            "die ",
            "3. ",
            "März ",
            "Drücken Sie ",
        ]
    ),
    max_size=120,
).map("".join)


def all_at_once(text: str, max_chars: int = MAX_SENTENCE_CHARS) -> list[str]:
    splitter = SentenceSplitter(max_chars=max_chars)
    return splitter.push(text) + splitter.flush()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello. How are you? Fine!", ["Hello.", " How are you?", " Fine!"]),
        ("I saw Dr. Smith. He left.", ["I saw Dr. Smith.", " He left."]),
        ("Pi is 3.14. It costs $1.50. Ok.", ["Pi is 3.14.", " It costs $1.50.", " Ok."]),
        ("Fruit, e.g. apples. The U.S. is big.", ["Fruit, e.g. apples.", " The U.S. is big."]),
        ("See example.com. Or a@b.org!", ["See example.com.", " Or a@b.org!"]),
        ('He said "Hi." Then (he left.) Yes', ['He said "Hi."', " Then (he left.)", " Yes"]),
        ("您好。您的订单！是吗？“好。”行；好", ["您好。", "您的订单！", "是吗？", "“好。”", "行；", "好"]),
        ("line one\nline two\r\nthree", ["line one\n", "line two\r\n", "three"]),
        ("At 9 a.m. we open. At 9 a.m. We open.", ["At 9 a.m. we open.", " At 9 a.m.", " We open."]),
        ("No. 5 is up. No. It is not.", ["No. 5 is up.", " No.", " It is not."]),
        ("1. Press one. 2. Press two.", ["1. Press one.", " 2. Press two."]),
        (
            "Die 3. Mahnung. Drücken Sie die 1. Für Rat die 2.",
            ["Die 3. Mahnung.", " Drücken Sie die 1.", " Für Rat die 2."],
        ),
        ("Vi bor på 3. sal. Am 5. März um 3. Ja.", ["Vi bor på 3. sal.", " Am 5. März um 3.", " Ja."]),
        ("J. Smith called. So do I. Yes", ["J. Smith called.", " So do I.", " Yes"]),
        ("See vol. II. No. IV therapy is not covered.", ["See vol. II.", " No.", " IV therapy is not covered."]),
        ("Call Mon. AM. Paid in Dec. V. Smith paid.", ["Call Mon. AM.", " Paid in Dec.", " V. Smith paid."]),
        ("My TV is an LG. The lg. size is out.", ["My TV is an LG.", " The lg. size is out."]),
        ("Get the app. May I help? Cal. App. May 5.", ["Get the app.", " May I help?", " Cal. App. May 5."]),
        ("The merch. was returned. Incid. 44312 is closed.", ["The merch. was returned.", " Incid. 44312 is closed."]),
        ("Your alloc. #7 is full. Ask Nguyen. He knows.", ["Your alloc. #7 is full.", " Ask Nguyen.", " He knows."]),
        ("We sold it. nobody knew. See attachm. AB-12.", ["We sold it.", " nobody knew.", " See attachm. AB-12."]),
        (
            "Ask a rep. They know art. This is it. Ask Rep. He.",
            ["Ask a rep.", " They know art.", " This is it.", " Ask Rep. He."],
        ),
        ("Cat. no. 4411 is here. Bus. hrs vary.", ["Cat. no. 4411 is here.", " Bus. hrs vary."]),
        ("Acme Inc. We ship. Smith vs. The State.", ["Acme Inc.", " We ship.", " Smith vs. The State."]),
        ("She has a Ph.D. in law. Add 5 g. Then stir.", ["She has a Ph.D. in law.", " Add 5 g.", " Then stir."]),
        (
            "I don't. We will. Call our EMERG. contact. Is it up to NASA. It is.",
            ["I don't.", " We will.", " Call our EMERG. contact.", " Is it up to NASA.", " It is."],
        ),
        ("Die Straße. Der Weg ist z. B. lang.", ["Die Straße.", " Der Weg ist z. B. lang."]),
        ("Это дом. Он в центре.", ["Это дом.", " Он в центре."]),
        ("In the U.S. Then we ship.", ["In the U.S.", " Then we ship."]),
        ("Wait... what?! Really", ["Wait...", " what?!", " Really"]),
        ("你好.再见", ["你好.", "再见"]),
        ("... 😀 !!! Go. ", ["... 😀 !!! Go.", " "]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert all_at_once(text) == expected


@given(
    text=texts, cuts=st.lists(st.integers(0, 200), max_size=8), max_chars=st.sampled_from([20, 60, MAX_SENTENCE_CHARS])
)
def test_the_pieces_make_no_difference_and_nothing_is_lost(text: str, cuts: list[int], max_chars: int) -> None:
    splitter = SentenceSplitter(max_chars=max_chars)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    streamed: list[str] = []
    for begin, end in pairwise(edges):
        streamed += splitter.push(text[begin:end])
    streamed += splitter.flush()
    assert streamed == all_at_once(text, max_chars)
    assert "".join(streamed) == text
    assert all(0 < len(sentence) <= max_chars for sentence in streamed)


@given(text=texts)
@example(text="1-aU.S. a")
@example(text="a 6-oz. ")
@example(text="1 mi.\nNot")
@example(text="U.S.\nThe a")
def test_character_by_character_is_the_same_too(text: str) -> None:
    splitter = SentenceSplitter()
    streamed = [sentence for character in text for sentence in splitter.push(character)] + splitter.flush()
    assert streamed == all_at_once(text)


def test_a_sentence_is_given_out_when_the_next_character_shows_its_end() -> None:
    splitter = SentenceSplitter()
    assert splitter.push("Hello the") == []
    assert splitter.push("re.") == []
    assert splitter.settled == "Hello there"
    assert splitter.push(" ") == ["Hello there."]
    assert splitter.push("It is 3.") == []
    assert splitter.push("14 now") == []
    assert splitter.flush() == [" It is 3.14 now"]
    assert splitter.push("Again. ") == ["Again."]


def test_behind_a_word_that_may_be_a_short_form_the_next_letter_is_waited_for() -> None:
    splitter = SentenceSplitter()
    assert splitter.push("The merch. ") == []
    assert splitter.push("was returned to Nguyen. ") == []
    assert splitter.push("H") == []
    assert splitter.push("e ") == ["The merch. was returned to Nguyen."]


@pytest.mark.parametrize("unit", ["word ", "x", "字", "1", "\U0001f600", ". ", "\n", "."])
def test_text_without_an_end_is_bounded(unit: str) -> None:
    splitter = SentenceSplitter()
    text = unit * 2_000
    given_out = splitter.push(text)
    assert sum(len(sentence) for sentence in given_out) >= len(text) - MAX_SENTENCE_CHARS
    assert "".join(given_out + splitter.flush()) == text


def test_a_long_sentence_is_cut_between_words() -> None:
    parts = all_at_once("alpha beta gamma delta " * 40)
    assert len(parts) > 1
    assert all(set(part.split()) <= {"alpha", "beta", "gamma", "delta"} for part in parts)
    assert all(has_speech(part) for part in parts[:-1])
