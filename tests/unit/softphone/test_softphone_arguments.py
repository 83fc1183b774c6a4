import struct
from pathlib import Path

import pytest

from cc_tts import wav_file
from cc_tts.clock import NS_PER_MS
from cc_tts.softphone.arguments import PASSWORD_VARIABLE, parse
from cc_tts.softphone.plan import parse_header, parse_key_plan, parse_uri, read_play
from cc_tts.softphone.probe.plan import ProbePlan

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sip:greet@127.0.0.1:5070", ("sip:greet@127.0.0.1:5070", "127.0.0.1", 5070)),
        ("sip:pbx.example", ("sip:pbx.example", "pbx.example", 5060)),
        ("greet@127.0.0.1", ("sip:greet@127.0.0.1", "127.0.0.1", 5060)),
        ("sip:annc@h:5;play=tts:Hi%20there", ("sip:annc@h:5;play=tts:Hi%20there", "h", 5)),
    ],
)
def test_uris(text: str, expected: tuple[str, str, int]) -> None:
    assert parse_uri(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "sips:a@b", "tel:+1", "sip:", "sip:a@b:99999", "sip:a@b:0", "sip:a b@c", "sip:a@[::1]", "sip:a@b>"),
        *("1000", "+49301234", "sip:1000", "hello", "sip:a@1000", "sip:a@300.1.1.1", "sip:a@10.0.0"),
    ],
)
def test_wrong_uris_name_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="right is sip:USER@HOST"):
        parse_uri(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12@2.5s,#@4s", [("1", 2500), ("2", 2500), ("#", 4000)]),
        ("5", [("5", 0)]),
        ("*@300ms, a@1", [("*", 300), ("A", 1000)]),
        ("", []),
    ],
)
def test_key_plans(text: str, expected: list[tuple[str, int]]) -> None:
    assert [(key.digit, key.not_before_ns // NS_PER_MS) for key in parse_key_plan(text)] == expected


@pytest.mark.parametrize("text", ["1@", "@2s", "x@1s", "1@soon", "1@-1s", ",", "1@²s"])
def test_wrong_key_plans(text: str) -> None:
    with pytest.raises(ValueError, match=r"right (is|are)"):
        parse_key_plan(text)


def test_a_file_to_play(tmp_path: Path) -> None:
    path = tmp_path / "a@b.wav"
    wav_file.write(path, bytes(320), rate_hz=8000)
    assert read_play("") == (b"", 0)
    assert read_play(f"{path}@300ms") == (b"\xff" * 160, 300)
    assert parse(["sip:a@b", "--play", f"{path}@2.5s"], {}).plan.play == f"{path}@2.5s"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.wav", "sox .* makes one"),
        ("fast.wav", "no WAV file of 8000 Hz"),
        ("beyond.wav", "no WAV file of 8000 Hz"),
        ("none.wav", "cannot read .*: No such file"),
        ("fast.wav@soon", "right is FILE or FILE@TIME"),
        ("fast.wav@601s", "up to 600 s"),
    ],
)
def test_wrong_files_to_play(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "text.wav").write_text("RIFF")
    whole = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 44, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"more", 900)
    (tmp_path / "beyond.wav").write_bytes(whole)
    wav_file.write(tmp_path / "fast.wav", bytes(320), rate_hz=16_000)
    with pytest.raises(ValueError, match=message):
        read_play(str(tmp_path / name))


@pytest.mark.parametrize("text", ["X-Foo", ": x", "X Foo: x", "X-Foo: a\r\nVia: b", "X-Foo: ä", "X\n-: x"])
def test_headers_that_would_break_the_message(text: str) -> None:
    with pytest.raises(ValueError, match=r"right is|printable"):
        parse_header(text)


