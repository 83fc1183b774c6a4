"""English words for sums of money: "twelve dollars and fifty cents", "three million dollars", "twenty US dollars".

Runs on: any thread; nothing here has state.
"""

import re
from typing import NamedTuple

from cc_tts.text.en.numbers import AMOUNT, AMOUNT_BEGINS, AMOUNT_ENDS, amount, cardinal
from cc_tts.text.substitution import substitute


class _Currency(NamedTuple):
    one: str
    many: str
    hundredth: str = ""
    hundredths: str = ""


_CENT = ("cent", "cents")
_DOLLAR = _Currency("dollar", "dollars", *_CENT)
_CURRENCIES = {
    "$": _DOLLAR,
    "US$": _Currency("US dollar", "US dollars", *_CENT),
    "C$": _Currency("Canadian dollar", "Canadian dollars", *_CENT),
    "A$": _Currency("Australian dollar", "Australian dollars", *_CENT),
    "HK$": _Currency("Hong Kong dollar", "Hong Kong dollars", *_CENT),
    "CA$": _Currency("Canadian dollar", "Canadian dollars", *_CENT),
    "AU$": _Currency("Australian dollar", "Australian dollars", *_CENT),
    "NZ$": _Currency("New Zealand dollar", "New Zealand dollars", *_CENT),
    "S$": _Currency("Singapore dollar", "Singapore dollars", *_CENT),
    "NT$": _Currency("New Taiwan dollar", "New Taiwan dollars", *_CENT),
    "MX$": _Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "R$": _Currency("Brazilian real", "Brazilian reais", "centavo", "centavos"),
    "Rs.": _Currency("rupee", "rupees", "paisa", "paise"),
    "Rs": _Currency("rupee", "rupees", "paisa", "paise"),
    "£": _Currency("pound", "pounds", "penny", "pence"),
    "€": _Currency("euro", "euros", *_CENT),
    "¥": _Currency("yen", "yen"),
    "₹": _Currency("rupee", "rupees", "paisa", "paise"),
    "₩": _Currency("won", "won"),
    "USD": _Currency("US dollar", "US dollars", *_CENT),
    "CAD": _Currency("Canadian dollar", "Canadian dollars", *_CENT),
    "AUD": _Currency("Australian dollar", "Australian dollars", *_CENT),
    "HKD": _Currency("Hong Kong dollar", "Hong Kong dollars", *_CENT),
    "SGD": _Currency("Singapore dollar", "Singapore dollars", *_CENT),
    "EUR": _Currency("euro", "euros", *_CENT),
    "GBP": _Currency("British pound", "British pounds", "penny", "pence"),
    "JPY": _Currency("Japanese yen", "Japanese yen"),
    "CNY": _Currency("yuan", "yuan"),
    "RMB": _Currency("yuan", "yuan"),
    "CHF": _Currency("Swiss franc", "Swiss francs", "centime", "centimes"),
    "INR": _Currency("rupee", "rupees", "paisa", "paise"),
    "MXN": _Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "NZD": _Currency("New Zealand dollar", "New Zealand dollars", *_CENT),
    "BRL": _Currency("Brazilian real", "Brazilian reais", "centavo", "centavos"),
}
_SYMBOL = "|".join(re.escape(symbol) for symbol in sorted(_CURRENCIES, key=len, reverse=True))
_SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_SCALE = r"(?:(?P<scale>(?:[ -]?(?:thousand|million|billion|trillion|lakh|crore)|[KkMmBbTt]|mn|bn))(?!\w))?"
_BEFORE = re.compile(rf"(?<![\w$])(?P<symbol>{_SYMBOL}) ?(?P<amount>{AMOUNT}){_SCALE}(?![.,]\d)(?!\d)")
_AFTER = re.compile(rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT}){_SCALE} ?(?P<symbol>{_SYMBOL})(?!\w)")
_RANGE = re.compile(
    rf"(?<![\w$])(?P<symbol>[$£€¥₹])(?P<low>{AMOUNT})(?: to |\s?[-–—]\s?)(?P=symbol)?(?P<high>{AMOUNT})"
    rf"(?=[\s.,;:!?)]|$){AMOUNT_ENDS}"
)
_SCALED_RANGE = re.compile(rf"(?<=\d[KkMmBb])\s?[-–—]\s?(?=[$£€¥₹]{AMOUNT}[KkMmBb])")
_CONTINENTAL = re.compile(
    r"(?<![\w.,])(?P<sign>€ ?)?(?P<whole>\d{1,3}(?:[. ]\d{3})+|\d{1,6}),(?P<cents>\d\d)(?![\d.,]\d|\d)(?(sign)"
    r"| ?(?:€|EUR\b|euros?\b))"
)
_CENTS = re.compile(rf"{AMOUNT_BEGINS}(\d{{1,4}})\s?¢")
_SYMBOL_ALONE = re.compile(r"[$£€¥₹₩¢]")
_HUNDREDTHS = 2
_ALONE = {"$": "dollars", "£": "pounds", "€": "euros", "¥": "yen", "₹": "rupees", "₩": "won", "¢": "cents"}


def say_money(text: str) -> str:
    """Sums of money in words; a currency sign alone becomes the currency's name."""
    text = substitute(_CONTINENTAL, _continental, text)
    text = _SCALED_RANGE.sub(" to ", text)
    text = substitute(_RANGE, _range, text)
    text = substitute(_BEFORE, _sum, text)
    text = substitute(_AFTER, _sum, text)
    text = substitute(_CENTS, lambda match: f"{amount(match[1])} {'cent' if match[1] == '1' else 'cents'}", text)
    return _SYMBOL_ALONE.sub(lambda match: f" {_ALONE[match.group()]} ", text)


def _continental(match: re.Match[str]) -> str:
    """``1.234,56 €`` as ``€1234.56``."""
    return f"€{re.sub(r'[. ]', '', match['whole'])}.{match['cents']}"


def _range(match: re.Match[str]) -> str | None:
    low, high = match["low"], match["high"]
    if "." in low or "." in high:
        return None
    return f"{amount(low)} to {amount(high)} {_CURRENCIES[match['symbol']].many}"


def _sum(match: re.Match[str]) -> str:
    currency = _CURRENCIES[match["symbol"]]
    written, scale = match["amount"], match["scale"]
    if scale:
        word = scale.strip(" -")
        return f"{amount(written)} {_SCALES.get(word.lower(), word)} {currency.many}"
    whole, _, fraction = written.replace(",", "").partition(".")
    if fraction.endswith("0"):
        fraction = fraction[:_HUNDREDTHS] + fraction[_HUNDREDTHS:].rstrip("0")
    if not currency.hundredth or len(fraction) > _HUNDREDTHS:
        return f"{amount(written)} {currency.one if written == '1' else currency.many}"
    hundredths = int(fraction.ljust(_HUNDREDTHS, "0")) if fraction else 0
    small = f"{cardinal(hundredths)} {currency.hundredth if hundredths == 1 else currency.hundredths}"
    if int(whole or 0) == 0 and hundredths:
        return small
    whole = whole or "0"
    large = f"{amount(written.partition('.')[0] or '0')} {currency.one if int(whole) == 1 else currency.many}"
    return f"{large} and {small}" if hundredths else large
