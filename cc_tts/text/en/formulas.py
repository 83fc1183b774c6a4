"""English words for formulas: ``2x - 3y = 12`` as "two x minus three y equals twelve"."""

import re

from cc_tts.text.alignment import substituted
from cc_tts.text.en.numbers import amount
from cc_tts.text.markup.latex import MINUS
from cc_tts.text.substitution import in_order

COMPARISONS = {"<": "less than", ">": "greater than", "≤": "less than or equal to", "≥": "greater than or equal to"}
COMPARISONS |= {"<=": COMPARISONS["≤"], ">=": COMPARISONS["≥"], "≠": "not equal to", "≈": "about"}
COMPARISONS |= dict.fromkeys(("<>", "!="), COMPARISONS["≠"])
_COMPARED = re.compile("[=<>≤≥≠≈]")
_POWERS = {"2": " squared", "3": " cubed"}
_FUNCTIONS = {"sin": "sine", "cos": "cosine", "tan": "tangent"}
_LETTERS = "bcnqrt-z"
"""These may stand behind a number as the name of a variable; others are units, scales and halves of a day: 5m, 3k, 9a."""
_TERM = (
    rf"-?\(?-?√?(?:[$£€]?\d{{1,9}}(?:[.,]\d{{1,9}}){{0,3}}(?:%|[{_LETTERS}](?![\w.]))?|[fgh]\([a-z]\)|[A-Za-zα-ω](?![\w.'])|mx\b)"
    r"(?:\^-?\d{1,3}| squared\b| cubed\b)?(?:\)(?:\^\d{1,3}| squared\b| cubed\b)?)?"
)
_SIGN = "(?: (?:[<>]=|[-+*/×÷=<>≤≥≠≈x]) |[<>]=|[-+*/×÷=<>≤≥≠≈]|(?<=\\))\\s?(?=\\())"
_FORMULA = rf"(?<![\w.$£€%^)/-])(?![Nn]/[Aa]\b){_TERM}(?:{_SIGN}{_TERM})++(?![\w%])"
_LONGEST_NUMBER = 40
_NUMBER_BEFORE = re.compile(r"\d[\d.,]*$")
_NUMBER_AFTER = re.compile(r"[\d.,]*\d")


def _minus(match: re.Match[str]) -> str:
    """``36-38`` behind the last sign of equality is a range: S = 36-38."""
    text, end = match.string, match.end()
    first = _NUMBER_BEFORE.search(text, max(0, match.start() - _LONGEST_NUMBER), match.start())
    second = _NUMBER_AFTER.match(text, end)
    is_range = first and second and text.find("=", end, end + _LONGEST_NUMBER) < 0 and _value(first) < _value(second)
    return match.group() if is_range else " minus "


def _value(number: re.Match[str]) -> float:
    return float(re.sub(r",|\.(?=.*\.)", "", number.group().rstrip(".,")))


def _formula(match: re.Match[str]) -> str | None:
    """The signs in words; numbers are left to other rules, but for those before a variable."""
    if not _COMPARED.search(match.group()):
        return None
    said = re.sub(r"(?<=[\w)%]) ?- ?(?=\S)", _minus, match.group())
    said = re.sub(r"(?<!\S)-(?=[a-z(√])", "minus ", said)
    said = re.sub(r" ?[×*] ?|(?<=[\d%]) x (?=[$£€(]?\d)", " times ", said)
    said = re.sub(r"(?<=[a-z)]) ?/ ?(?=[\d(])|(?<=\d) / (?=\d)", " over ", said)
    said = re.sub(
        rf"(?<![\w.,])(\d{{1,9}}(?:\.\d{{1,9}})?)([{_LETTERS}])\b", lambda term: f"{amount(term[1])} {term[2]}", said
    )
    said = re.sub(r"([fgh])\(([a-z])\)", r"\1 of \2", said)
    said = re.sub(r"√(\w+)/(?=\d)", r"√\1 over ", said)
    said = re.sub(r"√(?=[\w(])", "the square root of ", said)
    said = re.sub(r"\ba\b", "A", said)
    said = re.sub(r" ?([<>]=|[<>≤≥≠≈]) ?", lambda sign: f" {COMPARISONS[sign[1]]} ", said)
    return said.replace("=", " equals ")


def _power(match: re.Match[str]) -> str:
    is_variable = match.string[match.start() - 1].isalpha()
    return (
        is_variable and not match[1] and _POWERS.get(match[2])
    ) or f" to the power of {match[1] and 'minus '}{match[2]}"


_say_formulas = in_order(
    (r"!(?<=\d!)(?=\s?[-=+×*/])", " factorial"),
    (r"\b(sin|cos|tan)\b(?=\s?\(?(?:[α-ω]|[xtab]\b|\d))", lambda match: _FUNCTIONS[match[1]]),
    (_FORMULA, _formula),
)
_say_powers = in_order((r"(?<=\d)\s?[x×*]\s?(?=10\^)", " times "), (r"\^(?<=[\w)]\^)(-?)(\d{1,3})(?!\w)", _power))


_GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
_SYMBOLS = {chr(code): name for code, name in enumerate(_GREEK, ord("α"))} | {
    "Δ": "delta", "Σ": "sigma", "Ω": "omega", "Φ": "phi", "Π": "pi", "∞": "infinity", "∠": "angle", "∑": "the sum of",
    "∆": "delta",
    "∪": "union", "∩": "intersection", "∀": "for all", "∃": "there exists", "∉": "not in", "⊂": "subset of",
    "∅": "the empty set",
    MINUS: "minus",
    "∴": "therefore", "∈": "in", "∫": "the integral of", "⊥": "perpendicular to", "∥": "parallel to", "∝": "proportional to",
}  # fmt: skip
_A_SYMBOL = re.compile(f"(?<![Ͱ-Ͽἀ-῿])[{''.join(_SYMBOLS)}](?![Ͱ-Ͽἀ-῿])")
"""A Greek letter is a symbol where it stands alone, and none within a Greek word."""


def say_symbols(text: str) -> str:
    """Letters of the Greek alphabet that stand alone, and other signs of formulas, in words."""
    if text.isascii():
        return text
    return substituted([(_A_SYMBOL, lambda match: f" {_SYMBOLS[match.group()]} ")], text)


def say_formulas(text: str) -> str:
    """Signs, variables and powers of formulas in words."""
    if _COMPARED.search(text):
        text = _say_formulas(text)
    return _say_powers(text) if "^" in text else text
