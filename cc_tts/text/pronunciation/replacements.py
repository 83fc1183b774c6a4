r"""What is said in place of a part of a text, as ``<sub>`` and ``<say-as>`` of SSML and the entries of a lexicon ask for.

A replaced part is one character of the text that is cut into chunks, so that no cut goes through it::

    "Call Siobhán on 0800."  ─▸ "Call \ue000 on 0800." ─▸ chunks ─▸ "Call " · ʃɪˈvɔːn · " on zero eight hundred."
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

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
"""For ``say_as`` beside ``spoken``: this is text too, whose numbers are read as any text's are."""


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """``text[start:end]`` is said as ``spoken``; if that is empty, as ``say_as`` says
    (:mod:`cc_tts.text.pronunciation.say_as`) or as any text is read. ``ipa`` is how it is
    pronounced, for the engines that take that.
    """

    start: int
    end: int
    spoken: str = ""
    ipa: str = ""
    say_as: str = ""


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


Replaced = tuple[int, int, int, int]
"""Where a replaced part begins and ends in the spoken words, and in the text."""


def speak_replaced(
    chunk: str, text: str, replacements: Sequence[Replacement], language: str, read: Callable[[str], str]
) -> tuple[str, tuple[Replaced, ...]]:
    """The words of a chunk, of its replaced parts as they are given, of what stands between as ``read`` says; and where the
    replaced parts are.
    """
    parts = _STAND_INS.split(chunk)
    if len(parts) == 1:
        return read(chunk), ()
    last = _read_between(parts[0], read)
    said = " ".join(last.split()) + (" " if last[-1:].isspace() and last.strip() else "")
    places: list[Replaced] = []
    for stand_in, following in zip(parts[1::2], parts[2::2], strict=True):
        each = replacements[ord(stand_in) - _FIRST]
        words = _words_of(each, text[each.start : each.end], language, read)
        said += _gap(last, words)
        begin = len(said)
        said += pronounced(words, each.ipa) if each.ipa else words
        places.append((begin, len(said), each.start, each.end))
        between = _read_between(following, read)
        said += _gap(words, between) + re.sub(r"\s+", " ", between)
        last = between or words
    return said.rstrip(), tuple(places)


def _words_of(replacement: Replacement, written: str, language: str, read: Callable[[str], str]) -> str:
    if replacement.spoken:
        words = read(replacement.spoken) if replacement.say_as == READ else replacement.spoken
    else:
        words = (say_as(written, replacement.say_as, language) if replacement.say_as else "") or read(written)
    return " ".join(words.split())


def _read_between(part: str, read: Callable[[str], str]) -> str:
    """A part in words, with the spaces and punctuation marks at its edges, which join it to its neighbours."""
    if not part:
        return ""
    words = read(part)
    lead = _LEADING_MARKS.match(part)
    marks = "".join(each for each in (lead.group() if lead and words else part) if each in _MARKS or each.isspace())
    return f"{marks}{words.lstrip(_MARKS)}{' ' if part[-1].isspace() else ''}"


def _gap(before: str, after: str) -> str:
    edges = before[-1:], after[:1]
    return " " if all(each.isalnum() and not is_unspaced(each) for each in edges) else ""
