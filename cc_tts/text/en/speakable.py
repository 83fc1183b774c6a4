"""English on the telephone: the order in which the rules are applied, and the signs that are left at the end.

Each rule takes what it knows and leaves words behind, so the order is from the most to the least particular.
"""

import re
import unicodedata

from cc_tts.text.characters import digits_to_ascii, has_speech, joined_lines
from cc_tts.text.en.dates import SCORED_BEFORE, say_dates, say_years
from cc_tts.text.en.formulas import COMPARISONS, say_formulas, say_symbols
from cc_tts.text.en.identifiers import say_identifiers
from cc_tts.text.en.money import CURRENCY_CODES, say_money
from cc_tts.text.en.numbers import (
    DIGIT_BY_DIGIT_FROM,
    NO_QUANTITY,
    amount,
    cardinal,
    digit_groups,
    digits,
    fraction,
    integer,
    letters,
    mixed_number,
    ordinal,
)
from cc_tts.text.en.postal_addresses import house_number, say_postal_addresses
from cc_tts.text.en.short_forms.abbreviations import say_abbreviations
from cc_tts.text.en.short_forms.law import say_law
from cc_tts.text.en.times import say_times
from cc_tts.text.en.units import say_measures
from cc_tts.text.substitution import grouped, in_order
from cc_tts.text.web_addresses import with_stand_ins

ADDRESS_SIGNS = {
    "@": "at", ".": "dot", "-": "dash", "_": "underscore", "+": "plus", "/": "slash", "?": "question mark",
    "=": "equals", "&": "and", "#": "hash", "%": "percent", "~": "tilde", ":": "colon", "*": "star", "\\": "backslash",
}  # fmt: skip
_BEFORE_NFKC = str.maketrans({
    "²": " squared", "³": " cubed", "№": "No. ", "´": "'", "‘": "'", "’": "'", "′": "'", "″": '"',
    "₤": "£", "↑": " up ", "↓": " down ",
})  # fmt: skip
_POWER_OF_TEN = re.compile("(?<=10)(⁻?)([⁰¹²³⁴-⁹]{1,2})")
_VULGAR_FRACTION = re.compile("(?<=\\d)(?=[¼½¾⅐-⅞])")
_RANGE = (
    r"(?=[ –—-])(?:(?<=\d)|(?<=\d%)|(?<=\d[apAP][mM])|(?<=:\d\d[ap])|(?<=[ap]\.m\.)|(?<= [apAP][mM])|(?<=\bnoon)"
    r"|(?<=\bmidnight))(?:[-–—]| [-–] )(?=[$£€¥]?\d(?!/[248]\b)|noon\b|midnight\b)"
)
_NUMBER_BEFORE = re.compile(r"(?<![\w.,:/$£€¥-])\d{1,2}$")
_NUMBER_AFTER = re.compile(r"\d{1,2}(?![\w:/%°-]|[.,]\d)")
_DAY_BEFORE = re.compile(r"(?:day|daily|open|hours:?),?\s$", re.IGNORECASE)
"""Hours follow: Saturday 8-8."""
_HOURS_OF_CLOCK = 12
_CHOICE_BEFORE = re.compile(r"\bb\.\s|\b(?:vitamin|plan|option|choice|item|part|section|type|class)\s$", re.IGNORECASE)
"""The letter c behind these is one of several."""
_PART_SIGNS = {"§": "section", "¶": "paragraph"}
_LISTED = r"(?<!\S)\(?(i{1,3}|iv|vi{0,3}|ix)\)(?=\s|[.,;])"
_LIST_NUMBERS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_WHOLE = 100
"""Two shares such as 60-40 add up to this."""
_ALWAYS = (24, 7)
_SCORES = frozenset({2, 3, 4, 5, 6, 8, 10, 12, 15, 25, 100})
"""Totals of full scores, such as 10/10. But 20/20 is said of eyesight, and 50/50 of two halves."""
_RATING = (
    r"(?i)\b((?:scored?|rated|rating|gave|graded?)\s(?:[a-z]{1,8}\s){0,3})(\d{1,3})/(?=\d{1,3}(?![\w/⁄]|[.,]\d|\sof\b))"
    r"|(?<![\w/.,])()([0-5])/(?=5\sstars?\b|10\sstars?\b)"
)
_OF_MANY = (
    r"(?<![\w/.,])(\d{1,3})/(?=\d{1,3}\s(?:items|tasks|tests|files|questions|votes|seats|members|users|servers|checks|slots"
    r"|packages|orders|stores|sites|devices|employees|students)\b)"
)
_NUMBERED = grouped(
    "steps?|pages?|questions?|parts?|slides?|chapters?|lessons?|attempts?|rounds?|modules?|levels?|volume|speed|settings?|severity|priority|stages?|phases?|doses?|laps?|installments?|box|packages?|parcels?"
)
_LIMITS = (
    r"(?i)\b((?:liability|injury|limits?|coverage|policy)\b[a-z ,:]{0,30}\s)(\d{2,3}/\d{2,3}(?:/\d{2,3})?)"
    r"(?![\w/⁄]|[.,]\d)"
)
_FRACTION = r"(?<![\w/.,⁄])(?:(?P<whole>\d{1,9})[ -])?(?P<top>\d{1,4})\s?[/⁄]\s?(?P<bottom>\d{1,4})(?![\w/⁄]|[.,]\d)"
_CARDINAL = r"(?<!\d)(?:\d{1,2}(?:,\d\d){1,3},\d{3}(?!\d|,\d)|\d{1,3}(?:,\d{3}){1,7}(?!\d|,\d)|\d++)(?:\.\d++)?"
_NUM_IP_PARTS = 4
_MIN_CODE_DIGITS = 4  # of a build or of a tariff; unmeasured
_ROUND = re.compile("00$")
_AMOUNT_BEFORE = re.compile(
    r"(?:[=×±≈<>$£€¥+(-]|\b(?:about|around|approximately|over|under|above|below|nearly|almost|than|least|most|to|of|is|was|are|were"
    r"|by|plus|minus|times|equals|totals?|exactly|only|just|per|have|has|had))\s?$",
    re.IGNORECASE,
)
"""Behind these a number counts, also without a noun behind it."""
_NAME_BEFORE = re.compile(r"\b[A-Z][A-Za-z]*(?: \d{1,3})?\s$")
"""A number behind a name is rather a part of it."""
_LOOK_BACK_CHARACTERS = 24
_SIGNS = str.maketrans({
    "&": " and ", "@": " at ", "#": " hashtag ", "+": " plus ", "=": " equals ", "%": " percent ", "×": " times ",
    "÷": " divided by ", "°": " degrees ", "±": " plus or minus ",
})  # fmt: skip


