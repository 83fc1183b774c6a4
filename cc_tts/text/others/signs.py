"""Dates, sums of money, units, telephone numbers and abbreviations of further languages in words.

espeak-ng, and the Piper voices that take its phonemes, say the numbers of their languages, but spell or leave out signs
(``-3 °C``, ``45 zł``, ``₪``, ``Nr.``) and the marks of a date. ``words.json`` has the words of each language, made of the
Unicode CLDR by ``lab/cldr_words.py``; ``abbreviations.tsv`` has those that CLDR has not.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import resources
from typing import Any, Final

from num2words import num2words

from cc_tts.text.characters import digits_to_ascii
from cc_tts.text.language import UNSPACED, subtags
from cc_tts.text.others.abbreviations import NUMBER_BEHIND, abbreviations
from cc_tts.text.others.days import clock_rules, day_rules, dotted_clock_rules
from cc_tts.text.others.names import first_rules, last_rules, middle_rules, names_of_signs
from cc_tts.text.sentences import precedes_ordinal
from cc_tts.text.substitution import rewriter
from cc_tts.text.web_addresses import with_stand_ins

_ORDINAL_DAYS: Final = {"de": "{}n", "da": "{}", "nb": "{}", "fi": "{}"}
"""Languages whose days are ordinal numbers that num2words knows, with the ending that they have behind am and vom."""
_FIRST: Final = {"fr": "1er", "it": "primo"}
"""The first of a month, in languages whose other days are plain numbers."""
_HOUR_WORDS: Final = {"de": "Uhr", "nl": "uur"}
"""They stand behind a time, and are said between its numbers."""
_BEFORE_DAYS: Final = {"de": "[Aa]m|[Vv]om|[Zz]um|[Aa]b|[Bb]is|[Ss]eit|[Dd]e[mnr]"}
"""The words behind which ``3.11.`` is a day and no version."""
_BEFORE_SLASHED: Final = {
    "es": "el|del|al", "fr": "le|du|au", "it": "il|del|dal|al", "pt": "em|dia|até", "vi": "ngày|hạn", "id": "tanggal|tempo",
}  # fmt: skip
"""The words behind which ``5/12`` is a day."""
_ACCUSATIVE: Final = {"ru": ("а", "у"), "uk": ("а", "у"), "pl": ("a", "ę"), "cs": ("a", "u"), "sk": ("a", "u")}
"""The endings of feminine words, and those behind the word for "per"."""
_AND_CENTS: Final = {"es": "con ", "it": "e ", "pt": "e ", "ca": "amb "}
_DOLLAR_IS_PESO: Final = frozenset({"mx", "ar", "cl", "co", "uy"})
_UNSPACED: Final = frozenset({"ja", "ko"})
"""Languages that put no space between a number and the name of a currency."""
_SAME_SIGNS: Final = {
    "℃": "°C", "° C": "°C", "٪": "%", "㎡": "m²", "m2": "m²", "㎥": "m³", "m3": "m³", "㎏": "kg", "㎞": "km", "㎝": "cm",
    "㎜": "mm", "㎖": "ml",
}  # fmt: skip
_FULL_WIDTH: Final = "#$%&*+-/0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
_ONE_FORM: Final = str.maketrans({chr(ord(each) + 0xFEE0): each for each in _FULL_WIDTH} | {"٫": ".", "٬": ","})
"""A table for :meth:`str.translate`: characters of full width, but marks, and the marks of Arabic numbers."""
_STYLED: Final = re.compile("[Ⅰ-ⅿﬀ-ﬆ\U0001d400-\U0001d7ff]+")
"""Roman numerals, ligatures and letters of formulas that are one character."""
_NO_SUPERSCRIPTS: Final = re.compile("[^²³]+")
_YEAR: Final = r"(?:19|20|25)\d\d"
"""A year of our time; Thai counts 543 more."""
_HOUR: Final = "h"
_SCALE: Final = (
    r"(?:(?:[Mm]il\w*|[Mm]io\b\.?|[Mm]rd\b\.?|[Bb]n|мил\w*|млн|млрд|тыс\b\.?|тис\b\.?|tys\b\.?|tis|mln|mld|tsd|juta|ribu|triệu|tỷ"
    r"|مليون|مليار|ألف)\b|लाख|करोड़|हज़ार|अरब|ล้าน|만|억)"
)
_OF_MILLIONS: Final = dict.fromkeys(("es", "pt", "fr", "ca", "ro"), "de ") | {"it": "di "}
_NO_STOP: Final = r"(?:\.(?=\s?[,;)]|\s[^\W\dA-Z_]|\s[\d+]))?"
"""The full stop of an abbreviation, where it certainly ends no sentence."""
_NO_WORD_BEFORE: Final = rf"(?:(?<![\w.,:/+-])|(?<={UNSPACED})|(?<=[가-힣]))"
_NO_NUMBER_BEFORE: Final = r"(?<!\d)(?<!\d\s)"
_NO_WORD_BEHIND: Final = r"(?![A-Za-zÀ-ɏḀ-ỿ\d/:-]|[.,]\d)"
"""Around numbers; scripts without spaces have words right beside them."""
_ENDS_WORD: Final = r"(?![^\W\d_])"
_LONG_RUN: Final = 7
"""A run of at least this many digits names something, and they are said one by one (unmeasured)."""
_OF_THREES: Final = re.compile(r"(?<!\d)\d{3} \d{3} (?!000)\d{3}$")
"""The end of a telephone number that several voices would say as millions: 0 800 123 456."""
_COUNTED_NOUN: Final = re.compile(r"\s[^\W\d_]{6}")
_LONG_GROUP: Final = 4
"""A group of at least this many digits in a telephone number is said digit by digit, and a shorter one as a number
(unmeasured).
"""


def say_signs(text: str, language: str) -> str:
    """``text`` with dates, sums, units, telephone numbers and abbreviations in words that espeak-ng leaves out, spells or
    says otherwise.
    """
    code, *others = subtags(language)
    words = _tables().get(code)
    if words is None:
        return text
    text = _STYLED.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _NO_SUPERSCRIPTS.sub(lambda match: digits_to_ascii(match.group()), text.translate(_ONE_FORM))
    text, with_addresses = with_stand_ins(text, names_of_signs()[code], " ".join)
    rules = words.rules(is_peso=not _DOLLAR_IS_PESO.isdisjoint(others))
    return digits_to_ascii(with_addresses(rules(text)))


def decimal_mark(code: str) -> str:
    """The mark before the decimals in numbers of a language."""
    words = _tables().get(code)
    return words.decimal_mark if words else ","


@cache
def _tables() -> dict[str, "_Words"]:
    words = json.loads(resources.files("cc_tts.text.others").joinpath("words.json").read_text("utf-8"))
    return {code: _Words(code, of_language, abbreviations().get(code, {})) for code, of_language in words.items()}


class _Words:
    """The words of one language in the tables, and the rules that say them."""

    def __init__(self, code: str, words: Mapping[str, Any], abbreviations: Mapping[str, str]) -> None:
        self._code = code
        self._words = words
        self._abbreviations = abbreviations
        self._units: dict[str, Mapping[str, str]] = {unit: forms for unit, forms in words["units"].items() if forms}
        self._unit_of: dict[str, str] = dict.fromkeys(self._units) | words["signs_of_units"] | _SAME_SIGNS
        self.decimal_mark: str = words["decimal"]
        self.rules = cache(self._rules)

    def _rules(self, *, is_peso: bool) -> Callable[[str], str]:
        spaces = "\u00a0\u202f" + " " * self._words["groups_by_spaces"]
        number = rf"(?:\d{{1,3}}(?:[.,'’{spaces}]\d{{2,3}}){{0,5}}[.,'’{spaces}]\d{{3}}|\d+)"
        amount = rf"(?<![\d.,/:])(?P<whole>{number})(?:(?P<mark>[.,])(?P<part>\d{{1,2}}))?(?![.,:/]?\d)"
        money, unit = (
            _alternatives(self._words["signs_of_money"], "A-Za-zÀ-ɏḀ-ỿ", r"^\W\d_"),
            _alternatives(self._unit_of),
        )
        per = rf"(?:\s?/\s?(?P<of>{unit}){_NO_STOP}|(?P<per>\s?/\s?(?=[^\W\d_]{{2}})))?"
        say_sum = partial(self._sum, is_peso=is_peso)
        minus = self._abbreviations.get("-#")
        telephone = rf"{_NO_WORD_BEFORE}\+?\(?\d{{1,5}}\)?(?:[ .-]{{1,2}}\(?\d{{2,8}}\)?)+{_NO_WORD_BEHIND}"
        names = sorted(
            {name for forms in self._words["money"].values() for name in forms.values()}, key=len, reverse=True
        )
        named = rf"(?:\s?(?:{'|'.join(map(re.escape, names))}){'' if self._code in _UNSPACED else _ENDS_WORD})?"
        per_word = (
            [(r"(?<=\d)\s?/\s?(?=(?!bis\b|ter\b)[^\W\d_]{3})", f" {self._words['per']} ")] if self._words["per"] else []
        )
        return rewriter(
            *first_rules(self._code),
            *day_rules(self._words, names_of_signs()[self._code]["–"]),
            *self._date_rules(),
            *dotted_clock_rules(self._code),
            *(
                _abbreviation(*each)
                for each in sorted(self._abbreviations.items(), key=lambda each: -len(each[0].rstrip("#_ ")))
                if each[0] != "-#"
            ),
            (rf"{telephone}(?!\s?(?:{money}|{unit}))", _telephone),
            (
                rf"{_NO_WORD_BEFORE}\d{{{_LONG_RUN},}}{_NO_WORD_BEHIND}(?!\s?(?:{money}))",
                lambda match: " ".join(match.group()),
            ),
            *middle_rules(self._code),
            *clock_rules(self._code),
            (
                rf"{_NO_NUMBER_BEFORE}(?P<sign>{money})\s?(?P<amount>\d[\d.,]*)\s?(?P<scale>{_SCALE}){named}",
                self._scaled_sum,
            ),
            (rf"{_NO_NUMBER_BEFORE}(?P<sign>{money})\s?{amount}(?:\s?(?P<code>{money}))?{named}{per}", say_sum),
            (rf"{amount}\s?(?P<sign>{money}){_NO_STOP}{per}", say_sum),
            *([(rf"(?:(?<![\w.)-])|(?<={UNSPACED}))[-\u2212](?=\d)", f"{minus} ")] if minus else ()),
            (rf"(?<![\d.,:])(?P<number>\d{{1,2}})\s?(?P<unit>{_HOUR})(?P<minutes>[0-5]\d)(?!\d)", self._quantity),
            (rf"(?P<number>\b\d{{1,2}}:\d\d)\s?(?P<unit>{_HOUR})(?![\w/'’])", self._quantity),
            (r"(?<![\d.,])(?P<unit>[%٪])(?P<number>\d+(?:[.,]\d+)?)", self._quantity),
            (rf"(?<![\d.,:])(?P<number>{number}(?:[.,]\d+)?)\s?(?P<unit>{unit}){_NO_STOP}", self._quantity),
            *per_word,
            *last_rules(self._code, minus or "-"),
        )

    def _date_rules(self) -> Iterator[tuple[str, Callable[[re.Match[str]], str]]]:
        """Rules for dates with a year, and for those without one that cannot be anything else."""
        begin, day, month, mark = (
            r"(?<![\d./])(?<!\d-)",
            r"(?P<day>\d{1,2})",
            r"(?P<month>\d{1,2})",
            r"(?P<mark>[./-])\s?",
        )
        same = r"(?P=mark)\s?"
        yield rf"{begin}{day}{mark}{month}{same}(?P<year>{_YEAR})(?!-?\d)", self._date
        yield rf"{begin}(?P<year>{_YEAR}){mark}{month}{same}{day}(?!-?\d)", self._date
        yield rf"{begin}(?P<day>\d\d)(?P<mark>[./])(?P<month>\d\d)(?P=mark)(?P<year>\d\d)(?![./-]?\d)", self._date
        first, second = (month, day) if self._words["is_year_first"] else (day, month)
        yield rf"{begin}(?=0\d/|\d\d/0){first}/{second}(?![\d/])", self._date
        late = r"(?P<day>1[3-9]|2\d|3[01])"
        early = r"(?P<month>1[0-2]|[1-9])"
        first, second = (early, late) if self._words["is_year_first"] else (late, early)
        yield rf"{begin}(?!24/7\b){first}/{second}(?![\d/])", self._date
        if before := _BEFORE_SLASHED.get(self._code):
            yield rf"(?<=\b)(?P<before>(?:{before})\s){day}/{month}(?![\d/])", self._date
        if self._words["is_year_first"]:
            yield rf"{begin}{month}/{day}(?=\s?[（(])", self._date
        if self._code in _ORDINAL_DAYS:
            yield (
                rf"(?<![\d.]){day}\.\s?(?={'|'.join(self._words['months'])})",
                lambda match: f"{self._day(match['day'])} ",
            )
            yield rf"(?P<before>\b[^\W\d]{{2,}}\s)?(?<![\d.]){day}\.(?=\s[^\W\d_])", self._ordinal
        if word := _HOUR_WORDS.get(self._code):
            time = r"(?<![\d.:])(\d{1,2})[.:]([0-5]\d)"
            yield (
                rf"{time}(?=\s?[-–]\s?\d{{1,2}}(?:[.:][0-5]\d)?\s?{word}\b)",
                lambda match: match[1] if match[2] == "00" else f"{match[1]}:{match[2]}",
            )
            yield rf"{time}\s?{word}\b", _time_with(word)
        if words := _BEFORE_DAYS.get(self._code):
            yield rf"(?<=\b)(?P<before>(?:{words})\s){day}\.{month}(?P<stop>\.(?!\d))", self._date

    def _date(self, match: re.Match[str]) -> str:
        day, month, *_ = int(match["day"]), int(match["month"])
        if not (1 <= day <= 31 and 1 <= month <= 12):  # noqa: PLR2004 - days of a month, months of a year
            return match.group()
        fields = {"d": self._day(match["day"]), "m": self._words["months"][month - 1]}
        groups = match.groupdict()
        if year := groups.get("year"):
            return str(self._words["date"].format(**fields, y=year if len(year) > 2 else f"20{year}"))  # noqa: PLR2004
        ends_text = "stop" in groups and match.end() == len(match.string)
        return f"{groups.get('before', '')}{self._words['day_and_month'].format(**fields)}{'.' * ends_text}"

    def _ordinal(self, match: re.Match[str]) -> str:
        """``die 3. Mahnung``, ``im 2. Stock``, ``3. sal``."""
        before, goes_on = match["before"] or "", match.string[match.end() :].lstrip()
        if not goes_on[0].islower() and not precedes_ordinal(match.string[: match.start("day")]):
            return match.group()
        said = self._day(match["day"])
        if self._code == "de" and re.fullmatch(r"|Der |(?i:das|\w*e|ein|ihr|mein|unser) ", before):
            said = said.removesuffix("n") + "r" * before.endswith(("hr ", "in ", "ser "))
        return f"{before}{said}"

    def _day(self, day: str) -> str:
        number = int(day)
        if number == 1 and self._code in _FIRST:
            return _FIRST[self._code]
        ending = _ORDINAL_DAYS.get(self._code)
        return (
            ending.format(num2words(number, lang={"nb": "no"}.get(self._code, self._code), to="ordinal"))
            if ending
            else str(number)
        )

    def _sum(self, match: re.Match[str], *, is_peso: bool) -> str:
        sign, part = match.groupdict().get("code") or match["sign"], match["part"]
        forms = self._words["money"]["MXN" if is_peso and sign == "$" else self._words["signs_of_money"][sign]]
        whole = re.sub(r"\D", "", match["whole"])
        space = "" if self._code in _UNSPACED else " "
        if part and len(part) == 1:
            said = f"{whole}{match['mark']}{part}{space}{self._form(forms, None)}"
        else:
            cents = f" {_AND_CENTS.get(self._code, '')}{int(part)}" if part and int(part) else ""
            said = f"{self._grouped(whole)}{space}{self._form(forms, int(whole))}{cents}"
        if match["of"] and self._words["per"] and self._code not in _UNSPACED:
            return f"{said} {self._words['per']} {self._one(match['of'])}"
        if match["of"]:
            return f"{said}/{match['of']}"
        return f"{said} {self._words['per']} " if match["per"] and self._words["per"] else said + (match["per"] or "")

    def _one(self, sign: str) -> str:
        """The word for one of a unit."""
        forms = self._units.get(self._unit_of.get(sign) or sign, {})
        one = (forms.get("1") or forms.get("o") or sign).replace("{0}", "").strip()
        ending, accusative = _ACCUSATIVE.get(self._code, ("", ""))
        return one.removesuffix(ending) + accusative if ending and one.endswith(ending) else one

    def _scaled_sum(self, match: re.Match[str]) -> str:
        """``₹1.5 लाख`` and ``$5 millones``: the currency is said behind the scale."""
        space = "" if self._code in _UNSPACED else " "
        link = (
            _OF_MILLIONS.get(self._code, "") if match["scale"][0] in "mM" and len(match["scale"]) > len("mil") else ""
        )
        name = self._form(self._words["money"][self._words["signs_of_money"][match["sign"]]], None)
        return f"{match['amount']}{space}{match['scale']}{space}{link}{name}"

    def _grouped(self, digits: str) -> str:
        """A long number with the marks of the language between its thousands, so that it is not read digit by digit."""
        mark = "." if self.decimal_mark == "," else ","
        return (
            f"{int(digits):,}".replace(",", mark)
            if len(digits) >= _LONG_RUN and not self._words["groups_by_spaces"]
            else digits
        )

    def _quantity(self, match: re.Match[str]) -> str:
        unit = self._unit_of.get(match["unit"]) or match["unit"]
        if unit not in self._units:
            return match.group()
        number = re.sub(r"[\s'’]", "", match["number"])
        form = self._form(self._units[unit], int(number) if number.isdigit() else None)
        said = (_without_said(form, match) if form[0] != "{" else form).format(number)
        minutes = match.groupdict().get("minutes")
        return f"{said} {minutes}" if minutes and int(minutes) else said

    def _form(self, forms: Mapping[str, str], number: int | None) -> str:
        """The plural form for a number, ``None`` being a fraction."""
        plurals = self._words["plurals"]
        num_known = len(plurals) - 1
        letter = plurals[
            -1 if number is None else number if number < num_known else num_known // 2 + number % (num_known // 2)
        ]
        return forms.get(letter) or forms.get("o") or next(iter(forms.values()))


def _without_said(form: str, match: re.Match[str]) -> str:
    """The words for a unit, without those before the number that stand there already: 시속 120km/h."""
    before = form.partition("{")[0]
    return (
        form.removeprefix(before)
        if match.string.endswith(before.strip(), 0, len(match.string[: match.start()].rstrip()))
        else form
    )


def _time_with(word: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match[1]} {word}" + (f" {int(match[2])}" if int(match[2]) else "")


def _alternatives(
    signs: Iterable[str],
    ascii_end: str = "A-Za-zÀ-ɏḀ-ỿ\\d_/'’²³",
    other_end: str = "\\w/'’²³\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e",
) -> str:
    """A pattern for signs that are no part of a word, which for one in ASCII may be a word of another script."""
    return "|".join(
        (r"(?<![^\W\d_])" if each[0].isalpha() else "")
        + re.escape(each)
        + (f"(?![{ascii_end if each[-1].isascii() else other_end}])" if each[-1].isalpha() else "")
        for each in sorted(signs, key=lambda sign: (-len(sign), sign))
    )


def _abbreviation(written: str, said: str) -> tuple[str, Callable[[re.Match[str]], str]]:
    """The rule for a row of the table of abbreviations."""
    follows, has_number, is_ending = written.startswith("# "), written.endswith(NUMBER_BEHIND), written.startswith("~")
    sign = written.strip("#~_ ")
    first = f"[{sign[0]}{sign[0].upper()}]" if sign[0].islower() and len(sign) > 1 else re.escape(sign[0])
    before = r"(?<=\d)\s?" if follows else r"(?<=[^\W\d_])" if is_ending else r"(?<![^\W_])(?<![^\W_]\.)"
    if sign == "min.":  # behind a number it is a unit
        before += r"(?<!\d )"
    after = r"\s?(?=\d|[A-Z]{1,4}-?\d)" if has_number else r"(?![^\W_])" if sign[-1] not in ".:/-" else r"(?!\.)"
    space = " " if has_number else ""

    def say(match: re.Match[str]) -> str:
        ends_text = sign[-1] == "." and not match.string[match.end() :].strip()
        apart = (
            " " if not space and match.string[match.end() : match.end() + 1].isalnum() and sign[-1] != "-" else space
        )
        return f"{' ' * follows}{said}{'.' * ends_text}{apart}"

    return before + first + re.escape(sign[1:]) + after, say


def _telephone(match: re.Match[str]) -> str:
    """A telephone number, which is said digit by digit if one of its groups is long or has a zero before it."""
    groups = re.findall(r"\d+", match.group())
    is_years = all(re.fullmatch(_YEAR, group) for group in groups)
    is_number = "-" not in match.group() and all(len(group) == 3 for group in groups[1:]) and groups[0][0] != "0"  # noqa: PLR2004 - thousands
    is_short = sum(map(len, groups)) < _LONG_RUN
    if _OF_THREES.search(match.group()) and not _COUNTED_NOUN.match(match.string, match.end()):
        return match.group().replace(" ", ", ")
    if is_years or is_number or is_short or not any(map(_is_said_by_digits, groups)):
        return match.group()
    return "+" * match.group().startswith("+") + ", ".join(" ".join(group) for group in groups)


def _is_said_by_digits(group: str) -> bool:
    return len(group) >= _LONG_GROUP or (group[0] == "0" and len(group) > 2)  # noqa: PLR2004 - 01 is said zero one
