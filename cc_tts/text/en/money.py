"""English words for sums of money: "twelve dollars and fifty cents", "three million dollars", "twenty US dollars"."""

import re
from typing import NamedTuple

from cc_tts.text.en.numbers import AMOUNT, AMOUNT_BEGINS, AMOUNT_ENDS, amount, counted
from cc_tts.text.substitution import in_order, qualifies_noun


class _Currency(NamedTuple):
    one: str
    many: str
    hundredth: str = "cent"
    hundredths: str = "cents"


_BY_SYMBOLS = {
    "$": _Currency("dollar", "dollars"), "US$ USD": _Currency("US dollar", "US dollars"),
    "C$ CA$ CAD": _Currency("Canadian dollar", "Canadian dollars"),
    "A$ AU$ AUD": _Currency("Australian dollar", "Australian dollars"),
    "HK$ HKD": _Currency("Hong Kong dollar", "Hong Kong dollars"),
    "NZ$ NZD": _Currency("New Zealand dollar", "New Zealand dollars"),
    "S$ SGD": _Currency("Singapore dollar", "Singapore dollars"),
    "NT$": _Currency("New Taiwan dollar", "New Taiwan dollars"),
    "MX$ MXN": _Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "R$ BRL": _Currency("Brazilian real", "Brazilian reais", "centavo", "centavos"),
    "₹ Rs. Rs INR": _Currency("rupee", "rupees", "paisa", "paise"),
    "£": _Currency("pound", "pounds", "penny", "pence"),
    "GBP": _Currency("British pound", "British pounds", "penny", "pence"), "€ EUR": _Currency("euro", "euros"),
    "¥": _Currency("yen", "yen", ""), "JPY": _Currency("Japanese yen", "Japanese yen", ""),
    "CNY RMB": _Currency("yuan", "yuan", ""), "₩": _Currency("won", "won", ""),
    "CHF": _Currency("Swiss franc", "Swiss francs", "centime", "centimes"),
    "AED": _Currency("dirham", "dirhams", "fils", "fils"), "SAR": _Currency("riyal", "riyals", "halala", "halalas"),
    "ZAR": _Currency("rand", "rand"), "THB": _Currency("baht", "baht", "satang", "satang"),
    "PHP": _Currency("Philippine peso", "Philippine pesos", "centavo", "centavos"),
    "MYR": _Currency("ringgit", "ringgit", "sen", "sen"), "KRW": _Currency("won", "won", ""),
    "PLN": _Currency("zloty", "zloty", "grosz", "groszy"), "SEK": _Currency("Swedish krona", "Swedish kronor", ""),
    "₽ RUB": _Currency("ruble", "rubles", "kopek", "kopeks"), "฿": _Currency("baht", "baht", "satang", "satang"),
    "₱": _Currency("peso", "pesos", "centavo", "centavos"), "₫ VND": _Currency("dong", "dong", ""),
    "₪ ILS": _Currency("shekel", "shekels", "agora", "agorot"), "₺": _Currency("lira", "lira", ""),
    "TWD": _Currency("New Taiwan dollar", "New Taiwan dollars"), "kr": _Currency("krona", "kronor", "öre", "öre"),
    "zł": _Currency("zloty", "zloty", "grosz", "groszy"), "₦": _Currency("naira", "naira", "kobo", "kobo"),
    "NOK": _Currency("Norwegian krone", "Norwegian kroner", ""), "DKK": _Currency("Danish krone", "Danish kroner", ""),
}  # fmt: skip
_CURRENCIES = {symbol: currency for symbols, currency in _BY_SYMBOLS.items() for symbol in symbols.split()}
_SYMBOL = "|".join(re.escape(symbol) for symbol in sorted(_CURRENCIES, key=len, reverse=True))
CURRENCY_CODES = "|".join(symbol for symbol in _CURRENCIES if symbol.isalpha() and symbol.isupper())
"""Alternatives of a pattern."""
_SCALES = {
    "k": "thousand",
    "m": "million",
    "mm": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
}
_SCALE = r"(?:(?P<scale>(?:[ -]?(?:thousand|million|billion|trillion|lakh|crore)|MM|[KkMmBbTt]|mn|bn))(?!\w))?"
_BEFORE = rf"(?<![\w$])(?P<symbol>{_SYMBOL}) ?(?P<amount>{AMOUNT}){_SCALE}(?![.,]\d)(?!\d)"
_RANGE = (
    rf"(?<![\w$])(?P<symbol>[$£€¥₹])(?P<low>{AMOUNT})(?: to |\s?[-–—]\s?)(?P=symbol)?(?P<high>{AMOUNT}){_SCALE}"
    rf"(?=[\s.,;:!?)/]|$){AMOUNT_ENDS}"
)
_CONTINENTAL = (
    rf"(?<![\w.,$])(?:(?P<sign>€|EUR|R\$|BRL|kr|zł|CHF)|(?P<any>{_SYMBOL}))? ?"
    r"(?:(?P<whole>\d{1,3}(?:[. ]\d{3})+|\d{1,6}),(?P<cents>\d\d)|(?(any)(?!)|(?P<thousands>\d{1,3}(?:\.\d{3})+)))"
    r"(?![\d.,]\d|\d)(?(sign)|(?(any)| ?(?P<behind>€|EUR\b|euros?\b|kr\b|zł\b|CHF\b|R\$)))"
)
_NEGATIVE_IN_BRACKETS = re.compile(
    r"\b(?:balance|total|net|change|variance|loss|position|adjustment)(?: is| was| of|:) $", re.IGNORECASE
)
_HUNDREDTHS = 2
_SIGNS_ALONE = str.maketrans({sign: f" {_CURRENCIES[sign].many} " for sign in "$£€¥₹₩₽฿₱₫₪₺₦"} | {"¢": " cents "})


