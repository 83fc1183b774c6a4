"""Replacing what a pattern finds by words, with spaces where they would run into their neighbours.

Runs on: any thread; nothing here has state.
"""

import re
from collections.abc import Callable

Say = Callable[[re.Match[str]], str | None]
"""The words for a match, or ``None`` to leave it as it is."""


def substitute(pattern: re.Pattern[str], say: Say, text: str) -> str:
    """``text`` with each match replaced by its words."""

    def padded(match: re.Match[str]) -> str:
        words = say(match)
        if words is None:
            return match.group()
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        left = " " if before.isalnum() and words[:1].isalnum() else ""
        right = " " if after.isalnum() and words[-1:].isalnum() else ""
        return f"{left}{words}{right}"

    return pattern.sub(padded, text)


def ends_sentence(match: re.Match[str]) -> bool:
    """Whether the text after the match is its end or begins a new sentence, so that a full stop there must be kept."""
    following = match.string[match.end() : match.end() + 40]
    rest = following.lstrip(" \n\"')”’")
    return not rest or (rest != following and rest[0].isupper())
