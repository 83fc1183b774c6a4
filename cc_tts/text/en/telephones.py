"""English telephone numbers, extensions, short codes and keys: "four one five, five five five, …", "star six nine"."""

import re

from cc_tts.text.en.numbers import NOTHING_COUNTED, digit_groups, digits, grouped_digits, letters

_EXTENSION = r"(?:,?\s?(?:[Ee][Xx][Tt]\.?|[Ee]xtension|[Xx]\.?)\s?(?P<extension>\d{1,6}))?(?!\w)"
_BEGINS = r"(?<![\w.-])"
_NORTH_AMERICAN = r"(?P<number>(?:1[ .-])?(?:\(\d{3}\)[ -]?|\d{3}[ ./-])\d{3}[ .-]\d{4})"
_ABROAD = r"(?P<number>0(?:11|0)[ -]\d{1,3}(?:[ -]\d{2,5}){2,4})"
_TRUNK_ZERO = (
    r"(?<!\d )(?<![A-Z] )(?!\d\d \d\d (?:19|20)\d\d(?!\d))"
    r"(?P<number>\(0\d{1,4}\)[ -]?\d{2,8}(?:[ -]\d{2,5}){0,3}|0\d{1,4}(?: \d{2,8}){1,4})"
)
_DIALLED_GROUPS = r"(?=\d)(?<=\b(?i:call|dial|ring) )(?P<number>\d{1,5}(?:[ -]\d{2,5}){1,4})"
_VANITY = (
    r"(?<![\w-])(?P<one>1[ .-])?\(?(?P<area>\d{3})\)?[ .-](?:(?P<exchange>\d{3})[ .-])?(?=[\d.-]{0,6}[A-Z])"
    r"(?P<word>[A-Z\d]{1,10}(?:[.-][A-Z\d]{1,10}){0,2}|[A-Z][A-Za-z]{3,9})(?![\w-])(?:\s?\((?P<digits>\d{3,7})\))?"
)
_TOLL_FREE = frozenset({"800", "833", "844", "855", "866", "877", "888"})
_LOCAL_DIGITS = range(7, 11)
"""The digits of a number with a word in it; what is dialled after the seventh is ignored."""
_SHORT = r"(?![\w-]|[.,:/]\d|\s?%)"
_NEAR_911 = re.compile(r"\b(?:emergenc|call|dial|911|nine one one)", re.IGNORECASE)
_DIALLED_BEFORE = re.compile(r"\b(?:dial|press|extension|ext)\b", re.IGNORECASE)
_EXTENSION_ALONE = (
    r"(?i)(?=[ex])(?:\bext(?:\.|\b)\s?#?\s?|(?<![\w.,] )(?<!\S)x(?=\d{4})"
    r"|(?:(?<=\bor )|(?:(?<=\bat )|(?<=\bto ))(?!x\d00\b)|(?<=\bdial )|(?<=\bcall )|(?<=[a-z], )|(?<=\btel\. ))x(?=\d{3}))"
    r"(\d{1,6}(?:-\d{1,6})?)(?!\w)"
)
_NEAR_TELEPHONE = re.compile(
    r"\b(?:call|dial|text|phone|tel|fax|cell|mobile|ring|reach|contact|number|line|office|landline|voicemail)\b(?:(?!\.\s[A-Z])[^!?;]){0,40}$",
    re.IGNORECASE,
)
_LOOK_BACK_CHARACTERS = 60
_OF_KEYS = re.compile(r"\b(?:press|dial|enter|hit|push|menu|options|keys?)\b", re.IGNORECASE)
_KEYS = {"*": "star", "#": "pound"}
_MIN_TELEPHONE_DIGITS, _MAX_TELEPHONE_DIGITS = 6, 13


def each_digit(match: re.Match[str]) -> str:
    """The match digit by digit."""
    return digits(match.group())


def each_group(match: re.Match[str]) -> str:
    """The match digit by digit, a pause between its groups."""
    return digit_groups(match.group())


def digits_behind(match: re.Match[str]) -> str:
    """The second group digit by digit behind the words of the first."""
    return match[1] + digits(match[2])


def _telephone(match: re.Match[str]) -> str:
    number = match["number"]
    words = digit_groups(number)
    if number.startswith("+"):
        unseparated = number[1:].isdigit()
        is_north_american = unseparated and number.startswith("+1")
        words = f"plus {grouped_digits(number[1:]) if is_north_american else words}"
    if match["extension"]:
        words = f"{words}, extension {digits(match['extension'])}"
    return words


def _vanity(match: re.Match[str]) -> str | None:
    """``1-800-FLOWERS`` as "one, eight zero zero, FLOWERS"."""
    parts = re.split("[.-]", match["word"])
    num_local = len(match["exchange"] or "") + sum(map(len, parts))
    if num_local not in _LOCAL_DIGITS or not (match["one"] or match["area"] in _TOLL_FREE):
        return None
    numbers = [digits(each) for each in (match["one"], match["area"], match["exchange"]) if each]
    words = " ".join(digits(each) if each.isdigit() else letters(each) for each in parts)
    return ", ".join([*numbers, words, *([digits(match["digits"])] if match["digits"] else [])])


def _as_long_as_one(match: re.Match[str]) -> str | None:
    num_digits = sum(character.isdigit() for character in match["number"])
    return _telephone(match) if _MIN_TELEPHONE_DIGITS <= num_digits <= _MAX_TELEPHONE_DIGITS else None


def _near_telephone(match: re.Match[str]) -> str | None:
    """``555.0134`` where a telephone is spoken of; it may be a decimal."""
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    return _telephone(match) if _NEAR_TELEPHONE.search(before) else None


