"""English postal addresses: house numbers, compass points, kinds of street, states, ZIP codes and postcodes.

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import cardinal, digit_groups, digits, two_digits
from cc_tts.text.substitution import ends_sentence, substitute

_COMPASS = {
    "N": "North",
    "S": "South",
    "E": "East",
    "W": "West",
    "NE": "Northeast",
    "NW": "Northwest",
    "SE": "Southeast",
    "SW": "Southwest",
}
_STREETS = {
    "Aly": "Alley",
    "Ave": "Avenue",
    "Av": "Avenue",
    "Blvd": "Boulevard",
    "Cir": "Circle",
    "Ct": "Court",
    "Cres": "Crescent",
    "Dr": "Drive",
    "Expy": "Expressway",
    "Fwy": "Freeway",
    "Hwy": "Highway",
    "Ln": "Lane",
    "Pkwy": "Parkway",
    "Pl": "Place",
    "Plz": "Plaza",
    "Rd": "Road",
    "Sq": "Square",
    "St": "Street",
    "Ter": "Terrace",
    "Tpke": "Turnpike",
    "Trl": "Trail",
}
_FULL_STREETS = (
    "Street|Avenue|Road|Drive|Lane|Boulevard|Court|Place|Way|Parkway|Highway|Square|Terrace|Circle|Trail|Broadway"
)
_ONLY_STREETS = frozenset({"Ave", "Blvd", "Expy", "Fwy", "Pkwy", "Tpke", "Rd", "Ln"})
_STATES = dict(
    pair.split(":")
    for pair in [
        "AL:Alabama",
        "AK:Alaska",
        "AZ:Arizona",
        "AR:Arkansas",
        "CA:California",
        "CO:Colorado",
        "CT:Connecticut",
        "DE:Delaware",
        "FL:Florida",
        "GA:Georgia",
        "HI:Hawaii",
        "ID:Idaho",
        "IL:Illinois",
        "IN:Indiana",
        "IA:Iowa",
        "KS:Kansas",
        "KY:Kentucky",
        "LA:Louisiana",
        "ME:Maine",
        "MD:Maryland",
        "MA:Massachusetts",
        "MI:Michigan",
        "MN:Minnesota",
        "MS:Mississippi",
        "MO:Missouri",
        "MT:Montana",
        "NE:Nebraska",
        "NV:Nevada",
        "NH:New_Hampshire",
        "NJ:New_Jersey",
        "NM:New_Mexico",
        "NY:New_York",
        "NC:North_Carolina",
        "ND:North_Dakota",
        "OH:Ohio",
        "OK:Oklahoma",
        "OR:Oregon",
        "PA:Pennsylvania",
        "RI:Rhode_Island",
        "SC:South_Carolina",
        "SD:South_Dakota",
        "TN:Tennessee",
        "TX:Texas",
        "UT:Utah",
        "VT:Vermont",
        "VA:Virginia",
        "WA:Washington",
        "WV:West_Virginia",
        "WI:Wisconsin",
        "WY:Wyoming",
        "DC:D_C",
        "PR:Puerto_Rico",
        "ON:Ontario",
        "QC:Quebec",
        "BC:British_Columbia",
        "AB:Alberta",
        "MB:Manitoba",
        "SK:Saskatchewan",
        "NS:Nova_Scotia",
        "NB:New_Brunswick",
    ]
)
_SHORT_STREET = "|".join(sorted(_STREETS, key=len, reverse=True))
_POINT = "NE|NW|SE|SW|[NSEW]"
_NAME = r"(?:[A-Z][\w'-]*|\d{1,3}(?:st|nd|rd|th))\.?"
_STREET = re.compile(
    rf"(?<![\w.,$#-])(?P<house>\d{{1,5}})(?P<letter>[A-Z]?)\s(?:(?P<point>{_POINT})\b\.?\s)?"
    rf"(?P<name>{_NAME}(?:\s{_NAME}){{0,3}}?)\s"
    rf"(?:(?P<short>{_SHORT_STREET}|{_SHORT_STREET.lower()})\b(?P<dot>\.?)|(?P<full>{_FULL_STREETS})\b)(?:\s(?P<quadrant>{_POINT})\b\.?(?!\w))?"
)
_STREET_ALONE = re.compile(
    rf"(?P<name>\b(?:[A-Z][a-z][\w'-]*|\d{{1,3}}(?:st|nd|rd|th)))\s(?P<short>{_SHORT_STREET})\b(?P<dot>\.?)"
)
_POINT_BEFORE_NAME = re.compile(
    r"(?<![\w.])([NSEW])\.?\s(?=(?:[A-Z][a-z]+|\d{1,3}(?:st|nd|rd|th))\s(?:Street|Avenue|Road|Drive|Boulevard|St"
    r"|Ave|Rd|Dr|Blvd)\b)"
)
_ROAD_NUMBER = re.compile(
    r"\b(?P<road>I|US|SR|CR|Route|Rte\.?|Hwy\.?|Highway|Interstate)(?P<joint>[- ])(?P<number>\d{1,4})(?:\s"
    r"(?P<point>[NSEW])\b)?(?![\w-])"
)
_ROADS = {
    "SR": "State Route",
    "CR": "County Road",
    "Rte": "Route",
    "Rte.": "Route",
    "Hwy": "Highway",
    "Hwy.": "Highway",
}
_STATE = "|".join(_STATES)
_STATE_AND_ZIP = re.compile(
    rf"(?<=[a-z.], )(?P<state>{_STATE})\.?(?:,?\s(?P<zip>\d{{5}}(?:-\d{{4}})?))?(?![\w-])(?!\.\w)"
)
_BARE_ZIP = re.compile(rf"\b(?P<state>{_STATE})\s(?P<zip>\d{{5}}(?:-\d{{4}})?)(?![\w-]|[.,]\d)")
_POSTCODE = re.compile(r"(?<![\w-])(?:[A-Z]{1,2}\d[A-Z\d]?\s\d[A-Z]{2}|[A-Z]\d[A-Z]\s?\d[A-Z]\d)(?![\w-])")
_FORT = re.compile(r"\bFt\.?(?=\s[A-Z][a-z])")
_NEXT_IS_NAME = re.compile(r"\s[A-Z]\w+")
_LONGEST_PAIRED = 4


def say_postal_addresses(text: str) -> str:
    """House numbers, streets, states and postcodes in words: "twelve twenty-five Main Street, San Jose, California"."""
    text = substitute(_POSTCODE, lambda match: spelled(match.group()), text)
    text = substitute(_STREET, _street, text)
    text = substitute(_ROAD_NUMBER, _road, text)
    text = substitute(_STATE_AND_ZIP, _state, text)
    text = substitute(_BARE_ZIP, _state, text)
    text = substitute(_POINT_BEFORE_NAME, lambda match: f"{_COMPASS[match[1]]} ", text)
    text = substitute(_STREET_ALONE, _street_alone, text)
    return substitute(_FORT, lambda _: "Fort", text)


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
    said = [house_number(match["house"])]
    said += [match["letter"], _COMPASS.get(match["point"] or "", ""), match["name"]]
    said += [
        _STREETS[match["short"].capitalize()] if match["short"] else match["full"],
        _COMPASS.get(match["quadrant"] or "", ""),
    ]
    dot = _kept_dot(match, match.group())
    return " ".join(part for part in said if part) + (
        "," if dot and _NEXT_IS_NAME.match(match.string, match.end()) else dot
    )


def _street_alone(match: re.Match[str]) -> str | None:
    """``5th Ave`` and ``King Blvd``; ``St`` and ``Dr`` behind a name may be the beginning of the next one."""
    short = match["short"]
    if short not in _ONLY_STREETS and not (match["name"][0].isdigit() or (short not in {"St", "Dr"} and match["dot"])):
        return None
    return f"{match['name']} {_STREETS[short]}{_kept_dot(match, match.group())}"


def _kept_dot(match: re.Match[str], written: str) -> str:
    return "." if written.endswith(".") and ends_sentence(match) else ""


def _road(match: re.Match[str]) -> str:
    road, point = _ROADS.get(match["road"], match["road"]), _COMPASS.get(match["point"] or "", "")
    number = match["number"]
    said = house_number(number) if len(number) > 2 else cardinal(int(number))  # noqa: PLR2004 - 101 as "one oh one"
    return " ".join(part for part in (road if road != "US" else "U S", said, point) if part)


def _state(match: re.Match[str]) -> str | None:
    if match["zip"] is None and not _is_after_place(match):
        return None
    name = _STATES[match["state"]].replace("_", " ")
    dot = "" if match["zip"] else _kept_dot(match, match.group())
    return f"{name} {digit_groups(match['zip'])}" if match["zip"] else name + dot


def _is_after_place(match: re.Match[str]) -> bool:
    """``Austin, TX``: a capitalised name before the comma."""
    return re.search(r"\b[A-Z][a-z]+\.?, $", match.string[: match.start()]) is not None
