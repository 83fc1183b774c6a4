"""Days of the week, months and times of day in further languages, as far as their voices do not say them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from cc_tts.text.others.names import LETTERS, Rule

_JOINTS: Final = r"\s?[-–—~]\s?|\s(?:a|al|au|à|bis|do|до|t/m|til|till|to|až|tot|bez|par)\s"
_CLOCKS: Final = {
    "ko": ("시", "시 {}분"), "ja": ("じ", "じ{}ふん"), "vi": (" giờ", " giờ {}"), "th": (" นาฬิกา", " นาฬิกา {} นาที"),
    "de": (" Uhr", ""), "fr": (" heures", ""), "nl": (" uur", ""),
} | dict.fromkeys(("es", "it", "pt", "ca", "tr", "id", "sv", "da", "nb", "ar", "hi"), ("", ""))  # fmt: skip
"""The words behind a full hour, and those of other times, where voices say "zero zero" or two bare numbers."""
_BEFORE_DOTTED: Final = {
    "id": "pukul|jam", "nl": "om|vanaf|van", "tr": "saat", "da": "klokken", "nb": "klokken", "fi": "kello", "sv": "klockan",
    "it": "ore|alle|dalle",
}  # fmt: skip
"""Words behind which ``14.30`` is a time, in languages whose voices say a point in it."""
_DOTTED: Final = r"([01]?\d|2[0-4])\.([0-5]\d)(?![\d.,])"

_TIME: Final = r"(?<![\d:.,/])(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?![\d:])(?:\s?(?:น\.?|นาฬิกา)(?!\w))?"


def day_rules(words: Mapping[str, Any], joint: str) -> list[Rule]:
    """Rules for short days in a span or before a number, and for short months behind a day."""
    rules: list[Rule] = []
    if days := words["short_days"]:
        day = "|".join(sorted(map(re.escape, days), key=len, reverse=True))

        def span(match: re.Match[str]) -> str:
            between = match[2].strip()
            return f"{days[match[1]]} {between if between.isalpha() or between == 't/m' else joint} {days[match[3]]}"

        rules = [
            (rf"(?<![{LETTERS}.-])({day})\.?({_JOINTS})({day})(?![\w-])\.?", span),
            (rf"(?<=\b[Aa]m )({day})\.(?!\w)", lambda match: days[match[1]]),
            (rf"(?<![\w.-])({day})\.,?\s(?=\d)", lambda match: f"{days[match[1]]} "),
            (
                r"(?<![\w.-])(Mo|Di|Mi|Do|Fr|Sa)(?=\s\d{1,2}(?:[.:–-]\d|\sUhr))",
                lambda match: days.get(match[1], match[1]),
            ),
            (r"(?<![\w.-])([а-я]{2})(?=,?\s\d{1,2}[.:–-])", lambda match: days.get(match[1], match[1])),
        ]
    if months := words["short_months"]:
        month = "|".join(sorted(map(re.escape, months), key=len, reverse=True))

        def name(match: re.Match[str]) -> str:
            ends = not match.string[match.end() :].strip() and match.group().endswith(".")
            return f"{match[1]}{months[match[2]]}{'.' * ends}"

        rules.append((rf"(?<=\d)(\.?\s(?:de\s)?)({month})(?:\.|(?=\s\d{{4}})|(?<=\s[A-ZŞÇ]\w\w)(?!\w))", name))
    return rules


def dotted_clock_rules(code: str) -> list[Rule]:
    """Rules that give times of day a colon, for those behind them."""
    rules: list[Rule] = []
    if before := _BEFORE_DOTTED.get(code):
        rules += [
            (rf"(?i)(\b(?:{before})\s){_DOTTED}", r"\1\2:\3"),
            (rf"(?<=\d:\d\d)(\s?[-–]\s?){_DOTTED}", r"\1\2:\3"),
            (rf"(?<![\d.,]){_DOTTED}(\s?[-–]\s?){_DOTTED}", r"\1:\2\3\4:\5"),
        ]
    match code:
        case "id":
            rules.append((r"(?<![\d.,])([01]\d|2[0-3])\.([0-5]\d)(?![\d.,])", r"\1:\2"))
        case "tr":
            rules.append((r"(?<![\d.,])([01]?\d|2[0-4])\.([0-5]\d)(?=['’][dt])", r"\1 \2"))
        case "ar":
            rules += [
                (r"(?<=:\d\d)\s?([صم])(?![^\W_])", lambda match: " صباحا" if match[1] == "ص" else " مساء"),
                (r"(?<![\d:.,])(\d{1,3}(?:[.,]\d+)?)\s?م(?![^\W_])", r"\1 متر"),
            ]
    return rules


def clock_rules(code: str) -> list[Rule]:
    """Rules for times of day with a colon."""
    words = _CLOCKS.get(code)
    return [] if words is None else [(_TIME, lambda match: _clock(match, *words))]


def _clock(match: re.Match[str], full: str, other: str) -> str:
    hour, minute = int(match["hour"]), int(match["minute"])
    if minute:
        return f"{hour}{other.format(minute)}" if other else match.group()
    return f"{hour}{full.removesuffix('s') if full == ' heures' and hour < 2 else full}"  # noqa: PLR2004 - zéro heure, une heure