def _fraction(match: re.Match[str]) -> str:
    top, bottom, whole = int(match["top"]), int(match["bottom"]), match["whole"]
    if not whole and bottom == top and top in _SCORES:
        return f"{cardinal(top)} out of {cardinal(bottom)}"
    if not whole and (bottom == top or (top > bottom and top + bottom == _WHOLE)):
        return f"{cardinal(top)} {cardinal(bottom)}"
    return mixed_number(int(whole), top, bottom) if whole else fraction(top, bottom)


def _version(match: re.Match[str]) -> str:
    parts = match.group().split(".")
    is_ip_address = len(parts) == _NUM_IP_PARTS
    say = digits if is_ip_address else lambda part: integer(part) if len(part) < _MIN_CODE_DIGITS else digits(part)
    return (" dot " if is_ip_address else " point ").join(map(say, parts))


def _number(match: re.Match[str]) -> str:
    """A number that no other rule took: one of four digits or more counts only where words say so."""
    written = match.group()
    if "," in written or "." in written:
        whole, _, rest = written.partition(".")
        is_code = len(whole) >= DIGIT_BY_DIGIT_FROM and whole.isdigit()
        return f"{digit_groups(whole)} point {digits(rest)}" if is_code else amount(written)
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    counts = _ROUND.search(written) or _AMOUNT_BEFORE.search(before) or not NO_QUANTITY.match(match.string, match.end())
    if counts or len(written) < _MIN_CODE_DIGITS:
        return integer(written)
    if len(written) == _MIN_CODE_DIGITS:
        return house_number(written) if _NAME_BEFORE.search(before) else integer(written)
    return digit_groups(written)


