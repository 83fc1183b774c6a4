"""``cc-tts text``: what would be said, without a server and without an engine that speaks."""

import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_tts import cli
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "developers" / "README.md"
KEYS = ["source", "spoken", "language", "voice"]


@pytest.fixture(autouse=True)
def _quiet_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("cc_tts.logs.configure", lambda **_more: None)
    with capture_logs():
        yield


def read(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, str]]:
    assert cli.main(["text", "--json", "--set", "tts.engine=espeak", *argv]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_documented_command_prints_what_the_page_says() -> None:
    """Apart from the voice, which is that of the machine."""
    command, shown = re.findall(r"```sh\n\S*cc-tts (text .*)\n```\n```\n((?:.+\n)+)```", PAGE.read_text())[0]
    printed = subprocess.check_output([sys.executable, "-m", "cc_tts.cli", *shlex.split(command)], text=True)
    without_voice = [
        [re.sub(r" +\S+ +", " ", line, count=1) for line in lines.splitlines()] for lines in (printed, shown)
    ]
    assert without_voice[0] == without_voice[1]


def test_each_chunk_is_an_object_of_four_strings(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = read(capsys, "Your balance is $5. Thank you.")
    assert list(first) == KEYS
    assert first["spoken"] == "Your balance is five dollars."
    assert first["source"] + second["source"] == "Your balance is $5. Thank you."
    assert first["language"].startswith("en")
    assert first["voice"] == "en-us"


def test_a_language_decides_rules_and_voice(capsys: pytest.CaptureFixture[str]) -> None:
    assert read(capsys, "12", "--language", "zh") == [
        {"source": "12", "spoken": "十二", "language": "zh", "voice": "cmn"}
    ]


def test_tokens_are_cut_into_segments_as_a_stream_cuts_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Thank you for calling, one moment please. Your balance is $5."
    for size in (1, 7, 200):
        chunks = read(capsys, text, "--stream", str(size))
        assert "".join(each["source"] for each in chunks) == text
        assert chunks[0]["source"] == (
            "Thank you for calling, one moment please." if size == 200 else "Thank you for calling,"
        )


def test_it_reads_ssml_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("<speak>Dial <say-as interpret-as='digits'>12</say-as></speak>"))
    assert [each["spoken"] for each in read(capsys, "-", "--ssml")] == ["Dial one two"]


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["…"], 1),
        (["Hello", "--voice", "nobody"], 1),
        (["Hello", "--stream", "0"], 2),
        (["<speak>Hello</speak>", "--ssml", "--stream", "3"], 2),
        (["<speak>", "--ssml"], 1),
    ],
)
def test_what_cannot_be_read_is_said(argv: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["text", *argv]) == status
    assert capsys.readouterr().err.startswith("cc-tts: ")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<think>I should say it. It is five.</think>Your balance is $5.", ["Your balance is five dollars."]),
        ('Sure. <tool_call>{"name": "x y"}</tool_call> Done.', ["Sure.", "Done."]),
        (
            "<|channel|>analysis<|message|>Hm, so.<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
            ["Hello."],
        ),
        ('{"response": "You owe $5. Thank you.", "lang": "en"}', ["You owe five dollars.", "Thank you., en"]),
        ("Your account number: 4417.", ["Your account number:", "four four one seven."]),
    ],
)
@pytest.mark.parametrize("size", [1, 7])
def test_tokens_are_read_as_the_whole_text_is(
    capsys: pytest.CaptureFixture[str], text: str, spoken: list[str], size: int
) -> None:
    chunks = read(capsys, text, "--stream", str(size))
    assert re.findall(r"\w+", " ".join(each["spoken"] for each in chunks)) == re.findall(r"\w+", " ".join(spoken))


def test_reasoning_alone_is_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["text", "<think>I should say it."]) == 1
    assert "Nothing to say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ssml", "spoken"),
    [
        ('The <sub alias="PIN">P.</sub> <prosody rate="slow">4417</prosody>', ["The PIN", "four four one seven"]),
        ('您的验证码是<prosody rate="slow">4821</prosody>。', ["您的验证码是", "四八二幺"]),
        ('您的<sub alias="验证码">码</sub>是<prosody rate="slow">4821</prosody>', ["您的验证码是", "四八二幺"]),
        ('您好。Your PIN is <prosody rate="slow">4821</prosody>', ["您好。", "Your PIN is", "four eight two one"]),
    ],
)
def test_numbers_of_ssml_are_read_by_the_words_that_are_said_before(
    capsys: pytest.CaptureFixture[str], ssml: str, spoken: list[str]
) -> None:
    chunks = read(capsys, f"<speak>{ssml}</speak>", "--ssml")
    assert [each["spoken"] for each in chunks] == spoken
    assert {each["voice"] for each in chunks if each["spoken"].startswith(("四", "您"))} <= {"cmn"}


def test_digits_in_a_voice_of_their_own_are_in_its_language(capsys: pytest.CaptureFixture[str]) -> None:
    chunks = read(capsys, '<speak>您的验证码是<voice name="en-us">12</voice></speak>', "--ssml")
    assert [each["spoken"] for each in chunks] == ["您的验证码是", "twelve"]


@pytest.mark.parametrize(("text", "typed"), [("Caf\udce9", b""), ("-", "您好".encode("gbk"))])
def test_a_text_in_another_encoding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, typed: bytes
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    assert cli.main(["text", "--set", "tts.engine=espeak", text]) == 2
    assert "`iconv -f GBK -t utf-8`" in capsys.readouterr().err
