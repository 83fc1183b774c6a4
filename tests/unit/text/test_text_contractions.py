"""Short forms that no list has: the one word that they can be short for is said."""

import pytest

from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunk_text

pytestmark = pytest.mark.unit


def said(normalizer: Normalizer, written: str) -> str:
    return " ".join(chunk.spoken for chunk in chunk_text(written, normalizer, language="en-US"))


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("The clmt. A. Ng called.", "The claimant A. Ng called."),
        ("It was dlvrd on Monday.", "It was delivered on Monday."),
        ("Planned maint. Sat 5 Dec at noon.", "Planned maintenance Saturday, the fifth of December at noon."),
        ("Txn 4471 failed.", "transaction four four seven one failed."),
        ("Three apptmts left.", "Three appointments left."),
        ("It was auth'd and canc'd.", "It was authorized and canceled."),
        ("Thos. Kelly and Jas. Roy called.", "Thomas Kelly and James Roy called."),
    ],
)
def test_the_word_that_is_written_short_is_said(normalizer: Normalizer, written: str, spoken: str) -> None:
    assert said(normalizer, written) == spoken


@pytest.mark.parametrize(
    "written",
    [
        "I saw the app. Then it stopped.",  # application or appointment, and a word of its own
        "Tell the admin. Please hurry.",  # a word of its own at the end of a sentence
        "Types are optional with attrs.",  # too many letters of administrator are not there
        "We met Lynn. He left.",
        "Use HTML or DTMF.",
    ],
)
def test_what_may_be_a_word_of_its_own_stays(normalizer: Normalizer, written: str) -> None:
    assert said(normalizer, written) == written