_MIXED_WITH_SIGNS = (
    r"(\b[Pp](?i:ass(?:word|code|phrase)|wd?)(?:'s|\sis)?:?\s[\"“]?)(?=\S{0,40}[#$!%&*^+=@~][A-Za-z\d]|\S{0,40}(?:\d\S{0,40}[_-]|[_-]\S{0,40}\d))"
    r"((?<=[\"“])[^\s\"”]{4,40}(?<![.,])(?=[.,]?[\"”])|[^\s\"”,;]{4,40}[A-Za-z\d])(?![^\s.,;:!?\"”)])"
)
_MIXED_SIGNS = ADDRESS_SIGNS | {"#": "pound", "$": "dollar sign", "!": "exclamation point", "^": "caret"}


def _password(match: re.Match[str]) -> str:
    """A password with signs, each of which is named."""
    short = re.sub(
        r"(?<=\d)[A-Za-z]{1,3}(?![A-Za-z])|(?<![A-Za-z])[A-Za-z]{1,3}(?=\d)",
        lambda run: " ".join(run.group()),
        match[2],
    )
    pieces = re.findall(r"[A-Za-z]+|\d+|[^\s]", short)
    return match[1] + " ".join(letters(each) if each.isalnum() else _MIXED_SIGNS.get(each, "") for each in pieces)


def _words_of_tag(match: re.Match[str]) -> str:
    """``#ACMECares`` as "#ACME Cares"."""
    return match[1] + re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", match[2])


_PRODUCT = (
    r" \* (?<=[a-z\d)] \* )(?<!\bor \* )(?<!\band \* )(?<!press \* )(?<!\bthe \* )(?<!\bhit \* )(?<!then \* )(?<!dial \* )"
    r"(?<!with \* )(?<!\buse \* )(?=[a-z(])(?!(?:to|for|key|button|at|or|and|if|when|sign)\b)"
)
"""A star between words that is no key; it multiplies in a formula, and others mark a note or an entry of a list."""
_OF_FORMULA = re.compile(r"=|\b(?:comput|calculat|formula|multipl|equal)", re.IGNORECASE)
_FORMULA_CHARACTERS = 100  # unmeasured


_OVER = {each[0].upper(): f"{each} over {each}" for each in ("year", "quarter", "month", "week", "day")}
_join_and_point = in_order(
    (r"(?<=\S\s)(?:-{1,2}>|=>)(?=\s)", "→"),
    (
        r"(?<![\w.…])([-+]?[$£€]?\d[\w:,/-]{0,15}(?<=[\dapm])|\d[\d:.]{0,6}%)\s?(?:\.{2,3}|…)\s?(?=[-+]?[$£€]?\d)(?![\w:,/-]{1,15}(?:\.\.|…))",
        r"\1 to ",
    ),
    (r"\b([YQMWD])o([YQMWD])\b", lambda match: _OVER[match[1]] if match[1] == match[2] else None),
)
"""An arrow is one sign, and dots between two quantities say "to"."""


def _times(match: re.Match[str]) -> str | None:
    start, end = max(0, match.start() - _FORMULA_CHARACTERS), match.end() + _FORMULA_CHARACTERS
    return " times " if _OF_FORMULA.search(match.string, start, end) else None


_INTERVALS = {"h": "hours", "hr": "hours", "mi": "minutes", "mo": "months", "d": "days", "wk": "weeks"}

