"""``cc-tts voices add``, from a web server that plays the public one."""

import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cc_tts import cli

pytestmark = pytest.mark.integration

MODEL, DESCRIPTION = b"model" * 1000, b'{"audio": {"sample_rate": 22050}}'
NAME = "de_DE-thorsten-medium"
PATH = f"de/de_DE/thorsten/medium/{NAME}"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a copy of the public voices, and its folder."""
    folder = tmp_path / "site"
    for suffix, data in ((".onnx", MODEL), (".onnx.json", DESCRIPTION)):
        (folder / PATH).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{PATH}{suffix}").write_bytes(data)
    files = {
        f"{PATH}{suffix}": {"size_bytes": len(data), "md5_digest": hashlib.md5(data).hexdigest()}
        for suffix, data in ((".onnx", MODEL), (".onnx.json", DESCRIPTION))
    }
    (folder / "voices.json").write_text(json.dumps({NAME: {"key": NAME, "files": files, "aliases": ["thorsten"]}}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def add(name: str, url: str, folder: Path) -> int:
    return cli.main(["voices", "add", name, "--from", url, "--voices", str(folder)])


@pytest.mark.parametrize("name", [NAME, "thorsten"])
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("de_DE", f"there are {NAME}"),
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
    assert all(path.read_bytes() == MODEL for path in voices.iterdir())


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


def test_other_addresses_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(NAME, "file:///etc", tmp_path) != 0
    assert "http or https" in capsys.readouterr().err
