"""Signs in further languages by their names: addresses, keys, sums, ranges, fractions; masked numbers, codes, Roman and
ordinal numbers.

espeak-ng leaves many signs out: of 16 languages 11 lose the dots of ``a@b.com``, 6 the key ``#``, all but German and
Portuguese the dash of ``3-5``, and ``048291`` has a full stop in it (1.52, measured). ``signs.tsv`` has the names.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Final

from num2words import num2words

from cc_tts.text.markup.latex import MINUS

Rule = tuple[str, str | Callable[[re.Match[str]], str]]

LETTERS: Final = "A-Za-zÀ-ӿḀ-ỿ"
"""Letters that a number is apart from; scripts without spaces have words right beside numbers."""
_UNSPACED: Final = frozenset({"ja", "ko"})
_FRACTIONS: Final = {"½": "1/2", "¼": "1/4", "¾": "3/4"}
_ROMAN: Final = {"I": 1, "V": 5, "X": 10}
_ROMAN_NUMBER: Final = (
    r"(?<![\w.-])(?=[IVX]{2})(?P<roman>X{0,3}(?:IX|IV|V?I{0,3}))(?P<ending>e|er|\.(?=[\s,;]))?(?![\w-])"
)
_KEEPS_ROMAN: Final = frozenset({"it"})
"""Its voice says them as ordinal numbers, which they are: Giovanni XXIII."""
_ORDINAL_ROMAN: Final = {"de": "der ", "tr": ""}
"""Languages in which a full stop makes them ordinal numbers, and what is said before."""
_DASHED_DATES: Final = frozenset({"nl"})
"""Where 5-12 may be a day, unless a word says what there are 5 to 12 of."""
_MASKED: Final = (
    r"(?:(?P<head>(?<![\w.])\d{2,6})[ -]?)?(?:(?:[*•·]{2,80}+|(?<!\w)[xX]{3,19}+)[ -]?)+(?P<tail>\d{2,6})(?!\d)"
)
_CODE: Final = (
    r"(?i)(?P<before>(?:(?<![^\W\d_])(?:otp|pin|{short})|{long})[^\d\s.,;!?]{{0,24}}(?:\s[^\d\s.,;!?]{{1,16}}){{0,6}}?[\s:：]*)"
    r"(?P<code>\d{{4,8}})(?![.,/:-]?\d|\s?[€$£₽₩₹฿₫%]|[A-Za-z])"
)
_LONG_WORD: Final = 5
"""The number of letters from which a word for a code may end a longer one, as in Einmalpasswort (unmeasured)."""
_ZEROS: Final = r"(?<![\w.,:/+-])(?<!\d )0\d{2,}(?![\d/]|[.,:-]\d| \d)"
_NAMED: Final = (
    rf"(?<![{LETTERS}\d.,:/-])(?=[A-Z\d-]*[A-Z])(?=[A-Z\d-]*(?:\d{{4}}|(?<!\d)0\d\d))"
    rf"[A-Z\d]{{1,20}}(?:-[A-Z\d]{{1,20}}){{0,5}}(?![{LETTERS}\d-]|[.,]\d)"
)
"""A name of letters and long numbers: A-1029-4481, LH1234, INC-0045521."""
_BY_DIGITS: Final = re.compile(r"\d{4}|0")
_BOUND: Final = r"(?:\d{1,2}h[0-5]\d|\d{1,4}(?:[.,]\d{1,2})?(?::[0-5]\d)?)"
_TO_POINT: Final = str.maketrans(",:h", "...")
_RANGE: Final = (
    rf"(?<![{LETTERS}\d.,:/+-])(?P<low>[$£€₩₹฿]?{_BOUND})(?P<unit>\s?[h%€]\s?)?(?:[-–—~〜]| [-–—] )"
    rf"(?P<high>[$£€₩₹฿]?{_BOUND})(?![-–\d/°]|[.,:]\d|[A-Z]|\s?=)"
)
_POSTCODE_OR_CODE: Final = re.compile(r"\d\d-\d{3}|\d{1,2}-\d{4}|\d-\d{3}")
_SLASHED: Final = (
    rf"(?<![{LETTERS}\d./,-])(?:(?P<whole>\d{{1,3}}) )?(?P<top>\d{{1,4}})/(?P<bottom>\d{{1,4}})"
    rf"(?![{LETTERS}\d/-]|[.,]\d)"
)
_NO_WORD_BEFORE: Final = re.compile(r"(?:^|[(,;:.!?\d]\s?|\b(?P<word>[^\W\d_]+)\s)$")
_TIMES: Final = {"de": "mal", "nl": "keer", "sv": "gånger", "da": "gange", "nb": "ganger", "pt": "vezes", "fr": "fois"}
"""How often, for ``3x``."""
_LESS: Final = {"vi": "trừ", "ko": "빼기", "ja": "ひく"}
"""Between two numbers, where the word for a negative one is another."""
_BY: Final = {"nl": "bij", "pt": "por", "fr": "sur", "pl": "na"}
"""Between the sides of a room, where that is another word than in a product."""
_RUSSIAN_ENDINGS: Final = {
    "я": ("ая", "ья"),
    "е": ("ое", "ье"),
    "го": ("ого", "ьего"),
    "му": ("ому", "ьему"),
    "м": ("ом", "ьем"),
}


@cache
def names_of_signs() -> dict[str, dict[str, str]]:
    """The names by language and sign."""
    lines = resources.files("cc_tts.text.others").joinpath("signs.tsv").read_text("utf-8").splitlines()
    (_, *signs), *rows = (line.split("\t") for line in lines if not line.startswith("# "))
    return {code: dict(zip(signs, names, strict=True)) for code, *names in rows}


def first_rules(code: str) -> list[Rule]:
    """The rules that are applied before those for dates and sums."""
    names = names_of_signs()[code]
    letters = LETTERS if code in _UNSPACED else "\\w"
    before, behind = rf"(?<![{letters}\d#*/])(?<![#*] )", r"(?:(?![\w#*]|\s?\d)|(?=[을를과와を]))"
    rules: list[Rule] = [
        (rf"(?i)({names['#']}|{names['*']})\s?\([#*]\)", r"\1"),
        (_MASKED, lambda match: ", ".join(" ".join(each) for each in match.groups() if each)),
        (_code_pattern(names["codes"]), lambda match: match["before"] + " ".join(match["code"])),
        (rf"{before}#{behind}", names["#"]),
        (rf"{before}\*{behind}", names["*"]),
        (r"(?<![\w#*&/])#(?=[A-Z]{0,4}-?\d)(?!\S+ (?:numaralı|nolu|no['’]lu))", f"{names['№']} "),
        (r"(?<=\w)\s?&\s?(?=\w)", f" {names['&']} "),
        (r"§§?\s?(?=\d)", f"{names['§']} "),
        (r"(?<!\w)(24/7|7/24)(?![\w/])", lambda match: match[1].replace("/", " ")),
        *_ordinals(code),
    ]
    return rules if code in _KEEPS_ROMAN else [*rules, (_ROMAN_NUMBER, lambda match: _roman(match, code))]


def middle_rules(code: str) -> list[Rule]:
    """The rules that are applied between those for telephones and those for sums."""
    names = names_of_signs()[code]
    return [
        (
            (rf"{_RANGE}(?=\s?[^\W\d_]|\s?[€%$])" if code in _DASHED_DATES else _RANGE),
            lambda match: _range(match, f"{'' if code in _UNSPACED else ' '}{names['–']} ".replace("  ", " ")),
        ),
        (_SLASHED, lambda match: _slashed(match, names)),
        *((f"(?<=\\d){sign}", f" {names['&']} {names[written]}") for sign, written in _FRACTIONS.items()),
        *((sign, names[written]) for sign, written in _FRACTIONS.items()),
        (_ZEROS, lambda match: " ".join(match.group())),
        (_NAMED, _named),
    ]


def last_rules(code: str, minus: str) -> list[Rule]:
    """The rules for the signs that are left."""
    names = names_of_signs()[code]
    counted = [(r"(?<!\w)(\d{1,2})x(?![\w])", rf"\1 {_TIMES[code]}")] if code in _TIMES else []
    return [
        (rf"\s?{MINUS}\s?", f" {_LESS.get(code, minus)} "),
        (r"(?<=\d)\s?[-\u2212–]\s?(?=\d[\d.,]*\s?=)", f" {_LESS.get(code, minus)} "),
        (r"(?<=\d)\s?[x×]\s?(?=\d)(?![\d.,]+\s?=)", f" {_BY.get(code, names['×'])} "),
        (r"(?<=\d)\s?x\s?(?=\d)|\s?×\s?(?=[\d(])", f" {names['×']} "),
        *counted,
        (r"\s?÷\s?", f" {names['÷']} "),
        (r"(?<![+])\s?\+\s?(?=\d)", lambda match: f"{' ' * (match.start() > 0)}{names['+']} "),
        (r"(?<=[\w)])\s?=\s?(?=[\w(-])", f"{'' if code in _UNSPACED else ' '}{names['=']} "),
    ]


def _code_pattern(words: str) -> str:
    kinds: dict[bool, list[str]] = {False: [], True: []}
    for word in words.split("|"):
        kinds[len(word) >= _LONG_WORD or not re.match(rf"[{LETTERS}]", word)].append(word)
    return _CODE.format(short="|".join(kinds[False]) or "otp", long="|".join(kinds[True]) or "otp")


def _ordinals(code: str) -> list[Rule]:
    """Ordinal numbers that the voices do not read: 3e étage, 1-й этаж, 3° piano, 21e eeuw."""
    match code:
        case "fr":
            return [
                (r"(?<!\w)(\d{1,3})(?:e|è?me|ème)(?!\w)", lambda match: _ordinal(match[1], code)),
                (r"(?<!\w)1re(?!\w)", "première"),
            ]
        case "nl":
            return [(r"(?<!\w)(\d{1,3})(?:e|de|ste)(?!\w)", lambda match: _ordinal(match[1], code))]
        case "it":
            return [(r"(?<![\w-])(\d{1,2})°(?=\s(?![CF]\b)[a-z]{3})", lambda match: _ordinal(match[1], code))]
        case "es":
            return [(r"(?<=\d)\.(?=[ºª])", ""), (r"(?<!\w)1\.?er(?!\w)", "primer"), (r"(?<!\w)3\.?er(?!\w)", "tercer")]
        case "tr":
            return [(r"(?<![\w.,:])(\d{1,4})\.(?=\s[a-zçğıöşü])", lambda match: _ordinal(match[1], code))]
        case "ru":
            return [(r"(?<![\w-])(\d{1,4})-(?:[ыо]?(й)|(я|е|м)|(?:ого|го)|(му))(?!\w)", _russian_ordinal)]
    return []


def _ordinal(number: str, code: str) -> str:
    return str(num2words(int(number), lang=code, to="ordinal"))


def _russian_ordinal(match: re.Match[str]) -> str:
    said, ending = _ordinal(match[1], "ru"), match.group().rpartition("-")[2]
    if ending.endswith("й"):
        return said
    usual, soft = _RUSSIAN_ENDINGS["го" if ending.endswith("го") else ending]
    return f"{said[:-2]}{soft}" if said.endswith("ий") else f"{said[:-2]}{usual}"


def _roman(match: re.Match[str], code: str) -> str:
    values = [_ROMAN[letter] for letter in match["roman"]]
    number = sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))
    if code in _ORDINAL_ROMAN and match["ending"] == ".":
        return f"{_ORDINAL_ROMAN[code]}{_ordinal(str(number), code)}"
    if match["ending"] in ("e", "er"):
        return _ordinal(str(number), code) if code == "fr" else match.group()
    return f"{number}{match['ending'] or ''}"


def _range(match: re.Match[str], joint: str) -> str:
    """``3-5`` and ``9:00–18:00``; of a hyphen the second number is the larger one; ``31-140`` may be a Polish postcode."""
    low, high = (float(re.sub(r"[^\d.]", "", match[each].translate(_TO_POINT))) for each in ("low", "high"))
    is_code = any(re.match(r"0\d", match[each]) and ":" not in match[each] for each in ("low", "high"))
    if is_code or _POSTCODE_OR_CODE.fullmatch(match.group()) or (high <= low and "-" in match.group()):
        return match.group()
    return f"{match['low']}{match['unit'] or ''}{joint}{match['high']}"


def _slashed(match: re.Match[str], names: Mapping[str, str]) -> str:
    """``3/4`` at the beginning, behind "and" or a whole number is a part; behind other words it may be a day or a page."""
    whole, written = match["whole"], f"{match['top']}/{match['bottom']}"
    before = _NO_WORD_BEFORE.search(match.string[: match.start()])
    is_part = written in names and before is not None and before["word"] in (None, names["&"])
    said = (
        names[written] if is_part or (whole and written in names) else f"{match['top']} {names['/']} {match['bottom']}"
    )
    joint = f" {names['&']} " if whole and written in names else " "
    return f"{whole}{joint}{said}" if whole else said


def _named(match: re.Match[str]) -> str:
    """Letters, and digits one by one where four or more stand together, or a zero before others."""
    parts = (re.findall(r"[A-Z]+|\d+", part) for part in match.group().split("-"))
    return ", ".join(" ".join(" ".join(run) if _BY_DIGITS.match(run) else run for run in runs) for runs in parts)
