"""Which pjsua2 is chosen, and what is said of it."""

import json
import sys
from pathlib import Path

import pytest

from cc_tts.errors import ConfigError
from cc_tts.ua import pjsua2_build
from cc_tts.ua.pjsua2_build import Pjsua2Build

pytestmark = pytest.mark.unit


def put_build(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    described = {"pjproject": "2.17", "max_calls": 2000, "max_ioqueue_handles": 10_000, "recipe": "abc", **changes}
    (folder / "build.json").write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize("environ", [{}, {"CC_TTS_PJSUA2": ""}, {"CC_TTS_PJSUA2": " wheel "}])
def test_the_wheel_is_the_default(environ: dict[str, str], tmp_path: Path) -> None:
    put_build(tmp_path / "pjsua2-server")
    build = pjsua2_build.chosen(environ, str(tmp_path), has_wheel=lambda: True)
    assert build == Pjsua2Build()
    assert build.max_handles == 64
    path = ["site-packages"]
    pjsua2_build.select(build, path)
    assert path == ["site-packages"]


def test_without_a_wheel_the_server_build_is_the_default(tmp_path: Path) -> None:
    folder = put_build(tmp_path / "pjsua2-server")
    assert pjsua2_build.chosen({}, str(tmp_path), has_wheel=lambda: False).folder == folder


@pytest.mark.parametrize("environ", [{}, {"CC_TTS_PJSUA2": "wheel"}])
def test_without_any_pjsua2_the_command_that_makes_one_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PyPI has none for this Python and machine: `cc-tts pjsua2 build`"):
        pjsua2_build.chosen(environ, str(tmp_path), has_wheel=lambda: False)


def test_the_server_build_of_this_environment_and_one_elsewhere(tmp_path: Path) -> None:
    folder = put_build(tmp_path / "pjsua2-server")
    build = pjsua2_build.chosen({"CC_TTS_PJSUA2": "server"}, str(tmp_path))
    assert build.folder == folder
    assert build.max_handles == 10_000
    assert build.name(2000) == "server build"
    elsewhere = put_build(tmp_path / "elsewhere", max_calls=500)
    build = pjsua2_build.chosen({"CC_TTS_PJSUA2": str(elsewhere)}, str(tmp_path))
    assert build == Pjsua2Build(elsewhere, max_handles=10_000, max_message_bytes=16_000)


def test_a_build_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cc-tts pjsua2 build"):
        pjsua2_build.chosen({"CC_TTS_PJSUA2": "server"}, str(tmp_path))


@pytest.mark.parametrize("value", ["wheels", "pjsua2-server", "../there"])
def test_other_words_are_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        pjsua2_build.chosen({"CC_TTS_PJSUA2": value}, str(tmp_path))


@pytest.mark.parametrize(
    "changes", [{"max_calls": 0}, {"max_calls": "many"}, {"max_ioqueue_handles": 15}, {"pjproject": None}, None]
)
def test_a_description_of_the_wrong_shape_or_cut_short_is_refused(
    changes: dict[str, object] | None, tmp_path: Path
) -> None:
    folder = put_build(tmp_path / "pjsua2-server", **changes or {})
    if changes is None:
        (folder / "build.json").write_text('{"pjproject": "2.1')
    with pytest.raises(ConfigError, match=r"build\.json"):
        pjsua2_build.chosen({"CC_TTS_PJSUA2": "server"}, str(tmp_path))


def test_selecting_puts_it_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pjsua2", raising=False)
    folder = put_build(tmp_path / "pjsua2-server")
    build = pjsua2_build.chosen({"CC_TTS_PJSUA2": "server"}, str(tmp_path))
    path = ["site-packages"]
    pjsua2_build.select(build, path)
    pjsua2_build.select(build, path)
    assert path == [str(folder), "site-packages"]


def test_it_is_too_late_when_another_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pjsua2", object())
    put_build(tmp_path / "pjsua2-server")
    build = pjsua2_build.chosen({"CC_TTS_PJSUA2": "server"}, str(tmp_path))
    with pytest.raises(ConfigError, match="before"):
        pjsua2_build.select(build, [])


@pytest.mark.parametrize(("max_calls", "name"), [(4, "PyPI wheel"), (512, "installed build")])
def test_what_is_installed_is_named_by_what_it_takes(max_calls: int, name: str) -> None:
    assert Pjsua2Build().name(max_calls) == name


def test_the_advice_knows_whether_it_is_built(tmp_path: Path) -> None:
    before = pjsua2_build.advice(max_calls=4, prefix=str(tmp_path))
    assert "4 calls" in before
    assert "cc-tts pjsua2 build" in before
    put_build(tmp_path / "pjsua2-server")
    after = pjsua2_build.advice(max_calls=4, prefix=str(tmp_path))
    assert "CC_TTS_PJSUA2=server" in after
    assert "cc-tts pjsua2 build" not in after


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "10.0.0.5", "172.31.255.1", "192.168.1.2", "169.254.1.1"])
def test_the_wheel_listens_inside(host: str) -> None:
    pjsua2_build.check_address(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "8.8.4.4", "172.32.0.1", "100.64.0.1", "192.0.2.1"])
def test_the_wheel_does_not_listen_where_strangers_are(host: str) -> None:
    with pytest.raises(ConfigError, match=r"cc-tts pjsua2 build.*CC_TTS_PJSUA2=server.*allow_pypi_wheel"):
        pjsua2_build.check_address(host)