def test_password_comes_from_the_environment_and_the_command_line_wins() -> None:
    assert parse(["sip:a@b"], {PASSWORD_VARIABLE: "geheim"}).phone.password == "geheim"
    assert parse(["sip:a@b", "--password", "x"], {PASSWORD_VARIABLE: "geheim"}).phone.password == "x"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nonsense:"], "right is sip:USER@HOST"),
        (["1000"], "sip:1000@127.0.0.1:5060 for a server on this machine"),
        (["sip:a@b:70000"], "70000 is no port"),
        (["sip:a@b", "--codec", "opus"], "pcmu"),
        (["sip:a@b", "--record", "heard.mp3"], "only WAV is written, not .mp3; name it heard.wav"),
        (["sip:a@b", "--record", "/"], "it is a folder"),
        (["sip:a@b", "--speak", " ", "--api", "http://h"], "empty text"),
        (["sip:a@b", "--dtmf", "z"], "right are 0 1 2"),
        (["sip:a@b", "--duration", "0"], "right is seconds"),
        (["sip:a@b", "--local-port", "70000"], "65535"),
        (["sip:a@b", "--speak", "hi"], "right is http://HOST:PORT"),
        (["sip:a@b", "--speak", "hi", "--api", "ftp://x"], "right is http://HOST:PORT"),
        (["sip:a@b", "--voice", "x"], "--speak"),
        (["sip:a@b", "--record", "/no/such/folder/a.wav"], "does not exist"),
        (["sip:a@b", "--report", "/no/such/folder/a.html"], "does not exist"),
        (["sip:a@b", "--header", "foo"], "X-Name: value"),
        (["sip:a@b", "--json", "/no/such/folder/a.json"], "does not exist"),
        (["sip:a@b", "--rounds", "2"], "go with --probe"),
        (["sip:a@b", "--codec", "pcma", "--play", "said.wav"], "with --codec pcmu only"),
        (["sip:a@b", "--probe", "--dtmf", "1"], "leave --speak, --dtmf and --play out"),
        (["sip:a@b", "--probe", "--rounds", "0"], "--rounds is 1 to 50"),
        (["sip:a@b", "--probe", "--sentence", " "], "nothing to say"),
        (["sip:a@b", "--probe", "--sentence", "none.wav"], "cannot read none.wav"),
        (["sip:a@b", "--probe", "--key", "12"], "--key is one key"),
        (["sip:a@b", "--probe", "--key", "z"], "right are 0 1 2"),
    ],
)
def test_wrong_arguments_name_what_is_right(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wav_file.write(tmp_path / "said.wav", bytes(320), rate_hz=8000)
    with pytest.raises(SystemExit) as stop:
        parse(argv, {})
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_everything_at_once(tmp_path: Path) -> None:
    argv = ["sip:a@b", "--codec", "pcma", "--dtmf", "1@1s", "--duration", "2.5s", "--record", str(tmp_path / "a.wav")]
    argv += ["--header", "X-A: 1", "--header", "X-B: Hello%20you: now", "--timeout", "500ms", "--json", "--quiet"]
    argv += ["--rtp-port", "4000", "--transport", "tcp"]
    argv += ["--speak", "hi", "--api", "http://127.0.0.1:8080", "--token", "tttttttt", "--voice", "v"]
    given = parse(argv, {})
    plan = given.plan
    assert (plan.codec, plan.max_talk_s, plan.timeout_s, plan.rtp_port) == ("pcma", 2.5, 0.5, 4000)
    assert plan.headers == {"X-A": "1", "X-B": "Hello%20you: now"}
    assert plan.uri == "sip:a@b;transport=tcp"
    assert given.speak is not None
    assert (given.speak.voice, given.json, given.is_quiet) == ("v", "-", True)
    assert "tttttttt" not in repr(given)


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (["sip:a@b"], ""),
        (["--json", "sip:a@b"], "-"),
        (["sip:a@b", "--json"], "-"),
        (["--json", "-", "sip:a@b"], "-"),
        (["--json", "call.json", "sip:a@b"], "call.json"),
        (["sip:a@b", "--json", "--quiet"], "-"),
    ],
)
def test_json_goes_to_standard_output_or_a_file(argv: list[str], where: str) -> None:
    given = parse(argv, {})
    assert (given.plan.uri, given.json) == ("sip:a@b", where)


def test_the_plan_of_a_probe() -> None:
    assert parse(["sip:a@b"], {}).probe is None
    assert parse(["sip:a@b"], {}).plan.max_talk_s == 60
    plain = parse(["sip:a@b", "--probe"], {})
    assert (plain.probe, plain.plan.max_talk_s) == (ProbePlan(), 1800)
    argv = ["--rounds", "3", "--key", "", "--wait", "2.5s", "--dead-air", "800ms", "--sentence", "Hi.", "--voice", "v"]
    plan = ProbePlan(sentence="Hi.", voice="v", rounds=3, key="", wait_s=2.5, dead_air_s=0.8)
    assert parse(["sip:a@b", "--probe", *argv], {}).probe == plan


def test_what_a_caller_said_is_for_this_user_only(tmp_path: Path) -> None:
    wav_file.write(tmp_path / "heard.wav", bytes(320), rate_hz=8000, is_private=True)
    assert (tmp_path / "heard.wav").stat().st_mode & 0o777 == 0o600
    assert wav_file.read(tmp_path / "heard.wav", rate_hz=8000, max_s=1) == bytes(320)
