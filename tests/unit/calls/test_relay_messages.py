"""The messages of ConversationRelay, as applications are written for them."""

import json
from typing import Any

import msgspec
import pytest

from cc_tts.api.http import bodies
from cc_tts.calls.relay import messages

pytestmark = pytest.mark.unit


def decode(sent: str) -> Any:
    return bodies.parsed(sent, messages.Message)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"type": "text", "token": "Hello "}, messages.Text(token="Hello ")),
        (
            {"type": "text", "token": "a", "last": True, "lang": "de-DE", "interruptible": "dtmf", "preemptible": True},
            messages.Text(token="a", last=True, lang="de-DE", interruptible="dtmf", preemptible=True),
        ),
        (
            {"type": "play", "source": "https://a.example/b.mp3", "loop": 0, "interruptible": False},
            messages.Play(source="https://a.example/b.mp3", loop=0, interruptible=False),
        ),
        ({"type": "sendDigits", "digits": "9w12#"}, messages.SendDigits(digits="9w12#")),
        (
            {"type": "language", "ttsLanguage": "sv-SE", "transcriptionLanguage": "en-US"},
            messages.Language(tts_language="sv-SE", transcription_language="en-US"),
        ),
        ({"type": "end", "handoffData": '{"a": 1}'}, messages.End(handoff_data='{"a": 1}')),
        ({"type": "end", "of": "a later version"}, messages.End()),
    ],
)
def test_what_applications_say(sent: dict[str, Any], read: messages.Message) -> None:
    assert decode(json.dumps(sent)) == read
    assert decode('{"type":"text","token":"Hi \\ud83d"}') == messages.Text(token="Hi \ufffd"), "a character cut in two"


@pytest.mark.parametrize(
    "sent",
    [
        '{"type":"prompt","voicePrompt":"that is ours to say"}',
        '{"token":"a"}',
        '{"type":"text","token":1}',
        '{"type":"text","token":"a","interruptible":"sometimes"}',
        '{"type":"play","source":""}',
        '{"type":"play","source":"https://a.example/b.mp3","loop":1001}',
        '{"type":"sendDigits","digits":"12;3"}',
        '{"type":"sendDigits","digits":""}',
        '{"type":"end","handoffData":"' + "a" * (messages.MAX_HANDOFF_CHARS + 1) + '"}',
        '{"type":"text","token":"\\ud83d',
        "[]",
    ],
)
def test_what_is_no_message(sent: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(sent)


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        (messages.Dtmf(digit="1"), {"type": "dtmf", "digit": "1"}),
        (
            messages.Interrupt(utterance_until_interrupt="Welcome to", duration_until_interrupt_ms=1820),
            {"type": "interrupt", "utteranceUntilInterrupt": "Welcome to", "durationUntilInterruptMs": 1820},
        ),
        (messages.Error(description="no"), {"type": "error", "description": "no"}),
        (
            messages.Setup(
                session_id="VX1", account_sid="AC0", call_sid="c1", from_="+4930", to="100", direction="inbound",
                call_status="RINGING", custom_parameters={"a": "b"},
            ),
            {
                "type": "setup", "sessionId": "VX1", "accountSid": "AC0", "parentCallSid": "", "callSid": "c1",
                "from": "+4930", "to": "100", "forwardedFrom": "", "callType": "SIP", "callerName": "",
                "direction": "inbound", "callStatus": "RINGING", "customParameters": {"a": "b"},
                "transcriptionProvider": "none",
            },
        ),
    ],
)  # fmt: skip
def test_what_applications_are_told(told: messages.ToApplication, sent: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(told)) == sent


@pytest.mark.parametrize(
    ("said", "of_relay", "by"),
    [
        (None, "dtmf", "dtmf"),
        (True, "dtmf", "dtmf"),
        (True, "none", "any"),
        (False, "any", "none"),
        ("speech", "dtmf", "speech"),
        ("none", "any", "none"),
    ],
)
def test_what_interrupts(said: Any, of_relay: Any, by: str) -> None:
    assert messages.Text(token="a", interruptible=said).interrupted_by(of_relay) == by
