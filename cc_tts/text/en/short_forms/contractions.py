"""Short forms that leave letters out of a word: ``clmt.`` of "claimant", ``dlvrd`` of "delivered", ``maint.``.

A list of short forms knows those that somebody thought of. Here the words are listed, and what is short for one of them
alone is said as that word.
"""

import re
from functools import cache
from importlib import resources

from cc_tts.text.en.numbers import plural
from cc_tts.text.sentences import common_words

_SHORTEST = 3  # of two letters, too many words could be meant
_VOWELS = frozenset("aeiou")
_SHORTEST_ALONE = 4  # without a full stop: rpt is an acronym as well
_LONGEST_ACRONYM = 4  # unmeasured
_NO_NOUN_ENDINGS = ("ed", "s", "ly", "ble")
_LEAST_LONGER = 2  # unmeasured
"""A word that is hardly longer is not shortened: ``manul`` is a slip."""


@cache
def _by_first_letter() -> dict[str, list[str]]:
    lines = resources.files("cc_tts.text.en").joinpath("shortened_words.txt").read_text("ascii").splitlines()
    words: dict[str, list[str]] = {}
    for word in (word for line in lines if not line.startswith("#") for word in line.split()):
        words.setdefault(word[0], []).append(word)
    return words


def contracted(match: re.Match[str]) -> str | None:
    """The word for one without a full stop; in capitals a short one is rather an acronym."""
    written = match.group()
    is_acronym = written.isupper() and len(written) <= _LONGEST_ACRONYM
    if is_acronym or len(written) < _SHORTEST_ALONE or written.lower() in common_words():
        return None
    return written_out(written, may_be_cut=False)


@cache
def written_out(short: str, *, may_be_cut: bool) -> str | None:
    """The word that a short form stands for, if it is one alone. ``may_be_cut``: also one of which it is the beginning."""
    letters = short.lower().replace("'", "")
    if len(letters) < _SHORTEST:
        return None
    found, ending = _meant(letters), ""
    if not found and letters.endswith("s") and len(letters) > _SHORTEST:
        letters, ending = letters[:-1], "s"
        found = [each for each in _meant(letters) if not each.endswith(_NO_NOUN_ENDINGS)]
    if len(found) != 1 or (found[0].startswith(letters) and not may_be_cut):
        return None
    return _plural(found[0]) if ending else found[0]


def done(short: str) -> str | None:
    """The participle that is written short with an apostrophe: ``auth'd`` of "authorized"; ``that'd`` is no participle."""
    letters = short.lower()
    if letters in common_words():
        return None
    words = [each for each in _by_first_letter().get(letters[:1], ()) if each.endswith("ed")]
    found = [each for each in words if each.startswith(letters) or _is_contraction(letters + "d", each)]
    return found[0] if len(found) == 1 else None


def _plural(word: str) -> str:
    if word.endswith(("ch", "sh")):
        return f"{word}es"
    return f"{word}s" if word.endswith(("ay", "ey")) else plural(word)


def _meant(letters: str) -> list[str]:
    words = [each for each in _by_first_letter().get(letters[:1], ()) if len(each) >= len(letters) + _LEAST_LONGER]
    begun = [each for each in words if each.startswith(letters)]
    if begun and all(each.startswith(begun[0]) for each in begun):
        begun = begun[:1]
    contracted = [each for each in words if _is_contraction(letters, each)] if _VOWELS.isdisjoint(letters[1:]) else []
    return sorted({*begun, *contracted})


def _is_contraction(letters: str, word: str) -> bool:
    """Whether letters are left out of the word: neither its first nor its last consonant, nor most of them."""
    rest = iter(word)
    is_in_order = letters[-1] in (word[-1], word.rstrip("e")[-1]) and all(letter in rest for letter in letters)
    return is_in_order and sum(letter not in _VOWELS for letter in word[1:]) <= 2 * len(letters) - _SHORTEST


CONTRACTED = r"(?<![\w.'’@/-])(?=[A-Za-z]{3})(?!['’])[A-Za-z][b-df-hj-np-tv-z]{2,7}(?:'d)?(?![\w'’@/-]|\.\w)"
"""Letters without a vowel behind the first."""
