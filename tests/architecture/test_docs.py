"""Documents agree with the code."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from cc_tts import errors
from cc_tts.calls.events.types import EVENTS
from cc_tts.config import load as configuration
from cc_tts.config import schema
from cc_tts.config.load import FORMER_NAMES
from tests.architecture import state_tables
from tests.architecture.state_tables import ROOT

pytestmark = pytest.mark.architecture

DOCUMENTS = state_tables.documents()
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_printed_tables_are_those_of_the_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == state_tables.with_tables(text), "run: python -m tests.architecture.state_tables"


def test_every_table_is_printed_somewhere() -> None:
    everything = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    for name in state_tables.TABLES:
        assert f"<!-- table:{name} -->" in everything, name


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_tables_are_whole(path: Path) -> None:
    """A line that ends a table too soon leaves its next row without a head."""
    lines = re.sub(r"(?ms)^ *```.*?^ *```", "", path.read_text(encoding="utf-8")).splitlines()
    for before, line, behind in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert re.fullmatch(r"\|[\s:|-]+\|", behind), line


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), target


def test_the_chinese_front_page_has_what_the_english_one_has() -> None:
    """It has the same sections, rows, links and samples; comments in samples may be translated."""
    pages = [(ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md")]
    for parts in (r"^##? ", r"^[*|] ", r"(?<=\]\()(?!README)[^)]+", r"^```\w*$"):
        english, chinese = (re.findall(parts, page, re.MULTILINE) for page in pages)
        assert english == chinese, parts
    commands = [
        re.findall(r"^(?:make|curl|\.venv|client|from|exten| same)[^#\n]*", page, re.MULTILINE) for page in pages
    ]
    assert [each.rstrip() for each in commands[0]] == [each.rstrip() for each in commands[1]]


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_files_that_are_named_exist(path: Path) -> None:
    for name in re.findall(r"`((?:cc_tts|tests|configs|docs|dialplans|sip|bench)/[\w./-]+)`", path.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_the_page_for_changes_leads_to_files() -> None:
    page = (ROOT / "docs/changing.md").read_text("utf-8")
    for name in re.findall(r"`((?!cc_tts|tests|bench|deploy)\w+/[\w/.]*)`", page):
        assert any((folder / name).exists() for folder in (ROOT, ROOT / "cc_tts", ROOT / "cc_tts/api")), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_configuration_keys_that_are_named_exist(path: Path) -> None:
    sections = {field: type(getattr(schema.Config(), field)) for field in schema.Config.__dataclass_fields__}
    del sections["routes"], sections["tenants"]
    for section, key in re.findall(r"`(?:--set )?'?([a-z]+)\.([a-z_]+)(?:=[^`]*)?'?`", path.read_text("utf-8")):
        is_file = key in ("py", "md", "toml", "json", "xml", "conf", "pem", "key")
        if section in sections and not is_file and f"{section}.{key}" not in EVENTS:
            is_known = key in sections[section].__dataclass_fields__ or (section, key) in FORMER_NAMES
            assert is_known, f"{section}.{key}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_settings_on_command_lines_are_accepted(path: Path) -> None:
    for block in re.findall(r"```sh\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if "--set" in line:
                words = shlex.split(line, comments=True)
                overrides = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
                assert configuration.load(overrides=overrides)


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_toml_in_documents_is_accepted(path: Path, tmp_path: Path) -> None:
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text("utf-8"), re.DOTALL)):
        tomllib.loads(block)
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        assert configuration.load(file)


def import_layers() -> list[str]:
    """The layers of the import contract, the highest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (each["layers"] for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return list(layers)


def test_every_message_between_processes_is_in_the_table() -> None:
    kept_in_a_file = {"Written"}
    missing = [
        f"{kind.__module__}.{kind.__name__}"
        for kind in state_tables.message_classes()
        if kind.__module__ not in state_tables.MESSAGE_MODULES and kind.__name__ not in kept_in_a_file
    ]
    assert missing == []


def test_every_package_and_module_has_a_layer() -> None:
    layered = {name for layer in import_layers() for name in layer.split(" | ")}
    there = {path.parent.name for path in (ROOT / "cc_tts").glob("*/__init__.py")}
    there |= {path.stem for path in (ROOT / "cc_tts").glob("*.py") if path.stem != "__init__"}
    assert layered == there


def test_every_key_of_the_error_codes_is_one_of_a_kind() -> None:
    abstract = {errors.ServerError, errors.ClientError}
    codes = [cls.code for cls in state_tables.error_classes() if cls not in abstract and "code" in vars(cls)]
    assert sorted(set(codes)) == sorted(codes)


def test_every_error_has_a_name_of_its_own() -> None:
    names = [cls.__name__ for cls in state_tables.error_classes()]
    assert sorted(set(names)) == sorted(names)


def test_every_rfc_of_the_code_is_in_the_list() -> None:
    listed = set(re.findall(r"RFC (\d{4})", (ROOT / "docs/rfc.md").read_text(encoding="utf-8")))
    for path in sorted((ROOT / "cc_tts").rglob("*.py")):
        for number in re.findall(r"RFC (\d{3,4})", path.read_text(encoding="utf-8")):
            assert number in listed, f"{path.relative_to(ROOT)}: RFC {number} is not in docs/rfc.md"


def test_the_list_of_rfcs_names_files_that_cite_them() -> None:
    for line in (ROOT / "docs/rfc.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| RFC (\d{4})", line):
            sources = re.findall(r"`(cc_tts/[\w/]+\.py)`", line)
            assert sources, line
            for name in sources:
                assert f"RFC {match[1]}" in (ROOT / name).read_text(encoding="utf-8"), f"{name}: no RFC {match[1]}"


def test_the_list_of_rfcs_has_one_row_for_a_topic() -> None:
    lines = (ROOT / "docs/rfc.md").read_text(encoding="utf-8").splitlines()
    topics = [line.split("|")[1:4] for line in lines if line.startswith("| RFC ")]
    assert topics
    assert not [topic for topic in topics if topics.count(topic) > 1]


def test_decisions_are_numbered_and_complete() -> None:
    names = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04}" for number in range(1, len(names) + 1)]
    for name in names:
        text = (ROOT / "docs/decisions" / name).read_text(encoding="utf-8")
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in text, f"{name}: {heading}"


