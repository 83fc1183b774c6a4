"""Numbers that name something and count nothing are said digit by digit: telephones, cards, accounts, codes, ids."""

import re

from cc_tts.text.en.mixed_ids import NUMBER_WITH_SUFFIX, mixed_id
from cc_tts.text.en.money import CURRENCY_CODES
from cc_tts.text.en.numbers import (
    NO_QUANTITY,
    NOTHING_COUNTED,
    amount,
    cardinal,
    digit_groups,
    digits,
    integer,
    two_digits,
    year,
)
from cc_tts.text.en.postal_addresses import house_number, spelled
from cc_tts.text.en.short_forms.abbreviations import label
from cc_tts.text.en.telephones import (
    DIALLED_CODE,
    KEY_RULES,
    SHORT_NUMBER_RULES,
    TELEPHONE_RULES,
    dialled,
    digits_behind,
    each_digit,
    each_group,
)
from cc_tts.text.en.times import military
from cc_tts.text.en.travel import TRAVEL_RULES
from cc_tts.text.substitution import Say, grouped, in_order

_NOT_COUNTED = r"(?![\w-]|[.,:/]\d)"
_ROOM = (
    r"(?i)\b((?:room|rm\.?|suite|ste\.|apartment|apt\.?|gate|unit|exit)\s)(\d{1,2})(\d\d)(?:-?([A-Z]))?"
    r"(?![\w-]|[.,:/]\d|\s?[%°])"
)
_ROOMS_LISTED = (
    r"(?i)\b((?:rooms|rms\.?|suites|apartments|apts\.?|gates|units|exits)\s)(\d{3,4}(?:(?:,?\s(?:and|or|&|to)\s|,\s)\d{3,4}){1,9})"
    + _NOT_COUNTED
)
_CODE_AFTER_WORDS = (
    r"(?i)\b((?:codes?|pin|otp|passcode|password|cvv|cvc|number)(?:\s[a-z']{1,12}){1,6}\s(?:is|was)\s)(\d{3,8})"
    rf"{_NOT_COUNTED}(?!\s?[%°])(?=[.,;:!?)]|$|\s(?:and|or|but|if|for|until|which|it|please|not)\b)"
)
_LIKE_CODES = (
    r"(?=\d)(?<![\w.,$£€#-])(?=[\w, ]{0,80}\b0\d)"
    r"(\d{3,8})(?:(?:, (?:or |and )?| or | and )\d{3,8}){1,6}(?![\w-]|[.,:/]\d)"
)
"""Numbers in a list of which one begins with a zero: a PIN other than 1234 or 0000."""
_LAST_DIGITS = (
    r"(?i)\b(last (?:4|four|5|five|6|six)(?: digits)?(?: (?:of|on|for) [\w' ]{1,30}?)?(?: (?:are|is))?:? )(\d{4,6})"
    + _NOT_COUNTED
)
_ENDING = (
    r"(?i)(?<!year )\b(end(?:ing|s)(?: (?:in|with))? )"
    r"((?:(?<!ends in )|(?!20\d\d))\d{4,10}(?!\s(?-i:[A-Z]))|\d{2,10}(?!\s[a-z]))"
    rf"{_NOT_COUNTED}(?!\s?%){NOTHING_COUNTED}"
)
_MASK = "[*xX•·#…]"
_MASKED = (
    rf"(?i)(?<!\w)(?:(?:\#|\bno\.?)\s?(?={_MASK}{{2}}|\*|\.{{3}}))?(?P<before>end(?:ing|s)(?:\s(?:in|with))?:?\s)?"
    rf"(?:(?:(?P<head>\d{{4,6}})[ -](?=[*xX•]{{2}}))?(?:\({_MASK}{{2,5}}\)[ -]?)?"
    rf"{_MASK}{{2,80}}+(?:[ -]?{_MASK}{{2,19}}+){{0,4}}+[ -]?(?P<digits>\d{{2,6}})"
    r"|(?:[*•·]|\.{3}\s?|(?<=ending )[x-]|(?<=ending in )[x-]|(?<=\s)x-(?=\d{4}))(?P<tail>\d{4,6}))(?!\w)"
)
_PREPOSITION_BEFORE = re.compile(r"\b(?:to|at|from|with|for|on|call)\s$")
_BRANDED = (
    rf"\b((?:Visa|Master[Cc]ard|Amex|American Express|Discover)\s)(\d{{4,5}}){_NOT_COUNTED}"
    r"(?=[.,;:!?)]|$|\s(?:and [A-Z]|or [A-Z]|is\b|was\b|has\b|will\b|ends\b|expires\b))"
)
_AFTER_CARD = (
    r"(?i)\b(visa|master ?card|amex|american express|discover|(?:credit |debit )?card|debit(?=\sx)"
    r"|account|acct\.?|checking|savings|loan)"
    r"\s(?:x-?|-|\((?=\d{4}\)))(\d{4})\)?(?!\w)"
)
_NAMED_STRONG = (
    "passcode|password|pwd|pw|codes?|pin|otp|cvv2?|cvc2?|csc|puk|zips?|postcode|confirmation|reference|ref"
    "|extension|ext(?=\\.?\\s(?:is|was|number|no)\\b)|routing|tracking|iban|bsb|ids?"
)
_NAMED_WEAK = (
    "accounts?|acct|cards?|orders?|tickets?|cases?|claims?|policy|invoice|booking|reservation|flight|member|membership|"
    "customer|employee|serial|p\\.?\\s?o\\.?\\s?box|po|part|lot|identification|phone|telephone|fax|tty|tdd|ssn|badge|agent"
    "|transaction|group(?=\\s(?:#|id\\b|no\\b|number))|itinerary|vin|sku|item|batch|meter|rma|sr|rx|prescription|permit|passport"
    "|che(?:ck|que)(?=\\s(?:#|no\\b|number))|mrn|ein|imei|npi|upc|port|build|inv|conf|dl|model(?!s? (?:19|20)\\d\\d\\b)"
)
_OPENING = r"[\"'“‘(\[]{0,2}"
_CONNECTORS = (
    r"(?P<connector>(?:[ ]?(?:number|numbers|no\.|num|code|id|pin|\#))?"
    r"(?:[ ]?(?:(?:is[ ]|was[ ])?(?:still|now|also|just|currently)\b"
    r"|(?:can't|cannot|can|should|must|will|may|shouldn't)[ ](?:not[ ])?be"
    r"|is|was|=|ending in|ending with|ends in|ending))?(?:[ ]?:|[ ][–—-](?=[ ]))?)[ ]?" + _OPENING
)
_VALUE = (
    r"(?P<value>(?!(?:19|20)\d\d/\d\d?/\d)\d{3,12}(?:/\d{1,12}){1,3}|\d+(?:-\d+){1,5}"
    r"|\d[ ]\d{5}[ ]\d{5}[ ]\d|\d{2,6}(?:[ ]\d{2,6}){1,6}|\d+)(?![\w–-])(?![.,:/]\d)(?![ ]?%|\s(?:C\.?F\.?R|U\.?S\.?C)\b)"
    r"(?P<listed>(?:(?:,[ ](?:(?:and|or|&)[ ])?|[ ](?:and|or|&)[ ])#?\d{4,12}(?![\w-]|[.,:/]\d|[ ]?%)){0,9})"
)
"""A value, and what is listed behind it: ZIPs 77002, 77003 & 77010."""
_SMALL_RANGE = re.compile(r"\d{1,2}-\d{1,2}")
_STRONG = re.compile(_NAMED_STRONG, re.IGNORECASE)
_MIN_WEAK_DIGITS = 4  # unmeasured
_MAY_COUNT = frozenset({"", "is", "was"})
"""Behind these a number may count what follows: "the order is 12 boxes"."""
_NAME_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}|{_NAMED_WEAK}|model)\.?\s$", re.IGNORECASE)
_NAMED_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}|{_NAMED_WEAK}|number)\b{_CONNECTORS}$", re.IGNORECASE)
_NAMES_BEFORE = re.compile(
    rf"\b(?:{_NAMED_STRONG}|{_NAMED_WEAK})s?(?:\s(?:numbers?|codes?|nos\.?))?:?\s$|\b(?:numbers|nos\.?)\s$",
    re.IGNORECASE,
)
_NUMBERED_BEFORE = re.compile(rf"\b(?:confirmation|reference|ref|tracking|routing|{_NAMED_WEAK})\.?\s$", re.IGNORECASE)
_STRONG_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}|number|id)(?:,\s|,?\s(?:e\.g\.,?|like|such as)\s)$", re.IGNORECASE)
_NUMBER_IS = (
    rf"(?i)(\bnumber(?:\s(?:is|was))?\s?:?\s{_OPENING})(\d{{2,12}}(?:-\d{{1,12}}){{1,4}}|\d{{4,12}}"
    r"|(?:(?<=: )|(?<=s )|(?<=[\"'“‘(\[]))\d{3})"
)
_PARTS_OF_BUILDING = (
    "room|rm|suite|ste|apartment|apt|unit|bay|dock|locker|space|building|bldg|lot|box|desk|cube|gate|door|stall"
)
_LAWS = "ordinance|resolution|statute|section|law|rule|regulation|bill"
_NAMES = re.compile(rf"{_NAMED_STRONG}|{_NAMED_WEAK}|{_PARTS_OF_BUILDING}", re.IGNORECASE)
"""Things that a number names."""
_PART_BEFORE = re.compile(rf"\b(?:{_PARTS_OF_BUILDING})\.?:?\s#?$", re.IGNORECASE)
_LAW_BEFORE = re.compile(rf"\b(?:{_LAWS})\.?:?\s#?$", re.IGNORECASE)
_LONGEST_ROW = 20
"""Doors and the like that are named by the first and the last; unmeasured."""
_PART_OF_PART = r"(?<=[\s#])(\d{1,4})-(\d{1,4})(?![\w-]|[.,:/]\d)"
_CHECKED = (
    r"(?<![\w.,$£€¥/:-])(?!(?:19|20)\d\d-\d\d(?!\d))(\d{3,10})-(\d{1,2})(?![\w-]|[.,:/]\d|\s?[%=])" + NOTHING_COUNTED
)
"""A number and its check digits: the second is less than the first, so they are no range."""
_SCORE_BEFORE = re.compile(
    r"\b(?:(?:won|win|lost|beat|scored?|leads?|led|up|down|by)|(?:score|record|final) (?:is|was)|final:?)\s$",
    re.IGNORECASE,
)

