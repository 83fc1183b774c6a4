"""English on the telephone: the order in which the rules are applied, and the signs that are left at the end.

Each rule takes what it knows and leaves words behind, so the order is from the most to the least particular.

Runs on: any thread; nothing here has state.
"""

import re
import unicodedata

from cc_tts.text.characters import digits_to_ascii, has_speech, one_line
from cc_tts.text.en.abbreviations import say_abbreviations
from cc_tts.text.en.dates import say_dates, say_years
from cc_tts.text.en.identifiers import say_identifiers
from cc_tts.text.en.money import say_money
from cc_tts.text.en.numbers import amount, cardinal, digits, fraction, integer, mixed_number, ordinal
from cc_tts.text.en.postal_addresses import say_postal_addresses
from cc_tts.text.en.times import say_times
from cc_tts.text.en.units import say_measures
from cc_tts.text.substitution import substitute
from cc_tts.text.web_addresses import say_addresses

_ADDRESS_SIGNS = {
    "@": "at",
    ".": "dot",
    "-": "dash",
    "_": "underscore",
    "+": "plus",
    "/": "slash",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "~": "tilde",
    ":": "colon",
}
_BEFORE_NFKC = str.maketrans({"²": " squared", "³": " cubed", "№": "No. ", "−": "-", "´": "'", "‘": "'", "’": "'"})
_VULGAR_FRACTION = re.compile("(?<=\\d)(?=[¼½¾⅐-⅞])")

_MINUS_IN_SUM = re.compile(r"(?<=\d)\s?-\s?(?=\d[\d.,]{0,15}\s?=)")
_RANGE = re.compile(
    r"(?:(?<=\d)|(?<=\d%)|(?<=\d[apAP][mM])|(?<=[ap]\.m\.)|(?<= [apAP][mM])|(?<=\bnoon)|(?<=\bmidnight))"
    r"(?:[-–—]| [-–—] )(?=[$£€¥]?\d(?!/[248]\b)|noon\b|midnight\b)"
)
_SIGN = re.compile(r"(?<![\w)\]])-(?=[$£€¥₹]?\.?\d)")

_ORDINAL = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:st|nd|rd|th)\b", re.IGNORECASE)
_FRACTION = re.compile(
    r"(?<![\w/.,⁄])(?:(?P<whole>\d{1,9})[ -])?(?P<top>\d{1,4})\s?[/⁄]\s?(?P<bottom>\d{1,4})(?![\w/⁄]|[.,]\d)"
)
_ORDINAL_FRACTION = re.compile(r"(?<![\w/.,])(\d{1,3})/(\d{1,2})(?:th|rd|nd)s?\b", re.IGNORECASE)
_OUT_OF = re.compile(r"(?<![\w/.,])(\d{1,4}\.\d{1,3})/(?=\d{1,4}(?![\w/⁄]|[.,]\d))")
_ALL_DAY = re.compile(r"(?<![\w/])24\s?[/x×]\s?7(?P<year>\s?[/x×]\s?365)?(?![\w/])")
_VERSION = re.compile(r"(?<!\d)\d{1,6}(?:\.\d{1,6}){2,9}(?!\d)")
_IP_ADDRESS_DOTS = 3
_CARDINAL = re.compile(
    r"(?<!\d)(?:\d{1,2}(?:,\d\d){1,3},\d{3}(?!\d|,\d)|\d{1,3}(?:,\d{3}){1,7}(?!\d|,\d)|\d++)(?:\.\d++)?"
)
_LEADING_POINT = re.compile(r"(?<![\w.])\.(\d++)")

_POUND_KEY = re.compile(r"#(?=\s*(?:key|sign|button)\b|\s*[.,;!?)\"']|\s|$)", re.IGNORECASE)
_NUMBER_SIGN = re.compile(r"#\s?(?=\d)")
_STAR_KEY = re.compile(
    r"(?:(?<=\bpress )|(?<=\bthe )|(?<=\bor )|(?<=\band ))\*(?![\w*])|\*(?=\s(?:key|button)\b)", re.IGNORECASE
)
_TIMES_SIGN = re.compile(r"(?<=\d)\s?[*×]\s?(?=\d)")
_LIST_MARKER = re.compile(r"(?<!\S)(\d{1,2})\)(?=\s)")
_SIGNS = {
    "&": " and ",
    "@": " at ",
    "#": " hashtag ",
    "+": " plus ",
    "=": " equals ",
    "%": " percent ",
    "×": " times ",
    "÷": " divided by ",
    "°": " degrees ",
    "±": " plus or minus ",
}
_SIGN_CHARACTER = re.compile(f"[{''.join(re.escape(sign) for sign in _SIGNS)}]")
_COMPARISON = re.compile(r"\s?(<=|>=|[<>≤≥≠≈])\s?(?=[$£€¥-]?\.?\d)")
_COMPARISONS = {"<": "less than", ">": "greater than", "≤": "less than or equal to", "≥": "greater than or equal to"}
_COMPARISONS |= {"<=": _COMPARISONS["≤"], ">=": _COMPARISONS["≥"], "≠": "not equal to", "≈": "about"}
_ABOUT = re.compile(r"(?<!\w)~\s?(?=[$£€¥]?\d)")
_EMOTICON = re.compile(r"(?<!\w)[:;]['-]?[()DP](?!\w)")
_AND_OR = re.compile(r"\band/or\b", re.IGNORECASE)
_LETTERS_WITH_SLASH = re.compile(r"(?<![\w/])([A-Z])/(?=[A-Z](?![\w/]))")
_SLASH = re.compile(r"(?<=\w)\s?/\s?(?=\w)")
_UNSPEAKABLE = re.compile(r"[*_`^|\\<>~{}\[\]/•·⁄℠§¶†‡#]")
_DASH_BETWEEN_WORDS = re.compile(r" (?:[-–—]+ )+| ?[–—]+ ?")
_LOOSE_DASH = re.compile(r"(?<!\w)-+(?!\w)")
_SPACE_BEFORE_MARK = re.compile(r" (?=[,.;:!?)])")
_REPEATED_COMMA = re.compile(r",(?: ?,)+")
_TIGHT_COMMA = re.compile(r",(?=\w)")
_COMMA_BEFORE_STOP = re.compile(r",(?=[.;:!?])")


