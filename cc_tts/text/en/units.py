"""English words for percentages, units of measurement and the scale letters of 10k and 5M."""

import re

from cc_tts.text.en.numbers import AMOUNT, AMOUNT_BEGINS, amount, cardinal, counted, fraction, mixed_number, plural
from cc_tts.text.en.postal_addresses import COMPASS, house_number
from cc_tts.text.substitution import in_order, kept_stop, precedes_noun, qualifies_noun

_FOOT = ("foot", "feet")
_INCH = ("inch", "inches")
_REGULAR = {
    "km": "kilometer(s)", "m": "meter(s)", "cm": "centimeter(s)", "mm": "millimeter(s)", "mi": "mile(s)",
    "yd, yds": "yard(s)", "kg, KG, Kg": "kilogram(s)", "g": "gram(s)", "mg": "milligram(s)", "lb, lbs": "pound(s)",
    "oz": "ounce(s)", "l, L": "liter(s)", "ml, mL": "milliliter(s)", "gal": "gallon(s)", "mph": "mile(s) per hour",
    "km/h, kph": "kilometer(s) per hour", "m/s": "meter(s) per second", "KB, kB": "kilobyte(s)", "MB": "megabyte(s)",
    "GB": "gigabyte(s)", "TB": "terabyte(s)", "kbps": "kilobit(s) per second", "mbps, Mbps": "megabit(s) per second",
    "gbps, Gbps": "gigabit(s) per second", "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz",
    "W": "watt(s)", "kW": "kilowatt(s)", "kWh": "kilowatt hour(s)", "V": "volt(s)", "mAh": "milliamp hour(s)",
    "h, hr, hrs": "hour(s)", "min, mins": "minute(s)", "sec, secs": "second(s)", "mo, mos": "month(s)",
    "wk, wks": "week(s)", "yr, yrs": "year(s)", "ms": "millisecond(s)", "pt": "pint(s)", "qt, qts": "quart(s)",
    "mcg": "microgram(s)", "MB/s": "megabyte(s) per second", "dB": "decibel(s)", "°C, ° C": "degree(s) Celsius",
    "°F, ° F": "degree(s) Fahrenheit", "°": "degree(s)", "sq m, m2, m squared": "square meter(s)",
    "km2, km squared": "square kilometer(s)", "km cubed": "cubic kilometer(s)", "cm cubed": "cubic centimeter(s)",
    "cm squared": "square centimeter(s)", "m3, m cubed": "cubic meter(s)", "px": "pixel(s)",
    "mpg, MPG": "mile(s) per gallon", "MPH": "mile(s) per hour", "Kbps": "kilobit(s) per second", "pk": "pack",
    "pct": "percent",
    "Gb/s": "gigabit(s) per second", "Mb/s": "megabit(s) per second", "GB/s": "gigabyte(s) per second",
    "pc, pcs": "piece(s)", "doz": "dozen",
    "tsp": "teaspoon(s)", "tbsp, Tbsp, tbs": "tablespoon(s)", "c.": "cup(s)", "ft-lb, ft-lbs, lb-ft": "foot-pound(s)",
    "dL, dl": "deciliter(s)", "ug, μg": "microgram(s)",
    "ng": "nanogram(s)", "uL, μL": "microliter(s)",
    "mmol": "millimole(s)", "mol": "mole(s)", "umol, μmol": "micromole(s)", "nmol": "nanomole(s)",
    "mEq": "milliequivalent(s)", "IU": "international unit(s)",
    "mIU": "milli international unit(s)", "cal": "calorie(s)",
    "kcal": "kilocalorie(s)", "MW": "megawatt(s)", "t": "ton(s)", "ac., ac": "acre(s)",
    "sq mi, mi squared": "square mile(s)", "sq yd, yd squared": "square yard(s)", "sq km": "square kilometer(s)",
    "sq in, in squared": "square inch(es)", "ft3, ft cubed": "cubic foot(s)",
    "cu ft, cu. ft": "cubic foot(s)", "cu yd, cu. yd": "cubic yard(s)", "cu in": "cubic inch(es)", "cf": "cubic foot(s)",
    "mmHg": "millimeter(s) of mercury", "psi": "pounds per square inch", "rpm, RPM": "revolution(s) per minute",
    "bpm, BPM": "beat(s) per minute", "nt, nts": "night(s)", "bps": "basis point(s)", "ct": "count",
    "ppm": "parts per million", "ppb": "parts per billion", "kt, kts, kn": "knot(s)", "hp": "horsepower",
    "mA": "milliamp(s)", "Ah": "amp hour(s)", "kVA": "kilovolt amp(s)", "BTU": "B T U", "BTUs": "B T Us",
    "BTU/h, BTU/hr": "B T U per hour",
    "kJ": "kilojoule(s)", "kPa": "kilopascal(s)", "hPa": "hectopascal(s)", "lm": "lumen(s)",
    "Nm, N·m, N-m": "newton meter(s)",
    "sh": "share(s)", "fl oz, fl. oz": "fluid ounce(s)",
    "MWh": "megawatt hour(s)", "BR, bd": "bedroom(s)", "BA, ba": "bath(s)",
    "bbl": "barrel(s)", "cc": "cubic centimeter(s)", "gpm": "gallon(s) per minute", "cfm": "cubic feet per minute",
    "KiB": "kibibyte(s)", "MiB": "mebibyte(s)", "GiB": "gibibyte(s)", "PB": "petabyte(s)", "fps": "frame(s) per second",
    "dpi": "dots per inch", "Wh": "watt hour(s)", "GW": "gigawatt(s)", "GWh": "gigawatt hour(s)", "kV": "kilovolt(s)",
    "mV": "millivolt(s)", "nm": "nanometer(s)", "ns": "nanosecond(s)", "MP": "megapixel(s)", "in-lb": "inch-pound(s)",
    "pg/mL, pg/ml": "picogram(s) per milliliter", "μm": "micrometer(s)", "μs": "microsecond(s)",
    "Ω": "ohm(s)", "kΩ": "kilohm(s)",
}  # fmt: skip
_UNITS = {
    symbol: (re.sub(r"\(e?s\)", "", name), name.replace("foot(s)", "feet").replace("(s)", "s").replace("(es)", "es"))
    for symbols, name in _REGULAR.items()
    for symbol in symbols.split(", ")
}
"""Units by their sign: singular and plural."""
_UNITS |= {"ft": _FOOT, "in.": _INCH} | dict.fromkeys(
    ("sq ft", "sq. ft", "sqft", "sf", "ft2", "ft squared"), ("square foot", "square feet")
)
SINGULARS = {symbol: one for symbol, (one, _) in _UNITS.items()}
PLURALS = frozenset(many for _, many in _UNITS.values() if many.endswith("s"))
UNIT_SYMBOLS = frozenset(_UNITS)
"""Every unit that is known behind a number."""

