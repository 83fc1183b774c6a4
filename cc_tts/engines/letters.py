"""The letter A among spelled letters and digits, which a voice would read as the article ("nine A M", "A one B")."""

import re
from typing import Final

LETTER_A_OF_HIBARI: Final = "[A](/ˈA/)"
"""The letter A as a pronunciation in hibari's notation; alone, an A is read as the article."""
_DIGIT: Final = "zero|oh|one|two|three|four|five|six|seven|eight|nine"
_LETTER_A: Final = re.compile(
    rf"(?<![\w'])A(?=(?: |, )[A-Z](?![\w'])|(?: |, )(?:{_DIGIT})(?:[ ,]+(?:[A-Z]\b|{_DIGIT})|[.,;:!?]|$)|[.,;:!?]|$)|"
    rf"(?:(?<=\b[A-Z] )|(?<=\b[A-Z], ))A(?![\w'])"
)

_LETTER_A_AND_SPACE: Final = re.compile(f"(?:{_LETTER_A.pattern}) ")


def with_letters(spoken: str, letter_a: str) -> str:
    """Return ``spoken`` with ``letter_a`` in place of each A that is a letter."""
    return _LETTER_A.sub(letter_a, spoken)


def with_joined_letters(spoken: str) -> str:
    """``spoken`` with a hyphen, or before another A a comma, in place of the space behind each A that is a letter.

    espeak-ng reads such an A as the letter, and words keep their positions.
    """
    return _LETTER_A_AND_SPACE.sub(lambda match: "A," if spoken[match.end() :].startswith("A ") else "A-", spoken)
