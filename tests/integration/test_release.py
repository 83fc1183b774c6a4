"""``deploy/release.sh`` refuses what must not be released. Nothing is built here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_tts import __version__

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
FILES = ("cc_tts/__init__.py", "pyproject.toml", "deploy/release.sh", "deploy/helm/cc-tts/Chart.yaml", "CHANGELOG.md")
TIMEOUT_S = 60.0


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    identity = {f"GIT_{who}_{what}": "release" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= identity | {"GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def commit(folder: Path, *tags: str) -> None:
    for argv in (["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "A state"], *(["tag", tag] for tag in tags)):
        done = run(folder, "git", *argv)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script looks at before it builds, ready to be released but for the tag."""
    folder = tmp_path / "checkout"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    (folder / ".gitignore").write_text(".venv\n")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__}\n\n* Everything.\n")
    assert run(folder, "git", "init", "-q").returncode == 0
    commit(folder)
    return folder


def untagged(_folder: Path) -> None:
    """As it is."""


def tagged_otherwise(folder: Path) -> None:
    commit(folder, "v9.9.9")


def tagged_before(folder: Path) -> None:
    commit(folder, f"v{__version__}")
    commit(folder)


def uncommitted(folder: Path) -> None:
    commit(folder, f"v{__version__}")
    (folder / "forgotten.txt").write_text("")


def without_a_section(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text("# Changelog\n")
    commit(folder, f"v{__version__}")


def not_all_released(folder: Path) -> None:
    with (folder / "CHANGELOG.md").open("a") as file:
        file.write("\n## Unreleased\n")
    commit(folder, f"v{__version__}")


def other_version(folder: Path) -> None:
    path = folder / "pyproject.toml"
    path.write_text(path.read_text().replace(f'version = "{__version__}"', 'version = "9.9.9"'))
    commit(folder, f"v{__version__}")


def other_chart(folder: Path) -> None:
    path = folder / "deploy/helm/cc-tts/Chart.yaml"
    path.write_text(path.read_text().replace(f"appVersion: {__version__}", "appVersion: 9.9.9"))
    commit(folder, f"v{__version__}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (untagged, f"HEAD does not carry the tag v{__version__}"),
        (tagged_otherwise, f"HEAD does not carry the tag v{__version__}"),
        (tagged_before, f"HEAD does not carry the tag v{__version__}"),
        (uncommitted, "there are uncommitted changes"),
        (without_a_section, f"CHANGELOG.md has no section for {__version__}"),
        (not_all_released, "CHANGELOG.md has a section that is not released"),
        (other_version, f"pyproject.toml has another version than {__version__}"),
        (other_chart, f"Chart.yaml has another appVersion than {__version__}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_must_not_be_released_is_refused(spoil: Callable[[Path], None], message: str, checkout: Path) -> None:
    spoil(checkout)
    done = run(checkout, "deploy/release.sh")
    assert (done.returncode, done.stderr) == (1, f"release: {message}\n")
    assert not (checkout / "dist").exists()


def test_an_unknown_option_is_explained(checkout: Path) -> None:
    done = run(checkout, "deploy/release.sh", "--now")
    assert done.returncode == 2
    assert done.stderr.startswith("release.sh [--rehearse]   What a release consists of")