_LONGEST_FIRST = "|".join(re.escape(symbol) for symbol in sorted(UNIT_SYMBOLS, key=len, reverse=True))
_NAMED_ALONE = "|".join(
    each
    for each in UNIT_SYMBOLS
    if len(each) > 2 and each.isalpha() and not each[1:].islower() and not each.rstrip("s").isupper()  # noqa: PLR2004 - initials
)
"""Signs such as kWh, which are no words, also without a number: "usage in kWh". Capitals may be a name: MPG Corp."""
_MEASURE = (
    rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT})(?P<scale>\s(?:thousand|million|billion|trillion))?(?P<joint> ?|-)"
    rf"(?!t-|ac\s(?:units?|vents?|filters?|adapters?|outlets?|motors?|systems?|compressors?|power)\b)(?P<unit>{_LONGEST_FIRST})(?![\w°])\.?"
)
_MEASURES_BETWEEN = rf"{AMOUNT_BEGINS}({AMOUNT} ?(?P<unit>{_LONGEST_FIRST}))\s?[-–—]\s?(?={AMOUNT} ?(?P=unit)(?![\w°]))"
"""A dash stands between two measures of one unit: 10GB-20GB."""
_INJECTED = re.compile(r"\b(?:insulin|lantus|humalog|novolog|heparin|levemir|glargine|aspart|lispro)\b", re.IGNORECASE)
_PERIODS = "mos?|yrs?|wks?|hrs?|mins?|secs?|months?|years?|weeks?|days?"
_DAYS = (
    r"(?<![\w.,$£€-])(\d{1,3})(?:\s|(?<=x \d)|(?<=for \d)|(?<=x \d\d)|(?<=for \d\d))d\b(?!['’/-])"
    r"(?!(?<=\b[23] d)\s(?:print|model|scan|draw|view|render|animat|movie|film|glass|game|graphic|image|object"
    r"|art|shape|effect))\.?"
)
"""10 d of a medicine are days; 3 d of a printer is not."""
_LONGEST_MEASURE = 40
_MEASURE_BEFORE = re.compile(rf"\d[ -]?({_LONGEST_FIRST})\.?$")
_DOSES = "mg|mcg|ug|μg|ng|g|mEq|mmol|IU|mL|ml|units?"
_RATE = (
    rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT}) ?(?P<unit>{_LONGEST_FIRST})\s?/\s?(?P<per>{_LONGEST_FIRST})(?![\w°])\.?"
    rf"|{AMOUNT_BEGINS}(?P<dose>{AMOUNT}) ?(?P<drug>{_DOSES})\s?/\s?(?={AMOUNT} ?[A-Za-z])"
)
_FEET_AND_INCHES = (
    r"(?<!\w)(\d{1,3})(?:['′]|\s?(?:ft\.?|feet))\s?(\d{1,2})(?:\"|''|″|\s?in\b\.?(?!\s(?:the|a|my|your|our|his|her)\b))"
)
_FRACTION_OF = (
    rf"(?<![\w/.,⁄])(?:(?P<whole>\d{{1,3}})[ -])?(?P<top>\d{{1,2}})[/⁄](?P<bottom>\d{{1,2}})(?:(?P<inch>\"|″)"
    rf"|(?P<joint>[ -]?)(?P<unit>{_LONGEST_FIRST}|%))(?![\w°/⁄])\.?"
)
_OF_RECIPES = frozenset({"cup", "teaspoon", "tablespoon", "pound", "ounce", "pint", "quart"})
_OF_THINGS = frozenset(
    {"millimeter", "centimeter", "meter", "foot", "inch", "yard", "watt", "volt", "milliamp hour", "kilovolt amp"}
)
"""Before a noun these tell its size: 0.5 mm pencil; doses do not: 500 mg amoxicillin."""
_MEASURED_PARTS = frozenset({2, 3, 4, 5, 6, 8, 10, 12, 16, 32, 64})
"""Denominators of a fraction of a measure. Other slashes separate two measures, as in 28/36 mpg."""
_COORDINATE = (
    r"(?<![\w.,])(\d{1,3}(?:\.\d{1,6})?)\s?°\s?(?:(\d{1,2}(?:\.\d{1,6})?)['′]\s?"
    r"(?:(\d{1,2}(?:\.\d{1,6})?)(?:\"|″|'')\s?)?)?([NSEW])(?![\w'])"
)
_RATE_AFTER = re.compile(r"\s(?:rate|rating|price|charge|usage|meter|reading|cost|limit|allowance|battery)s?\b")
_LENGTHS = {"ft": _FOOT, "feet": _FOOT, "foot": _FOOT, "in": _INCH, "inch": _INCH, "inches": _INCH} | {
    symbol: _UNITS[symbol] for symbol in ("cm", "mm", "m", "km", "yd", "px")
}
_LENGTH = "|".join(sorted(_LENGTHS, key=len, reverse=True))
_NO_SIDE = "|".join(
    re.escape(each)
    for each in sorted(UNIT_SYMBOLS - set(_LENGTHS), key=len, reverse=True)
    if each[0] not in "sc°" and each != "in."
)
_DIMENSION = (
    rf"(?:{AMOUNT_BEGINS}(?<![/⁄])|(?<=\d[x×]))(?P<amount>{AMOUNT})(?:\s?(?P<length>{_LENGTH})\b\.?)?\s?[x×]\s?"
    rf"(?={AMOUNT}(?:(?![\w.])|\s?[x×]\s?\d|\s?(?:{_LENGTH})\b|\.(?!\d)))"
)
_SIDES = {"W": "wide", "D": "deep", "H": "high", "L": "long"}
_SIDE = rf"{AMOUNT_BEGINS}({AMOUNT})\s?(\"|″|''|in\.?|cm|mm|ft)\s?([WDHL])(?!\w)"
_VOWEL_BEGINS = re.compile("[aeio]|hour")
_IN_QUOTATION = re.compile(r"(?:^|[\s(])\"(?=[^\s\"])[^\"]*$")
_QUOTATION = 80
"""Characters of a quotation in which a number stands; unmeasured."""
_QUOTED = re.compile(r"(?<!\w)'(?=\w)")
_TEMPERATURE = re.compile(
    r"\b(?:temp|thermostat|degree|heat|cool|weather|outside|oven|highs?\b|lows?\b|warm|cold)", re.IGNORECASE
)
_LOOK_AROUND_CHARACTERS = 100  # unmeasured
_ELECTRIC = re.compile(
    r"\b(?:fuse|breaker|circuit|volt|charg(?:er|ing)|outlet|socket|mains|current|amp)s?\b|\d\s?V\b|\bvolts\b",
    re.IGNORECASE,
)
_MIN_NAMED_DIGITS = 3  # unmeasured
_SECONDS_BEFORE = re.compile(
    r"\b(?:in|for|after|within|every|last(?:s|ed)?|takes?|took|wait(?:ed)?|about|than|under|over|timeout|(?:time|limit|delay|"
    r"timeout|interval) (?:is|was|of)):?\s$",
    re.IGNORECASE,
)
_MINUTES = (
    r"(?i)\b((?:wait\w*|every|took|takes?|last(?:s|ed)?|timeout|et[ar]|mtt\w|rpo|rto|sla|delay(?:ed)?|duration|session|hold)"
    r"(?: time)?(?: is| was| of| for| by|:| =)?\s"
    r"(?:[<>~]|(?:under|over|about|up to|less than|more than|at least) )?)(\d{1,2})m(?!\w)"
)
_AGES = (
    r"\b([Uu]nder|[Oo]ver|to(?=\s\d{1,2}s\s(?:pay|go|are|get|travel|ride|fly|eat|can|need)\b)) (\d{1,2})s"
    r"(?=\s(?!on|in|for|when|with|and|at|of|after|per|each|to|from|before|until|or|if|by)[a-z])"
)
"""Under 3s go free, but calls are answered in under 3s on average."""
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "bn": "billion"}
_PIECES = (
    r"(?i)(?=\d)(?:(?<=: )|(?<=, )|(?<=and )"
    r"|(?<=shipped )|(?<=ordered )|(?<=receive )|(?<=received )|(?<=sent )|(?<=returned )|^)"
    r"(\d{1,3})x(?= [a-z])(?! (?:an?|the|on|in|at|of|over|per|each|every|\w+ly|as|more|less|points?|miles|rewards|cash|speed"
    r"|zoom|(?:fast|slow|larg|bigg|high|low|long|short|cheap|great|small|strong|quick|wid|thick|heavi|light|old|rich)er|better|worse)\b)"
)
"""A quantity in an order: "3x printer ink" is three of it, "2x daily" is two times."""


