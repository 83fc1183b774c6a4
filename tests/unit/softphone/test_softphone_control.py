import msgspec
import pytest

from cc_tts.softphone.control import Command, Dial

pytestmark = pytest.mark.unit


def decode(text: str) -> object:
    return msgspec.json.decode(text, type=Command)


def test_dial_becomes_a_plan() -> None:
    command = decode('{"cmd":"dial","uri":"sip:a@b","call":"x","headers":{"X-A":"1"},"dtmf":"1@2s","timeout_s":3}')
    assert isinstance(command, Dial)
    plan = command.plan()
    assert (plan.call, plan.uri, plan.codec, plan.headers, plan.answer_timeout_s) == (
        "x",
        "sip:a@b",
        "pcmu",
        {"X-A": "1"},
        3,
    )
    assert [(keys.digits, keys.at_ms) for keys in plan.keys] == [("1", 2000.0)]
    assert plan.record is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"cmd":"sing"}',
        '{"cmd":"dial"}',
        '{"cmd":"dial","uri":"sip:a@b","codec":"opus"}',
        '{"cmd":"dial","uri":"sip:a@b","colour":"red"}',
        '{"cmd":"dtmf","digits":""}',
        '{"cmd":"dial","uri":"sip:a@b","rtp_port":70000}',
    ],
)
def test_wrong_commands_are_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(text)


@pytest.mark.parametrize("cmd", ["hold", "unhold", "hangup", "mark-now", "quit"])
def test_plain_commands(cmd: str) -> None:
    assert type(decode(f'{{"cmd":"{cmd}"}}')).__name__.lower() == cmd.replace("-", "")
