"""Signs of sounds and emphasis inside words: what is left for engines that make none, and what a cut leaves of them."""

import pytest

from cc_tts.text.characters import clean
from cc_tts.voices.inline_sounds import (
    EMPHASIS_BEGINS,
    EMPHASIS_ENDS,
    SOUNDS,
    with_whole_emphasis,
    without_sounds,
)

pytestmark = pytest.mark.unit

SIGNS = {"*": SOUNDS["laughter"], "(": EMPHASIS_BEGINS, ")": EMPHASIS_ENDS}


def signed(text: str) -> str:
    for letter, sign in SIGNS.items():
        text = text.replace(letter, sign)
    return text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Well * there", "Well there"),
        ("Well *there", "Well there"),
        ("Well *.", "Well."),
        ("Well*!", "Well!"),
        ("This (is) it", "This is it"),
        ("plain", "plain"),
    ],
)
def test_other_engines_have_the_words(said: str, words: str) -> None:
    assert without_sounds(signed(said)) == words


@pytest.mark.parametrize(
    ("said", "whole"),
    [("a (b) c", "a (b) c"), ("a (b", "a (b)"), ("b) c", "b c"), ("()x", "x"), ("(a (b)", "(a )(b)"), ("a", "a")],
)
def test_an_emphasis_ends_where_it_was_cut(said: str, whole: str) -> None:
    assert with_whole_emphasis(signed(said)) == signed(whole)


def test_no_text_from_outside_holds_a_sign() -> None:
    assert without_sounds(clean("".join(SIGNS.values()))) == clean("".join(SIGNS.values()))