def _fraction_of(match: re.Match[str]) -> str | None:
    """``2 1/2 lbs`` as "two and a half pounds", ``3/4 mi`` as "three quarters of a mile"."""
    top, bottom, whole = int(match["top"]), int(match["bottom"]), match["whole"]
    if not 0 < top < bottom or _closes_quotation(match, "inch"):
        return None
    one, many = _INCH if match["inch"] else _UNITS.get(match["unit"], ("percent", "percent"))
    if not whole and top > 1 and bottom not in _MEASURED_PARTS:
        return f"{cardinal(top)}, {cardinal(bottom)} {many}{kept_stop(match)}"
    is_attribute = (match["inch"] or one in _OF_RECIPES) and precedes_noun(match)
    if whole:
        return f"{mixed_number(int(whole), top, bottom)} {one if is_attribute and match['inch'] else many}{kept_stop(match)}"
    if is_attribute:
        said = fraction(top, bottom).replace("quarters", "quarter")
        return f"{said.removeprefix('one ') if match['inch'] and bottom == 2 else said} {one}"  # noqa: PLR2004
    if match["joint"] == "-":
        return f"{fraction(top, bottom)} {one}{kept_stop(match)}"
    part = "half" if (top, bottom) == (1, 2) else f"{fraction(top, bottom)} of"
    return f"{part} {'an' if _VOWEL_BEGINS.match(one) else 'a'} {one}{kept_stop(match)}"


