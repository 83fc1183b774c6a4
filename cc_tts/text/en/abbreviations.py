"""English words for abbreviations with a full stop: titles, streets, companies, "e.g.", "etc.".

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import cardinal, ordinal
from cc_tts.text.substitution import ends_sentence, substitute

_TITLES = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Prof": "Professor",
    "Rev": "Reverend",
    "Hon": "Honorable",
    "Capt": "Captain",
    "Lt": "Lieutenant",
    "Col": "Colonel",
    "Gen": "General",
    "Sgt": "Sergeant",
    "Mt": "Mount",
    "Sen": "Senator",
    "Gov": "Governor",
    "Rep": "Representative",
    "Pres": "President",
}
_WORDS = {
    "jr": "Junior",
    "sr": "Senior",
    "ave": "Avenue",
    "blvd": "Boulevard",
    "rd": "Road",
    "ln": "Lane",
    "hwy": "Highway",
    "apt": "apartment",
    "ste": "Suite",
    "inc": "Incorporated",
    "corp": "Corporation",
    "ltd": "Limited",
    "co": "Company",
    "bros": "Brothers",
    "dept": "department",
    "est": "established",
    "approx": "approximately",
    "avg": "average",
    "appt": "appointment",
    "acct": "account",
    "tel": "telephone",
    "govt": "government",
    "misc": "miscellaneous",
    "max": "maximum",
    "min": "minimum",
    "incl": "including",
    "excl": "excluding",
    "ext": "extension",
    "etc": "et cetera",
    "vs": "versus",
    "qty": "quantity",
    "amt": "amount",
    "ref": "reference",
    "mgr": "manager",
    "asst": "assistant",
    "assn": "association",
    "bldg": "building",
    "rm": "room",
    "fl": "floor",
    "pkg": "package",
    "mfr": "manufacturer",
    "temp": "temperature",
    "exp": "expires",
    "univ": "University",
    "intl": "International",
    "sq": "square",
    "attn": "attention",
    "esq": "Esquire",
    "yr": "year",
    "wk": "week",
    "hr": "hour",
}
_NEVER_LAST = frozenset(
    {
        "qty",
        "ste",
        "apt",
        "bldg",
        "temp",
        "attn",
        "amt",
        "ref",
        "rm",
        "fl",
        "exp",
        "sq",
        "vs",
        "approx",
        "avg",
        "dept",
        "est",
        "appt",
        "acct",
        "tel",
        "max",
        "min",
        "incl",
        "excl",
        "ext",
        "govt",
    }
)
_ONLY_CAPITALISED = frozenset({"co", "ste", "est"})
_NUMBERED = re.compile(
    r"\b(World War|Phase|Type|Title|Chapter|Part|Section|Class|Stage|Level|Tier|Schedule|Grade|Super Bowl|Act"
    r"|Volume)\s([IVX]{1,6})\b",
    re.IGNORECASE,
)
_NUMERAL_AFTER_NAME = re.compile(r"(?<=[a-z])\s(II|III|IV|VI|VII|VIII|IX|XI{1,3}|XIV|XVI{0,3})(?=[\s.,;:!?)']|$)")
_MONARCH = re.compile(r"\b((?:King|Queen|Pope|Emperor|Tsar|Czar)\s[A-Z][a-z]+(?:\s[A-Z][a-z]+)?)\s([IVX]{1,5})\b")
CHAT_WORDS = {
    "pls": "please",
    "plz": "please",
    "thx": "thanks",
    "attn": "attention",
    "pts": "points",
    "qty": "quantity",
}
"""Short forms that are spoken in full without a stop."""
_CHAT = re.compile(rf"\b({'|'.join(CHAT_WORDS)})\b(?!\.)", re.IGNORECASE)
_ROMAN = {"I": 1, "V": 5, "X": 10}
_TITLE = re.compile(rf"\b({'|'.join(_TITLES)})\.(?=\s?[A-Z])")
_TITLE_WITHOUT_DOT = re.compile(r"\b(Mr|Mrs|Ms)(?=\s[A-Z])")
_DOCTOR = re.compile(r"\bDr\b\.?")
_SAINT_OR_STREET = re.compile(r"\bSt\b\.?")
_AFTER_HOUSE_NUMBER = re.compile(r"\b[\w-]+\s(?:[A-Z]\w*\s){1,3}$")
_STREET_NAME = re.compile(r"(?:\d\w*|[A-Z]\w*)\s$")
_STREET_INSIDE_SENTENCE = re.compile(
    r"[\w,]\s(?!(?:Mount|Port|Fort|Lake|Downtown|North|South|East|West|Mister)\s)[A-Z]\w*\s$|\d\w*\s$"
)
_NEXT_IS_NAME = re.compile(r"\s[A-Z]\w+")
_NUMBER = re.compile(r"\b(No|Nos|no|nos)\.(?:\s?(?=#?\d)|\s(?=(?:is|was)\b))")
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\.(?!\w)", re.IGNORECASE)
_LATIN = re.compile(r"\b(e\.\s?g|i\.\s?e|eg|ie)\.(?!\w)(?P<comma>,?)", re.IGNORECASE)
_CARE_OF = re.compile(r"(?<!\w)c/o(?!\w)", re.IGNORECASE)
_WITH = re.compile(r"(?<!\w)w/(o(?!\w))?(?=\s?\w|\s|$)")
_DOTTED_LETTERS = re.compile(r"(?<![\w.])(?:[A-Za-z]\.){2,8}(?!\w)")
_PER = re.compile(
    r"(?<=[\w.])\s?/\s?(?:(?P<short>sec|min|hr|wk|mo|yr|kg|lb)\b\.?|"
    r"(?P<full>sq\.? ft\b|square foot|gallon|pound|mile|GB|MB|second|minute|hour|day|week|month|year|person"
    r"|night|unit|item)\b)"
)
_PER_WORDS = {"sec": "second", "min": "minute", "hr": "hour", "wk": "week", "mo": "month", "yr": "year"}
_PER_WORDS |= {"kg": "kilogram", "lb": "pound"}
_NAME_BEFORE = re.compile(r"(?<![\w])[A-Z][a-z]+$")
_LOOK_BACK_CHARACTERS = 60


def say_abbreviations(text: str) -> str:
    """Abbreviations in words. The full stop of one that also ends a sentence is kept."""
    text = substitute(_TITLE, lambda match: _TITLES[match[1]], text)
    text = substitute(_TITLE_WITHOUT_DOT, lambda match: _TITLES[match[1]], text)
    text = substitute(_DOCTOR, lambda match: _by_place(match, "Doctor", "Drive"), text)
    text = substitute(_SAINT_OR_STREET, lambda match: _by_place(match, "Saint", "Street"), text)
    text = substitute(
        _NUMBERED, lambda match: f"{match[1]} {cardinal(_roman(match[2]))}" if match[2].isupper() else None, text
    )
    text = substitute(_MONARCH, lambda match: f"{match[1]} the {ordinal(_roman(match[2]))}", text)
    text = substitute(_CHAT, lambda match: CHAT_WORDS[match[1].lower()], text)
    text = substitute(_NUMERAL_AFTER_NAME, _after_name, text)
    text = substitute(_NUMBER, lambda match: "numbers " if match[1].lower() == "nos" else "number ", text)
    text = substitute(_LATIN, lambda match: "for example," if match[1][0] in "eE" else "that is,", text)
    text = substitute(_WORD, _word, text)
    text = substitute(_CARE_OF, lambda _: "care of", text)
    text = substitute(_WITH, lambda match: "without " if match[1] else "with ", text)
    text = substitute(_PER, _per, text)
    return substitute(_DOTTED_LETTERS, _dotted_letters, text)


def _roman(written: str) -> int:
    values = [_ROMAN[character] for character in written]
    return sum(
        -value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True)
    )


def _after_name(match: re.Match[str]) -> str | None:
    """``Henry VIII`` as "Henry the eighth"."""
    name = _NAME_BEFORE.search(match.string[: match.start()])
    return f" the {ordinal(_roman(match[1]))}" if name else None


def _word(match: re.Match[str]) -> str | None:
    written = match[1]
    if written.lower() in _ONLY_CAPITALISED and not written[0].isupper():
        return None
    return _WORDS[written.lower()] + ("" if written.lower() in _NEVER_LAST else _kept_dot(match))


def _per(match: re.Match[str]) -> str:
    if match["full"] and match["full"].startswith("sq"):
        return f" per square foot{_kept_dot(match)}"
    return f" per {match['full'] or _PER_WORDS[match['short']]}{_kept_dot(match)}"


def _kept_dot(match: re.Match[str]) -> str:
    return "." if match.group().endswith(".") and ends_sentence(match) else ""


def _by_place(match: re.Match[str], before_name: str, after_name: str) -> str | None:
    """Saint John, Doctor Smith, but 12 Elm Street and Elm Drive: a name behind decides, unless it ends an address."""
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    is_street = _in_address(before) or (after_name == "Street" and _STREET_INSIDE_SENTENCE.search(before))
    if _NEXT_IS_NAME.match(match.string, match.end()) and not is_street:
        return before_name
    if not match.group().endswith("."):
        return after_name if _in_address(before) else None
    if _STREET_NAME.search(before):
        goes_on = _NEXT_IS_NAME.match(match.string, match.end()) and _in_address(before)
        return after_name + ("," if goes_on else _kept_dot(match))
    return before_name


def _in_address(before: str) -> bool:
    return bool(_AFTER_HOUSE_NUMBER.search(before)) and any(character.isdigit() for character in before[-30:])


def _dotted_letters(match: re.Match[str]) -> str:
    written = match.group()
    is_last = match.end() == len(match.string)
    return " ".join(written.replace(".", "")) + ("." if is_last else "")
