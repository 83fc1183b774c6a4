"""English postal addresses: house numbers, compass points, kinds of street, states, ZIP codes and postcodes."""

import re

from cc_tts.text.en.numbers import cardinal, digit_groups, digits, two_digits
from cc_tts.text.sentences import BEGINS_SENTENCE
from cc_tts.text.substitution import in_order, kept_stop

COMPASS = {
    "N": "North", "S": "South", "E": "East", "W": "West", "NE": "Northeast", "NW": "Northwest", "SE": "Southeast",
    "SW": "Southwest", "NNE": "North-northeast", "ENE": "East-northeast", "ESE": "East-southeast", "SSE": "South-southeast",
    "SSW": "South-southwest", "WSW": "West-southwest", "WNW": "West-northwest", "NNW": "North-northwest",
}  # fmt: skip
_STREETS = {
    "Aly": "Alley", "Ave": "Avenue", "Av": "Avenue", "Blvd": "Boulevard", "Cir": "Circle", "Ct": "Court",
    "Cres": "Crescent", "Dr": "Drive", "Expy": "Expressway", "Fwy": "Freeway", "Hwy": "Highway", "Ln": "Lane",
    "Pkwy": "Parkway", "Pl": "Place", "Plz": "Plaza", "Rd": "Road", "Sq": "Square", "St": "Street", "Ter": "Terrace",
    "Tpke": "Turnpike", "Trl": "Trail",
}  # fmt: skip
_FULL_STREETS = (
    "Street|Avenue|Road|Drive|Lane|Boulevard|Court|Place|Way|Parkway|Highway|Square|Terrace|Circle|Trail|Broadway"
)
_ONLY_STREETS = frozenset({"Ave", "Blvd", "Expy", "Fwy", "Pkwy", "Tpke", "Rd", "Ln"})
_STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii", "ID": "Idaho",
    "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana",
    "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota", "MS": "Mississippi",
    "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada", "NH": "New Hampshire", "NJ": "New Jersey",
    "NM": "New Mexico", "NY": "New York", "NC": "North Carolina", "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma",
    "OR": "Oregon", "PA": "Pennsylvania", "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota",
    "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont", "VA": "Virginia", "WA": "Washington",
    "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming", "DC": "D C", "PR": "Puerto Rico", "ON": "Ontario",
    "QC": "Quebec", "BC": "British Columbia", "AB": "Alberta", "MB": "Manitoba", "SK": "Saskatchewan",
    "NS": "Nova Scotia", "NB": "New Brunswick",
}  # fmt: skip
_PROVINCES = {
    "NL": "Newfoundland and Labrador", "PE": "Prince Edward Island", "NT": "Northwest Territories", "NU": "Nunavut",
    "YT": "Yukon",
}  # fmt: skip
"""Only before a Canadian postcode: NL and NT are other places, too."""
_STATE = "|".join(_STATES)
_SHORT_STREET = "|".join(sorted(_STREETS, key=len, reverse=True))
_POINT = "NN[EW]|E[NS]E|SS[EW]|W[NS]W|[NS][EW]|[NSEW]"
_NAME = r"(?:[A-Z][\w'-]*|\d{1,3}(?:st|nd|rd|th))\.?"
_STREET = (
    rf"(?<![\w.,$#/⁄-])(?:(?P<first>\d{{1,5}})\s?–\s?)?(?P<house>\d{{1,5}})(?P<half>\s1[/⁄]2)?-?(?P<letter>(?<!-)[A-Z]?|(?<=-)[A-Z])\s(?:(?P<point>{_POINT})\b\.?\s)?"
    rf"(?P<name>{_NAME}(?:\s{_NAME}){{0,3}}?)\s"
    rf"(?:(?P<short>{_SHORT_STREET}|{_SHORT_STREET.lower()})\b(?P<dot>\.?)|(?P<full>{_FULL_STREETS})\b)"
    rf"(?:\s(?P<quadrant>{_POINT})\b\.?(?!\w))?"
)
_STREET_ALONE = (
    rf"(?P<name>\b(?:[A-Z][a-z][\w'-]*|[A-Z]{{2,4}}|\d{{1,3}}(?:st|nd|rd|th)))(?P<junior> [JS]r\.?)?"
    rf"\s(?P<short>{_SHORT_STREET})\b(?P<dot>\.?)(?:\s(?P<quadrant>{_POINT})\b(?!['’&/-]|\s\d))?"
)
_POINT_BEFORE_NAME = (
    r"(?<=\d )([NSEW])\.?\s(?=\d{1,3}(?:st|nd|rd|th)\b)"
    r"|(?<![\w.])([NSEW])\.?\s(?=Broadway\b|(?:[A-Z][a-z]+|\d{1,3}(?:st|nd|rd|th))\s(?:Street|Avenue|Road|Drive|Boulevard|St"
    r"|Ave|Rd|Dr|Blvd)\b)"
)
_POINT_AT_CORNER = (
    r"((?:\d(?:st|nd|rd|th)|\b[Ss]treet|\b[Aa]venue|\b[Aa]ve\.?|\bSt\.?)\s(?:and|&|at)\s"
    r"|\b(?:corner|block) of\s)([NSEW])\.?\s(?=[A-Z][a-z])"
)
_DIRECTION = (
    r"(?:(?<=\) )|(?<=[Ww]ind: )|(?<=[Ww]inds: )|\b(?P<before>"
    r"(?:winds?|blocks?|blks?\.?|miles?|mi\.?|km|feet|ft\.?|yards?|yds?\.?|(?i:head|go|going|turn"
    rf"|drive|walk|travel|continue|heading|bound|keep|bear))\s))(?P<point>{_POINT})\b\.?(?=\s(?:@|on|of|to|from|towards?|along|for|at|past|until|and|then"
    r"|about|into|through|via|down|up|\d|[IUS]-?\d)|[,;.]|$)"
)
_SIDE = (
    rf"(?=[NSEW]{{1,3}}\s[sce])(?<![\w.'’-])(?P<before>)(?P<point>(?![NSEW]\s)(?:{_POINT})"
    r"|(?:(?<=\b[Tt]he )|(?<=[,;:(] )|(?<=\bon )|(?<=\bat )|(?<=\bto )|(?<=\bfrom )|^)[NSEW])"
    r"(?=\s(?:side|corner|end|entrance|exit)\b)"
)
_ROAD_NUMBER = (
    rf"\b(?P<road>I|US|SR|CR|Route|Rte?\.?|Hwy\.?|Highway|Interstate|(?:{_STATE})(?=-\d{{1,3}}\b))[- ](?P<number>\d{{1,4}})"
    r"(?P<letter>[A-Z]?)(?:\s(?P<point>[NSEW])\b(?:\.(?=,|\s[a-z]))?)?(?![\w-]|\.\d)"
)
_POINTS = {"N": "North", "S": "South"}
"""East and west behind the number belong to the name: I-35W, Route 9W."""
_ROADS = {
    "US": "U S", "SR": "State Route", "CR": "County Road", "Rte": "Route", "Rte.": "Route", "Rt": "Route", "Rt.": "Route",
    "Hwy": "Highway", "Hwy.": "Highway",
}  # fmt: skip
_NEXT_IS_NAME = re.compile(r"\s[A-Z]\w+")
_LONGEST_PAIRED = 4


