"""The letter A among spelled letters and digits, which a voice would read as the article ("nine A M", "A one B")."""

import re
from typing import Final

_DIGIT: Final = "zero|oh|one|two|three|four|five|six|seven|eight|nine"
_LETTER_A: Final = re.compile(
    rf"(?<![\w'])A(?=(?: |, )[A-Z](?![\w'])|(?: |, )(?:{_DIGIT})(?:[ ,]+(?:[A-Z]\b|{_DIGIT})|[.,;:!?]|$)|[.,;:!?]|$)|"
    rf"(?:(?<=\b[A-Z] )|(?<=\b[A-Z], ))A(?![\w'])"
)


def with_letters(spoken: str, letter_a: str) -> str:
    """``spoken`` with each A that is a letter written as ``letter_a``."""
    return _LETTER_A.sub(letter_a, spoken)