_RENTAL_PERIODS = {"cm": "calendar month", "m": "month", "w": "week", "a": "annum", "p": "person", "q": "quarter"}
_say_all_day_and_user_names = in_order(
    (
        r"\b((?:[Ff]lat|[Uu]nit|[Aa]pt\.?|[Ss]hop|[Vv]illa|[Ll]evel)\s)(\d{1,4})/(?=\d{1,4}(?![\w/]|[.,]\d))",
        lambda match: f"{match[1]}{house_number(match[2])}, ",
    ),
    (r"(?<=[\w.]) - (?=[$£€]\d)", lambda match: " minus " if "=" in match.string else None),
    (r"(?<=[.!?)])\s<3(?=\s?$)", ""),
    (r"([$£€]\d[\d,.]*)\s?p(cm|m|w|a|p|q)(?!\w)", lambda match: f"{match[1]} per {_RENTAL_PERIODS[match[2]]}"),
    (r"(?<![\w/.])(\d{1,2})/(\d{2})(?=,?\s(?:net|n/)\s?\d)", r"\1 \2"),
    (r"(\b[Pp]orts\s\d{2,5})/(?=\d{2,5}(?![\w/]))", r"\1 and "),
    (r"(\b[Oo]dds(?:\s(?:are|were|is|of|at|now)){0,2}\s\d{1,3})/(?=\d{1,3}(?![\w/]))", r"\1 to "),
    (r"(?<![\w.])([1-4])Q\s?'?(\d\d)(?!\w)", lambda match: f"{ordinal(int(match[1]))} quarter 20{match[2]}"),
    (r"\bINR(?=:?\s(?:(?:is|was|of)\s)?\d(?:\.\d)?(?![\d,.]\d|\d))", "I N R"),
    (r"(?<![\w.-])([xX]\d{2,5})\s?[-–]\s?(?=[xX]\d{2,5}(?!\w))", r"\1 to "),
    (_MIXED_WITH_SIGNS, _password),
    (
        r"(?:(?<!\w)@|\b(?:[Uu]ser ?name|[Ll]ogin|[Hh]andle)(?: is|:)? )[A-Za-z0-9]++(?:_[A-Za-z0-9]++)+(?![.-]?\w)",
        lambda match: match.group().replace("_", " underscore "),
    ),
    (
        r"\b([Tt])emp\.(?=\s(?:[a-z]|PW|PIN|ID|DL))(?!\s(?:of|is|was|set|at|in|on|to|and|or|will|should|reads?|range|settings?|controls?|sensors?)\b)",
        r"\1emporary",
    ),
    (  # sunny_day88, but not order_id, which is of a program
        r"(?<![\w/.@-])(?=\w{0,40}[\dA-Z])[A-Za-z0-9]{1,40}+(?:_[A-Za-z0-9]{1,40}+){1,8}+(?![.-]?\w)",
        lambda match: match.group().replace("_", " underscore "),
    ),
    (r"\bb(?:tw|twn|/w|/t)\.?(?=\s\$?\d)", "between"),
    (r"(?<=[A-Z]{2})(?:\s\*|\*\s?)(?=[A-Z\d]{2})", " star "),  # a merchant on a statement: SQ *BAKERY
    (r"(?<=\d)-(alpha|beta|rc|preview|snapshot|build|dev)(?:[.-]?(?=\d)|(?![\w-]))", r" \1 "),
    (r"(?<!\w)([#@])(?=\w{0,40}[a-z][A-Z]|\w{0,40}[A-Z]{2}[a-z])([A-Za-z]\w{2,40})(?!\w)", _words_of_tag),
    (r"(?i)(?<=\bhashtag )#(?=\w)", ""),
    (r"#'?s(?!\w)", "numbers"),
    (r"\*\.(?<!\S\*\.)(?=[a-z])", "star dot "),
    (r"/(?:(?<=:\d\d/)(?=\d{1,2}:\d\d)|(?<=[ECMP]T/)(?=\d{1,2}(?::\d\d)?\s?[ap]\.?m))", ", "),
    (r"#(?<=\b[CF]#)(?!\w)", " sharp"),
    (r"\.NET\b(?<!\w\.NET)", "dot net"),
    (  # when a program runs: 0 3 * * 1
        r"(?=[\d*])(?<!\S)(?=[\d*/, -]{0,40}(?:\* \*|\*/\d))(?:[\d*/,-]{1,12} ){4}[\d*/-]{1,12}(?![^\s.,;:)])",
        lambda match: match.group().replace("*", "star"),
    ),
    (
        r"([§¶])(\1?)(?:\s?(?=[A-Z\d(])|(?<=\s[§¶])\s(?=\w))",
        lambda match: f"{_PART_SIGNS[match[1]]}{'s' if match[2] else ''} ",
    ),
    (_LISTED, lambda match: f"{_LIST_NUMBERS.index(match[1]) + 1},"),
    (
        rf"(?<![\w/])({CURRENCY_CODES})\s?/\s?({CURRENCY_CODES})(?![\w/])",
        lambda match: " ".join(match[1] + match[2]),
    ),  # EUR/USD
    (r"(?:(?<=\dst)|(?<=\dnd)|(?<=\drd)|(?<=\dth))\s(?:pct\b\.?|%-?ile\b)", " percentile"),
    (
        r"(?<![\w.])c\.\s?(?=[$£€]\d|(?:1\d|20)\d\d(?!\d))",
        lambda match: None if _CHOICE_BEFORE.search(match.string[: match.start()]) else "circa ",
    ),
    (r"(?<=\d)\s?[x×*]\s?(?=[$£€]\d)", " times "),
    (_PRODUCT, _times),
    (r"(?<=\s[A-Z\d])\s?→\s?(?=[A-Z][a-z]+\.?\s[A-Z\d]\b)", " to "),
    (r"\b(Win(?:dows)?|iOS|Android|macOS) (\d{1,2})/(?=\d{1,2}(?![\w/]))", r"\1 \2 slash "),
    (r"√\s?(?=[\d(A-Za-z])", "the square root of "),
    (r"(?:(?<=[\d%])|(?<=\d[ap]))\s?→\s?(?=[$£€v]?\d|[A-Z]{2}\s?\d|[A-Z]{3}\b)", " to "),
    (r"(?:(?<=\bis )|(?<=['’]s ))([<>])(?=[.,;)]|$)", lambda match: "greater" if match[1] == ">" else "less"),
    (r"\s>\s(?=(?:min|max|avg|average|normal|expected|usual)\b)", " greater than "),
    (
        r"(?<!\w)q\.?\s?(\d{1,2}(?:\s?[-–]\s?\d{1,2})?)\s?(h(?:rs?)?|m(?:in|o)s?|d|wks?)\b",
        lambda match: f"every {match[1]} {_INTERVALS[match[2][:2]]}",
    ),
    (r"(?<=\b[A-Z]{3})\s?(?:→|[-=]>)\s?(?=[A-Z]{3}\b)", " to "),
    (r"(?<=\w)\s\|\s(?=\w)", ", "),
    (r"(?<=\S)\s(?:→|➔|[-=]?>|»)\s(?=[\"“]?[A-Za-z])|(?<=\S) ?[→➔] ?(?=[$£€]?\d)", ", "),
    (  # an option of a command
        r"--(?<=\s--)([a-z]{2}[a-z\d-]{0,40})",
        lambda match: f"dash dash {match[1].replace('-', ' ')}",
    ),
    (r"-(?<=[a-z] -)(?=[A-Za-z](?:\s|$))", "dash "),
    (r"\b(UTC|GMT)\s?([+-])\s?(?=\d)", lambda match: f"{match[1]} {'plus' if match[2] == '+' else 'minus'} "),
    (r"\+\s?/\s?-\s?(?=[$£€]?\.?\d)", "plus or minus "),
    (r"(?<![\w/.,])(\d)/(?=[$£€]\d)", r"\1 for "),
    (r"(?<![\w/])24\s?[/x×]\s?7\s?[/x×]\s?365(?![\w/])", "twenty-four seven three sixty-five"),
    (r"(?<![\w/])24\s?[/x×]\s?7(?![\w/])", "twenty-four seven"),
)


