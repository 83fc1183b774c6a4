"""The words of dates, units and sums of money in other languages, ``cc_tts/text/others/words.json``, from the Unicode CLDR.

    .venv/bin/pip install --require-hashes -r requirements/languages.txt
    python -m lab.cldr_words

It takes the long forms of Babel (BSD), whose data are those of CLDR (Unicode-3.0). What CLDR has only as a sign or as no
telephone would say it is in ``OWN``. A language is added to ``LANGUAGES``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.server_under_test import Json

LANGUAGES: Final = (
    "ar", "bg", "bn", "ca", "cs", "da", "de", "el", "es", "fa", "fi", "fr", "he", "hi", "hr", "hu", "id", "it", "ja", "ko",
    "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sr", "sv", "sw", "ta", "te", "th", "tr", "uk", "ur", "vi",
)  # fmt: skip
WORDS: Final = Path(__file__).parents[1] / "cc_tts" / "text" / "others" / "words.json"
PLURALS: Final = 200
"""The plural form of a larger number is that of its last two digits and a hundred; the last form is that of a fraction."""
PLURAL_LETTERS: Final = {"zero": "z", "one": "1", "two": "2", "few": "f", "many": "m", "other": "o"}
UNITS: Final = {
    "%": "concentr-percent", "°C": "temperature-celsius", "km/h": "speed-kilometer-per-hour", "h": "duration-hour",
    "min": "duration-minute", "kg": "mass-kilogram", "g": "mass-gram", "mg": "mass-milligram",
    "km": "length-kilometer", "m": "length-meter", "cm": "length-centimeter", "mm": "length-millimeter",
    "l": "volume-liter", "ml": "volume-milliliter", "m²": "area-square-meter", "m³": "volume-cubic-meter",
    "GB": "digital-gigabyte", "MB": "digital-megabyte", "kWh": "energy-kilowatt-hour",
}  # fmt: skip
"""Without the second, whose sign is a word of several languages (Czech: with)."""
SIGNS: Final = {"€": "EUR", "$": "USD", "US$": "USD", "£": "GBP", "¥": "JPY", "CHF": "CHF"}
"""The codes of these and of the languages' own currencies are signs, too."""
LOCAL_SIGNS: Final = {
    "ar": "ر.س SAR, د.إ AED, ج.م EGP", "bg": "лв BGN", "bn": "৳ BDT, ₹ INR", "cs": "Kč CZK", "da": "kr DKK",
    "he": "₪ ILS, ש״ח ILS", "hi": "₹ INR", "hu": "Ft HUF", "id": "Rp IDR, RM MYR", "ja": "￥ JPY", "ko": "₩ KRW",
    "nb": "kr NOK", "pl": "zł PLN", "pt": "R$ BRL", "ro": "lei RON", "ru": "₽ RUB, руб RUB, ₴ UAH", "sk": "Kč CZK",
    "sv": "kr SEK", "sw": "KSh KES, TSh TZS", "ta": "₹ INR", "te": "₹ INR", "th": "฿ THB", "tr": "₺ TRY, TL TRY",
    "uk": "₴ UAH, грн UAH", "ur": "₨ PKR, ₹ INR", "vi": "₫ VND, đ VND", "es": "MXN MXN", "fa": "﷼ IRR",
}  # fmt: skip
SIBLINGS: Final = {
    "USD": "AUD CAD", "GBP": "EGP", "CHF": "XOF", "RUB": "BYN", "SEK": "NOK DKK", "DKK": "SEK NOK", "NOK": "SEK DKK",
    "CZK": "SEK NOK", "INR": "PKR LKR", "PKR": "INR LKR", "KRW": "KPW", "MXN": "ARS CLP", "KES": "TZS UGX",
    "TZS": "KES UGX", "SAR": "QAR OMR", "AED": "MAD", "RON": "MDL", "IRR": "OMR",
}  # fmt: skip
"""Currencies of the same name: what the names have in common is what people say (dollars, not US dollars)."""
OWN: Final[Json] = {
    "pl": {"money": {"PLN": {"one": "złoty", "few": "złote", "other": "złotych"}}, "short_days": {"pn": "poniedziałek"}},
    "tr": {
        "money": {"TRY": {"other": "lira"}, "USD": {"other": "dolar"}, "GBP": {"other": "sterlin"}},
        "units": {"km/h": {"other": "saatte {0} kilometre"}},
    },
    "ru": {"per": "в", "signs": {"м": "m"}},
    "cs": {"per": "za"},
    "sk": {"per": "za"},
    "hr": {"per": "po"},
    "hu": {"money": {"HUF": {"other": "forint"}}},
    "uk": {"money": {"UAH": {"one": "гривня", "few": "гривні", "other": "гривень"}}},
    "bg": {"money": {"BGN": {"one": "лев", "other": "лева"}}},
    "he": {"money": {"ILS": {"one": "שקל", "other": "שקלים"}}},
    "th": {"money": {"THB": {"other": "บาท"}}, "signs": {"ม": "m"}},
    "vi": {
        "money": {"VND": {"other": "đồng"}}, "date": "{d} {m} năm {y}",
        "units": {
            "%": {"other": "{0} phần trăm"}, "km/h": {"other": "{0} ki lô mét trên giờ"}, "h": {"other": "{0} giờ"},
        },
        "per": "mỗi", "short_days": {f"T{day}": f"thứ {day}" for day in range(2, 8)},
    },
    "id": {"money": {"IDR": {"other": "rupiah"}, "MYR": {"other": "ringgit"}}, "signs": {"km/jam": "km/h"}},
    "pt": {"money": {"BRL": {"one": "real", "other": "reais"}}},
    "ar": {"units": {"%": {"other": "{0} بالمائة"}}, "signs": {"كغ": "kg", "ملغ": "mg", "مل": "ml"}},
    "ko": {"money": {"KRW": {"other": "원"}}, "units": {"%": {"other": "{0}퍼센트"}}},
    # In kana: espeak-ng reads no Han in Japanese.
    "ja": {
        "date": "{y}ねん{m}がつ{d}にち", "day_and_month": "{m}がつ{d}にち",
        "months": [str(month) for month in range(1, 13)],
        "money": {"JPY": {"other": "えん"}, "USD": {"other": "ドル"}},
        "units": {
            "°C": {"other": "{0}ど"}, "h": {"other": "{0}じかん"}, "min": {"other": "{0}ふん"},
            "km/h": {"other": "じそく{0}キロメートル"}, "m²": {"other": "{0}へいほうメートル"},
            "m³": {"other": "{0}りっぽうメートル"},
            "kWh": {"other": "{0}キロワットじ"},
        },
    },
}  # fmt: skip