_PRESSED_BEFORE = re.compile(
    r"(?:\b(?:press|hit|dial|enter|the|then|by|with|or|and|push|use)|[^a-z\s])\s$|[^\s]$|^$", re.IGNORECASE
)
_SIGN_BEFORE_NUMBER = (
    r"\s?#(?:(?<=[A-Za-z.]#)|(?<=[A-Za-z.] #))(?<!\b[CF]#)\s?(:?)\s?(?!\d{1,12}#)"
    r"(?=\(?\d|\+\d|[A-Z]{1,5}-?\d|[A-Z]\b|\d[A-Z])"
)
_NUMBER_SIGN = r"#(?=\s(?:to|is|on|for|in|at|from|below|above|here|when)\b)"
_ERROR = r"(?i)\b((?:error|http)\s(?:code\s)?)(\d{3,5})(?![\w-]|[.,:/]\d|\s?%)" + NOTHING_COUNTED
_SLASHED = (
    r"(?<![\w/])[A-Z]{1,5}\d{0,6}/(?=[A-Z\d/]{0,12}\d{3})[A-Z\d]{1,8}(?:/[A-Z\d]{1,8}){1,3}(?![\w/-])"  # HX/2291/B
)
_STATUS = (
    r"(?<![\w.,$#-])[1-6]\d\d(?=\s(?:OK|Not (?:Found|Acc|Impl|Mod)|Bad (?:Req|Gat)|Busy Here|Service Un|Internal Server"
    r"|Unauthorized|Forbidden|Request T|Too Many"
    r"|Moved|No Content|Temporarily|Gateway T|Decline|Server (?:Err|Int))|\serror\b)"
)
"""The status of an answer, as in HTTP and SIP."""
_IPV6 = (
    r"(?<![\w:.])(?=[\da-fA-F]{0,4}:)(?=[\da-fA-F:]{0,40}::|(?:[\da-fA-F]{1,4}:){7})"
    r"(?:[\da-fA-F]{1,4})?(?::{1,2}[\da-fA-F]{1,4}){1,7}(?:::)?(?![\w:])"
)
_NAMED_MIXED = (
    rf"\b(?P<name>{_NAMED_STRONG})\b\.?{_CONNECTORS}"
    r"(?P<value>(?!x\d{1,6}\b)(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{4,20})(?![\w-]|[.@]\w)"
)
_GROUPS = (
    r"(?<![\w.,$£€¥₹+-])(?<!\d )(?!\d\d \d\d (?:19|20)\d\d)(?=\d\d\d|[\d ]{3,30}\d{4})"
    r"\d{2,6}(?: \d{2,6}){2,7}(?![\w-]|[.,:/]\d| ?[%°$£€¥₹]| \d| (?:USD|EUR|GBP|kr|zł)\b)" + NOTHING_COUNTED
)
"""Three groups of digits or more, which count nothing: 8944 1100 6012 789."""
_TWO_GROUPS = (
    r"(?<![\w.,$£€¥₹+/:-])(?<!\d )(?!(?:19|20)\d\d )(\d{3,5}) (\d{3,5})(?![\w-]|[.,:/]\d| ?[%°$£€¥₹]| \d)"
    + NOTHING_COUNTED
)
"""Two numbers beside each other are one that names something."""
_MODEL = (
    rf"(?<![\w-])(?!(?:{CURRENCY_CODES}|ISO|PO)\b)([A-Z]{{2,5}}\s)([1-9]\d(?!00)\d\d)(?![\w-]|[.,:/]\d|\s?[%°×]|\sx\s?\d|\s[A-Z]{{2}})"
    + NOTHING_COUNTED
)
"""RTX 4070, HP 8025."""
_COURSE = (
    r"(?=[1-9]\d\d)(?:(?<=\bCS )|(?<=\bMATH )|(?<=\bMath )|(?<=\bENGL )|(?<=\bBIO )|(?<=\bCHEM )"
    r"|(?<=\bECON )|(?<=\bHIST )|(?<=\bPSYCH ))([1-9]\d\d)(?![\w%]|[.,:/-]\d)"
)
_NUMBER_ABBREVIATED = (
    r"[Nn]o\.(?:(?<=\b.o\.)\s?(?=#?\d|[A-Z]{1,4}-?\d{1,6}-\d)"
    r"|(?:(?<=\bno\.)|(?<=\b[RLIC]eg\. No\.)|(?<=\b[A-Z]ef\. No\.))\s(?=#?[A-Z]{1,5}-?\d))"
)
_NAMED_SPAN = r"(?<![\w.,–-])(\d{4,8})\s?([–-])\s?(\d{4,8})(?![\w–-])"
"""ZIPs 94102–94105, for example."""
_HYPHENED_GROUPS = (
    r"(?<![\w.$£€-])(?!(?:(?:19|20)\d\d|[0-3]?\d)-[0-3]?\d-(?:\d\d){1,2}(?![\w-]))(?=\d[\d-]{0,30}\d{3}|[\d-]{0,30}\b0\d)"
    r"\d{1,6}(?:-\d{1,6}){2,5}(?![\w-])"
)
"""No date; short groups without a zero before them, as in 5-10-15, may be quantities."""
_ZULU = r"(?<![\w:.,$-])([01]\d|2[0-3])([0-5]\d)\s?Z(?![\w-])"
_ITEM_BEFORE = re.compile(
    r"\b(?:model|part|sku|ref|item|unit|flat|type|size|lot|case|ticket|serial)\.?\s#?$", re.IGNORECASE
)
_DIALLED = re.compile(r"\b(?:call|dial|text|ring|fax)\s$", re.IGNORECASE)
_HOURS = re.compile("(?:[01]\\d|2[0-4])(?:00|15|30|45)")
_LOOK_BACK_CHARACTERS = 60
_MIN_IBAN_DIGITS = 10  # ISO 13616
_NUM_DIGITS_OF_PLAN = 3


