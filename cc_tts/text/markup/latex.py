r"""Formulas of LaTeX in the signs that the rules of each language say: ``$x = \frac{-b}{2a}$`` as "x = (⊖b) ÷ (2 a)"."""

import re
from typing import Final

from cc_tts.text.substitution import rewriter

MINUS: Final = "⊖"
"""The sign for the minus of a formula, which is neither a hyphen nor a dash."""
_GREEK_NAMES: Final = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "pi",
    "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Delta", "Sigma", "Omega", "Phi", "Pi",
)  # fmt: skip
_GREEK: Final = dict(zip(_GREEK_NAMES, "αβγδεζηθικλμνξπρστυφχψωΔΣΩΦΠ", strict=True))
_COMMANDS: Final = _GREEK | {
    "times": " × ", "cdot": " × ", "div": " ÷ ", "pm": " ± ", "le": " ≤ ", "leq": " ≤ ", "ge": " ≥ ", "geq": " ≥ ",
    "ne": " ≠ ", "neq": " ≠ ", "approx": " ≈ ", "infty": " ∞ ", "sum": " ∑ ", "int": " ∫ ", "to": " → ",
    "rightarrow": " → ", "in": " ∈ ",
    "sin": "sin ", "cos": "cos ", "tan": "tan ", "log": "log ", "ln": "ln ", "varepsilon": "ε",
}  # fmt: skip
_FORMULA: Final = re.compile(
    r"(?s)\$\$(?=[^$]{0,400}[\\^=_])(.{1,400}?)\$\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]"
    r"|(?<![A-Za-z\d$\\])\$(?=[^\s$])(?=[^$\n]{0,200}[\\^=_])((?!\d[\d.,]*\s)[^$\n]{1,200}?)(?<![\s\\])\$(?![\d$])"
    r"|(?<![A-Za-z\d$\\])\$([A-Za-z])\$(?![\d$])"
)
_OPEN: Final = re.compile(
    r"\\[(\[][^\n]{0,200}$|(?<![A-Za-z\d$\\])\$(?:[A-Za-z\\(-][^$\n]{0,200}[\\^=_][^$\n]{0,200}|\\?)$"
)
_GROUP: Final = r"\{((?:[^{}]|\{[^{}]{0,80}\}){0,160})\}"
_OF_ONE: Final = re.compile(r"-?(?:[A-Za-zα-ω]|\d+)")
_RAISED: Final = str.maketrans({"2": "²", "3": "³"})


def _over(match: re.Match[str]) -> str:
    above, below = (each.strip() for each in match.groups())
    if above.isdigit() and below.isdigit():
        return f"{above}/{below}"
    return " ÷ ".join(each if _OF_ONE.fullmatch(each) else f"({each})" for each in (above, below))


def _command(match: re.Match[str]) -> str:
    return _COMMANDS.get(match[1], " ")


_say_formula = rewriter(
    (r"\\(?:text|mathrm|mathbf|operatorname)\s?\{([^{}]{0,80})\}", r" \1 "),
    (rf"\\d?frac\s?{_GROUP}\s?{_GROUP}", _over),
    (rf"\\d?frac\s?{_GROUP}\s?{_GROUP}", _over),  # one inside another
    (rf"\\sqrt\s?{_GROUP}", lambda match: f"√{match[1]}" if _OF_ONE.fullmatch(match[1]) else f"√({match[1]})"),
    (r"\\([%$&#_{}])", r" \1"),
    (r"\\([A-Za-z]+)\s?", _command),
    (r"\\.|[&\\]", " "),
    (r"\^\{?(\d)\}?(?!\d)", lambda match: match[1].translate(_RAISED) if match[1] in "23" else f"^{match[1]}"),
    (r"_\{?([^{}\s]{1,12})\}?", r" \1"),
    (r"[{}]", ""),
    (r"(?<![A-Za-z])(\d+)(?=[A-Za-zα-ω](?![A-Za-z]{2}))", r"\1 "),
    (r"(?<![A-Za-z])([a-z])([a-z])(?![A-Za-z])", r"\1 \2"),
    (r"\s?([=<>≤≥≠≈±×÷+])\s?", r" \1 "),
    (r"(?<=[\w)²³])\s?-\s?(?=[\w(√])", f" {MINUS} "),
    (r"-(?=[\w(√])(?<!\^-)", MINUS),
)


def _formula(match: re.Match[str]) -> str:
    return " ".join(_say_formula(next(filter(None, match.groups()))).split())


def without_latex(text: str) -> str:
    """``text`` with its formulas in plain signs."""
    return _replaced(text) if "$" in text or "\\" in text else text


def opens_formula(text: str) -> bool:
    """Whether a formula that has begun may go on behind ``text``."""
    return ("\\" in text or "$" in text) and _OPEN.search(_FORMULA.sub("", text)) is not None


_replaced = rewriter((_FORMULA.pattern, _formula))