def words_of(language: str) -> Json:
    from babel import Locale
    from babel.localedata import LocaleDataDict, load

    locale = Locale.parse(language)
    own, data = OWN.get(language, {}), LocaleDataDict(load(language))
    rule, short = locale.plural_form, locale.date_formats["short"].pattern
    unit_forms = {unit: _forms(data["unit_patterns"][name]["long"]) for unit, name in UNITS.items()}
    signs = SIGNS | dict(each.split() for each in LOCAL_SIGNS.get(language, "").split(", ") if each)
    money = {
        code: _different(own.get("money", {}).get(code) or _money(data, code)) for code in sorted(set(signs.values()))
    }
    return {
        "months": own.get("months") or list(locale.months["format"]["wide"].values()),
        "date": own.get("date") or _date(locale.date_formats["long"].pattern),
        "day_and_month": own.get("day_and_month") or _date(locale.datetime_skeletons["MMMMd"].pattern),
        "short_months": dict(_short(locale.months)),
        "short_days": dict(_short(locale.days)) | own.get("short_days", {}),
        "is_year_first": short.startswith("y"),
        "groups_by_spaces": locale.number_symbols["latn"]["group"].isspace(),
        "decimal": locale.number_symbols["latn"]["decimal"],
        "plurals": "".join(PLURAL_LETTERS[rule(number)] for number in (*range(PLURALS), 1.5)),
        "per": own.get("per")
        or re.sub(r"\{.\}|/|毎", "", data["compound_unit_patterns"]["per"]["long"]["compound"]).strip(),
        "units": unit_forms | {unit: _different(forms) for unit, forms in own.get("units", {}).items()},
        "signs_of_units": dict(_signs_of_units(data["unit_patterns"])) | own.get("signs", {}),
        "money": money,
        "signs_of_money": signs | {code: code for code in money},
    }