def _after(before: re.Pattern[str], say: Say) -> Say:
    """Only where ``before`` stands in front of the match."""
    return lambda match: say(match) if before.search(match.string, max(0, match.start() - 40), match.start()) else None


def _named(match: re.Match[str]) -> str | None:
    value, connector = match["value"], match["connector"].strip(" –—-")
    if connector in _MAY_COUNT and not _STRONG.fullmatch(match["name"]):
        is_short = not connector and len(value) < _MIN_WEAK_DIGITS
        if is_short or not NO_QUANTITY.match(match.string, match.end()):
            return None
    if _SMALL_RANGE.fullmatch(value) and not NO_QUANTITY.match(match.string, match.end()):
        return None  # a PIN of 4-8 digits
    if match["name"].lower() == "codes" and len(value) < _MIN_WEAK_DIGITS:
        return None  # the codes 10 minutes ago
    before = match.string[match.start() : match.start("value")]
    said = " slash ".join(map(digit_groups, value.split("/")))
    return f"{before.replace('#', ' number ').replace('no.', 'number')}{said}{_listed(match['listed'], len(value))}"


def _like_codes(match: re.Match[str]) -> str | None:
    is_code = _STRONG.search(match.string, max(0, match.start() - 60), match.start())
    return re.sub(r"\d+", lambda each: digits(each.group()), match.group()) if is_code else None


