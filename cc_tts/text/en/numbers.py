"""English words for numbers: "one hundred twenty-three", "twenty-first", "nineteen oh five", "zero one two"."""

import re
from functools import lru_cache

from num2words import num2words

from cc_tts.text import characters

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_INDIAN = re.compile(r"\d{1,2}(?:,\d\d){1,3},\d{3}")
_GROUPS = {7: (3, 4), 8: (4, 4), 9: (3, 3, 3), 10: (3, 3, 4), 11: (1, 3, 3, 4)}
_SMALL = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-\w+)?|first|second|third|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf)th|"
    r"(?:thir|four|fif|six|seven|eigh|nine)teenth|(?:twen|thir|for|fif|six|seven|eigh|nine)tieth)"
)
_WITHOUT_AND = re.compile(
    rf"\b(hundred|thousand|million|billion|lakh|crore) (?={_SMALL}\b(?! (?:hundred|thousand|million|lakh|crore)))"
)
_MAX_CARDINAL_DIGITS = 15
"""Longer whole numbers are said digit by digit (unmeasured)."""
_MAX_NAMED_DENOMINATOR = 20  # unmeasured
DIGIT_BY_DIGIT_FROM = 7
"""A run of at least this many digits without separators is an identifier, not a quantity."""

AMOUNT = (
    r"(?:\d{1,3}(?:,\d{3}){1,7}(?:\.\d{1,12})?|\d{1,2}(?:,\d\d){1,3},\d{3}(?:\.\d{1,12})?|\d{1,15}"
    r"(?:\.\d{1,12})?|\.\d{1,12})"
)
"""A quantity as people write it: 1,234.56, 1234.56, .56, and 1,50,000 in India."""
AMOUNT_BEGINS = r"(?=[\d.])(?<![\w.])(?<!\d,)"
AMOUNT_ENDS = r"(?!\d)(?![.,]\d)"
NOTHING_COUNTED = (
    r"(?!\+\s|\s(?:(?:new|more|other|different|additional|extra|active|existing|current|of (?:my|our|the|your))\s)?"
    r"(?!(?:is|was|as|has|this|unless|always|days|departs|leaves|arrives|lands|runs|stops|boards|goes|terminates|operates"
    r"|connects|services|remains|ships|expires|shows|needs|requires|includes|covers|comes|works|matches|belongs|begins|starts"
    r"|ends|opens|closes|applies|appears|does|says|looks|means|gives|lets|allows|takes|gets|uses|exists|fails|contains"
    r"|resets|renews|clears|posts|rings)\b)[a-z-]{2,30}s\b|\s(?:people|staff|men|women|of|new|more)\b)"
)
"""Behind the number of a telephone, flight or train; not behind ``300`` in "call 300 customers"."""
NO_QUANTITY = re.compile(NOTHING_COUNTED)


@lru_cache(maxsize=4096)
def cardinal(number: int) -> str:
    """``1234`` as "one thousand two hundred thirty-four"."""
    return _plain(num2words(number))


@lru_cache(maxsize=512)
def ordinal(number: int) -> str:
    """Return ``21`` as "twenty-first"."""
    return _plain(num2words(number, to="ordinal"))


def with_and(spoken: str) -> str:
    """``one hundred twenty-three`` as "one hundred and twenty-three", as outside North America."""
    return _WITHOUT_AND.sub(r"\1 and ", spoken)


def _plain(words: str) -> str:
    return words.replace(",", "").replace(" and ", " ")


def digits(run: str) -> str:
    """``"012"`` as "zero one two"; anything that is not an ASCII digit is passed over."""
    return " ".join(_DIGITS[int(character)] for character in run if character in "0123456789")


def letters(run: str) -> str:
    """Letters as a word where they have a vowel, else one by one; digits among them one by one."""
    parts = re.findall(r"[A-Za-z]+|\d+", run)
    return " ".join(digits(part) if part.isdigit() else _word_or_letters(part) for part in parts)