def _joint(match: re.Match[str]) -> str:
    """Return what a dash between two numbers says: nothing in 50-50, 60-40 and 24-7, else "to"."""
    before, after = (
        _NUMBER_BEFORE.search(match.string, max(0, match.start() - 4), match.start()),
        _NUMBER_AFTER.match(match.string, match.end()),
    )
    if not before or not after:
        return " to "
    first, second = int(before.group()), int(after.group())
    if max(first, second) <= _HOURS_OF_CLOCK and _DAY_BEFORE.search(match.string, 0, before.start()):
        return " to "
    is_pair = first == second or (first > second and first + second == _WHOLE) or (first, second) == _ALWAYS
    return " " if is_pair else " to "


def _with_half(match: re.Match[str]) -> str | None:
    """``9-11a`` as "9 to 11am"."""
    if match[2].strip() in ("and", "&"):
        return f"{match[1]} and {match[3]} {match[4]}m" if match.string.endswith("between ", 0, match.start()) else None
    return f"{match[1]} to {match[3]} {match[4]}m"


def _halves(match: re.Match[str]) -> str | None:
    """``6A-9:42A`` as "6 am to 9:42 am"; 6A-9A may be seats."""
    is_seat = (match[2] + match[4]).isupper() and ":" not in match.group()
    return None if is_seat else f"{match[1]} {match[2].lower()}m to {match[3]} {match[4].lower()}m"