def _closes_quotation(match: re.Match[str], mark: str | int) -> bool:
    """Whether a mark that could stand for inches ends a quotation that began before."""
    return match[mark] == '"' and _IN_QUOTATION.search(match.string[: match.start(mark)]) is not None


def _is_long(match: re.Match[str]) -> bool:
    """Whether ``6'`` is the length of the thing behind it and not the end of a quotation."""
    return (
        precedes_noun(match) and _QUOTED.search(match.string, max(0, match.start() - _QUOTATION), match.start()) is None
    )


def _dimension(match: re.Match[str]) -> str:
    """``8 ft x`` as "eight feet by", ``8.5 x`` as "eight point five by"."""
    written, unit = match["amount"], match["length"]
    return f"{counted(written, *_LENGTHS[unit]) if unit else amount(written)} by "


def _coordinate(match: re.Match[str]) -> str:
    """``33°44'56"N`` as "thirty-three degrees forty-four minutes fifty-six seconds North"."""
    parts = zip(match.groups()[:3], ("degree", "minute", "second"), strict=True)
    said = (counted(re.sub(r"^0(?=\d)", "", part), unit, f"{unit}s") for part, unit in parts if part)
    return " ".join([*said, COMPASS[match[4]]])


def _fahrenheit(match: re.Match[str]) -> str | None:
    """``72F`` where a temperature is spoken of; it may be a seat."""
    return f"{amount(match[1])} degrees Fahrenheit" if _TEMPERATURE.search(match.string) else None


