"""Where a sentence may be cut in two: after a clause mark, at a space, and only then anywhere.

Never inside a number, sum of money, date, time, telephone or card number, address, or between a title and its name.
"""

import re

from cc_tts.text.characters import HYPHENS

CLAUSE_LOOKAHEAD_CHARS = 8
"""Whether a clause mark is a safe place to cut is known when this many characters after it are known, or the end is."""

_CLAUSE_MARK = re.compile(r"[,;:][\"'”’)\]]?(?=\s)|[，、：；—][\"'”’」』）]?")
_DIGIT_BEFORE = re.compile(r"[年月日号点时分元度℃%％]—$|\d#?[\"'”’)\]]?[,;:，、：；—][\"'”’)\]」』）]?$")
_DIGIT_AFTER = re.compile(r"\s{0,2}[+$£€¥￥(]?\d")
_DATE_PART_BEFORE = re.compile(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?,$"
    r"|(?<![^\W\d_])[^\W\d_]{2,5}\.,$|\b[Nn][or]:$"  # Di., wt., ter., No: 12
)
_NAME_OR_NUMBER_GOES_ON = re.compile(r"\s(?:ext|x\d|Jr|Sr|Inc|Ltd|LLC|Ph)")
_LATIN_BEFORE = re.compile(r"(?<![A-Za-z])(?:e\.g|i\.e)\.,$")
_LOOK_BACK_CHARACTERS = 12
_INSIDE_WORD = re.compile("[!-~]{2}")
"""Between two characters of ASCII, without a space: in a word, a number, an address."""
_PLAIN_AFTER = re.compile(r"\s[a-z']{2,}\s")
_PLAIN_BEFORE = re.compile(r"(?:^|\s)[a-z']{2,}$")
_ENDS_PLAIN = re.compile(r"(?:^\s*[A-Z]?|[\s\u3400-\u9fff])(?:[a-z']+|I)[,;:]?$|[\u3400-\u9fff，。：；！？]$")
"""A name, an abbreviation or a number before it may belong to what comes next."""
_ENDS_WORD = re.compile(rf"{_ENDS_PLAIN.pattern}|[A-Za-z']{{4}}[.,;:!?…]{{0,3}}[\"'”’)]?\s*$|[!?。！？…]\s*$")
_LONGEST_PLAIN_WORD = 20
_AMONG_HAN = re.compile("(?:(?![〇零一二三四五六七八九十百千万亿两第])[\u3400-\u9fff]){4}")

_DAY_OF_WEEK = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_NUMBER = r"\d[\d.,:/-]{0,18}"
_KEPT_WHOLE = tuple(
    re.compile(f"(?a){pattern}")  # so that Han characters are no part of a word
    for pattern in (
        r"(?<![\w+])\+?\(?\d{1,4}\)?(?:[ .-]{1,2}\(?\d{2,6}\)?){1,5}(?:,? ?(?:ext\.?|x) ?\d{1,6})?",
        r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{1,4}){3,8}\b",
        rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?",
        rf"(?<!\w)\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?",
        rf"\b{_DAY_OF_WEEK}(?:,? (?=\d|{_MONTH})| ?[-–—] ?{_DAY_OF_WEEK})",
        rf"(?:[$£€¥￥₹]|\b[A-Z]{{3}} ) ?{_NUMBER}(?: (?:thousand|million|billion|trillion)\b)?",
        rf"(?<![\w.,]){_NUMBER} ?(?:%|°|[AaPp]\.?[Mm]\b\.?|(?:thousand|million|billion)\b|[A-Za-z]{{1,4}}\b\.?)",
        r"(?<!\w)\d{1,4} \d{1,2}/\d{1,2}|\d/\d{1,2} \d{1,2}:\d\d",
        rf"(?<![\w.,]){_NUMBER}[A-Za-z]?(?: [A-Za-z]{{1,5}}\.?)? ?(?:[-–—~～x×÷→]|to|by|and|or) ?[$£€¥]?{_NUMBER}",
        r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|No|Rev|Capt|Lt|Gen|Col|Sgt)\.? [#\w'-]{1,20}",
        r"\b[A-Z][A-Za-z.]{0,14} (?:[A-Z]{1,3} )?#?[A-Z]{0,3}-?\d[\w-]{0,20}",
        r"\bP\.?\s?O\.? Box \d{1,6}",
        r"(?<![\d.,])(?:[^\W\d_]{1,12} )?\d{1,2}\. \w",  # an ordinal number and its article in German, Danish, Czech
        r"\d{1,4}年(?:\d{1,2}月(?:\d{1,2}[日号])?)?|\d{1,2}月\d{1,2}[日号]|\d[\d.,:]{0,18}[\u4e00-\u9fff]?(?:/[A-Za-z]{0,4})?",
        r"[（(]?\d[\d.,元%]{0,12}[）)]?(?: ?[-+×*÷/=] ?[（(]?\d[\d.,元%]{0,12}[）)]?){2,8}",  # a sum
        r"\d[-–—~～][\u4e00-\u9fff]{1,2}\d{1,2}|\d日[后後内內]",
        r"[≤≥<>≈±] ?[¥￥$€£]?\d",
        r"\"[\w -]{1,40}\"\s*:",
        r"\S [-+*•>|] ",  # which would be the mark of a list or a table at the beginning of a line
    )
)
_GROWING = re.compile(
    r"(?a)(?:[+(#*$£€¥￥]{0,3}(?<![A-Za-z])[A-Za-z]{0,4}\d[A-Z\d .,:/()#*%+-]{0,60}(?<![a-z])[a-z]{0,4}\.?"
    r"|\d(?:[-–—~～][\u4e00-\u9fff]{0,2}|[\u4e00-\u9fff]/[A-Za-z]{0,4})|[+(#*$£€¥￥-]{1,3} ?"
    r"|\b[A-Z]{2,5} ?|\b[A-Z][a-z]{0,2}[.,] ?|[\w+-]{1,40}(?:[@/]|\.(?=\w))[\w.+/:@?=&%-]{0,200})$"
)
"""A number, with what may follow before its unit, the signs that begin one, and an address."""