def spelled(written: str) -> str:
    """Letters and digits one by one, a comma where white space or a hyphen parts them: ``SW1A 1AA``."""
    return ", ".join(
        " ".join(
            digits(character) if character.isdigit() else character.upper() for character in part if character.isalnum()
        )
        for part in re.split(r"[\s-]+", written)
        if part
    )


def house_number(written: str) -> str:
    """``350`` as "three fifty", ``1225`` as "twelve twenty-five", ``1600`` as "sixteen hundred", five digits one by one."""
    number = int(written)
    if len(written) > _LONGEST_PAIRED or written[0] == "0":
        return digits(written)
    if number < 100 or number % 1000 == 0:  # noqa: PLR2004 - of two digits, or a round thousand
        return cardinal(number)
    first, last = divmod(number, 100)
    return f"{cardinal(first)} {two_digits(last) if last else 'hundred'}"


def _street(match: re.Match[str]) -> str:
    kind = match["full"] or _STREETS[match["short"].capitalize()]
    half = "and a half" if match["half"] else ""
    first = f"{house_number(match['first'])} to" if match["first"] else ""
    said = (first, house_number(match["house"]), half, match["letter"], _compass(match["point"]), match["name"], kind)
    stop = kept_stop(match)
    goes_on = stop and _NEXT_IS_NAME.match(match.string, match.end())
    return " ".join(filter(None, (*said, _compass(match["quadrant"])))) + ("," if goes_on else stop)


def _compass(written: str | None) -> str:
    return COMPASS[written] if written else ""


