"""Characters that cannot be said are taken out before any rule of a language looks at the text."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import islice

_KEPT_SYMBOLS = frozenset("°№℃℉℠") | set(map(chr, range(0x3371, 0x33E0)))
"""Symbols that stay, the signs of units in one character among them, as ㎡ and ㎏."""
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "So"})
_LEAVES_NOTHING = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad\u20e3") | set(map(chr, range(0xFE00, 0xFE10)))
"""Joiners, the sign that makes a digit a keycap, and variation selectors."""
_KEYCAP_ENTRY = re.compile(
    "(?<!\u20e3)(?<![按拨撥选選键鍵])(?<![按拨撥选選键鍵] )([0-9])\ufe0f?\u20e3 (?=[\u4e00-\u9fff“「])"
)
"""A keycap before an entry of a Chinese list: 1️⃣ 登录账号."""
_LINE_BREAKS = re.compile("\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
_ENDS_WITH_MARK = re.compile(r"[.!?…:;,。！？；：，、—-][\"'”’)\]»」』）]*$")
_ENDS_OPEN = re.compile(
    r"(?i)(?:,|-|\b(?:a|an|the|and|or|of|for|to|in|on|at|by|with|from|is|are|was|your|our|my|his|her|its|their|this|that))$"
)
_WRAPPED_FROM = 60
"""Lines that are broken for their length have at least this many characters; those of mail have some 72."""
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_MOBILE_DIGITS = 11
_NOT_ASCII_PRINTABLE = re.compile(r"[^\x20-\x7e\n]")
HYPHENS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2043\u2212\ufe63\uff0d", "-"))
"""A table for :meth:`str.translate`, which keeps every position: what writers and models set for a hyphen or a minus."""
_WORD = "[a-z]{2,}"
_EN_DASH_FOR_HYPHEN = re.compile(
    r"(?<![\d–])\d{1,8}–\d{1,8}–[\d–]{1,24}"  # 2025–12–25, 800–555–0199
    r"|(?:(?<=\d{3}[) ])|(?<=\d{3}\) )|(?<=\d{3}[.-])|(?<=\d{3}/))\d{3}–(?=\d{4}(?!\d))"
    r"|(?<!\d)0\d{2,3}–(?=\d{7,8}(?!\d)|\d{3,4} \d{4}(?!\d))"
    r"|(?<![A-Za-z\d])(?!(?:AM|PM|M|Tu|T|W|Th|F|Sa|Su)–)[A-Z]{1,6}–(?=\d)"
    r"|(?<![\d:.$£€¥])\d{1,6}–(?=[A-Z]{1,10}(?![a-z$£€¥]))|(?<![\d.])1–(?=\d{3}[–-])"
    rf"|(?<![A-Za-z\d])(?!noon|midnight|[a-z]*day–){_WORD}–(?!noon|midnight){_WORD}(?![a-z]*–?day)"
    r"|(?<![^\s(（:：])–(?=[\d$£€¥])"
)
"""Word processors turn a hyphen into an en dash, also in telephone numbers, dates, codes and compounds."""


def has_speech(text: str) -> bool:
    """Whether the text holds a letter or a digit of any script, so that something could be said."""
    return any(character.isalnum() for character in text)


def clean(text: str) -> str:
    """The text without control characters, lone surrogates, emoji and other pictures; line breaks become line feeds, and
    what stands for a hyphen becomes one.

    Removed characters leave a space, except joiners inside a word, which leave nothing.
    """
    if not text.isascii():
        text = _KEYCAP_ENTRY.sub(r"\1、", _EN_DASH_FOR_HYPHEN.sub(_hyphenated, text.translate(HYPHENS)))
    return _NOT_ASCII_PRINTABLE.sub(_cleaned, _LINE_BREAKS.sub("\n", text))


def _hyphenated(match: re.Match[str]) -> str:
    return match.group().replace("–", "-")


def _cleaned(match: re.Match[str]) -> str:
    character = match.group()
    if character in _LEAVES_NOTHING:
        return ""
    if character in _KEPT_SYMBOLS:
        return character
    if unicodedata.category(character) in _DROPPED_CATEGORIES or ord(character) in _SKIN_TONES:
        return " "
    return character


def digits_to_ascii(text: str) -> str:
    """Digits of every script (``٣``, ``५``, ``①``) as ``0`` to ``9``; each keeps apart from what it stood beside."""
    if text.isascii():
        return text
    return "".join(_ascii_digit(character) for character in text)


def _ascii_digit(character: str) -> str:
    if character.isascii() or not character.isdigit():
        return character
    if unicodedata.category(character) == "Nd":
        return str(unicodedata.decimal(character))
    return f" {unicodedata.digit(character)} "


def digit_groups(run: str, sizes: Mapping[int, Sequence[int]]) -> list[str]:
    """A run of digits cut where people pause: in groups of ``sizes`` for its length, else in fours.

    A run of eleven digits is a telephone number only if it begins with 1.
    """
    known = None if len(run) == _MOBILE_DIGITS and run[0] != "1" else sizes.get(len(run))
    rest = iter(run)
    return ["".join(islice(rest, size)) for size in known or (4,) * -(-len(run) // 4)]


def joined_lines(text: str, *, pause: str) -> str:
    """The lines of a text as they are said: one that continues in the next is joined to it by a space; behind others the
    line feed stays, and ``pause`` stands before it where no mark does.
    """
    said, last, is_apart = "", "", False
    for line in text.split("\n"):
        words = " ".join(line.split())
        if words and said:
            said += " " if not is_apart and _goes_on(last, words) else f"{_pause_after(last, pause)}\n"
        said += words
        last, is_apart = words or last, not words
    return said + (_pause_after(last, pause) if is_apart else "")


def _goes_on(line: str, following: str) -> bool:
    """Whether a line was only broken for its length: a list begins its lines in another way."""
    return following[0].islower() or len(line) >= _WRAPPED_FROM or _ENDS_OPEN.search(line) is not None


def _pause_after(line: str, pause: str) -> str:
    is_open = _ENDS_WITH_MARK.search(line) or _ENDS_OPEN.search(line)
    return "" if is_open or not has_speech(line) else pause