def clause_cuts(text: str) -> list[int]:
    """The positions right after the clause marks (``, ; : —`` and ``， 、 ： ；``) where the text may be cut."""
    return [
        match.end() for match in _CLAUSE_MARK.finditer(text) if match.end() < len(text) and _is_safe(text, match.end())
    ]


def _is_safe(text: str, position: int) -> bool:
    before = text[max(0, position - _LOOK_BACK_CHARACTERS) : position]
    after = text[position : position + CLAUSE_LOOKAHEAD_CHARS]
    if _DIGIT_AFTER.match(after) and (_DIGIT_BEFORE.search(before) or _DATE_PART_BEFORE.search(before)):
        return False
    if _DATE_PART_BEFORE.search(before) and re.match(rf"\s{_MONTH}", after):
        return False
    return not _NAME_OR_NUMBER_GOES_ON.match(after) and not _LATIN_BEFORE.search(before)


def _with_hyphens(text: str) -> str:
    """``text``, in which every form of hyphen is one and every position stays."""
    return text if text.isascii() else text.translate(HYPHENS)


def growing_from(text: str) -> int:
    """Where something begins at the end of a text that what comes next may belong to, such as a number; else its length."""
    match = _GROWING.search(_with_hyphens(text))
    return len(text) if match is None else len(text[: match.start()].rstrip())


def word_cut(text: str) -> int:
    """The last space behind a mere word, at which a text that is still growing may be cut, the word behind it being perhaps
    incomplete; 0 if there is none.
    """
    inside, last = _positions_inside(_with_hyphens(text)), min(len(text) - 1, growing_from(text))
    spaces = (at for at in range(last, 0, -1) if text[at].isspace() and at not in inside)
    return next((at for at in spaces if _ENDS_PLAIN.search(text[max(0, at - _LONGEST_PLAIN_WORD) : at])), 0)


def settled_end(text: str) -> int:
    """Up to where a text that may still grow is spoken when nothing comes for long: behind its last whole word, but for what
    begins something that what comes next may belong to.
    """
    end = growing_from(text)
    return end if _ENDS_WORD.search(text[max(0, end - _LONGEST_PLAIN_WORD) : end]) else word_cut(text[: end + 1])


def early_cut(text: str, limit: int) -> int:
    """The best position up to ``limit`` at which to cut a text that is still growing; 0 if what comes next may make
    one thing of both sides.
    """
    text = _with_hyphens(text)
    cut = _clause_or_plain_cut(text, limit) or _cut_between_words(text, limit)
    return cut if cut <= growing_from(text) else 0


def long_cut(text: str, limit: int) -> int:
    """The best position up to ``limit`` at which to cut a text that is longer than ``limit`` characters; at least 1."""
    text = _with_hyphens(text)
    return _clause_or_plain_cut(text, limit) or _cut_between_words(text, limit) or max(1, limit)


def _clause_or_plain_cut(text: str, limit: int) -> int:
    """After a clause mark, else between two words that are nothing but words: no name, no number, no unit."""
    clauses = clause_cuts(text[: limit + CLAUSE_LOOKAHEAD_CHARS])
    by_clause = max((position for position in clauses if limit // 2 < position <= limit), default=0)
    return by_clause or next((at for at in range(limit, limit // 2, -1) if _is_plain(text, at)), 0)


def _is_plain(text: str, at: int) -> bool:
    if text[at].isspace():
        before = text[max(0, at - _LONGEST_PLAIN_WORD) : at]
        return _PLAIN_AFTER.match(text, at) is not None and _PLAIN_BEFORE.search(before) is not None
    return _AMONG_HAN.match(text, max(0, at - 2)) is not None


def _cut_between_words(text: str, limit: int) -> int:
    inside = _positions_inside(text)
    for position in range(limit, limit // 3, -1):
        if text[position].isspace() and position not in inside:
            return position
    between = (at for at in range(limit, limit // 3, -1) if not _INSIDE_WORD.match(text, at - 1))
    return next((position for position in between if position not in inside), 0)


def _positions_inside(text: str) -> set[int]:
    """Where a cut would go through something that is kept whole."""
    found = [match for pattern in _KEPT_WHOLE for match in pattern.finditer(text)]
    return {position for match in found for position in range(match.start() + 1, match.end())}