def _street_alone(match: re.Match[str]) -> str | None:
    """``5th Ave`` and ``King Blvd``; ``St`` and ``Dr`` behind a name may be the beginning of the next one."""
    short = match["short"]
    if short not in _ONLY_STREETS and not (match["name"][0].isdigit() or (short not in {"St", "Dr"} and match["dot"])):
        return None
    junior = {"J": " Junior", "S": " Senior"}.get((match["junior"] or "")[1:2], "")
    quadrant = f" {_compass(match['quadrant'])}" if match["quadrant"] else ""
    return f"{match['name']}{junior} {_STREETS[short]}{quadrant}{kept_stop(match)}"


def _direction(match: re.Match[str]) -> str:
    return f"{match['before'] or ''}{COMPASS[match['point']].lower()}{kept_stop(match)}"


def _road(match: re.Match[str]) -> str:
    road, number = match["road"], match["number"]
    said = house_number(number) if len(number) > 2 else cardinal(int(number))  # noqa: PLR2004 - 101 as "one oh one"
    return " ".join(
        filter(
            None,
            (
                _ROADS.get(road) or (" ".join(road) if road in _STATES else road),
                said,
                _POINTS.get(match["letter"], match["letter"]),
                _compass(match["point"]),
            ),
        )
    )


def _state(match: re.Match[str]) -> str | None:
    """``TX 78701``; without a ZIP code only behind a capitalised name and a comma."""
    name = _STATES[match["state"]]
    if match["zip"]:
        return f"{name} {digit_groups(match['zip'])}"
    before = match.string[: match.start()]
    if match["state"] == "MD" and re.search(r"(?:\bDr\.?|\b[A-Z]\.)(?: [A-Z][\w.]*){0,3}, $", before):
        return None  # a degree
    is_after_place = re.search(r"\b[A-Z]\w+\.?, $", before)
    return name + kept_stop(match) if is_after_place else None


say_postal_addresses = in_order(
    (r"\b([NS])\.\s?([EW])\.(?=\s(?:\d|[A-Z][a-z]))", r"\1\2"),
    (
        r"\b(ON|QC|BC|AB|MB|SK|NS|NB|NL|PE|NT|NU|YT)(?=,?\s[A-Z]\d[A-Z]\s?\d[A-Z]\d(?!\w))",
        lambda match: _STATES.get(match[1]) or _PROVINCES[match[1]],
    ),
    (r"\bNY(?=,\sNY\b)", "New York"),
    (
        r"(?<![\w-])(?:[A-Z]{1,2}\d[A-Z\d]?\s\d[A-Z]{2}|[A-Z]\d[A-Z]\s?\d[A-Z]\d)(?![\w-])",
        lambda match: spelled(match.group()),
    ),
    (_STREET, _street),
    (
        r"(?<![\w.,$#-])\d{3,5}(?=\s(?:Hwy\.?|Highway|Rte\.?|Route|County Road|SR|CR|US)[ -]\d)",
        lambda match: house_number(match.group()),
    ),
    (_SIDE, _direction),
    (_ROAD_NUMBER, _road),
    (rf"(?<=[a-zà-ÿ.], )(?P<state>{_STATE})\.?(?:,?\s(?P<zip>\d{{5}}(?:-\d{{4}})?))?(?![\w-])(?!\.\w)", _state),
    (rf"\b(?!ID\b)(?P<state>{_STATE})\s(?P<zip>\d{{5}}(?:-\d{{4}})?)(?![\w-]|[.,]\d)", _state),
    (r"(?<![\w.,$#/-])\d{3,5}(?=\s(?:[NSEW]\.?\s)?Broadway\b)", lambda match: house_number(match.group())),
    (r"\b(NSW|VIC|QLD|WA|SA|TAS|NT|ACT)\s(\d{4})(?![\w-]|[.,]\d)", lambda match: f"{match[1]} {digits(match[2])}"),
    (
        r"(?:(?<=\bat )|(?<=\bto )|(?<=\bof )|(?<=\bnear )|(?<=: ))(\d{2,5})\s([NSEW])\.?\s(?=[A-Z][a-z]+)",
        lambda match: (
            None
            if BEGINS_SENTENCE.match(match.string, match.end())
            else f"{house_number(match[1])} {COMPASS[match[2]]} "
        ),
    ),
    (_DIRECTION, _direction),
    (_POINT_AT_CORNER, lambda match: f"{match[1]}{COMPASS[match[2]]} "),
    (_POINT_BEFORE_NAME, lambda match: f"{COMPASS[match[1] or match[2]]} "),
    (_STREET_ALONE, _street_alone),
    (r"\bFt\.?(?=\s[A-Z][a-z])", "Fort"),
    (r"\bSt-(?=[A-Z])", "Saint-"),
    (r"\bSte-(?=[A-Z])", "Sainte-"),
)
"""House numbers, streets, states and postcodes in words: "twelve twenty-five Main Street, San Jose, California"."""
