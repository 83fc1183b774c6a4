"""``abbreviations.tsv`` has what is written short in further languages."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

NAME_BEHIND: Final = " _"
"""Behind an abbreviation: a name follows, so its full stop ends no sentence."""
NUMBER_BEHIND: Final = " #"


@cache
def abbreviations() -> Mapping[str, Mapping[str, str]]:
    """Return what is said for what is written, with what may stand beside it, by language."""
    rows: dict[str, dict[str, str]] = {}
    for line in resources.files("cc_tts.text.others").joinpath("abbreviations.tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            code, written, said = line.split("\t")
            rows.setdefault(code, {})[written] = said
    return rows


@cache
def never_last(behind: str) -> frozenset[str]:
    """Return the abbreviations of all languages, without their full stop, that a name or a number follows."""
    written = [each for rows in abbreviations().values() for each in rows]
    short = {each.removesuffix(f".{behind}").rpartition(" ")[2] for each in written if each.endswith(f".{behind}")}
    if behind == NAME_BEHIND:
        parts = (word for each in written for word in each.rstrip("#_ ").split(". ")[:-1])
        short.update(word for word in parts if len(word) > 1 and " " not in word)
    return frozenset(short | {each[0].upper() + each[1:] for each in short})


@cache
def short_words() -> frozenset[str]:
    """Return all abbreviations, and short days and months, without their full stop."""
    text = resources.files("cc_tts.text.others").joinpath("words.json").read_text("utf-8")
    of_dates = (each[kind] for each in json.loads(text).values() for kind in ("short_days", "short_months"))
    written = (each.strip("#_ ").removesuffix(".") for rows in abbreviations().values() for each in rows)
    return frozenset(written).union(*of_dates)
