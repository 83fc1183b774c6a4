"""The wheel, away from the source: what it carries and that it works."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_tts import __version__
from cc_tts.config import load as configuration

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 110.0

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, timeout=TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"cc_tts-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture
def run(unpacked: Path, tmp_path: Path) -> Run:
    """``cc-tts`` of the wheel, in a folder of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CC_TTS_")}

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "cc_tts.cli", *arguments],
            cwd=tmp_path,
            env={**inherited, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1", **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return run


def test_it_compiles_pjsua2_by_the_recipe_of_the_source(run: Run, unpacked: Path, tmp_path: Path) -> None:
    assert found(unpacked / "cc_tts/ua/pjproject") == found(ROOT / "sip/pjproject")
    tarball = tmp_path / "no.tar"
    tarball.write_bytes(b"no archive")
    ended = run("pjsua2", "build", "there", PJPROJECT_TARBALL=str(tarball), XDG_CACHE_HOME=str(tmp_path))
    # a machine without a compiler is told what to install, any other gets as far as the source
    assert (ended.returncode == 4 and "apt-get install" in ended.stderr) or "given tarball" in ended.stdout, (
        ended.stderr
    )
    assert ended.returncode != 0
    assert not (tmp_path / "there").exists()


def shipped() -> dict[str, bytes]:
    configs = ROOT / "configs"
    return {str(path.relative_to(configs)): path.read_bytes() for path in configs.rglob("*") if path.is_file()}


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_holds_the_package_its_configuration_and_its_licence(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {"cc_tts", f"cc_tts-{__version__}.dist-info"}
    assert (unpacked / "cc_tts/py.typed").exists()
    assert (unpacked / f"cc_tts-{__version__}.dist-info/licenses/LICENSE").exists()
    assert found(unpacked / "cc_tts/config/files") == shipped()
    assert not list(unpacked.rglob("__pycache__"))


def test_config_init_writes_what_the_source_has(run: Run, tmp_path: Path) -> None:
    done = run("config", "init", "etc/cc-tts")
    assert done.returncode == 0, done.stderr
    assert found(tmp_path / "etc/cc-tts") == shipped()
    assert sorted(done.stdout.split()) == sorted(f"etc/cc-tts/{name}" for name in shipped())
    written = tmp_path / "etc/cc-tts/cc_tts.toml"
    assert written.stat().st_mode & 0o077 == 0
    assert configuration.load(written) == configuration.load(ROOT / "configs/cc_tts.toml")
    checked = run("check-config", "--config", str(written))
    assert checked.returncode == 0, checked.stderr


def test_config_init_overwrites_only_when_told_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cc_tts.toml").write_text("mine")
    refused = run("config", "init")
    assert refused.returncode == 2
    assert refused.stderr == "cc-tts: cc_tts.toml is there already; --force overwrites, or name another folder\n"
    assert found(tmp_path) == {"cc_tts.toml": b"mine"}
    assert run("config", "init", "--force").returncode == 0
    assert found(tmp_path) == shipped()
    assert run("config", "init").returncode == 2


def test_config_init_says_what_it_cannot_write(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("config", "init", "file")
    assert refused.returncode == 2
    assert refused.stderr.startswith("cc-tts: cannot write file/")
    assert len(refused.stderr.splitlines()) == 1


def test_config_init_in_the_source_writes_the_same(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cc_tts.cli", "config", "init", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=TIMEOUT_S, capture_output=True)
    assert found(tmp_path) == shipped()
