"""Markup of language models and what is left of it to speak."""

import re
from pathlib import Path

import pytest

from cc_tts.text.markup.markdown import MarkupStripper, has_words
from cc_tts.text.normalizer import Normalizer

pytestmark = pytest.mark.unit

TABLE = Path(__file__).parents[2] / "data" / "text" / "markup.tsv"


def test_table_of_written_and_spoken() -> None:
    normalizer = Normalizer()
    rows = [row.split("\t") for row in TABLE.read_text().splitlines()]
    assert len(rows) >= 62
    wrong = []
    for row, spoken in rows:
        written = row.replace("\\n", "\n").replace("\\\\", "\\")
        if (heard := normalizer.normalize(MarkupStripper().strip(written), "en-US")) != spoken:
            wrong.append((written, heard))
    assert wrong == []


@pytest.mark.parametrize(
    "text", ["Hi {name}.", "Dear [Customer Name],", "{{date}}", "<first_name>", "%(amount)s", "${x}", "[DATE]"]
)
def test_a_placeholder_is_noticed(text: str) -> None:
    stripper = MarkupStripper()
    stripper.strip(text)
    assert stripper.has_placeholder


@pytest.mark.parametrize("text", ["Press [1].", "{yes, no}", "5 < 6", "50% sure", "[1, 2]", "A [sic] B"])
def test_what_is_no_placeholder(text: str) -> None:
    stripper = MarkupStripper()
    stripper.strip(text)
    assert not stripper.has_placeholder


def test_a_json_object_that_comes_in_parts() -> None:
    stripper = MarkupStripper()
    said = [
        stripper.strip(part).split() for part in ['{"reply": "Hello there.', ' Your bill is paid.", "end": ', "true}"]
    ]
    assert said == [["Hello", "there."], ["Your", "bill", "is", "paid.", ","], ["true"]]


def test_a_number_sign_within_a_line_is_no_heading() -> None:
    stripper = MarkupStripper()
    assert [stripper.strip(part) for part in ("Press 1, ", "# to end.\n", "# Bye")] == [
        "Press 1, ",
        "# to end.\n",
        "Bye.",
    ]


def test_numbers_below_a_heading_that_names_them_also_when_the_table_comes_in_parts() -> None:
    stripper = MarkupStripper()
    parts = (
        "| Name | Order no. | Items |\n",
        "|---|---|---|\n| Ann ",
        "| 88213 | 120 |\n| Bob | 88214 | 130 |\n",
        "\n| 456 | 789 |",
    )
    said = "".join(map(stripper.strip, parts))
    assert re.findall(r"\d[\d ]*\d", said) == ["8 8 2 1 3", "120", "8 8 2 1 4", "130", "456", "789"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi", True),
        ("{name}", False),
        ("{name} " * 25, False),
        ("<br/>" * 500 + "1", True),
        ("<!-- a -->", False),
        ("I think so.</think>", False),
        ("I think so.</think>So do I.", True),
        ('{"reply": "Hello"}', True),
        ("", False),
    ],
)
def test_whether_something_is_left_of_a_text(text: str, *, expected: bool) -> None:
    assert has_words(text) is expected