def _listed(written: str, num_digits: int) -> str:
    """The numbers behind one, up to the first that has not as many digits and so may be something else."""
    said = ""
    for joint, number in re.findall(r"(\D+)(\d+)", written):
        is_like = len(number) == num_digits
        said += joint + (digit_groups(number) if is_like else number)
        num_digits *= is_like
    return said


def _named_mixed(match: re.Match[str]) -> str | None:
    """A code in small letters, spelled: ``your otp is ab9453``; "code 4th" is none."""
    value = match["value"]
    return None if NUMBER_WITH_SUFFIX.fullmatch(value) else match.group().removesuffix(value) + spelled(value)


def _part_of_part(match: re.Match[str]) -> str:
    """``Rm 3-214`` as "Rm three, two fourteen", ``docks 14-16`` as a range."""
    is_range = len(match[1]) == len(match[2]) and 0 < int(match[2]) - int(match[1]) <= _LONGEST_ROW
    joint = " to " if is_range else ", "
    return f"{house_number(match[1])}{joint}{house_number(match[2])}"


def _checked(match: re.Match[str]) -> str | None:
    is_score = _SCORE_BEFORE.search(match.string, max(0, match.start() - 20), match.start())
    return None if is_score else digit_groups(match.group())


def _masked(match: re.Match[str]) -> str:
    said = digits(match["digits"] or match["tail"])
    if match["before"]:
        return match["before"] + said
    if match["head"]:
        return f"{digits(match['head'])}, ending in {said}"
    is_object = _PREPOSITION_BEFORE.search(match.string, max(0, match.start() - 6), match.start())
    return f"{'the number ' if is_object else ''}ending in {said}"


