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
TUNED = re.compile(
    r"(_S|_MS|_SHARE|_FACTOR|_MARGIN|_DB|_DBFS|_PERCENTILE|_UTILISATION|_LINES|_INTERVAL|_ALPHA)$"
    r"|^_?(MAX|MIN|LEAST|TYPICAL)_"
)
"""Names of times, shares and limits, which somebody chose."""
SOURCE = re.compile(
    r"RFC|ITU|G\.\d|§|measured|spec\b|engine-notes|docs/|decision|bench|PJ|kernel|IEEE|ISO\b|POSIX|Unicode|CosyVoice|Qwen"
    r"|paper|BCP|3GPP|ETSI|FreeSWITCH|Asterisk|Linux|aiohttp|gRPC|Python|simulat|espeak|ONNX|Whisper"
    r"|Kubernetes|systemd|Prometheus|Twilio|OpenAI|NVIDIA|CUDA|SDK|config",
    re.IGNORECASE,
)
"""Where a number comes from; "unmeasured" says that nobody knows a better reason than that it works."""
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


def test_docstrings_are_sentences() -> None:
    fragments = [
        f"{name_of(path)}:{line}: {text}"
        for path in SOURCES
        for line, text in docstrings(path)
        if FRAGMENT.match(text) or len(text.split()) < MIN_WORDS
    ]
    assert not fragments


def test_docstrings_say_which_number() -> None:
    """ "So many" leaves the reader to find the parameter or the constant that is meant."""
    vague = re.compile(r"\bso (many|much|long)\b(?![^.;]* that\b)", re.IGNORECASE)
    assert not [
        f"{name_of(path)}:{line}: {text}" for path in SOURCES for line, text in docstrings(path) if vague.search(text)
    ]


def tuned_constants(path: Path) -> Iterator[tuple[str, str]]:
    """Numbers that somebody chose, each with what is written beside it."""
    lines = path.read_text("utf-8").splitlines()
    body = tree(path).body
    for node, behind in zip(body, [*body[1:], None], strict=True):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if TUNED.search(name) and "_PER_" not in name and is_number(value):
                first = node.lineno - 1
                while first and lines[first - 1].startswith("#"):
                    first -= 1
                last = behind.end_lineno if isinstance(behind, ast.Expr) else node.end_lineno
                yield name, "\n".join(lines[first:last])


def is_number(value: ast.expr) -> bool:
    parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    constants = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return all(isinstance(node, parts) for node in ast.walk(value)) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in constants
    )


def test_numbers_that_somebody_chose_name_their_source() -> None:
    assert not [
        f"{name_of(path)}: {name}"
        for path in SOURCES
        for name, beside in tuned_constants(path)
        if not SOURCE.search(beside)
    ]


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


@pytest.mark.parametrize("page", ["glossary.md", "architecture.md", "changing.md"])
def test_classes_that_the_page_names_exist(page: str) -> None:
    sources = [*SOURCES, *(ROOT / "tests/fakes").glob("*.py")]
    defined = {
        name
        for path in sources
        for node in ast.walk(tree(path))
        for name in (
            [node.name]
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            else [each.id for each in node.targets if isinstance(each, ast.Name)]
            if isinstance(node, ast.Assign)
            else []
        )
    }
    shown = set(re.findall(r"`([A-Z][a-z]\w+)[.`]", (ROOT / "docs" / page).read_text("utf-8")))
    assert shown <= defined