def _continental(match: re.Match[str]) -> str:
    """``1.234,56 €`` as ``€1234.56``, ``1.000 €`` as ``€1000``."""
    whole = re.sub(r"[. ]", "", match["whole"] or match["thousands"])
    symbol = match["sign"] or match["any"] or re.sub("euros?", "€", match["behind"])
    return f"{symbol} {whole}.{match['cents']}" if match["cents"] else f"{symbol} {whole}"


def _in_brackets(match: re.Match[str]) -> str | None:
    """``($45.00)`` in a statement is negative."""
    is_negative = _NEGATIVE_IN_BRACKETS.search(match.string, max(0, match.start() - 20), match.start())
    return f"minus {match[1]}" if is_negative else None


def _range(match: re.Match[str]) -> str | None:
    low, high = match["low"], match["high"]
    if ("." in low or "." in high) and not match["scale"]:
        return None
    scale = f"{_scale(match['scale'])} " if match["scale"] else ""
    return f"{amount(low)} to {amount(high)} {scale}{_CURRENCIES[match['symbol']].many}"


def _scale(written: str) -> str:
    word = written.strip(" -")
    return _SCALES.get(word.lower(), word)


def _sum(match: re.Match[str]) -> str:
    currency = _CURRENCIES[match["symbol"]]
    written, scale = match["amount"], match["scale"]
    if qualifies_noun(match):
        currency = currency._replace(many=currency.one, hundredths=currency.hundredth)
    if scale:
        return f"{amount(written)} {_scale(scale)} {currency.many}"
    whole, _, fraction = written.partition(".")
    fraction = fraction[:_HUNDREDTHS] + fraction[_HUNDREDTHS:].rstrip("0")
    if not currency.hundredth or len(fraction) > _HUNDREDTHS:
        return counted(written, currency.one, currency.many)
    return _with_hundredths(whole or "0", int(fraction.ljust(_HUNDREDTHS, "0")), currency)


def _with_hundredths(whole: str, hundredths: int, currency: _Currency) -> str:
    large = counted(whole, currency.one, currency.many)
    if not hundredths:
        return large
    small = counted(str(hundredths), currency.hundredth, currency.hundredths)
    return f"{large} and {small}" if whole.strip("0") else small


_say_sums = in_order(
    (_CONTINENTAL, _continental),
    (r"(?<=\d)-(per|a)-(?=[a-z])", r" \1 "),
    (rf"\(([$£€¥₹]{AMOUNT}|{AMOUNT}(?=\)\s?(?:{CURRENCY_CODES})\b))\)", _in_brackets),
    (r"/(?:(?<=\d/)|(?<=\d[KkMm]/)|(?<=[A-Za-z]{3}/))\s?(?=[$£€]\d)", ", "),  # limits, as $250K/$500K
    (r"([$£€])\s?(?:-|minus )(?=\d)", lambda match: f"minus {match[1]}"),
    (rf"(?<![\w$])([$£€])\(({AMOUNT})\)((?:MM|[KMB]|bn|mn)\b)?", r"minus \1\2\3"),
    (_RANGE, _range),
    (_BEFORE, _sum),
    (rf"{AMOUNT_BEGINS}(?P<amount>{AMOUNT}){_SCALE} ?(?P<symbol>{_SYMBOL})(?!\w)", _sum),
    (rf"{AMOUNT_BEGINS}(?!(?:240|360|480|720)p)(\d{{1,3}})p(?!\w)", lambda match: counted(match[1], "penny", "pence")),
    (rf"{AMOUNT_BEGINS}(\d{{1,4}})\s?¢", lambda match: counted(match[1], "cent", "cents")),
)


def say_money(text: str) -> str:
    """Sums of money in words; a currency sign alone becomes the currency's name."""
    return _say_sums(text).translate(_SIGNS_ALONE)
