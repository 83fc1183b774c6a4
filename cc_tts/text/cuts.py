"""Where a sentence may be cut in two: after a clause mark, at a space, and only then anywhere.

Never inside a number, sum of money, date, time, telephone or card number, address, or between a title and its name.
"""

import re

CLAUSE_LOOKAHEAD_CHARS = 8
"""Whether a clause mark is a safe place to cut is known when this many characters after it are known, or the end is."""

_CLAUSE_MARK = re.compile(r"[,;:][\"'”’)\]]?(?=\s)|[，、：；—][\"'”’」』）]?")
_DIGIT_BEFORE = re.compile(r"\d[\"'”’)\]]?[,;:，、：；—][\"'”’)\]」』）]?$")
_DIGIT_AFTER = re.compile(r"\s{0,2}[+$£€¥(]?\d")
_DATE_PART_BEFORE = re.compile(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?,$"
)
_NAME_OR_NUMBER_GOES_ON = re.compile(r"\s(?:ext|x\d|Jr|Sr|Inc|Ltd|LLC|Ph)")
_LATIN_BEFORE = re.compile(r"(?<![A-Za-z])(?:e\.g|i\.e)\.,$")
_LOOK_BACK_CHARACTERS = 12
_INSIDE_WORD = re.compile("[A-Za-z0-9]{2}")

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_NUMBER = r"\d[\d.,:/-]{0,18}"
_KEPT_WHOLE = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w+])\+?\(?\d{1,4}\)?(?:[ .-]{1,2}\(?\d{2,6}\)?){1,5}(?:,? ?(?:ext\.?|x) ?\d{1,6})?",
        rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?",
        rf"(?<!\w)\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?",
        rf"(?:[$£€¥₹]|\b[A-Z]{{3}} ) ?{_NUMBER}(?: (?:thousand|million|billion|trillion)\b)?",
        rf"(?<![\w.,]){_NUMBER} ?(?:%|°|[AaPp]\.?[Mm]\b\.?|(?:thousand|million|billion)\b|[A-Za-z]{{1,4}}\b)",
        r"(?<!\w)\d{1,4} \d{1,2}/\d{1,2}",
        rf"(?<![\w.,]){_NUMBER} ?[-–—~] ?[$£€¥]?{_NUMBER}",
        r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|No|Rev|Capt|Lt|Gen|Col|Sgt)\.? [#\w'-]{1,20}",
        r"\d{1,4}年(?:\d{1,2}月(?:\d{1,2}[日号])?)?|\d{1,2}月\d{1,2}[日号]|\d[\d.,:]{0,18}[\u4e00-\u9fff]?",
    )
)


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


def word_cut(text: str) -> int:
    """The last space at which a text that is still growing may be cut, the word behind it being perhaps incomplete; 0 if
    there is none.
    """
    inside = _positions_inside(text)
    return next((at for at in range(len(text) - 1, 0, -1) if text[at].isspace() and at not in inside), 0)


def long_cut(text: str, limit: int) -> int:
    """The best position up to ``limit`` at which to cut a text that is longer than ``limit`` characters; at least 1."""
    clauses = clause_cuts(text[: limit + CLAUSE_LOOKAHEAD_CHARS])
    by_clause = max((position for position in clauses if limit // 2 < position <= limit), default=0)
    return by_clause or _long_cut_between_words(text, limit) or max(1, limit)


def _long_cut_between_words(text: str, limit: int) -> int:
    inside = _positions_inside(text)
    for position in range(limit, limit // 3, -1):
        if text[position].isspace() and position not in inside:
            return position
    between = (at for at in range(limit, limit // 2, -1) if not _INSIDE_WORD.match(text, at - 1))
    return next((position for position in between if position not in inside), 0)


def _positions_inside(text: str) -> set[int]:
    """Where a cut would go through something that is kept whole."""
    found = [match for pattern in _KEPT_WHOLE for match in pattern.finditer(text)]
    return {position for match in found for position in range(match.start() + 1, match.end())}
