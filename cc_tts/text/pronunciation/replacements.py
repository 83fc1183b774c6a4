r"""Replacements of a part of a text, as ``<sub>`` and ``<say-as>`` of SSML and the entries of a lexicon ask for.

A replaced part is one character of the text that is cut into chunks, so that no cut goes through it::

    "Call Siobhán on 0800."  ─▸ "Call \ue000 on 0800." ─▸ chunks ─▸ "Call " · ʃɪˈvɔːn · " on zero eight hundred."
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from cc_tts.text.alignment import Place, moved
from cc_tts.text.language import is_unspaced
from cc_tts.text.pronunciation.say_as import say_as
from cc_tts.voices.inline_ipa import pronounced

_FIRST: Final = 0xE000
MAX_REPLACEMENTS: Final = 0xF8F0 - _FIRST
_PRIVATE_USE: Final = re.compile("[\ue000-\uf8ff]")
_STAND_INS: Final = re.compile("([\ue000-\uf8ef])")
_MARKS: Final = ",;:.!?、，。；：！？…"
_LEADING_MARKS: Final = re.compile(rf"\s*[{_MARKS}]*\s*")


READ: Final = "text"
"""The value of ``say_as`` for what stands beside ``spoken``: this is text too, whose numbers are read as any text's are."""


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """``text[start:end]`` is said as ``spoken``; if that is empty, as ``say_as`` says
    (:mod:`cc_tts.text.pronunciation.say_as`) or as any text is read. ``ipa`` is how it is
    pronounced, for the engines that take that. One of no length is a ``sign`` between words, of
    :mod:`cc_tts.voices.inline_sounds`.
    """

    start: int
    end: int
    spoken: str = ""
    ipa: str = ""
    say_as: str = ""
    sign: str = ""


def with_stand_ins(text: str, replacements: Sequence[Replacement]) -> str:
    """``text`` with one private-use character for each replacement; these must be in order and not overlap."""
    if not replacements:
        return text
    parts, end = [], 0
    for number, each in enumerate(replacements[:MAX_REPLACEMENTS]):
        parts += [_PRIVATE_USE.sub(" ", text[end : each.start]), chr(_FIRST + number)]
        end = each.end
    return "".join([*parts, _PRIVATE_USE.sub(" ", text[end:])])


def source_chars(chunk: str, replacements: Sequence[Replacement]) -> int:
    """Characters of the text itself that a chunk of the text with stand-ins stands for."""
    found = [replacements[ord(each) - _FIRST] for each in _STAND_INS.findall(chunk)]
    return len(chunk) + sum(each.end - each.start - 1 for each in found)


Read = Callable[[str, str], tuple[str, list[Place]]]
"""How a part is read behind the written words before it, and where its words come from."""


def speak_replaced(
    chunk: str, text: str, replacements: Sequence[Replacement], language: str, read: Read
) -> tuple[str, list[Place]]:
    """The words of a chunk, of its replaced parts as they are given, of what stands between as ``read`` says; and where what
    was replaced is, in the words and in the chunk with what is written in place of its stand-ins.
    """
    first, *parts = _STAND_INS.split(chunk)
    if not parts:
        return read(chunk, "")
    spoken = _Spoken()
    spoken.add(first, *_read_between(first, read, ""))
    for stand_in, following in zip(parts[::2], parts[1::2], strict=True):
        each = replacements[ord(stand_in) - _FIRST]
        written = text[each.start : each.end]
        words = each.sign or _words_of(each, written, language, lambda part: read(part, "")[0])
        said = pronounced(words, each.ipa) if each.ipa else words
        spoken.add(written, said, [(0, len(said), 0, len(written))])
        spoken.add(following, *_read_between(following, read, spoken.written))
    return spoken.words.rstrip(), spoken.places


class _Spoken:
    """The words of a chunk, as far as its parts were put together."""

    def __init__(self) -> None:
        self.words = ""
        self.written = ""
        self.places: list[Place] = []

    def add(self, written: str, words: str, places: list[Place]) -> None:
        """The next part, and where its words come from."""
        said = words if self.words else words.lstrip()
        self.words += _gap(self.words, said)
        self.places += moved(places, len(self.words) - (len(words) - len(said)), len(self.written))
        self.words += said
        self.written += written


def _words_of(replacement: Replacement, written: str, language: str, read: Callable[[str], str]) -> str:
    if replacement.spoken:
        words = read(replacement.spoken) if replacement.say_as == READ else replacement.spoken
    else:
        words = (say_as(written, replacement.say_as, language) if replacement.say_as else "") or read(written)
    return " ".join(words.split())


def _read_between(part: str, read: Read, before: str) -> tuple[str, list[Place]]:
    """A part in words, with the spaces and punctuation marks at its edges, which join it to its neighbours."""
    if not part:
        return "", []
    words, places = read(part, before)
    lead = _LEADING_MARKS.match(part)
    marks = "".join(each for each in (lead.group() if lead and words else part) if each in _MARKS or each.isspace())
    marks = re.sub(r"\s+", " ", marks)
    unmarked = words.lstrip(_MARKS)
    shift = len(marks) - (len(words) - len(unmarked))
    return f"{marks}{unmarked}{' ' if part[-1].isspace() and words else ''}", moved(places, shift, 0)


def _gap(before: str, after: str) -> str:
    edges = before[-1:], after[:1]
    return " " if all(each.isalnum() and not is_unspaced(each) for each in edges) else ""
