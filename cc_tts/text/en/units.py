"""English words for percentages, units of measurement and the scale letters of 10k and 5M.

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import AMOUNT, AMOUNT_BEGINS, amount, fraction, mixed_number
from cc_tts.text.substitution import ends_sentence, substitute

_UNITS = {
    "km": "kilometer|kilometers",
    "m": "meter|meters",
    "cm": "centimeter|centimeters",
    "mm": "millimeter|millimeters",
    "mi": "mile|miles",
    "ft": "foot|feet",
    "yd": "yard|yards",
    "kg": "kilogram|kilograms",
    "KG": "kilogram|kilograms",
    "Kg": "kilogram|kilograms",
    "g": "gram|grams",
    "mg": "milligram|milligrams",
    "lb": "pound|pounds",
    "lbs": "pound|pounds",
    "oz": "ounce|ounces",
    "l": "liter|liters",
    "L": "liter|liters",
    "ml": "milliliter|milliliters",
    "mL": "milliliter|milliliters",
    "gal": "gallon|gallons",
    "mph": "mile per hour|miles per hour",
    "km/h": "kilometer per hour|kilometers per hour",
    "kph": "kilometer per hour|kilometers per hour",
    "m/s": "meter per second|meters per second",
    "KB": "kilobyte|kilobytes",
    "kB": "kilobyte|kilobytes",
    "MB": "megabyte|megabytes",
    "GB": "gigabyte|gigabytes",
    "TB": "terabyte|terabytes",
    "kbps": "kilobit per second|kilobits per second",
    "mbps": "megabit per second|megabits per second",
    "gbps": "gigabit per second|gigabits per second",
    "Mbps": "megabit per second|megabits per second",
    "Gbps": "gigabit per second|gigabits per second",
    "Hz": "hertz|hertz",
    "kHz": "kilohertz|kilohertz",
    "MHz": "megahertz|megahertz",
    "GHz": "gigahertz|gigahertz",
    "W": "watt|watts",
    "kW": "kilowatt|kilowatts",
    "kWh": "kilowatt hour|kilowatt hours",
    "V": "volt|volts",
    "mAh": "milliamp hour|milliamp hours",
    "h": "hour|hours",
    "hr": "hour|hours",
    "hrs": "hour|hours",
    "min": "minute|minutes",
    "mins": "minute|minutes",
    "sec": "second|seconds",
    "secs": "second|seconds",
    "mo": "month|months",
    "mos": "month|months",
    "wk": "week|weeks",
    "wks": "week|weeks",
    "yr": "year|years",
    "yrs": "year|years",
    "ms": "millisecond|milliseconds",
    "in.": "inch|inches",
    "pt": "pint|pints",
    "qt": "quart|quarts",
    "mcg": "microgram|micrograms",
    "MB/s": "megabyte per second|megabytes per second",
    "dB": "decibel|decibels",
    "sq. ft": "square foot|square feet",
    "°C": "degree Celsius|degrees Celsius",
    "°F": "degree Fahrenheit|degrees Fahrenheit",
    "° C": "degree Celsius|degrees Celsius",
    "° F": "degree Fahrenheit|degrees Fahrenheit",
    "°": "degree|degrees",
    "sq ft": "square foot|square feet",
    "sq m": "square meter|square meters",
    "m squared": "square meter|square meters",
    "km squared": "square kilometer|square kilometers",
    "km cubed": "cubic kilometer|cubic kilometers",
    "cm cubed": "cubic centimeter|cubic centimeters",
    "cm squared": "square centimeter|square centimeters",
    "m cubed": "cubic meter|cubic meters",
    "m2": "square meter|square meters",
    "km2": "square kilometer|square kilometers",
    "m3": "cubic meter|cubic meters",
    "px": "pixel|pixels",
}
UNIT_SYMBOLS = frozenset(_UNITS)
"""Every unit that is known behind a number."""

_LONGEST_FIRST = "|".join(re.escape(symbol) for symbol in sorted(UNIT_SYMBOLS, key=len, reverse=True))
_MEASURE = re.compile(
    rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT})(?P<scale>\s(?:thousand|million|billion|trillion))?(?P<joint> ?|-)"
    rf"(?P<unit>{_LONGEST_FIRST})(?![\w°])(?P<dot>\.?)"
)
_WORDS_WITH_STOP = frozenset(
    {"ft", "mi", "yd", "lb", "lbs", "oz", "gal", "hr", "hrs", "min", "mins", "sec", "secs", "mo", "mos"}
    | {"wk", "wks", "yr", "yrs", "h", "pt", "qt", "sq ft", "sq. ft", "in."}
)
_SECONDS = re.compile(rf"{AMOUNT_BEGINS}(?<!the )(?<!')(?!(?:1[1-9]\d|20\d)0s)(?P<amount>{AMOUNT})s(?!\w)")
_FEET_AND_INCHES = re.compile(
    r"(?<!\w)(\d{1,3})(?:['′]|\s?(?:ft\.?|feet))\s?(\d{1,2})(?:\"|''|″|\s?in\b\.?(?!\s(?:the|a|my|your|our|his|her)\b))"
)
_DEGREES = re.compile(r"\b(degrees?)\s([FC])\b")
_FEET = re.compile(r"(?<![\w'])(\d{1,3})['′](?=\s(?:by|tall|wide|long|deep|high|of)\b)|(?<=by )(\d{1,3})['′](?!\w)")
_INCHES = re.compile(rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT})(?P<mark>\"|″|'')(?!\w)")
_DIMENSIONS = re.compile(r"(?<!\w)(\d{1,4}['\"′″])\s?[x×]\s?(?=\d{1,4}['\"′″])")
_FRACTION_OF = re.compile(
    rf"(?<![\w/.,⁄])(?:(?P<whole>\d{{1,3}})[ -])?(?P<top>\d{{1,2}})[/⁄](?P<bottom>\d{{1,2}})(?:(?P<inch>\"|″)"
    rf"|[ -]?(?P<unit>{_LONGEST_FIRST}))(?![\w°/⁄])(?P<dot>\.?)"
)
_IN_QUOTATION = re.compile(r"(?:^|[\s(])\"(?=[^\s\"])[^\"]*$")
_PERCENT = re.compile(rf"{AMOUNT_BEGINS}({AMOUNT})\s?%")
_SCALE = re.compile(rf"{AMOUNT_BEGINS}({AMOUNT})(k|K|M|bn)(?!\w)")
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "bn": "billion"}
_RESOLUTIONS = frozenset({"4K", "8K"})
_TIMES = re.compile(rf"{AMOUNT_BEGINS}({AMOUNT})x(?![\w-])(?!\s?\d)")
_BY = re.compile(r"(?<!\w)(\d{1,6})\s?[x×]\s?(?=\d{1,6}(?!\w))")
_ONE = frozenset({"1", "1.0"})


def say_measures(text: str) -> str:
    """Percentages, measures and scaled numbers in words."""
    text = substitute(_FEET_AND_INCHES, _feet_and_inches, text)
    text = _DEGREES.sub(lambda match: f"{match[1]} {'Fahrenheit' if match[2] == 'F' else 'Celsius'}", text)
    text = _DIMENSIONS.sub(r"\1 by ", text)
    text = substitute(_FRACTION_OF, _fraction_of, text)
    text = substitute(
        _FEET, lambda match: f"{amount(match[1] or match[2])} {'foot' if match[1] == '1' else 'feet'}", text
    )
    text = substitute(_INCHES, _inches, text)
    text = substitute(_PERCENT, lambda match: f"{amount(match[1])} percent", text)
    text = substitute(_BY, lambda match: f"{amount(match[1])} by ", text)
    text = substitute(_MEASURE, _measure, text)
    text = substitute(_SCALE, _scaled, text)
    text = substitute(_SECONDS, lambda match: f"{amount(match[1])} {_number(match, 'second|seconds')}", text)
    return substitute(_TIMES, lambda match: f"{amount(match[1])} times", text)


def _fraction_of(match: re.Match[str]) -> str | None:
    """``2 1/2 lbs`` as "two and a half pounds", ``3/4 mi`` as "three quarters of a mile"."""
    top, bottom, whole = int(match["top"]), int(match["bottom"]), match["whole"]
    if not 0 < top < bottom or (match["inch"] == '"' and _IN_QUOTATION.search(match.string[: match.start()])):
        return None
    one, _, many = "inch|inches".partition("|") if match["inch"] else _UNITS[match["unit"]].partition("|")
    dot = "." if match["dot"] and ends_sentence(match) else ""
    if whole:
        return f"{mixed_number(int(whole), top, bottom)} {many}{dot}"
    article = "an" if one[0] in "aeiou" or one == "hour" else "a"
    of = "" if (top, bottom) == (1, 2) else "of "
    return f"{'half' if not of else fraction(top, bottom)} {of}{article} {one}{dot}"


def _feet_and_inches(match: re.Match[str]) -> str:
    feet, inches = match[1], match[2]
    return (
        f"{amount(feet)} {'foot' if feet == '1' else 'feet'} {amount(inches)} {'inch' if inches == '1' else 'inches'}"
    )


def _inches(match: re.Match[str]) -> str | None:
    """``15.6"``, unless the mark closes a quotation that began before."""
    if match["mark"] == '"' and _IN_QUOTATION.search(match.string[: match.start()]):
        return None
    return f"{amount(match['amount'])} {_number(match, 'inch|inches')}"


def _measure(match: re.Match[str]) -> str | None:
    unit = match["unit"]
    dot = match["dot"]
    if unit.endswith("."):
        dot = "." if ends_sentence(match) else ""
    elif dot and unit in _WORDS_WITH_STOP and not ends_sentence(match):
        dot = ""
    if match["joint"] == "-":
        if unit.startswith("°"):
            return None
        return f"{amount(match['amount'])}-{_UNITS[unit].partition('|')[0]}{dot}"
    if match["scale"]:
        return f"{amount(match['amount'])}{match['scale']} {_UNITS[unit].partition('|')[2]}{dot}"
    return f"{amount(match['amount'])} {_number(match, _UNITS[unit])}{dot}"


def _number(match: re.Match[str], singular_and_plural: str) -> str:
    singular, _, plural = singular_and_plural.partition("|")
    return singular if match["amount"] in _ONE else plural


def _scaled(match: re.Match[str]) -> str | None:
    if match.group() in _RESOLUTIONS:
        return None
    return f"{amount(match[1])} {_SCALES[match[2]]}"
