"""Signs, dates, numbers and sums of further languages in words.

espeak-ng, and the Piper voices that take its phonemes, say the numbers of their languages, but leave out or spell signs
(``-3 °C``, ``R$``, ``nº``) and say the marks of a date; CosyVoice2 reads no digits either, which num2words puts in words.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

from num2words import num2words

from cc_tts.text.characters import digits_to_ascii
from cc_tts.text.language import subtags
from cc_tts.text.substitution import rewriter

_WITH_POINT: Final = frozenset({"ja", "ko"})
"""Languages that write 1,234.56; the others write 1.234,56 or 1 234,56."""
_PERCENT: Final = {
    "es": "por ciento", "fr": "pour cent", "de": "Prozent", "it": "per cento", "pt": "por cento", "nl": "procent",
    "ja": "パーセント", "ko": "퍼센트", "ru": "процентов", "pl": "procent",
}  # fmt: skip
_CURRENCIES: Final = {
    "es": ("euros", "dólares", "libras", "yenes"), "fr": ("euros", "dollars", "livres", "yens"),
    "de": ("Euro", "Dollar", "Pfund", "Yen"), "it": ("euro", "dollari", "sterline", "yen"),
    "pt": ("euros", "dólares", "libras", "ienes"), "nl": ("euro", "dollar", "pond", "yen"),
    "ja": ("ユーロ", "ドル", "ポンド", "円"), "ko": ("유로", "달러", "파운드", "엔"),
    "ru": ("евро", "долларов", "фунтов", "иен"), "pl": ("euro", "dolarów", "funtów", "jenów"),
}  # fmt: skip
"""The currencies of €, $, £ and ¥."""
_SIGNS: Final = "€$£¥"
_AND_CENTS: Final = {"es": " con ", "it": " e ", "pt": " e "}
_DIGIT_BY_DIGIT_FROM: Final = 7
_HUNDREDTHS: Final = 2
_COMMA_DECIMALS: Final = r"(?P<whole>\d{1,3}(?:[.\u00a0\u202f ]\d{3})+|\d+)(?:,(?P<part>\d{1,12}))?"
_POINT_DECIMALS: Final = r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<part>\d{1,12}))?"


_WORDS_OF_SIGNS: Final = {
    "es": ("menos", "grados", "número", "por", "kilómetros por hora", " horas", "minutos"),
    "fr": ("moins", "degrés", "numéro", "par", "kilomètres à l'heure", " heures", "minutes"),
    "de": ("minus", "Grad", "Nummer", "pro", "Kilometer pro Stunde", " Stunden", "Minuten"),
    "it": ("meno", "gradi", "numero", "per", "chilometri all'ora", " ore", "minuti"),
    "pt": ("menos", "graus", "número", "por", "quilômetros por hora", " horas", "minutos"),
    "nl": ("min", "graden", "nummer", "per", "kilometer per uur", " uur", "minuten"),
    "ko": ("마이너스", "도", "", "", "", "", ""),
    "ja": ("マイナス", "度", "", "", "", "", ""),
    "hi": ("माइनस", "डिग्री", "", "", "", "", ""),
}  # fmt: skip
"""The words for a minus, °C, a number that names something, a price for each, km/h, hours and minutes."""
_MONTHS: Final = {
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "sv": "januari februari mars april maj juni juli augusti september oktober november december",
    "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
    "vi": "1 2 3 4 5 6 7 8 9 10 11 12",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "uk": "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
    "el": (
        "Ιανουαρίου Φεβρουαρίου Μαρτίου Απριλίου Μαΐου Ιουνίου Ιουλίου Αυγούστου Σεπτεμβρίου Οκτωβρίου Νοεμβρίου "
        "Δεκεμβρίου"
    ),
    "hi": "जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
}
"""They stand behind the day, in the case that it asks for (Unicode CLDR)."""
_OF_MONTH: Final = {"es": (" de ", " de "), "pt": (" de ", " de "), "vi": (" tháng ", " năm ")}
_SUMS_IN_SIGNS: Final = {
    "pt": r"R\$ reais", "ko": "₩ 원", "ja": "[¥￥] 円", "hi": "₹ रुपये", "es": r"\$ dólares", "fr": r"\$ dollars",
    "it": r"\$ dollari", "de": r"\$ Dollar",
}  # fmt: skip
"""Signs that stand before a sum, and the words that are said behind it."""
_UNTIL_2099: Final = r"(?:19|20)\d\d(?!-?\d)"


def say_signs(text: str, language: str) -> str:
    """``text`` with signs and dates in words that espeak-ng leaves out, spells or says otherwise."""
    code = subtags(language)[0]
    text = _date_rules(code)(text) if code in _MONTHS else text
    return _sign_rules(code)(text) if code in _WORDS_OF_SIGNS else text


@cache
def _date_rules(code: str) -> Callable[[str], str]:
    rules: list[tuple[str, Callable[[re.Match[str]], str]]] = [
        (
            rf"(?<![\d./-])(?P<day>\d{{1,2}})([./-])(?P<month>\d{{1,2}})\2(?P<year>{_UNTIL_2099})",
            lambda match: _date(match, code),
        ),
        (
            r"(?<![\d./-])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])",
            lambda match: _date(match, code),
        ),
    ]
    if code == "de":
        months = _MONTHS[code].replace(" ", "|")
        days = r"(?<![\d.])([1-9]|[12]\d|3[01])\."
        rules += [
            (rf"{days}\s?(?={months})", lambda match: f"{_ordinal(match[1], code)} "),
            (
                r"\b([Aa]m|[Vv]om|[Zz]um|[Aa]b|[Bb]is|[Ss]eit|[Dd]e[mnr])\s([1-9]|[12]\d|3[01])\.(0?[1-9]|1[0-2])(\.(?!\d))",
                lambda match: (
                    f"{match[1]} {_ordinal(match[2], code)} {_MONTHS[code].split()[int(match[3]) - 1]}{_stop(match)}"
                ),
            ),
        ]
    return rewriter(*rules)


@cache
def _sign_rules(code: str) -> Callable[[str], str]:
    minus, degrees, number, per, speed, hours, minutes = _WORDS_OF_SIGNS[code]
    rules: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        (r"(?<![\w.)-])[-\u2212](?=\d)", f"{minus} "),
        (r"\s?(?:°\s?C(?![A-Za-z])|℃)", degrees if code in _WITH_POINT else f" {degrees}"),
    ]
    if code in _SUMS_IN_SIGNS:
        sign, name = _SUMS_IN_SIGNS[code].split(" ")
        space = "" if code in _WITH_POINT else " "
        rules.append((rf"(?<![A-Za-z]){sign}\s?(\d+(?:[.,]\d+)*)", rf"\1{space}{name}"))
    if code in _WITH_POINT:
        signs = ("月", "日") if code == "ja" else ("월 ", "일")
        rules.append((r"(?<![\d/])(\d{1,2})/(\d{1,2})(?=\s?[（(])", rf"\g<1>{signs[0]}\g<2>{signs[1]}"))
    if number:
        rules += [
            (r"\b[Nn](?:\.?[º°]|r\.|\.)\s?(?=\d)|№\s?(?=\d)", f"{number} "),
            (r"(?<=\d)\s?km/h(?!\w)", f" {speed}"),
            (r"(?<=\d)\s?h(?=[0-5]\d(?!\d))", f"{hours} "),
            (r"(?<=\d)\s?h(?![\w/'’])", hours),
            (r"(?<=\d)\s?[Mm]in\b(?:\.(?=\s[a-zà-ÿ]))?(?!/)", f" {minutes}"),
            (r"(?:(?<=[€$£])|(?<= reais)|(?<=dólares))\s?/\s?(?=[a-zA-ZÀ-ÿ]{2})", f" {per} "),
        ]
    return rewriter(*rules)


def _date(match: re.Match[str], code: str) -> str:
    """``12/03/2027`` is the twelfth of March in all of these languages."""
    day, month = int(match["day"]), int(match["month"])
    if not (1 <= day <= 31 and 1 <= month <= 12):  # noqa: PLR2004 - days of a month, months of a year
        return match.group()
    before_month, before_year = _OF_MONTH.get(code, (" ", " "))
    said = _ordinal(match["day"], code) if code == "de" else "1er" if code == "fr" and day == 1 else str(day)
    return f"{said}{before_month}{_MONTHS[code].split()[month - 1]}{before_year}{match['year']}"


def _stop(match: re.Match[str]) -> str:
    """The full stop behind ``3.11.`` if the text ends there."""
    return "." if match.end() == len(match.string) else ""


def _ordinal(day: str, code: str) -> str:
    """Return a German day as it is said behind am, vom and bis zum."""
    return f"{num2words(int(day), lang=code, to='ordinal')}n"


def say_numbers(text: str, language: str) -> str:
    """``text`` with its numbers in words; as it is where num2words does not know the language."""
    code = subtags(language)[0]
    text = digits_to_ascii(text)
    if not any(map(str.isdigit, text)) or _words(0, code) is None:
        return text
    number = _POINT_DECIMALS if code in _WITH_POINT else _COMMA_DECIMALS
    text = re.sub(r"(?<=\d):(?=\d\d(?!\d))", " ", text)
    if code in _CURRENCIES:
        text = _say_sums(text, number, code)
    if code in _PERCENT:
        text = re.sub(rf"{number}\s?%", lambda match: f"{_amount(match, code)} {_PERCENT[code]}", text)
    return " ".join(re.sub(number, lambda match: _apart(match, code), text).split())


def _say_sums(text: str, number: str, code: str) -> str:
    sign = rf"(?P<sign>[{_SIGNS}])"
    for pattern in (rf"(?<![A-Za-z]){sign}\s?{number}(?!\d)", rf"{number}\s?{sign}"):
        text = re.sub(pattern, lambda match: _sum(match, code), text)
    return text


def _apart(match: re.Match[str], code: str) -> str:
    """An amount with a space where the words would run into a letter."""
    before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
    left, right = (" " if each.isalpha() and each.isascii() else "" for each in (before, after))
    return f"{left}{_amount(match, code)}{right}"


def _sum(match: re.Match[str], code: str) -> str:
    name = _CURRENCIES[code][_SIGNS.index(match["sign"])]
    part = match["part"]
    if not part or len(part) > _HUNDREDTHS or not int(part):
        return f"{_whole(match['whole'], code) if part and not int(part) else _amount(match, code)} {name}"
    cents = _words(int(part.ljust(_HUNDREDTHS, "0")), code)
    return f"{_whole(match['whole'], code)} {name}{_AND_CENTS.get(code, ' ')}{cents}"


def _amount(match: re.Match[str], code: str) -> str:
    whole, part = re.sub(r"\D", "", match["whole"]), match["part"]
    if not part:
        return _whole(match["whole"], code)
    said = num2words(float(f"{whole}.{part}"), lang=code) if len(whole) < _DIGIT_BY_DIGIT_FROM else ""
    return said or f"{_whole(match['whole'], code)} {_digits(part, code)}"


def _whole(written: str, code: str) -> str:
    digits = re.sub(r"\D", "", written)
    is_long = digits == written and len(digits) >= _DIGIT_BY_DIGIT_FROM
    if is_long or (len(digits) > 1 and digits[0] == "0"):
        return _digits(digits, code)
    return _words(int(digits), code) or _digits(digits, code)


def _digits(run: str, code: str) -> str:
    return " ".join(_words(int(digit), code) or digit for digit in run)


@lru_cache(maxsize=4096)
def _words(number: int, code: str) -> str | None:
    """A whole number; ``None`` where num2words has none for the language."""
    try:
        return str(num2words(number, lang=code))
    except Exception:  # noqa: BLE001 - NotImplementedError for an unknown language, OverflowError and others for a number
        return None