def _number_sign(match: re.Match[str]) -> str | None:
    """``your spot # to us`` has a number, "press # to end" a key."""
    return None if _PRESSED_BEFORE.search(match.string, max(0, match.start() - 10), match.start()) else "number"


def _numbered_from(match: re.Match[str]) -> str | None:
    """``0001–4500`` of serial numbers; ``0900-1700`` are hours."""
    first, last = match["first"], match["last"]
    before = match.string[: match.start()]
    if _NAMED_BEFORE.search(before) or _DIALLED.search(before):
        return None
    if "0" not in (first[0], last[0]):
        return None
    if all(map(_HOURS.fullmatch, (first, last))):
        return f"{military(first[:2], first[2:])} to {military(last[:2], last[2:])}"
    return f"{digits(first)} to {digits(last)}" if match["dash"] == "–" and len(first) == len(last) else None


def _numbers_between(match: re.Match[str]) -> str | None:
    """``#1041-1045`` as two numbers; ``#4471-8823`` is one."""
    span = _span(*match.groups())
    return span and f" number {span}"


def _span(first: str, dash: str, last: str) -> str | None:
    """Two numbers of one length, if the second follows the first."""
    is_span = len(first) == len(last) and (dash == "–" or first[:-2] == last[:-2]) and int(first) < int(last)
    return f"{digits(first)} to {digits(last)}" if is_span else None


def _paragraph(match: re.Match[str]) -> str:
    """``10(b)(5)`` as "10 B 5", ``401(k)`` as "four oh one K"."""
    is_named = match[1].isdigit() and len(match[1]) == _NUM_DIGITS_OF_PLAN
    said = [house_number(match[1]) if is_named else match[1], *re.findall(r"\w+", match[2].upper())]
    return " ".join(said) + match[3] + (f" to {match[4].upper()}" if match[4] else "")


def _docket(written: str) -> str:
    """``2:26-cv-0147`` of a court as "two, twenty-six, C V, zero one four seven"."""
    *office, year_of_case, kind, number = re.split("[:-]", written)
    return ", ".join([*map(digits, office), integer(year_of_case), " ".join(kind.upper()), digits(number)])


def _tire(match: re.Match[str]) -> str:
    """``225/65R17`` as "two twenty-five, sixty-five R seventeen"."""
    kind, *numbers = match.groups()
    width, height, rim = map(house_number, numbers)
    return f"{' '.join(kind or '')} {width}, {height} R {rim}".lstrip()


def _iban(match: re.Match[str]) -> str | None:
    """In groups of four, as it is printed; a word of capitals and digits is none without enough digits."""
    written = re.sub(r"\s", "", match.group())
    if sum(character.isdigit() for character in written) < _MIN_IBAN_DIGITS:
        return None
    return spelled(" ".join(written[start : start + 4] for start in range(0, len(written), 4)))


def _fiscal_year(match: re.Match[str]) -> str:
    last = f" to {two_digits(int(match[3]))}" if match[3] else ""
    return f"{' '.join(match[1])} {year(2000 + int(match[2]) % 2000)}{last}"


def _zulu(match: re.Match[str]) -> str | None:
    """``1830Z`` as "eighteen thirty Zulu", unless it is the name of something: model 1200Z."""
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    is_name = _NAMED_BEFORE.search(before) or _ITEM_BEFORE.search(before)
    return None if is_name else f"{military(match[1], match[2])} Zulu"


def _room(match: re.Match[str]) -> str:
    """Room 204 as "two oh four", suite 1200 as "twelve hundred"."""
    rest = "hundred" if match[3] == "00" else two_digits(int(match[3]))
    return f"{match[1]}{integer(match[2])} {rest} {(match[4] or '').upper()}".rstrip()


def _label(match: re.Match[str]) -> str | None:
    """``Txn 4471`` with the word in full, so that the number is read as what it is."""
    said = label(match[1]) if match[1][1:].islower() else None
    return f"{said}{match[2]}" if said and _NAMES.fullmatch(said) else None


