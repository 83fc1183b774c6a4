"""Habits of the source that no linter knows."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "cc_tts").rglob("*.py"))
STARTED = {"cc_tts.cli", "cc_tts.engines.cosyvoice.worker_engine"}
"""And every ``__main__``; a worker imports the module of its engine by name."""
MAX_FILES = 12
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc", "core", "tools"}
OTHER_PEOPLES_WORDS = {
    "cc_tts/calls/relay/messages.py": {"session_id"},  # the field sessionId of ConversationRelay
    "cc_tts/softphone/sdp.py": {"session"},  # the session part of a description (RFC 4566 §5)
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


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """What a module imports, the names that ``from`` takes from a package among it."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in node.names)


def with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def words(identifier: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def test_no_module_hides_a_missing_noun() -> None:
    stems = {part for path in SOURCES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not stems & VAGUE
    assert not {part for stem in stems for part in stem.split("_")} & {"utils", "helpers", "manager"}


def test_session_is_not_a_word_of_ours() -> None:
    found = [
        (name_of(path), line, name)
        for path in SOURCES
        for line, name in defined_names(path)
        if "session" in words(name) and name not in OTHER_PEOPLES_WORDS.get(name_of(path), set())
    ]
    assert not found


def test_time_is_asked_of_the_clock_only() -> None:
    asking = [
        name_of(path)
        for path in SOURCES
        if path.name != "clock.py"
        and ("time" in set(imports(path)) or re.search(r"\bdatetime\.(now|utcnow|today)\(", path.read_text("utf-8")))
    ]
    assert not asking


def test_nanoseconds_are_converted_by_the_constants_of_the_clock() -> None:
    by_hand = [
        name_of(path)
        for path in SOURCES
        if path.name != "clock.py"
        and re.search(r"_ns\b.*(\b1e[69]\b|\b1_000_000(_000)?\b)|\b1e9\b", path.read_text("utf-8"))
    ]
    assert not by_hand


def test_pjsua2_and_torch_have_rooms_of_their_own() -> None:
    for path in SOURCES:
        roots = {name.split(".")[0] for name in imports(path)}
        if not {"ua", "softphone"} & set(path.parts):
            assert not roots & {"pjsua2", "_pjsua2"}, name_of(path)
        if "cosyvoice" not in path.parts:
            assert "torch" not in roots, name_of(path)


def test_nothing_is_left_for_later() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"\b(?:TEMP|TODO|FIXME|XXX|HACK|STUB)\b", text), name_of(path)
        stubs = [
            node for node in ast.walk(tree(path)) if isinstance(node, ast.Name) and node.id == "NotImplementedError"
        ]
        assert not stubs, name_of(path)


def test_every_module_says_what_it_is() -> None:
    assert not [name_of(path) for path in SOURCES if not ast.get_docstring(tree(path))]


def test_every_module_is_reached_from_what_is_started() -> None:
    modules = {module_of(path): path for path in SOURCES}
    reached: set[str] = set()
    waiting = [name for name in modules if name in STARTED or name.endswith(".__main__")]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in modules:
            reached.add(name)
            waiting += [part for found in imported(modules[name]) for part in with_parents(found)]
    assert not sorted(set(modules) - reached)


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = {module_of(path): path for path in SOURCES}
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        found = {part if part in modules else part.rpartition(".")[0] for part in imported(path)}
        graph[name] |= {each for each in found if each in modules} - {name}
    assert list(TopologicalSorter(graph).static_order())


def test_a_folder_is_looked_over_at_a_glance() -> None:
    sizes = Counter(name_of(path.parent) for path in SOURCES if path.name not in ("__init__.py", "__main__.py"))
    assert not {folder: size for folder, size in sizes.items() if size > MAX_FILES}


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


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("cc_tts", {"tests", "bench", "lab"}),
        ("examples", {"tests", "bench", "lab"}),
        ("lab", {"tests", "bench"}),
        ("tests", {"bench"}),
        ("bench", {"tests"}),
    ],
)
def test_tests_and_benches_import_the_lab_and_neither_the_other(folder: str, forbidden: set[str]) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        if any(name in path.read_text(encoding="utf-8") for name in forbidden):  # parsing all tests takes seconds
            assert not {name.split(".")[0] for name in imports(path)} & forbidden, name_of(path)


def test_no_two_test_modules_share_a_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("__init__.py", "conftest.py")]
    assert sorted(set(names)) == sorted(names)


def test_every_test_module_declares_its_category() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert re.search(r"^pytestmark = ", path.read_text(encoding="utf-8"), re.MULTILINE), path.name
