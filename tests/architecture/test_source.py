"""Habits of the source that no linter knows."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "cc_tts").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc", "core", "tools"}
OTHER_PEOPLES_WORDS = {
    "cc_tts/ua/softphone_sdp.py": {"session"},  # the session part of a description (RFC 4566 §5)
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom() if node.module is not None and node.level == 0:
                yield node.module


def defined_names(path: Path) -> Iterator[tuple[int, str]]:
    """Names this file gives; attributes of other people's objects are not among them."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self")):
                yield node.lineno, node.attr


def words(identifier: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_no_module_hides_a_missing_noun(path: Path) -> None:
    assert not set(path.relative_to(ROOT).with_suffix("").parts) & VAGUE
    assert not {part for part in path.stem.split("_") if part in {"utils", "helpers", "manager"}}


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_session_is_not_a_word_of_ours(path: Path) -> None:
    allowed = OTHER_PEOPLES_WORDS.get(str(path.relative_to(ROOT)), set())
    found = [(line, name) for line, name in defined_names(path) if "session" in words(name) and name not in allowed]
    assert not found


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_time_is_asked_of_the_clock_only(path: Path) -> None:
    if path.name != "clock.py":
        assert "time" not in set(imports(path))
        assert not re.search(r"\bdatetime\.(now|utcnow|today)\(", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_pjsua2_is_imported_in_ua_only(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    if path.parent.name != "ua":
        assert not roots & {"pjsua2", "_pjsua2"}
    if "torch" in roots:
        assert "cosyvoice2" in path.parts


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_nothing_is_left_for_later(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"\b(?:TEMP|TODO|FIXME|XXX|HACK|STUB)\b", text)
    stubs = [
        node.lineno for node in ast.walk(tree(path)) if isinstance(node, ast.Name) and node.id == "NotImplementedError"
    ]
    assert not stubs


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path))


def test_what_touches_pjsua2_runs_on_the_sip_thread() -> None:
    """Modules that import pjsua2 at their top say on which thread they run."""
    for path in SOURCES:
        top = {alias.name for node in tree(path).body if isinstance(node, ast.Import) for alias in node.names}
        if "pjsua2" in top:
            assert "Runs on:" in path.read_text(encoding="utf-8"), path.name


def test_texts_of_callers_never_reach_the_log() -> None:
    """No log line has a field that would carry what is said."""
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"debug", "info", "warning", "error", "exception", "bind"}
                and isinstance(node.func.value, ast.Name | ast.Attribute)
                and "log"
                in words(node.func.value.id if isinstance(node.func.value, ast.Name) else node.func.value.attr)
            ):
                fields = {keyword.arg for keyword in node.keywords}
                assert not fields & {"text", "spoken_text", "prompt", "ssml", "content"}, f"{path.name}:{node.lineno}"


def test_no_two_test_modules_share_a_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("__init__.py", "conftest.py")]
    assert sorted(set(names)) == sorted(names)


def test_every_test_module_declares_its_category() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert re.search(r"^pytestmark = ", path.read_text(encoding="utf-8"), re.MULTILINE), path.name