def _amps(match: re.Match[str]) -> str | None:
    """``13 A`` where electricity is spoken of; it may be a seat or a room."""
    said = f"{amount(match[1])} amp" if qualifies_noun(match) else counted(match[1], "amp", "amps")
    start, end = max(0, match.start() - _LOOK_AROUND_CHARACTERS), match.end() + _LOOK_AROUND_CHARACTERS
    return said if _ELECTRIC.search(match.string, start, end) else None


def _inches(match: re.Match[str]) -> str | None:
    if _closes_quotation(match, 2):
        return None
    return f"{amount(match[1])} inch" if precedes_noun(match) else counted(match[1], *_INCH)


def _rate(match: re.Match[str]) -> str:
    """``131 mg/dL`` as "one hundred thirty-one milligrams per deciliter"; ``2.5 mg/`` before a volume likewise."""
    if match["drug"]:
        return f"{counted(match['dose'], *_UNITS.get(match['drug'], ('unit', 'units')))} per "
    said = f"{counted(match['amount'], *_UNITS[match['unit']])} per {_UNITS[match['per']][0]}"
    return said + kept_stop(match)


def _many_of_number(match: re.Match[str]) -> str:
    """``30s`` as thirty seconds; ``747s`` and ``1099s`` as the plural of what has that number."""
    is_count = (
        "." in match[1]
        or len(match[1]) < _MIN_NAMED_DIGITS
        or match.string[match.start() - 1 : match.start()] == "="
        or _SECONDS_BEFORE.search(match.string, max(0, match.start() - 20), match.start())
    )
    return (
        counted(match[1], "second", "seconds") if is_count or not match[1].isdigit() else plural(house_number(match[1]))
    )


def _slash(match: re.Match[str]) -> str | None:
    """``3 yr/36,000 mi`` as "or"; a pause between measures of one unit, as in 16 GB/512 GB."""
    before = _MEASURE_BEFORE.search(match.string, max(0, match.start() - 14), match.start())
    if not before:
        return None
    is_same = re.match(
        rf"{AMOUNT} ?{re.escape(before[1])}(?!\w)", match.string[match.end() : match.end() + _LONGEST_MEASURE]
    )
    return ", " if is_same else " or "


def _measure(match: re.Match[str]) -> str | None:
    unit = match["unit"]
    dot = kept_stop(match)
    one, many = _UNITS[unit]
    if match["joint"] == "-":
        return (
            None
            if unit.startswith("°")
            else f"{amount(match['amount'])}-{one}{dot if match.end() == len(match.string) else ''}"
        )
    if (qualifies_noun(match) or (one in _OF_THINGS and not dot and precedes_noun(match))) and " per " not in one:
        return f"{amount(match['amount'])} {one}{dot}"
    if match["scale"]:
        return f"{amount(match['amount'])}{match['scale']} {many}{dot}"
    return counted(match["amount"], one, many) + dot