def _word_or_letters(part: str) -> str:
    is_word = len(part) > 1 and not set("aeiouyAEIOUY").isdisjoint(part)
    return part if is_word else " ".join(part.upper())


def grouped_digits(run: str) -> str:
    """A run of digits said one by one, with a comma where people take breath: 3-3-4 for ten digits, else fours."""
    return ", ".join(digits(group) for group in characters.digit_groups(run, _GROUPS))


def digit_groups(written: str) -> str:
    """Every run of digits in ``written`` said digit by digit, with a comma between the runs."""
    return ", ".join(
        grouped_digits(run) if len(run) >= DIGIT_BY_DIGIT_FROM else digits(run) for run in re.findall(r"\d+", written)
    )


def amount(written: str) -> str:
    """``"1,234.56"`` as "one thousand two hundred thirty-four point five six"; ``".5"`` as "point five"."""
    whole, _, fraction = written.partition(".")
    words = _whole(whole) if whole else ""
    return f"{words} point {digits(fraction)}".strip() if fraction else words


def counted(written: str, one: str, many: str) -> str:
    """``"2"`` as "two feet": an amount with the singular or plural of what is counted."""
    return f"{amount(written)} {one if written in ('1', '1.0') else many}"


def _whole(written: str) -> str:
    """``1,234`` and, grouped as in India, ``1,50,000``: "one lakh fifty thousand"."""
    if not _INDIAN.fullmatch(written):
        return cardinal(int(written.replace(",", ""))) if "," in written else integer(written, quantity=True)
    crores, rest = divmod(int(written.replace(",", "")), 10_000_000)
    lakhs, rest = divmod(rest, 100_000)
    parts = [(crores, " crore"), (lakhs, " lakh"), (rest, "")]
    return " ".join(f"{cardinal(number)}{name}" for number, name in parts if number) or "zero"


def integer(written: str, *, quantity: bool = False) -> str:
    """A run of digits as a number, or digit by digit when it is too long for one or begins with a zero.

    A ``quantity`` (something counts or measures by it) may have up to fifteen digits.
    """
    longest = _MAX_CARDINAL_DIGITS if quantity else DIGIT_BY_DIGIT_FROM - 1
    if len(written) > longest or (len(written) > 1 and written[0] == "0"):
        return grouped_digits(written) if len(written) >= DIGIT_BY_DIGIT_FROM else digits(written)
    return cardinal(int(written))


def year(number: int) -> str:
    """``1905`` as "nineteen oh five", ``2006`` as "two thousand six", ``2026`` as "twenty twenty-six"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:  # noqa: PLR2004 - the first ten years of a millennium are said in full
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(number: int) -> str:
    """``5`` as "oh five", ``45`` as "forty-five": the minutes of an hour, the years of a century."""
    return f"oh {cardinal(number)}" if number < len(_DIGITS) else cardinal(number)


def fraction(numerator: int, denominator: int) -> str:
    """``3/4`` as "three quarters", ``3/25`` as "three out of twenty-five", ``30/25`` as "thirty over twenty-five"."""
    if not 1 < denominator <= _MAX_NAMED_DENOMINATOR:
        joint = "out of" if denominator > _MAX_NAMED_DENOMINATOR and numerator <= denominator else "over"
        return f"{cardinal(numerator)} {joint} {cardinal(denominator)}"
    name = {2: "half", 4: "quarter"}.get(denominator) or ordinal(denominator)
    return f"{cardinal(numerator)} {name if numerator == 1 else plural(name)}"


def mixed_number(whole: int, numerator: int, denominator: int) -> str:
    """``2 1/2`` as "two and a half"."""
    said = fraction(numerator, denominator).replace("out of", "over")
    return f"{cardinal(whole)} and {said.replace('one half', 'a half')}"


def plural(words: str) -> str:
    """The plural of a number word: "nineties", "tens", "halves"."""
    if words.endswith("half"):
        return f"{words[:-1]}ves"
    if words.endswith("x"):
        return f"{words}es"
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"
