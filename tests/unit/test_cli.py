"""The command line, with a made-up engine where it speaks."""

import errno
import io
import os
import re
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_tts import __version__, cli
from cc_tts.media.synthetic_label import COMMENT
from cc_tts.voices.voice import Voice
from tests.fakes.fake_engine import FakeEngine

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    for module in ("cc_tts.startup", "cc_tts.engines.factory"):  # the first imports from the other
        monkeypatch.setattr(f"{module}.make_engine", lambda *_arguments, **_more: fake)
    monkeypatch.setattr("cc_tts.logs.configure", lambda **_more: None)
    for name in ("CC_TTS_SIP__PORT", "CC_TTS_TTS__VOICE"):
        monkeypatch.delenv(name, raising=False)
    return fake


def test_what_a_terminal_cannot_show_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert cli.main(["text", "Grüße"]) == 0
    sys.stdout.flush()
    assert b"Gr\\xfc\\xdfe" in shown.getvalue()


def test_say_writes_a_wav(tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: FakeEngine) -> None:
    path = tmp_path / "said.wav"
    assert cli.main(["say", "Hello there.", "-o", str(path), "--rate", "16000", "--speed", "1.2"]) == 0
    with wave.open(str(path), "rb") as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16000)
        assert file.getnframes() > 0
    assert str(path) in capsys.readouterr().out
    assert COMMENT.encode() in path.read_bytes()
    assert engine.requests[0].speed == 1.2
    assert not engine.is_started


def test_say_takes_instructions_and_tells_if_the_voice_takes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["say", "Hi.", "-o", str(tmp_path / "x.wav"), "--instructions", "speak calmly"]
    assert cli.main(command) == 0
    assert engine.instructions == [""]
    assert "the voice en-us takes no instructions" in capsys.readouterr().err
    monkeypatch.setattr(
        engine, "voices", lambda: (Voice("anna", "fake", "en", rate_hz=16_000, takes_instructions=True),)
    )
    assert cli.main(command) == 0
    assert engine.instructions[-1] == "speak calmly"
    assert capsys.readouterr().err == ""
    assert cli.main(["say", "Hi.", "-o", str(tmp_path / "x.wav"), "--instructions", "calm<|x|>"]) == 2
    assert "--instructions: text without NUL and without <|" in capsys.readouterr().err


def test_say_reads_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe."))
    assert cli.main(["say", "-", "-o", str(tmp_path / "x.wav")]) == 0
    assert "".join(engine.streams[0].pushed).startswith("From a pipe")


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        (["--speed", "3"], 2, "--speed"),
        (["--rate", "100"], 2, "--rate"),
        (["--voice", "nobody"], 1, "nobody"),
        (["--set", "sip.prot=1"], 2, "sip.port"),
        (["--set", "nonsense"], 2, "section.key=value"),
        (["--config", "/nonexistent.toml"], 2, "no such file"),
    ],
)
def test_say_tells_what_is_wrong(
    more: list[str], status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["say", "Hello.", "-o", str(tmp_path / "x.wav"), *more]) == status
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("cc-tts: ")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no/x.wav", "does not exist"),
        ("x.mp3", "only WAV is written, not .mp3; name it"),
        (".", "it is a folder"),
        ("-", "name a file, such as said.wav"),
        ("a" * 300, "File name too long"),
    ],
)
def test_say_refuses_before_it_speaks_what_it_cannot_write(
    output: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    path = output if output == "-" else str(tmp_path / output)
    assert cli.main(["say", "Hello.", "-o", path]) == 2
    assert message in capsys.readouterr().err
    assert not engine.requests
    assert list(tmp_path.iterdir()) == []


def test_say_refuses_an_empty_text_before_the_engine_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: FakeEngine
) -> None:
    monkeypatch.setattr(engine, "start", lambda: pytest.fail("the engine was started"))
    for text in ("", " \n", "..."):
        assert cli.main(["say", text, "-o", str(tmp_path / "x.wav")]) == 1
        assert "the text has no letter and no digit" in capsys.readouterr().err


