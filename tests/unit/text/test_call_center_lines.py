"""Lines as call centers write them, through chunker and rules, against what may be said."""

import json
import re
import unicodedata
from itertools import product
from pathlib import Path

import pytest

from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[2] / "data" / "text"
SAME_WORDS = {"oh": "zero", "negative": "minus"}


def said(normalizer: Normalizer, written: str, language: str) -> str:
    return " ".join(chunk.spoken for chunk in chunks_of(normalizer, written, Chunking(language=language)))


def expand(template: str) -> list[str]:
    """All that a template allows: ``{the|} fifth`` is "the fifth" or "fifth"; braces nest."""
    match = re.search(r"\{([^{}]*)\}", template)
    if match is None:
        return [template]
    before, after = template[: match.start()], template[match.end() :]
    return [line for choice in match[1].split("|") for line in expand(before + choice + after)]


def comparable(text: str, language: str) -> str:
    folded = unicodedata.normalize("NFKC", text).lower().replace("'", "").replace("’", "")
    words = "".join(" " if unicodedata.category(character)[0] in "PSZ" else character for character in folded).split()
    if language == "en":
        words = [SAME_WORDS.get(word, word) for word in words if word != "and"]
    return "".join(words).replace("幺", "一")


@pytest.mark.parametrize(
    ("file", "language"),
    [
        *product(("callcenter.jsonl", "callcenter_more.jsonl", "callcenter_kinds.jsonl"), ("en", "zh")),
        ("callcenter_zh.jsonl", "zh"),
        ("callcenter_en.jsonl", "en"),
    ],
)
def test_lines_with_all_that_may_be_said(normalizer: Normalizer, language: str, file: str) -> None:
    lines = [json.loads(line) for line in (DATA / file).read_text().splitlines()]
    lines = [line for line in lines if line["lang"] == language]
    assert len(lines) >= 40
    wrong = [
        (line["written"], heard)
        for line in lines
        if comparable(heard := said(normalizer, line["written"], "en-US" if language == "en" else "zh"), language)
        not in {comparable(each, language) for template in line["spoken"] for each in expand(template)}
    ]
    assert wrong == []


@pytest.mark.parametrize("language", ["en-US", "en-GB", "en-IN", "zh"])
def test_table_of_written_and_spoken(normalizer: Normalizer, language: str) -> None:
    rows = [row.split("\t") for row in (DATA / f"{language}.tsv").read_text().splitlines()]
    assert len(rows) >= (70 if language in ("en-US", "zh") else 3)
    wrong = [(written, heard) for written, spoken in rows if (heard := said(normalizer, written, language)) != spoken]
    assert wrong == []