_say_ranges_and_minus = in_order(
    (
        r"(?<![\w:.$])(\d{1,2}(?::\d\d)?)([apAP])\s?[-–—]\s?(\d{1,2}(?::\d\d)?)([apAP])(?!\w)",
        _halves,
    ),
    (
        r"(?i)(\bbetween [$£€]?\d[\d,.:]{0,12}(?:\s?[ap]\.?m\b\.?)?%?)\s?[-–—]\s?(?=[$£€]?\d)",
        r"\1 and ",
    ),
    (r"(?<![\w:.$])(\d{1,2}(?::\d\d)?)(\s?[-–—]\s?| (?:and|&) )(\d{1,2}(?::\d\d)?)([ap])(?!\w)", _with_half),
    (r"~(?<!\w~)(?:\s?(?=[$£€¥]?\.?\d)|(?=[A-Z]|noon\b|midnight\b|half\b))", "about "),
    (r"\.x(?<=\d\.x)(?!\w)", " point x"),  # versions, as 2.x
    (r"\s?(<[=>]|>=|!=|[<>≤≥≠≈])\s?(?=[$£€¥-]?\.?\d)", lambda match: f" {COMPARISONS[match[1]]} "),
    (r"(?<![\w.,$/-])\d{1,2}(?:-\d{1,2}){2,4}(?![\w-]|[.,]\d)", lambda match: match.group().replace("-", ", ")),
    (r"(?<=\d[kKMB])\s?[-–]\s?(?=[$£€]?\d)", " to "),
    (r"(?<![\w–-])([A-Z]\d?)(?:–|(?<=A)-(?=Z))(?=[A-Z]\d?(?![\w–-]))", r"\1 to "),
    (r"(?<![\w.])(\d{1,2})['′]\s?[-–]\s?(?=\d{1,2}['′])", r"\1 feet to "),
    (r"(?i)(?<=\bfax)\s-(?=\d{4}(?![\w-]))", " "),
    (r"(?<=\b[Gg]rades K)\s?[-–]\s?(?=\d)", " to "),
    (_RANGE, _joint),
    (r"(?i)(?<=\bmodifier )-(?=\d)", ""),
    (r"(?<=\d\))\s?[-–]\s?(?=\(\d)", " to "),
    (r"(?<![\w)\]])-(?=[$£€¥₹]?\.?\d)", "minus "),
)
_say_fractions_and_ordinals = in_order(
    (r"(?i)(?<![\w/.,])(\d{1,3})/(\d{1,2})(?:th|rd|nd)s?\b", lambda match: fraction(int(match[1]), int(match[2]))),
    (
        r"(?i)(?<![\w.,])(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:st|nd|rd|th)\b",
        lambda match: ordinal(int(match[1].replace(",", ""))),
    ),
    (
        r"(?<![\w/.,])(\d{1,4}\.\d{1,3})/(?=\d{1,4}(?:\.\d{1,2})?(?![\w/⁄]|[.,]\d))",
        lambda match: f"{amount(match[1])} out of ",
    ),
    (
        rf"(?i)\b((?:{_NUMBERED}):?\s)(\d{{1,3}})/(?=\d{{1,3}}(?![\w/⁄]|[.,]\d))",
        lambda match: f"{match[1]}{cardinal(int(match[2]))} of ",
    ),
    (r"(?<![\w/.,])(\d{1,2})/(\d)(?=\sARMs?\b)", r"\1 \2"),  # a mortgage
    (_OF_MANY, lambda match: f"{cardinal(int(match[1]))} of "),
    (_LIMITS, lambda match: match[1] + ", ".join(map(integer, match[2].split("/")))),
    (r"(?<![\w/.,⁄])(?<!\d )1[/⁄]2(?=[ -](?:price|off|fare|rate|day|board|term|size|portion|marathon)\b)", "half"),
    (
        r"(?<![\w/.,])(\d{1,2})/(?=(?:5|10|100)(?![\w/]|[.,]\d))",
        lambda match: (
            f"{cardinal(int(match[1]))} out of " if SCORED_BEFORE.search(match.string, 0, match.start()) else None
        ),
    ),
    (_RATING, lambda match: f"{match[1] or ''}{cardinal(int(match[2] or match[4]))} out of "),
    (r"(?<![\w/.,])\d{1,3}(?:/\d{1,3}){2,4}(?![\w/]|[.,]\d)", lambda match: match.group().replace("/", ", ")),
    (_FRACTION, _fraction),
)
_OPEN_BRACKET = re.compile(r"\([^()]*$")
_STAR = (
    r"(?i)\*(?:(?<=\bpress \*)|(?<=\bthe \*)|(?<=\bor \*)|(?<=\band \*)|(?<=\bhit \*)|(?<=\bthen \*)|(?<=\bdial \*)"
    r"|(?<=\bwith \*))(?![\w*])|\*(?=\s(?:key|button)\b)"
)
_say_keys_and_cardinals = in_order(
    (r"#\s?(?=\d)", "number "),
    (r"(?i)#(?=\s*(?:key|sign|button)\b|\s*[.,;!?)\"']|\s|$)", "pound"),
    (_STAR, "star"),
    (r"(?<=\d)\s?[*×]\s?(?=\d)", " times "),
    (
        r"(?<!\S)(\d{1,2})\)(?=\s)",
        lambda match: (
            None if _OPEN_BRACKET.search(match.string, max(0, match.start() - 80), match.start()) else f"{match[1]},"
        ),
    ),
    (r"(?<!\d)\d{1,6}(?:\.\d{1,6}){2,9}(?!\d)", _version),
    (r"(?<![\w.])\.(\d++)", lambda match: f"point {digits(match[1])}"),
    (_CARDINAL, _number),
)
_say_slashes = in_order(
    (r"(?<![\w-])([A-DO]|AB)-(?=\s(?:credit|grade|average|rating|student|in|blood)\b|[.,;!?]|$)", r"\1 minus"),
    (r"(?<!\w)[:;]['-]?[()DP](?!\w)", " "),  # an emoticon
    (r"(?i)\band/or\b", "and or"),
    (r"(?<![\w/])([A-Z])/(?=[A-Z](?![\w/]))", r"\1 "),
    (r"(?<=\w) / (?=\w\w)", ", "),
    (r"(?<=\w)\s?/\s?(?=\w)|(?<!\S)/(?=\w)", " slash "),
    (r"[*_`^|\\<>~{}\[\]/•·⁄℠§¶†‡#]", " "),
)
_tidy_dashes = in_order((r" (?:[-–—]+ )+| ?[–—]+ ?", ", "), (r"(?<!\w)-+(?!\w)", " "))
_tidy_commas = in_order(
    (r" (?=[,.;:!?)])|(?<=\() ", ""), (r",(?: ?,)+", ","), (r",(?=\w)", ", "), (r",(?=[.;:!?])", "")
)