def test_code_blocks_of_python_parse() -> None:
    for path in DOCUMENTS:
        for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            ast.parse(block)


def test_scripts_of_tutorials_are_printed_in_full() -> None:
    """``tests/e2e/test_tutorials.py`` runs the files; the pages show them."""
    for script, page in (
        ("examples/ivr.py", "ivr.md"),
        ("examples/campaign.py", "campaign.md"),
        ("examples/campaign_parts.py", "campaign.md"),
        ("examples/agent.py", "voice-agent.md"),
        ("examples/webhook_receiver.py", "webhooks.md"),
    ):
        program = (ROOT / script).read_text(encoding="utf-8")
        assert f"```python\n{program}```" in (ROOT / "docs/tutorials" / page).read_text(encoding="utf-8"), script


@pytest.mark.parametrize("name", ["ivr", "campaign", "webhook_receiver"])
def test_an_application_takes_sixty_lines(name: str) -> None:
    """The API lacks something where it takes more."""
    assert len((ROOT / f"examples/{name}.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_no_advice_relies_on_a_package_index() -> None:
    """cc-tts is on none, so that there the name is anybody's."""
    texts = [*DOCUMENTS, *(ROOT / "configs").glob("*.toml"), *(ROOT / "cc_tts").rglob("*.py")]
    advice = re.compile(r"pip install ['\"]?cc[-_]tts(?![-_\w*]*\*?\.whl|-\*)")
    assert not [path.name for path in texts if advice.search(path.read_text(encoding="utf-8"))]
    for path in texts:
        for name in re.findall(
            r"pip install (?:--[\w-]+ )*-r (requirements/[\w.]+\w)", path.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists(), f"{path.name}: {name}"