def dialled(match: re.Match[str]) -> str:
    """``*#06#`` as "star pound zero six pound"."""
    return " ".join(_KEYS.get(key) or digits(key) for key in re.findall(r"[*#]|\d+", match.group()))


DIALLED_CODE = (
    r"(?i)\b(dial(?:ing)?(?:\s\*\d{1,3}\s(?:\w+\s){0,4}?or)?\s)#(\d{1,3})(?![\w#])",
    lambda match: f"{match[1]}pound {digits(match[2])}",
)
"""A code is dialled; "press #1" is the first choice of a menu."""
KEY_RULES = (
    (r"(?<![\w*#])(?:[*#]{1,2}\d{1,12}){1,4}#(?![\w*#])", dialled),
    (
        r"(?<![\w*#])([*#])([A-Z]{2,8})#(?![\w*#])|(?i:(?<=dial )|(?<=press ))([*#])([A-Z]{2,8})(?!\w)",
        lambda match: f"{_KEYS[match[1]]} {match[2]} pound" if match[1] else f"{_KEYS[match[3]]} {match[4]}",
    ),
    (
        r"(?i)(?:(?<=press )|(?<=enter )|(?<=dial ))[*#]{2}\d{0,4}(?![\w*#])",
        dialled,
    ),
    (r"(?i) ?\((?:(?<=pound \()|(?<=hash \()|(?<=star \()|(?<=asterisk \()|(?<=sign \())[*#]\)", ""),
    (r"(?:(?<=: )|(?<== ))([*#])(?=[.,;]|$)", lambda match: _KEYS[match[1]]),
    (r"[\[(]([*#])[\])]", lambda match: _KEYS[match[1]]),  # the mark of an entry of a menu
    (
        r"(?<!\S)([*#]{1,2})(?=-[A-Z]|\s?=|\s(?:to|for|when|at|is|or|and)\b|[,;]|\s?→)",
        lambda match: " ".join(map(_KEYS.get, match[1])) if _OF_KEYS.search(match.string) else None,  # type: ignore[arg-type]
    ),
    (r"(?<![\w#*])(\d{1,12})#(?!\w)", lambda match: f"{digit_groups(match[1])} pound"),
)
"""Keys that are pressed, and codes with them."""
TELEPHONE_RULES = (
    (rf"(?<![\w+])(?P<number>\+(?:[ .()-]{{0,2}}\d){{7,15}}){_EXTENSION}", _telephone),
    (_VANITY, _vanity),
    (rf"{_BEGINS}{_ABROAD}{_EXTENSION}(?!-\d)", _telephone),
    (rf"{_BEGINS}{_NORTH_AMERICAN}{_EXTENSION}(?!-\d)", _telephone),
    (r"(?<![\w.,$£€¥-])(?<!\d )\d{5} \d{5,6}(?![\w-]| \d|[.,]\d)", each_group),  # of India, or of a taxpayer
    (r"(?<![\w.,-])(?<!\d )(?:13 \d\d \d\d|1[38]00[ -]\d{2,3}[ -]\d{3,4})(?![\w-]| \d)", each_group),  # of Australia
    (rf"{_BEGINS}{_TRUNK_ZERO}{_EXTENSION}(?!-\d)", _as_long_as_one),
    (rf"{_BEGINS}(?P<number>0\d{{2,4}}-\d{{3,4}}[ -]?\d{{3,4}}){_EXTENSION}(?!-\d)", _telephone),
    (rf"{_BEGINS}(?P<number>\d{{3}}-\d{{4}}){_EXTENSION}(?!-\d)", _telephone),
    (rf"(?<![\w.,$£€¥-])(?P<number>[2-9]\d{{2}}\.\d{{4}}){_EXTENSION}(?!\s?[%°]|[.,]\d)", _near_telephone),
    (rf"{_DIALLED_GROUPS}{_EXTENSION}(?!-\d)", _as_long_as_one),
)
"""Numbers of a subscriber."""
SHORT_NUMBER_RULES = (
    (r"(?i)\b(extension(?:'s| is|:)?\s)x(\d{1,6})(?!\w)", digits_behind),
    (rf"(?i)\b((?:call|dial|text|ring|dialing|calling|texting)\s)(\d{{3,6}}){_SHORT}{NOTHING_COUNTED}", digits_behind),
    (r"(?<=\bor )[2-8]11(?=[.,;!?]|\s(?:for|to)\b|$)", each_digit),
    (
        r"(?:(?<=\bor )|(?<=, ))(?:\d{3}(?=[.;!?]|$)|[1-9]\d{2,4}(?=\s(?:for|to|in(?=\s(?:the\s)?[A-Z]))\b))",
        lambda match: (
            each_digit(match)
            if _DIALLED_BEFORE.search(match.string, max(0, match.start() - 80), match.start())
            else None
        ),
    ),
    (
        r"(?:(?<=, )|(?<=otherwise )|(?<=else ))[2-8]11(?=[.,;!?]|$)",
        lambda match: each_digit(match) if _NEAR_911.search(match.string) else None,
    ),
    (
        rf"(?i)\b((?:text|send|reply|message|sms|forward)(?:ing|s)?\s(?:\S{{1,30}}\s){{1,5}}?to:?\s)(\d{{4,6}}|[2-8]11|\d{{3}}-\d{{3}}){_SHORT}"
        + NOTHING_COUNTED,
        digits_behind,
    ),
    (
        _EXTENSION_ALONE,
        lambda match: f"extension {digit_groups(match[1])}",
    ),
    (r"(?<![\w$£€.,#-])(?<!\d/)(911|988)(?![\w%/-]|[.,]\d)", each_digit),
    (r"(?<![\w*])\*(\d{1,3})(#?)(?![\w*])", lambda match: f"star {digits(match[1])}{' pound' if match[2] else ''}"),
)
"""Service numbers, short codes, extensions and codes of keys."""