def speakable(text: str, *, day_first: bool = False) -> str:
    """The words of an English text that was cleaned by :func:`cc_tts.text.characters.clean`; no digit is left.

    ``day_first``: 3/4/2026 is the third of April.
    """
    text = _say_all_day_and_user_names(say_formulas(_join_and_point(_folded(text))))
    text, with_addresses = with_stand_ins(text, ADDRESS_SIGNS, digits)
    text = say_postal_addresses(say_law(text))
    text = say_identifiers(text)
    text = say_dates(text, day_first=day_first)
    text = _say_ranges_and_minus(text)
    text = say_times(text)
    text = say_money(text)
    text = say_measures(text)
    text = say_abbreviations(text)
    text = _say_fractions_and_ordinals(text)
    text = say_years(text)
    text = _say_keys_and_cardinals(text)
    text = with_addresses(_say_slashes(say_symbols(text).translate(_SIGNS)))
    return _tidy(text) if has_speech(text) else ""


def _folded(text: str) -> str:
    """One line, with the variants of a letter or digit (full width, circled, superscript) made one."""
    if not text.isascii():
        text = _POWER_OF_TEN.sub(_caret, text)
        text = _VULGAR_FRACTION.sub(" ", text.translate(_BEFORE_NFKC))
        text = digits_to_ascii(unicodedata.normalize("NFKC", digits_to_ascii(text)))
    return joined_lines(text, pause=".")


def _caret(match: re.Match[str]) -> str:
    return f"^{'-' if match[1] else ''}{unicodedata.normalize('NFKC', match[2])}"


def _tidy(text: str) -> str:
    text = _tidy_dashes(" ".join(text.split()))
    return _tidy_commas(" ".join(text.split())).lstrip(" ,;:.!?").rstrip()
