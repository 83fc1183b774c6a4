"""``deploy/release.sh`` refuses what must not be released, and signs what is. CI makes and tries a whole release."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_tts import __version__

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
FILES = ("cc_tts/__init__.py", "deploy/release.sh", "CHANGELOG.md")
FOLDERS = ("deploy/helm/cc-tts", "configs")
ONLY_THE_CHART = ("--without", "wheel,sbom,pjsua2,image,deb")
TIMEOUT_S = 60.0


def run(folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    identity = {f"GIT_{who}_{what}": "release" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= identity | {"GIT_CONFIG_GLOBAL": os.devnull} | more
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
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    (folder / ".gitignore").write_text(".venv\nbuild/\ndist/\n")
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
        (other_chart, f"Chart.yaml has another appVersion than {__version__}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_must_not_be_released_is_refused(spoil: Callable[[Path], None], message: str, checkout: Path) -> None:
    spoil(checkout)
    done = run(checkout, "deploy/release.sh")
    assert (done.returncode, done.stderr) == (1, f"release: {message}\n")
    assert not (checkout / "dist").exists()


@pytest.fixture
def releasable(checkout: Path) -> Path:
    commit(checkout, f"v{__version__}")
    return checkout


@pytest.mark.parametrize("options", [["--now"], ["--without"], ["--sign"]], ids=" ".join)
def test_an_unknown_option_is_explained(options: list[str], checkout: Path) -> None:
    done = run(checkout, "deploy/release.sh", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("release.sh [--rehearse] [--without STEP,…] --sign TOOL:KEY | --unsigned ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no key: --sign TOOL:KEY, or --unsigned for a release that nobody can tell from a forged one"),
        (["--unsigned", "--without", "wheels"], "there is no step wheels, but: wheel chart sbom pjsua2 image deb"),
        (
            ["--unsigned", *ONLY_THE_CHART, "--without", "chart"],
            "no step is left of: wheel chart sbom pjsua2 image deb",
        ),
        (["--unsigned", "--without", "wheel"], "deb is made of the wheel: --without wheel,deb"),
        (["--sign", "ssh:missing"], "the key missing cannot be read"),
        pytest.param(
            *(["--sign", "gpg:nobody@example.com"], "gpg has no secret key nobody@example.com"),
            marks=pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed"),
        ),
        (["--sign", "pen:ink"], "--sign is ssh:FILE, gpg:ID or minisign:FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_told_before_anything_is_built(
    options: list[str], message: str, releasable: Path
) -> None:
    done = run(releasable, "deploy/release.sh", *options, GNUPGHOME=str(releasable))
    assert (done.returncode, done.stderr) == (1, f"release: {message}\n")
    assert not (releasable / "dist").exists()


@pytest.mark.parametrize(
    ("missing", "options", "said"),
    [
        (
            ("docker", "podman", "buildah"),
            ("--unsigned", "--without", "wheel,sbom,pjsua2,deb"),
            "apt-get install --no-install-recommends buildah mmdebstrap crun, or --without image",
        ),
        (("gpg",), ("--sign", "gpg:me@example.com", *ONLY_THE_CHART), "--sign gpg needs it: apt-get install gnupg"),
    ],
    ids=["image", "gpg"],
)
def test_a_missing_tool_is_told_with_what_to_install(
    missing: tuple[str, ...], options: tuple[str, ...], said: str, releasable: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name not in missing:
            (programs / path.name).symlink_to(path)
    done = run(releasable, "deploy/release.sh", *options, PATH=str(programs))
    assert done.returncode == 1
    assert said in done.stderr
    assert not (releasable / "dist").exists()


def printed(page: str, begin: str) -> str:
    found: str
    (found,) = (each for each in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL) if begin in each)
    return found


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_what_was_tampered_with_is_found_as_the_documents_say(releasable: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert run(tmp_path, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)).returncode == 0
    done = run(releasable, "deploy/release.sh", *ONLY_THE_CHART, "--sign", f"ssh:{key}")
    assert done.returncode == 0, done.stderr
    dist = releasable / "dist"
    chart = dist / f"cc-tts-chart-{__version__}.tgz"
    assert {path.name for path in dist.iterdir()} == {chart.name, "SHA256SUMS", "SHA256SUMS.sig"}
    for name in ("wheel", "sbom", "pjsua2", "image", "deb"):
        assert f"{name}: left out" in done.stdout

    (dist / "allowed_signers").write_text(f"release@example.com {key.with_suffix('.pub').read_text()}")
    check = printed("docs/operators/upgrade.md", "sha256sum --check")
    assert run(dist, "bash", "-ec", check).returncode == 0
    whole = chart.read_bytes()
    chart.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert run(dist, "bash", "-ec", check).returncode != 0
    chart.write_bytes(whole)
    with (dist / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  more.whl\n")
    signature = next(line for line in check.splitlines() if "-Y verify" in line)
    assert run(dist, "bash", "-ec", signature).returncode != 0


def test_a_rehearsal_makes_the_same_chart_twice_of_what_is_committed(checkout: Path) -> None:
    (checkout / "forgotten.txt").write_text("")
    made = []
    for _ in range(2):
        done = run(checkout, "deploy/release.sh", "--rehearse", "--unsigned", *ONLY_THE_CHART)
        assert done.returncode == 0, done.stderr
        assert "note: uncommitted changes are not in it" in done.stdout
        made.append((checkout / "dist/SHA256SUMS").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(checkout / f"dist/cc-tts-chart-{__version__}.tgz") as archive:
        held = {member.name for member in archive if member.isfile()}
    assert held >= {f"cc-tts/{name}" for name in ("Chart.yaml", "README.md", "examples/ray.yaml", "files/alerts.yml")}


def test_the_server_build_as_a_wheel_is_where_cc_tts_looks_for_it(tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    held = {"build.json": b"{}", "pjsua2.py": b"", "_pjsua2.so": b"\x7fELF"}
    for name, data in held.items():
        (build / name).write_bytes(data)
    (build / "__pycache__").mkdir()  # it was imported
    tool = str(ROOT / "deploy/pjsua2_wheel.py")
    digests = set()
    for _ in range(2):
        done = run(tmp_path, sys.executable, tool, "build", "1.2.3", ".", SOURCE_DATE_EPOCH="1790000000")
        digests.add((tmp_path / done.stdout.strip()).read_bytes())
    assert len(digests) == 1
    pip = ("-m", "pip", "--quiet", "install", "--no-index", "--no-deps", "--no-compile", "--prefix", "there")
    installed = run(tmp_path, sys.executable, *pip, done.stdout.strip())
    assert installed.returncode == 0, installed.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "there/pjsua2-server").iterdir()} == held


def test_the_bill_of_an_image_has_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "build.json").write_text('{"pjproject": "2.17", "source": "upstream"}')
    tool = str(ROOT / "deploy/bill_of_materials.py")
    done = run(ROOT, sys.executable, tool, "image", "1.2.3", CC_TTS_PJSUA2=str(tmp_path))
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "image"
    found = {each["purl"]: each for each in bill["components"]}
    assert {f"pkg:pypi/aiohttp@{importlib.metadata.version('aiohttp')}", "pkg:generic/pjproject@2.17"} <= found.keys()
    assert not any(purl.startswith("pkg:deb/") for purl in found)


@pytest.mark.parametrize("chosen", ["", "server"])
def test_the_bill_of_a_virtual_environment_has_its_server_build(chosen: str, tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-m", "venv", "--without-pip", "there").returncode == 0
    (tmp_path / "there/pjsua2-server").mkdir()
    (tmp_path / "there/pjsua2-server/build.json").write_text('{"pjproject": "2.17", "source": "upstream"}')
    tool = str(ROOT / "deploy/bill_of_materials.py")
    done = run(tmp_path, "there/bin/python", tool, "cc-tts", "1.2.3", CC_TTS_PJSUA2=chosen)
    assert "pkg:generic/pjproject@2.17" in [each["purl"] for each in json.loads(done.stdout)["components"]]