def _date(pattern: str) -> str:
    """The fields of a date and the words between them, without abbreviations (for "year", "of our era") and marks."""
    quoted = re.sub(
        r"'[^']{1,2}\.?'\.?|\bG\s|[.,،]", lambda match: match.group() if match.group() == "'de'" else "", pattern
    )
    fields = re.sub(
        r"('[^']*')|([ML]+|d+|y+)", lambda match: match[1] or "{" + match[2][0].lower().replace("l", "m") + "}", quoted
    )
    return " ".join(fields.replace("'", "").split())


def _short(names: Json) -> Iterator[tuple[str, str]]:
    """What is written for a month or a day in short, without its full stop, and the word for it."""
    full = names["format"]["wide"]
    for widths in names.values():
        for key, name in widths.get("abbreviated", {}).items():
            short = re.sub(r"^(?:de |d[’'])|[.׳॰]$", "", name)
            if len(short) > 1 and not re.search(r"[\d\s]", short) and short.lower() not in full[key].lower().split():
                yield short, re.sub(r"^(?:de |d[’'])", "", full[key])


def _forms(patterns: Json) -> dict[str, str]:
    """The plural forms that are words."""
    forms = {name: re.sub(r"\s", " ", form) for name, form in patterns.items() if name != "per"}
    return _different({name: form for name, form in forms.items() if not re.search("[%٪/]", form)})


def _different(forms: dict[str, str]) -> dict[str, str]:
    """The plural forms by their letters; those that are not there are the last."""
    return {PLURAL_LETTERS[name]: form for name, form in forms.items() if name == "other" or form != forms.get("other")}


def _signs_of_units(patterns: Json) -> Iterator[tuple[str, str]]:
    """What is written for a unit in the language, where that is no word of it."""
    for unit, name in UNITS.items():
        words = set(patterns[name]["long"].values())
        for form in patterns[name]["short"].values():
            sign = form.replace("{0}", "").strip("\u200f\u200e \xa0\u202f").rstrip(".")
            is_plain = len(sign) > 1 or sign in "ч٪"  # other single letters are words, too: Russian с
            if is_plain and form not in words and sign != unit and not re.search(r"\s|/$|^/", sign):
                yield sign, unit


def _money(data: Json, code: str) -> dict[str, str]:
    names, plain = data["currency_names_plural"], data["currency_names"]
    forms = dict(names.get(code) or {"other": plain.get(code, code)})
    alike = [names.get(each) or {"other": plain.get(each, "")} for each in SIBLINGS.get(code, "").split()]
    for name, said in forms.items():
        others = [set(each.get(name, each.get("other", "")).split()) for each in alike]
        common = [word for word in said.split() if others and all(word in each for each in others)]
        forms[name] = re.sub(r"\s[yz]a$", "", " ".join(common)) or re.sub(r"\s?\(.*\)", "", said)
    return forms


def main() -> None:
    words = {language: words_of(language) for language in LANGUAGES}
    lines = (f'"{language}": {json.dumps(of_language, ensure_ascii=False)}' for language, of_language in words.items())
    WORDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
