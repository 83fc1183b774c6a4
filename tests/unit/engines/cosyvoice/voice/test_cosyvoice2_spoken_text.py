"""The end of a piece of text: one terminator, no comma, nothing where nothing is said."""

import pytest

from cc_tts.engines.cosyvoice.voice.spoken_text import as_sentence

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Hello", "Hello."),
        (" ok,", "ok."),
        ("--", ""),
        ("  Hello there \n", "Hello there."),
        ("Hello.", "Hello."),
        ("Really?", "Really?"),
        ("As follows:", "As follows:"),
        ("First,", "First."),
        ("First, , \uff0c\u3001", "First."),
        ('She said "yes."', 'She said "yes."'),
        ('She said "yes"', 'She said "yes".'),
        ("(That is all!)", "(That is all!)"),
        ("It is [laughter]", "It is [laughter]."),
        ("你好", "你好。"),
        ("你好\uff0c", "你好。"),
        ("你好\uff1f", "你好\uff1f"),
        ("你好.", "你好."),
        ("\u201c你好\uff01\u201d", "\u201c你好\uff01\u201d"),
        ("5", "5."),
        ("", ""),
        ("  ", ""),
        ("?!...", ""),
        ("\uff0c。", ""),
    ],
)
def test_a_sentence_ends_once(text: str, sentence: str) -> None:
    assert as_sentence(text) == sentence
    assert as_sentence(sentence) == sentence


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Thank you for calling,", "Thank you for calling,"),
        (" Thank you for calling , ", "Thank you for calling ,"),
        ("你好，", "你好，"),
        ("红\u3001", "红\u3001"),
        ("well —", "well —"),
        ("he said, “well,”", "he said, “well,”"),
        ("Hello", "Hello."),
        ("Hello.", "Hello."),
        (",", ""),
    ],
)
def test_a_chunk_cut_at_a_comma_keeps_it_while_the_text_goes_on(text: str, spoken: str) -> None:
    assert as_sentence(text, more_follows=True) == spoken
    assert not spoken or as_sentence(text)[-1] in ".。”"
