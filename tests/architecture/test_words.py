"""What is written for people: docstrings, names, sizes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_source import ROOT, SOURCES, name_of, tree

pytestmark = pytest.mark.architecture

FRAGMENT = re.compile(r"(Of|That|With|As|And|Or|In which|What|For|By|To|At|From|On|Whose|Not|But|So)\b")
"""A docstring that begins so has no subject."""
MIN_WORDS = 4
"""A shorter docstring repeats a name; it is left out."""
STILL_IN_FRAGMENTS = (
    "cc_tts/calls/",
    "cc_tts/text/",
    "cc_tts/ua/",
)
"""Folders whose docstrings are not sentences yet; the list only gets shorter."""
MAX_CLASS_LINES = 450
MAX_FILE_LINES = 550


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Those of modules, classes and functions, and the strings that stand behind a field or a constant."""
    for node in ast.walk(tree(path)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.lineno, " ".join(each.value.value.split("\n\n")[0].split())


def is_written(path: Path) -> bool:
    name = name_of(path)
    return not name.startswith(STILL_IN_FRAGMENTS)


def test_docstrings_are_sentences() -> None:
    fragments = [
        f"{name_of(path)}:{line}: {text}"
        for path in SOURCES
        if is_written(path)
        for line, text in docstrings(path)
        if FRAGMENT.match(text) or len(text.split()) < MIN_WORDS
    ]
    assert not fragments


def test_classes_and_files_are_read_in_one_sitting() -> None:
    large = {name_of(path) for path in SOURCES if len(path.read_text("utf-8").splitlines()) > MAX_FILE_LINES}
    large |= {
        name_of(path)
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= MAX_CLASS_LINES
    }
    assert not large


def terms() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)


def test_the_glossary_has_each_term_once_in_the_order_of_the_alphabet() -> None:
    for section in (ROOT / "docs/glossary.md").read_text("utf-8").split("\n## ")[1:]:
        rows = re.findall(r"^\| \*\*(.+?)\*\*", section, re.MULTILINE)
        assert rows == sorted(rows, key=str.lower)
    assert len(set(terms())) == len(terms())


def test_names_that_the_glossary_shows_exist() -> None:
    defined = {
        node.name
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    shown = set(re.findall(r"`([A-Z][a-z]\w+)`", (ROOT / "docs/glossary.md").read_text("utf-8")))
    assert shown <= defined