def test_voices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["voices"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["en-us", "de"]
    assert cli.main(["voices", "--language", "DE"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["de"]


def test_voices_tell_what_they_cost_here_and_which_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: FakeEngine
) -> None:
    voices = (
        Voice("quick", "onnx", "en-US", gender="female", cost=0.0123, streams=73),
        Voice("slow", "onnx", "cmn", cost=1.2, streams=0),
        Voice("unmeasured", "espeak", "de"),
    )
    monkeypatch.setattr(engine, "voices", lambda: voices)
    monkeypatch.setattr(engine, "voice_faults", ("bad.onnx.json: not the description of a voice",))
    assert cli.main(["voices"]) == 0
    said = capsys.readouterr()
    columns = {line.split()[0]: line for line in said.out.splitlines()}
    assert re.search(r" 0\.012 +73 live", columns["quick"])
    assert re.search(r" 1\.200 +0 prompts", columns["slow"])
    assert re.search(r" - +- live", columns["unmeasured"])
    assert "a voice cannot be used: bad.onnx.json: not the description of a voice" in said.err


def test_a_sentence_of_one_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["voices", "--say", "de"]) == 0
    assert engine.requests[0].voice == "de"
    with wave.open("de.wav", "rb") as file:
        assert (file.getframerate(), file.getnframes() > 0) == (8000, True)


def test_a_path_that_the_system_refuses_ends_no_command_with_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("a" * 300)
    assert cli.main(["config", "init", str(folder)]) == 2
    assert capsys.readouterr().err == f"cc-tts: {folder / 'cc_tts.gpu.toml'}: File name too long\n"


def test_check_config_prints_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cc_tts.toml"
    path.write_text(
        '[registration]\nregistrar = "pbx"\nusername = "u"\npassword = "hunter22"\n'
        '[http]\ntokens = ["a-secret-token"]\n[routes."7.1"]\ngreeting = "Hi"\n'
        '[trunks.carrier]\nregistrar = "sip.example.com"\nusername = "u"\npassword = "hunter23"\n'
    )
    assert cli.main(["check-config", "--config", str(path), "--set", "sip.port=5099"]) == 0
    out = capsys.readouterr().out
    assert "port = 5099" in out
    assert "password = (set)" in out
    assert "tokens = 1 configured" in out
    assert '[routes."7.1"]' in out
    assert '[trunks."carrier"]' in out
    assert "hunter2" not in out
    assert "a-secret-token" not in out


def test_folders_that_cannot_be_written_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["prompts.dir", "tts.lexicons_dir", "record.dir"]
    settings = [word for key in keys for word in ("--set", f"{key}={tmp_path}")]
    command = ["check-config", "--set", f"record.min_free_bytes={1 << 50}", *settings]
    assert cli.main(command) == 0
    (warning,) = [each for each in capsys.readouterr().err.splitlines() if str(tmp_path) in each or "record." in each]
    assert "bytes are free; calls are not recorded below record.min_free_bytes" in warning
    monkeypatch.setattr("cc_tts.startup.os.access", lambda _path, mode: not mode & os.W_OK)
    assert cli.main([*command, "--set", "record.dir="]) == 0
    warnings = [each for each in capsys.readouterr().err.splitlines() if str(tmp_path) in each]
    assert [each.split(": ")[1] for each in warnings] == keys[:2]
    assert all("cannot be written" in each for each in warnings)


def test_call_is_handed_to_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr("os.execv", lambda path, argv: given.extend((path, argv)))
    monkeypatch.setattr(cli, "build_parser", lambda _arguments: (_ for _ in ()).throw(SystemExit(0)))
    with pytest.raises(SystemExit):
        cli.main(["call", "sip:x@h", "--json"])
    assert given == [sys.executable, [sys.executable, "-m", "cc_tts.softphone", "sip:x@h", "--json"]]


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["say"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_a_file_that_may_not_be_read_is_told_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert cli.main(["check-config", "--set", f"tts.lexicons_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        f"cc-tts: tts.lexicons_dir: {tmp_path}: Permission denied; the server's user must be able to read it\n"
    )
