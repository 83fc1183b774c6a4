"""English flight and train numbers: "Flight U A fifteen forty-nine", "Delta twenty-two oh eight"."""

import re

from cc_tts.text.en.numbers import NOTHING_COUNTED, integer
from cc_tts.text.en.postal_addresses import house_number, spelled

_NUMBER = rf"(?P<number>\d{{1,4}})(?![\w-]|[.,:/]\d|\s?%){NOTHING_COUNTED}"
_CARRIER = r"(?:[Ff]lights?|Train|train(?=\s(?:number|no|#))|Amtrak|Acela)"
_FLIGHT = (
    rf"\b(?P<carrier>{_CARRIER}\s(?:number\s|[Nn]o\.?\s|#)?)(?:(?P<airline>[A-Z]{{2}}|[A-Z]\d|\d[A-Z])[ -]?)?{_NUMBER}"
)
_AIRLINE = "AA|AC|AF|AI|AS|B6|BA|CX|DL|EI|EK|EY|F9|HA|IB|JL|KE|KL|LH|LX|NH|NK|QF|QR|SQ|TK|UA|VS|WN|WS|6E"
_BY_CODE = rf"(?=[A-Z\d]{{2}}[ -]\d)(?<![\w-])(?P<carrier>)(?P<airline>{_AIRLINE})[ -]{_NUMBER}"


_OF_FLIGHTS = r"(\b[Ff]lights\s\d{1,4}(?:,\s\d{1,4}){0,3},?\s(?:and|or|&)\s)(\d{3,4})(?![\w-]|[.,:/]\d)"
_SEATS = (
    r"(?i)(\b[a-z]{3,12}s\s)(\d{1,3})([A-K])\s?[-–]\s?"
    r"(?=\d{1,3}[A-K]\b)"
)
_ROW = r"(?<=\b[Ss]eats )(\d{1,3})([A-K])\s?[-–]\s?(?=[A-K]\b)"
_OF_TRAVEL = re.compile(
    r"(?:\b(?i:flights?|dep(?:arts?|arting)?\.?|nonstop|fly(?:ing)?|fares?|from)\b|\b[A-Z\d]{2} ?\d{2,4}\b)[^.!?]{0,24}$|\($"
)
"""Behind these and in brackets stands a route from airport to airport."""


def _flight(match: re.Match[str]) -> str:
    """``UA 1549`` as "U A fifteen forty-nine"."""
    number = match["number"]
    said = f"{spelled(match['airline'])} " if match["airline"] else ""
    paired = len(number) > 2 and not number.endswith("00") and number[0] != "0"  # noqa: PLR2004
    carrier = re.sub(r"[Nn]o\.?\s|#", "number ", match["carrier"])
    return f"{carrier}{said}{house_number(number) if paired else integer(number)}"


def _departs(match: re.Match[str]) -> str:
    """``dep. 6:45`` as "departs", ``will arr. on`` as "will arrive on"."""
    verb = "depart" if match[2] else "arrive"
    return f"{match[1]}{verb} " if match[1] else f"{verb}s "


TRAVEL_RULES = (
    (
        r"(?<![\w–-])([A-Z]{3})\s?[->]\s?(?=[A-Z]{3}(?![\w–-]))",
        lambda match: f"{match[1]} to " if _OF_TRAVEL.search(match.string[: match.start()]) else None,
    ),
    (_OF_FLIGHTS, lambda match: match[1] + house_number(match[2])),
    (_FLIGHT, _flight),
    (_BY_CODE, _flight),
    (  # Boeing 737-800, Airbus A320
        r"(?<=\bBoeing )(7\d7)(?:-(\d{1,3}))?(?![\w-])",
        lambda match: house_number(match[1]) + (f" {integer(match[2])}" if match[2] else ""),
    ),
    (r"(?<![\w-])A((?<=\bAirbus A)\d{3}|3[1-8]0)(?![\w-])", lambda match: f"A {house_number(match[1])}"),
    (r"(?<![\w-])(7[0-8]7)(?=\s(?:MAX|Max|Dreamliner|jet|aircraft|plane)\b)", lambda match: house_number(match[1])),
    (r"(?<![\w-])(7[0-8]7)-(?=(?:[89]|10|[1-9]00)(?![\w-]))", lambda match: f"{house_number(match[1])} "),
    (_SEATS, r"\1\2 \3 to "),
    (r"(?<=\b[Ss]eat )(\d{1,3})K(?!\w)", r"\1 K"),
    (r"(\b[A-Za-z]{3,12}s\s)([A-Z]\d?)\s?[-–]\s?(?=[A-Z]\d?(?![\w-]))", r"\1\2 to "),
    (_ROW, r"\1 \2 to "),
    (r"(?<![\w–-])([A-Z]{3})\s?–\s?(?=[A-Z]{3}(?![\w–-]))", r"\1 to "),
    (
        r"\b((?:will|to|should|may)\s)?(?:([Dd])ep|[Aa]rr)(?:\.?\s(?=\d{1,2}:\d\d|[A-Z]{3}\s)|\.\s(?=(?:on|at|from|by)\b|[A-Z][a-z]+\s\d))",
        _departs,
    ),
)