say_measures = in_order(
    (
        r"(?<![\w.])(\d)\s?[x×]\s?(\d{1,2})s(?!\w)",
        lambda match: f"{cardinal(int(match[1]))} by {plural(cardinal(int(match[2])))}",
    ),  # timber
    (r"(?<=[\"″])\s?o\.c\.", " on center"),
    (r"\bM(\d{1,2}(?:\.5)?)\s?[x×]\s?(?=\d)", r"M \1 by "),  # a screw
    (_COORDINATE, _coordinate),
    (rf"(?<=\d)\s?[x×]\s?(?={AMOUNT}[ -]?(?:{_NO_SIDE})(?!\w))", " times "),  # 2 x 250 mg
    (rf"(?<=\()({AMOUNT}) in(?=\))", lambda match: counted(match[1], *_INCH)),
    (r"(?:(?<=[/⁄]\d)|(?<=[/⁄]\d\d))\s?[x×]\s?(?=\d)", " by "),
    (r"(?<=\d['\"′″])\s?[x×]\s?(?=\d{1,4}(?:\.\d{1,2}|(?:[ -]\d{1,2})?[/⁄]\d{1,2})?['\"′″])", " by "),
    (_FEET_AND_INCHES, lambda match: f"{counted(match[1], *_FOOT)} {counted(match[2], *_INCH)}"),
    (r"(?<=[a-z])\s?°\s?(?=[FC]\b)", " degrees "),  # the low seventies °F
    (r"\b(degrees?)\sF\b", r"\1 Fahrenheit"),
    (r"\b(degrees?)\sC\b", r"\1 Celsius"),
    (_SIDE, lambda match: f"{counted(match[1], *_LENGTHS.get(match[2], _INCH))} {_SIDES[match[3]]}"),
    (r"(?:(?<=wide)|(?<=deep)|(?<=high)|(?<=long))\s?[x×]\s?(?=[a-z])", " by "),
    (_DIMENSION, _dimension),
    (
        rf"(?<= by )({AMOUNT}) in\b(?!\.|\s(?:the|a|my|your|our|his|her|total|all)\b)",
        lambda match: counted(match[1], *_INCH),
    ),
    (_FRACTION_OF, _fraction_of),
    (rf"({AMOUNT}) in(?=\s(?:wide|tall|long|deep|thick|high)\b)", lambda match: counted(match[1], *_INCH)),
    (r"(?<![\w.,])(\d{3,4})p(?=(?:\d\d)?(?!\w))", lambda match: f"{house_number(match[1])} p "),
    (r"(?i)(?<=\d)[ -]?y(?:/?o\b|\.\s?o\.)", " year old"),
    (r"\b([Tt]he|[Aa]|an) ([58]|1[0125])K(?=[\s.,;!?]|$)", r"\1 \2 K"),  # a race
    (
        r"(?<![\w.,$£€])([2-9]\d00|1[5-9]00|10000)\s?K(?!\w)(?!\s[a-z]{3,}s\b)",
        lambda match: f"{amount(match[1])} kelvin",
    ),  # the color of light
    (r"(?<=\d)[kK](?=\s(?:run|race|walk|TV|monitor|display|video|screen|resolution)\b)", " K"),
    (r"(?<![\w.,-])(\d{2,3}(?:\.\d)?)\s?F(?!\w)", _fahrenheit),
    (
        r"(?<![\w/.,])(\d{2,3})/(\d{2,3})\s?mmHg\b",
        lambda match: f"{amount(match[1])} over {amount(match[2])} millimeters of mercury",
    ),
    (
        r"(?<![\w.,])(\d{1,3})\s?[uU]\b(?![.-]\w)",
        lambda match: counted(match[1], "unit", "units") if _INJECTED.search(match.string) else None,
    ),
    (
        r"(?<![\w'.-])(?<!by )(\d{1,3})['′](?=\s[A-Za-z])(?!\s(?:pen|og)\b)",
        lambda match: f"{cardinal(int(match[1]))} foot" if _is_long(match) else None,
    ),
    (r"(?<![\w',])(\d{1,3},\d{3}|\d{3,5})['′](?!\w)", lambda match: counted(match[1], *_FOOT)),
    (r"(?<=[A-Za-z])\s[x×]\s?(?=(?:\d{1,3}(?: to |-))?\d{1,3}\s?(?:d|days?|wks?|weeks?|mos?|months?)\b)", " for "),
    (r"(?<=°)\s?/\s?(?=lo(?:w)?\b|hi(?:gh)?\b)", ", "),
    (r"\b([Hh])i(?=\s-?\d{1,3}\s?°)", r"\1igh"),
    (r"\b([Ll])o(?=\s-?\d{1,3}\s?°)", r"\1ow"),
    (r"(?<=\d)M(?=\s?(?:mi|miles|lbs?|ft|sq|km|gal|kg)\b)", " million"),
    (r"(?<=\d)[kK](?=\s?(?:mi|miles|lbs?|ft|sq|km|gal|kg)\b)", " thousand"),
    (  # 10 d of a medicine, 41 d of a server
        _DAYS,
        lambda match: counted(match[1], "day", "days") + kept_stop(match),
    ),
    (
        r"(?<![\w'])(\d{1,3})['′](?=\s(?:by|tall|wide|long|deep|high|of)\b)|(?<=by )(\d{1,3}(?:\.\d{1,2})?)['′](?!\w)",
        lambda match: counted(match[1] or match[2], *_FOOT),
    ),
    (rf"{AMOUNT_BEGINS}({AMOUNT})(\"|″|'')(?!\w)", _inches),
    (rf"{AMOUNT_BEGINS}({AMOUNT})\s?%", lambda match: f"{amount(match[1])} percent"),
    (r"(?<=\dV)\s?[/,@]\s?([\d.]{1,5})\s?A\b", lambda match: f", {counted(match[1], 'amp', 'amps')}"),
    (r"(?<![\w.,-])(\d{1,3}(?:\.\d{1,2})?)\s?A(?![\w-])", _amps),
    (_MINUTES, r"\1\2 min"),
    (_MEASURES_BETWEEN, r"\1 to "),
    (rf"(\d\s?(?:{_PERIODS})\.?)\s?[–—]\s?(?=\d{{1,3}}\s?(?:{_PERIODS})\b)", r"\1 to "),
    (_RATE, _rate),
    (rf"(?:(?<=per minute)|(?<=per hour)|(?<=per day))/(?={AMOUNT} ?(?:{_LONGEST_FIRST})(?!\w))", " per "),
    (
        r"(?<=\d)\s?(?:BR|bd)\s?/\s?(\d(?:\.5)?)\s?(?:BA|ba)(?=\s[a-z])(?!\s(?:for|at|on|in|with|and|or|to)\b)",
        r" bedroom \1 bath",
    ),
    (r"(?i)(?<=\d)( ?(?:BR|bds?))\s?/\s?(?=\d)", r"\1, "),
    (
        rf"\s?/\s?(?={AMOUNT} ?(?:{_LONGEST_FIRST})(?!\w))",
        _slash,
    ),  # 3 yr/36,000 mi
    (r"(?<=\d)-pt\b\.?(?=\s(?!bottle|carton|jar|container|can\b))", "-point"),
    (_MEASURE, _measure),
    (
        rf"(\b(?:per|an?|each|every|one)\s)?(?<![\w/&-])({_NAMED_ALONE})(?![\w/&-])",
        lambda match: (
            f"{match[1] or ''}{_UNITS[match[2]][0 if match[1] or _RATE_AFTER.match(match.string, match.end()) else 1]}"
        ),
    ),
    (rf"{AMOUNT_BEGINS}(?![48]K)({AMOUNT})(k|K|M|bn)(?!\w)", lambda match: f"{amount(match[1])} {_SCALES[match[2]]}"),
    (r"(?<=[A-Za-z])-(\d{1,2})s\b", lambda match: f" {plural(cardinal(int(match[1])))}"),  # W-2s, under-12s
    (_AGES, lambda match: f"{match[1]} {plural(cardinal(int(match[2])))}"),
    (
        rf"{AMOUNT_BEGINS}(?<!the )(?<!')(?!(?:1[1-9]\d|20\d)0s)({AMOUNT}) ?s(?![\w'’])",
        _many_of_number,
    ),
    (_PIECES, r"\1"),
    (rf"{AMOUNT_BEGINS}({AMOUNT})[x×](?![\w-])(?!\s?\d)", lambda match: counted(match[1], "time", "times")),
)
"""Percentages, measures and scaled numbers in words."""