say_identifiers = in_order(
    (r"\b([A-Za-z]{2,6})\.?([:\s#]\s?)(?=#?\d|number\b|[A-Z]\b)", _label),
    DIALLED_CODE,
    (r"(?<![\w*#])(?:\d{1,12}#){2,6}(?!\w)", dialled),
    (r"#\s?(\d{3,8})\s?([–-])\s?#?(\d{3,8})(?![\w–-])", _numbers_between),
    (
        _SIGN_BEFORE_NUMBER,
        r" number\1 ",
    ),
    (
        r"#(?=\s(?:is|was|on|for|from|ends?|ready|and|or|with|has|when|please|at|to|in|so|below|above|here)\b|[.,:;?!)]|$)",
        _after(_NUMBERED_BEFORE, lambda _: "number"),
    ),
    (r"\b[Nn]os\.\s(?=\d{4,8}\s?[–-]\s?\d)", "numbers "),
    (_NAMED_SPAN, _after(_NAMES_BEFORE, lambda match: _span(*match.groups()))),
    (r"\b[Ff]lt\b\.?\s(?=#?[A-Z]{0,2}\s?\d)", "Flight "),
    (
        r"(?i)\b((?:hs|hts|tariff)(?:\scodes?|\snumbers?)?(?:\sis)?:?\s)(\d{4}(?:\.\d{2,4}){1,3})(?![\w.-]*\d)",
        lambda match: match[1] + " point ".join(map(digits, match[2].split("."))),
    ),
    (
        r"\b([Yy]our|[Tt]heir|[Oo]ur|[Hh]is|[Hh]er|digit|phone|card|account|ID)\sno\.(?!\s?#?\d)(?=\s[a-z+&]|[,;:])",
        r"\1 number",
    ),
    (_NUMBER_SIGN, _number_sign),
    (_ERROR, digits_behind),
    (_SLASHED, lambda match: " slash ".join(map(spelled, match.group().split("/")))),
    (_STATUS, lambda match: house_number(match.group())),
    (_IPV6, lambda match: re.sub("[^:]+", lambda part: spelled(part.group()), match.group()).replace(":", " colon ")),
    (r"(?<=\]):(\d{2,5})(?!\w)", lambda match: f" colon {digits(match[1])}"),
    (r"(?<![\w-])1Z(?: ?[A-Z0-9]{2,4}){4,6}(?![\w-])", lambda match: spelled(match.group())),
    (r"\b([QH][1-4])\s?[-–]\s?(?=[QH][1-4]\b)", r"\1 to "),
    (
        _NUMBER_ABBREVIATED,
        "number ",
    ),
    (
        r"(?<![\w-])[A-Z]{2}\s?\d\d\s?\d\d\s?\d\d\s?[A-D](?![\w-])",
        lambda match: spelled(match.group()),
    ),  # of the British insurance
    (r"(?<![\w-])[A-Z]{2}\d\d\s?[A-Z]{3}(?![\w-])", lambda match: spelled(match.group())),  # a British plate
    (  # Member ID: XJH 882 910
        r"(?<= )([A-Z]{1,5}(?= \d+ \d)|[A-Z]{1,3}\d{1,7}) (\d{2,6}(?: \d{2,6}){0,5}(?: \d)?)(?![\w-])",
        _after(_NAMED_BEFORE, lambda match: f"{spelled(match[1])}, {digit_groups(match[2])}"),
    ),
    (
        r"\b[Nn]o\.\s?(?=#?[A-Z\d]|(?:and|or|on|in|at|of|from|when|if|for|to|with|has|below|above|followed|please|ready)\b)",
        _after(_NAME_BEFORE, lambda _: "number "),
    ),
    (
        r"(?:(?<=, )|(?<=e\.g\. )|(?<=e\.g\., )|(?<=like )|(?<=such as ))\d{4,8}(?=[,.;?!]|$)",
        _after(_STRONG_BEFORE, each_digit),
    ),
    (r"(?<![\w.,:/$-])(?P<first>\d{4,8})\s?(?P<dash>[–-])\s?(?P<last>\d{4,8})(?![\w–-])", _numbered_from),
    (
        r"(?<![\w:.,$-])([01]\d|2[0-3])([0-5]\d)\s?[–-]\s?([01]\d|2[0-3])([0-5]\d)(?=\s(?:[ECMP][SD]?T|UTC|GMT|hrs?|hours|local)\b)",
        lambda match: f"{military(match[1], match[2])} to {military(match[3], match[4])}",
    ),
    *KEY_RULES,
    (_MASKED, _masked),
    (r"(?<=\()x-?(\d{4})(?=\))", lambda match: f"ending in {digits(match[1])}"),
    (r"(?<![\w/])(P|LT|ST)?(\d{3})/(\d\d)\s?Z?R(\d\d)(?![\w-])", _tire),
    (
        r"(?<![\w.-])(\d{1,2})W-(\d\d)(?![\w-])",
        lambda match: f"{cardinal(int(match[1]))} W {cardinal(int(match[2]))}",
    ),  # oil,
    (_BRANDED, digits_behind),
    (_AFTER_CARD, lambda match: f"{match[1]} ending in {digits(match[2])}"),
    (r"(?<!\w)[Aa]/[Cc](?=\s(?:no\b|number|#|\d|ending in\b))", "account"),
    (r"(?<!\w)0x([0-9A-Fa-f]{2,16})(?!\w)", lambda match: f"zero x {spelled(match[1])}"),
    (
        r"\b((?:SWIFT|BIC)(?: code)?(?: is)?:? )([A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)\b",
        lambda match: match[1] + spelled(match[2]),
    ),
    (
        r"(?<![\w:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:-])",
        lambda match: spelled(re.sub("[:-]", " ", match.group())),
    ),
    (r"(?<![\w-])[A-Z]{2}\d{2}(?:\s?[A-Z0-9]{4}){3,7}(?:\s?[A-Z0-9]{1,3})?(?![\w-])", _iban),
    (r"(?<!\w)#\s?(?=\d{2,}-\d|\d{4,}(?!\w|#))", "number "),
    (r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3}):(\d{2,5})(?!\w)", lambda match: f"{match[1]} colon {digits(match[2])}"),
    *TELEPHONE_RULES,
    (r"(?<![\w.,$£€¥-])(?:\d{1,6}-\d{7,20}|\d{1,4}-\d{6}|\d{7,20}(?:-\d{1,8}){1,4})(?![\w-]|[.,]\d)", each_group),
    (r"(?<![\w-])\d(?:-\d){2,19}(?![\w-])", each_digit),
    *TRAVEL_RULES,
    (r"\b(Q[1-4])\s?'(\d\d)\b", r"\1 20\2"),
    (_GROUPS, each_group),
    (_TWO_GROUPS, each_group),
    (
        r"(?<![\w.,$£€-])(\d{2,4}(?: \d{2,4}){1,4})([A-Z])(?![\w-])",
        lambda match: f"{digit_groups(match[1])} {match[2]}",
    ),
    (r"(?<![\w.,$£€-])(?!(?:0?[1-9]|1[0-2])-|[0-3]\d-(?:0\d|1[0-2])-)\d\d(?:-\d\d){2,4}(?![\w-]|[.,]\d)", each_group),
    (r"([FC]Y)(?<!\w[FC]Y)\s?'?(20\d\d|\d\d)(?:[-/](\d\d))?(?!\w)", _fiscal_year),
    (
        r"(?<![\w-])(?:\d{4}(?:[ -]\d{4}){4}[ -]\d{2}|\d{4}(?:[ -]\d{4}){2,4}|\d{4}[ -]\d{6}[ -]\d{5})(?![\w-])",
        each_group,
    ),  # a card
    (r"(?<![\w-])(?:\d{3}-\d{2}-\d{4}|\d{5}-\d{4})(?![\w-])", each_group),  # of social security, or ZIP+4
    (_HYPHENED_GROUPS, each_group),
    (rf"(?i)\b(?P<name>{grouped(_NAMED_STRONG + '|' + _NAMED_WEAK)})\b\.?{_CONNECTORS}{_VALUE}", _named),
    (_NAMED_MIXED, _named_mixed),
    (r"\b([A-Z])-([1-9]\d0)(?![\w-])", lambda match: f"{match[1]} {house_number(match[2])}"),  # F-150
    (
        r"(?<![\w-])(?![AP]M)([A-Z])([A-Z])-(?=\d{1,2}(?![\w-]|\.\d))",
        r"\1 \2 ",
    ),  # HO-3, which would be a word with a number
    (r"\b([A-Z]{2,5})v(?=\d(?:\.\d)?(?![\w.]))", lambda match: f"{' '.join(match[1])} v "),  # IPv6
    (
        r"(?<![\w.])802\.(11(?=\D|$)|\d{1,2}(?=[A-Za-z]))([A-Za-z]{0,2})(?!\w|\.\d)",
        lambda match: f"eight oh two dot {cardinal(int(match[1]))} {' '.join(match[2].upper())}".rstrip(),
    ),
    (r"(?<![\w:-])(?:\d:)?\d\d-[a-z]{2}-\d{3,6}(?![\w-])", lambda match: _docket(match.group())),
    (_MODEL, lambda match: match[1] + house_number(match[2])),
    (_PART_OF_PART, _after(_PART_BEFORE, _part_of_part)),
    (r"(?<=[\s#])(\d{1,2})-(\d{3,4})(?![\w-]|[.,:/]\d)", _after(_LAW_BEFORE, _part_of_part)),
    (
        r"(?<=\b[Ss]ection )(\d{1,3}\.\d{1,3})-(\d{1,4})((?:\([A-Za-z\d]{1,2}\)){0,3})(?![\w-])",
        lambda match: " ".join([f"{amount(match[1])},", house_number(match[2]), *re.findall(r"\w+", match[3].upper())]),
    ),  # of a code of laws
    (_CHECKED, _checked),
    (r"(?<=\b[Ss]ection )[1-9]\d{3}(?![\w-]|[.,:/]\d)", lambda match: house_number(match.group())),
    (
        r"(?i)(\bnumber\s)(\d{3,8})/(\d{2,4})(?![\w/-]|[.,]\d)",
        lambda match: f"{match[1]}{digits(match[2])} slash {digits(match[3])}",
    ),
    (
        r"(?<=\b[A-Z][a-z]-)(?!(?:19|20)\d\d(?!\d))\d{4,8}(?![\w-])|(?<=\b[A-Z][a-z]{2}-)(?!(?:19|20)\d\d(?!\d))\d{4,8}(?![\w-])",
        each_digit,
    ),
    (  # 1040-EZ, 1099-INTs, Form 8889
        r"(?<![\w.,$-])(10(?:40|98|99))(?:-(?=[A-Z]{1,4}s?\b)|(?=s?\s[Ff]orm))|(?<=\b[Ff]orm )(\d{4})(?![\w.,])",
        lambda match: f"{year(int(match[1] or match[2]))} ",
    ),
    (
        r"(?<![\w$€£.,])(401|403|457)([kKbB])(s?)(?![\w-]|\s(?:copies|people|users|views|dollars|followers|miles)\b)",
        lambda match: f"{house_number(match[1])} {match[2].upper()}{match[3]}",
    ),
    (
        r"(?<![\w.])(\d{1,4}(?:\.\d{1,4})?)(\((?:[a-rt-z]|\d{1,2})\)(?:\((?:[A-Za-z]|\d{1,2})\)){0,3})(s?)(?:\s?[–-]\s?\(([A-Za-z]|\d{1,2})\))?(?!\w)",
        _paragraph,
    ),  # 401(k)s, 10(b)(5)
    (
        _COURSE,
        lambda match: house_number(match[1]),
    ),
    (r"(?<![\w$])(529|457)(?=\s(?:plan|account|college)\b)", lambda match: house_number(match[1])),
    (rf"{_NUMBER_IS}{_NOT_COUNTED}{NOTHING_COUNTED}", lambda match: match[1] + digit_groups(match[2])),
    (
        rf"(?i)(\bnumber )(?!\d11)(\d{{3}}){_NOT_COUNTED}{NOTHING_COUNTED}",
        lambda match: match[1] + house_number(match[2]),
    ),
    (_LIKE_CODES, _like_codes),
    (
        r"(?i)\b((?:codes?|pin|passcode|combination)(?:\s(?:has|have|will|was|were|is|been|be|chang\w+|switch\w+|on|\d[\d/]{0,9}|today|tonight|tomorrow)){1,5}\sfrom\s)(\d{3,8})(\sto\s)(\d{3,8})(?!\w|[.,]\d)"
        + NOTHING_COUNTED,
        lambda match: f"{match[1]}{digits(match[2])}{match[3]}{digits(match[4])}",
    ),
    (_CODE_AFTER_WORDS, digits_behind),
    (_LAST_DIGITS, digits_behind),
    (
        _ENDING,
        digits_behind,
    ),
    *SHORT_NUMBER_RULES,
    (r"(?<=\s)x(\d{4})(?![\w-])", lambda match: f"ending in {digits(match[1])}"),
    (
        rf"(?<![\w.,$#-])(10(?:40|65|9[589]))(?![\w-]|[.,:/]\d|\s?%){NOTHING_COUNTED}",
        lambda match: house_number(match[1]),
    ),
    (_ROOMS_LISTED, lambda match: match[1] + re.sub(r"\d+", lambda each: house_number(each.group()), match[2])),
    (_ROOM, _room),
    (r"(?i)(?<=room, )\d{3,4}(?=,)", lambda match: house_number(match.group())),
    (_ZULU, _zulu),
    (r"#(?=[A-Z]{1,4}[ -]?\d)|(?<=\w )#\s(?=[A-Z]*\d|[A-Z]\b)", "number "),
    (
        r"(?<![\w-])(?=[A-Za-z-]*\d)(?!\d{4}-\d\d-\d\dT\d\d:|\d{1,2}-(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)-\d\d)[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*+(?![\w-])",
        mixed_id,
    ),
)
"""Telephone, card, account and reference numbers and ids of letters and digits in words."""