def speakable(text: str, *, day_first: bool = False) -> str:
    """The words of an English text that was cleaned by :func:`cc_tts.text.characters.clean`; no digit is left.

    ``day_first``: 3/4/2026 is the third of April.
    """
    text = _folded(text)
    text = substitute(_ALL_DAY, lambda match: f"twenty-four seven{' three sixty-five' if match['year'] else ''}", text)
    text = say_addresses(text, _ADDRESS_SIGNS, digits)
    text = say_postal_addresses(text)
    text = say_identifiers(text)
    text = say_dates(text, day_first=day_first)
    text = _say_ranges_and_signs(text)
    text = say_times(text)
    text = say_money(text)
    text = say_measures(text)
    text = say_abbreviations(text)
    text = _say_fractions_and_ordinals(text)
    text = say_years(text)
    text = _say_cardinals(_say_keys(text))
    return _tidy(_say_signs(text))


def _folded(text: str) -> str:
    """One line, with the variants of a letter or digit (full width, circled, superscript) made one."""
    if not text.isascii():
        text = _VULGAR_FRACTION.sub(" ", text.translate(_BEFORE_NFKC))
        text = digits_to_ascii(unicodedata.normalize("NFKC", digits_to_ascii(text)))
    return one_line(text, pause=".")


def _say_ranges_and_signs(text: str) -> str:
    """9-5, 10–20 and 2pm-4pm joined by "to"; a sign before a number as "minus"."""
    text = _COMPARISON.sub(lambda match: f" {_COMPARISONS[match[1]]} ", text)
    text = _MINUS_IN_SUM.sub(" minus ", text)
    text = _RANGE.sub(" to ", text)
    return substitute(_SIGN, lambda _: "minus ", text)


def _say_fractions_and_ordinals(text: str) -> str:
    text = substitute(_ORDINAL_FRACTION, lambda match: fraction(int(match[1]), int(match[2])), text)
    text = substitute(_ORDINAL, _ordinal, text)
    text = substitute(_OUT_OF, lambda match: f"{amount(match[1])} out of ", text)
    return substitute(_FRACTION, _fraction, text)


def _ordinal(match: re.Match[str]) -> str:
    return ordinal(int(match[1].replace(",", "")))


def _fraction(match: re.Match[str]) -> str:
    top, bottom, whole = int(match["top"]), int(match["bottom"]), match["whole"]
    if bottom == top and not whole:
        return f"{cardinal(top)} {cardinal(bottom)}"
    return mixed_number(int(whole), top, bottom) if whole else fraction(top, bottom)


def _say_keys(text: str) -> str:
    """The two keys of a telephone that are not digits, and # before a number."""
    text = substitute(_NUMBER_SIGN, lambda _: "number ", text)
    text = substitute(_POUND_KEY, lambda _: "pound", text)
    return substitute(_STAR_KEY, lambda _: "star", text)


def _say_cardinals(text: str) -> str:
    text = _ABOUT.sub("about ", text)
    text = _TIMES_SIGN.sub(" times ", text)
    text = _LIST_MARKER.sub(r"\1,", text)
    text = substitute(_VERSION, _version, text)
    text = substitute(_LEADING_POINT, lambda match: f"point {digits(match[1])}", text)
    return substitute(_CARDINAL, lambda match: _number(match.group()), text)


def _version(match: re.Match[str]) -> str:
    parts = match.group().split(".")
    joint = " dot " if len(parts) == _IP_ADDRESS_DOTS + 1 else " point "
    say = digits if len(parts) == _IP_ADDRESS_DOTS + 1 else integer
    return joint.join(map(say, parts))


def _number(written: str) -> str:
    return amount(written) if "," in written or "." in written else integer(written)


def _say_signs(text: str) -> str:
    text = _AND_OR.sub("and or", _EMOTICON.sub(" ", text))
    text = _SIGN_CHARACTER.sub(lambda match: _SIGNS[match.group()], text)
    text = _LETTERS_WITH_SLASH.sub(r"\1 ", text)
    text = _SLASH.sub(" slash ", text)
    return _UNSPEAKABLE.sub(" ", text)


def _tidy(text: str) -> str:
    if not has_speech(text):
        return ""
    text = " ".join(text.split())
    text = _DASH_BETWEEN_WORDS.sub(", ", text)
    text = " ".join(_LOOSE_DASH.sub(" ", text).split())
    text = _SPACE_BEFORE_MARK.sub("", text)
    text = _TIGHT_COMMA.sub(", ", _REPEATED_COMMA.sub(",", text))
    return _COMMA_BEFORE_STOP.sub("", text).lstrip(" ,;:.!?").rstrip()
