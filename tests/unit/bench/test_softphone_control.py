import msgspec
import pytest

from bench.softphone_control import Command
from cc_tts.softphone.plan import DialPlan

pytestmark = pytest.mark.unit


def decode(text: str) -> object:
    return msgspec.json.decode(text, type=Command)


def test_dial_becomes_a_plan() -> None:
    plan = decode('{"cmd":"dial","uri":"sip:a@b","call":"x","headers":{"X-A":"1"},"dtmf":"1@2s","timeout_s":3}')
    assert isinstance(plan, DialPlan)
    assert (plan.call, plan.uri, plan.codec, plan.headers, plan.timeout_s) == (
        "x",
        "sip:a@b",
        "pcmu",
        {"X-A": "1"},
        3,
    )
    assert plan.dtmf == "1@2s"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"cmd":"sing"}',
        '{"cmd":"dial"}',
        '{"cmd":"dial","uri":"sip:a@b","codec":"opus"}',
        '{"cmd":"dial","uri":"sip:a@b","colour":"red"}',
        '{"cmd":"dial","uri":"sip:1000"}',
        '{"cmd":"dial","uri":"sip:a@b","headers":{"X A":"1"}}',
        '{"cmd":"dial","uri":"sip:a@b","dtmf":"z"}',
        '{"cmd":"dial","uri":"sip:a@b","record":"heard.mp3"}',
        '{"cmd":"dtmf","digits":""}',
        '{"cmd":"dtmf","digits":"1","duration_ms":39}',
        '{"cmd":"dtmf","digits":"1","duration_ms":9000}',
        '{"cmd":"dial","uri":"sip:a@b","rtp_port":70000}',
    ],
)
def test_wrong_commands_are_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(text)


@pytest.mark.parametrize("cmd", ["hold", "unhold", "hangup", "mark-now", "quit"])
def test_plain_commands(cmd: str) -> None:
    assert type(decode(f'{{"cmd":"{cmd}"}}')).__name__.lower() == cmd.replace("-", "")
