"""The letter A, which voices would read as the article."""

import pytest

from cc_tts.engines.letters import with_joined_letters, with_letters

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("spoken", "marked", "joined"),
    [
        ("nine A M on Monday", "nine <A> M on Monday", "nine A-M on Monday"),
        ("code A B C one", "code <A> B C one", "code A-B C one"),
        ("Flight A A one zero zero", "Flight <A> <A> one zero zero", "Flight A,A-one zero zero"),
        ("plan A.", "plan <A>.", "plan A."),
        ("A representative will help", "A representative will help", "A representative will help"),
        ("A five dollar fee", "A five dollar fee", "A five dollar fee"),
        ("A one-time code", "A one-time code", "A one-time code"),
    ],
)
def test_a_letter_and_an_article(spoken: str, marked: str, joined: str) -> None:
    assert with_letters(spoken, "<A>") == marked
    assert with_joined_letters(spoken) == joined
    assert len(joined) == len(spoken)
