"""The AsyncAPI document is well formed and describes what the server publishes."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec import UNSET

from cc_tts.api import text_stream
from cc_tts.api.events import asyncapi
from cc_tts.api.events.stream import QUERY
from cc_tts.api.media import dialect
from cc_tts.calls.audio import messages as media
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.input import text_messages as messages
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.media.quality import Quality
from cc_tts.ua.sip.reason import RemoteReason
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

PARTIES: dict[str, Any] = {
    "caller": "<sip:a@h>",
    "callee": "<sip:b@h>",
    "sip_call_id": "s",
    "headers": {"X-A": "1"},
    "uri_parameters": {},
}
SAMPLES: tuple[types.EventData, ...] = (
    types.CallIncoming(direction="inbound", source="192.0.2.1", **PARTIES),
    types.CallTrunkFailed(trunk="alpha", sip_code=503, next="beta"),
    types.CallOutgoing(direction="outbound", client_state="s", metadata={"a": "b"}, **PARTIES),
    types.CallEarly(sip_code=183),
    types.CallEstablished(codec=None, clock_rate_hz=None),
    types.CallEstablished(codec="PCMU", clock_rate_hz=8000),
    types.CallHeld(by="remote"),
    types.CallUnheld(),
    types.CallDtmf(digit="#", duration_ms=0, method="sip_info"),
    types.CallEarlyMedia(sound="ringback"),
    types.CallMachineDetected(result="machine", cause="long_greeting", after_ms=1900.0, words=4, greeting_ms=1500.0),
    types.CallMachineGreetingEnded(by="beep", at_ms=6200.0),
    types.CallGatherComplete(
        gather_id="g1",
        result="timeout",
        valid=True,
        digits="4711",
        terminator=None,
        timed_out="inter_digit",
        tries=1,
        prompt_error="engine_failed",
        duration_ms=4200.0,
    ),
    types.CallTransfer(transfer_id="t1", mode="blind", state="ringing", sip_code=180),
    types.CallReferRequested(
        refer_id="r1", to="sip:1@pbx", headers={}, referred_by=None, replaces=False, answer_within_ms=10_000
    ),
    types.CallReferComplete(refer_id="r1", result="succeeded", sip_code=200, new_call_id="call_2"),
    types.CallTransfer(
        transfer_id="t1", mode="attended", state="succeeded", sip_code=None, reason="unknown", confirmed=False
    ),
    types.CallDisclosed(utterance_id="u", played_ms=2100.0),
    types.CallDisclosureFailed(utterance_id="u", error="engine_failed"),
    types.CallTransfer(transfer_id="t2", mode="warm", state="answered", sip_code=None, agent_call_id="c2"),
    types.CallBridged(bridge_id="b1", other_call_id="c2", on_hangup="keep"),
    types.CallUnbridged(bridge_id="b1", other_call_id="c2", reason="call_ended"),
    types.CallRelayStarted(relay_id="r1", client_state="s"),
    types.CallRelayEnded(relay_id="r1", cause="completed", handoff_data="{}"),
    types.CallRecording(recording_id="r1", state="waiting", reason="consent", consent="required"),
    types.CallRecording(
        recording_id="r1", state="saved", reason="key", consent="given", duration_ms=20, bytes=218, lost_ms=0
    ),
    types.CallRecordingDelivered(recording_id="r1", to="upload", result="delivered", attempts=1),
    types.CallCommandFailed(command="hold", detail="no"),
    types.CallAdopted(direction="outbound", state=CallState.EARLY, **PARTIES),
    types.CallTerminated(ending=Ending("failed", "unreachable"), quality=Quality()),
    types.CallTerminated(ending=Ending("rejected", "redirected", 302, ("sip:c@h",)), quality=Quality(mos=4.1)),
    types.CallTerminated(
        ending=Ending("completed", "remote_hangup", 200, remote_reasons=(RemoteReason("Q.850", 21, "no"),)),
        quality=Quality(),
    ),
    types.SpeakQueued(utterance_id="u", text_chars=3, client_state="s"),
    types.SpeakStarted(utterance_id="u", time_to_first_audio_ms=None, time_to_first_pcm_ms=1.5),
    types.CallSpeechStarted(speech_id="s", during=None, at_ms=1.5),
    types.CallSpeechStopped(speech_id="s", duration_ms=400.0),
    types.SpeakMark(utterance_id="u", name="m", played_ms=20),
    types.SpeakPaused(utterance_id="u", speech_id="s", played_ms=20.0),
    types.SpeakResumed(utterance_id="u", played_ms=20.0),
    types.SpeakRecovered(utterance_id="u", text_chunk=1, char_start=20),
    types.SpeakRefused(utterance_id="u", error="language_unsupported", detail="d", text="您好", char_start=20),
    types.SpeakComplete(
        utterance_id="u",
        completion_cause=CompletionCause.BARGE_IN,
        played_ms=20.5,
        text_chars=0,
        spoken_text="",
        underruns=0,
        time_to_first_audio_ms=None,
        error=None,
    ),
    types.PromptReady(prompt_id="welcome", state="failed", duration_ms=0, error="no_audio"),
    types.ServerDraining(calls=0),
    types.ServerOverloaded(calls=4, draining=False),
    types.WebhookTest(webhook="crm"),
)
REF = {
    "type": "object",
    "required": ["$ref"],
    "properties": {"$ref": {"type": "string"}},
    "additionalProperties": False,
}
ASYNCAPI: dict[str, Any] = {
    "type": "object",
    "required": ["asyncapi", "info", "channels", "operations", "components"],
    "additionalProperties": False,
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {"type": "object", "required": ["title", "version"]},
        "defaultContentType": {"const": "application/json"},
        "channels": {
            "additionalProperties": {
                "required": ["address", "messages"],
                "properties": {"messages": {"minProperties": 1, "additionalProperties": REF}},
            }
        },
        "operations": {
            "additionalProperties": {
                "required": ["action", "channel", "messages"],
                "properties": {
                    "action": {"enum": ["send", "receive"]},
                    "channel": REF,
                    "messages": {"type": "array", "items": REF, "minItems": 1},
                    "security": {"type": "array", "items": REF},
                },
            }
        },
        "components": {
            "propertyNames": {"enum": ["messages", "schemas", "securitySchemes"]},
            "additionalProperties": {"propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"}},
            "properties": {"messages": {"additionalProperties": {"required": ["name", "title", "summary", "payload"]}}},
        },
    },
}
"""What of AsyncAPI 3.0.0 the document uses."""


@pytest.fixture(scope="module")
def document() -> Any:
    return msgspec.json.decode(msgspec.json.encode(asyncapi.document()))


def resolved(document: Any, ref: str) -> Any:
    node = document
    for name in ref.removeprefix("#/").split("/"):
        node = node[name]
    return node


def validator_of(document: Any, kind: str) -> Draft202012Validator:
    """Strict: a property that the document does not name is a fault."""

    def strict(node: Any) -> Any:
        if isinstance(node, list):
            return [strict(each) for each in node]
        if not isinstance(node, dict):
            return node
        found = {name: strict(each) for name, each in node.items()}
        return found if "properties" not in node else {"additionalProperties": False} | found

    payload = document["components"]["messages"][kind]["payload"]
    return Draft202012Validator(strict({**payload, "components": {"schemas": document["components"]["schemas"]}}))


def test_it_is_well_formed(document: Any) -> None:
    Draft202012Validator(ASYNCAPI).validate(document)
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_reference_leads_somewhere(document: Any) -> None:
    def walk(node: Any) -> None:
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(each)
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            assert resolved(document, node["$ref"])

    walk(document)


def test_it_names_every_type_of_event(document: Any) -> None:
    names = list(types.EVENTS)
    assert list(document["channels"]["events"]["messages"]) == names
    of_calls = ("stream.", "media.")
    assert [name for name in document["components"]["messages"] if not name.startswith(of_calls)] == names
    sent = [resolved(document, each["$ref"]) for each in document["operations"]["sendEvents"]["messages"]]
    assert [resolved(document, each["$ref"])["name"] for each in sent] == names
    assert all(resolved(document, each["$ref"])["summary"] for each in sent)


def test_it_names_the_parameters_of_the_route(document: Any) -> None:
    query = document["channels"]["events"]["bindings"]["ws"]["query"]["properties"]
    assert set(query) == {each.name for each in QUERY} == {"call_id", "types", "since", "connection"}


@pytest.mark.parametrize("data", SAMPLES, ids=repr)
def test_what_is_published_is_what_is_described(document: Any, data: types.EventData) -> None:
    call_id = None if data.type.startswith(("server.", "webhook.")) else "c1"
    event = msgspec.json.decode(msgspec.json.encode(EventBus(FakeClock()).publish(data, call_id=call_id)))
    validator_of(document, data.type).validate(event)
    for other in types.EVENTS.keys() - {data.type}:
        assert not validator_of(document, other).is_valid(event)
    required = {
        field.encode_name
        for field in msgspec.structs.fields(type(data))
        if field.default is not UNSET and field.required
    }
    assert required <= event["data"].keys()
    for name in required:
        less = {**event, "data": {key: value for key, value in event["data"].items() if key != name}}
        assert not validator_of(document, data.type).is_valid(less), name


def test_every_type_has_a_sample() -> None:
    assert {type(data) for data in SAMPLES} == set(types.EVENTS.values())


def test_it_describes_what_a_text_stream_sends_and_takes(document: Any) -> None:
    told: list[msgspec.Struct] = [
        messages.TokensResult(status="full", buffered_chars=4000),
        messages.Paused(),
        messages.Resumed(),
        messages.StreamSpeakStarted(utterance_id="u", time_to_first_audio_ms=20.5, time_from_first_token_ms=140.0),
        messages.Words(utterance_id="u", words=[messages.StreamWord(text="Your", start_ms=0, end_ms=180)]),
        messages.StreamSpeakRefused(utterance_id="u", error="language_unsupported", detail="d", text="您好"),
        messages.MarkReached(utterance_id="u", name="m", played_ms=0.0, client_state="s"),
        messages.StreamSpeakInterrupted(utterance_id="u", by="clear", spoken_text="a", played_ms=1.0, pending_text="b"),
        messages.StreamSpeakComplete(utterance_id="u", completion_cause="normal", spoken_text="a", played_ms=1.0),  # type: ignore[arg-type]
        messages.StreamError(code="malformed", detail="why"),
    ]
    asked = [text_stream.StartUtterance(voice="en-us"), text_stream.Tokens(text="a", id=7), text_stream.Mark(name="m")]
    asked += [text_stream.Flush(), text_stream.Clear(), text_stream.End()]
    check_socket(document, "stream", told, asked, messages.MESSAGES, text_stream.FRAMES)
    channel = document["channels"]["textStream"]["messages"]
    operations = (document["operations"][name]["messages"] for name in ("receiveText", "sendProgress"))
    assert sum(map(len, operations)) == len(channel) == len(told) + len(asked)


def test_it_describes_what_a_media_stream_sends_and_takes(document: Any) -> None:
    told: list[msgspec.Struct] = [
        media.MediaStart(
            call_id="c",
            direction="both",
            rate=16000,
            channels=2,
            frame_ms=20,
            caller="a",
            callee="b",
            headers={},
            metadata={},
        ),
        media.FramesDropped(frames=3),
        media.MediaDtmf(digit="5", duration_ms=100),
        media.MediaSpeechStarted(speech_id="s", at_ms=1.0),
        media.MediaSpeechStopped(speech_id="s", at_ms=2.0),
        media.MediaPaused(buffered_ms=1.0),
        media.MediaResumed(),
        media.MediaSpeakStarted(utterance_id="u", time_to_first_audio_ms=None),
        media.MediaMark(name="m", cleared=True),
        media.MediaSpeakInterrupted(utterance_id="u", by="clear", played_ms=1.0),
        media.MediaSpeakComplete(utterance_id="u", completion_cause=CompletionCause.NORMAL, played_ms=1.0),
        media.MediaError(code="malformed", detail="why"),
        media.MediaStop(reason="remote_hangup"),
    ]
    asked: list[msgspec.Struct] = [dialect.MarkAudio(name="m"), dialect.ClearAudio(), dialect.EndAudio()]
    check_socket(document, "media", told, asked, media.MESSAGES, dialect.FRAMES)
    channel = document["channels"]["mediaStream"]["messages"]
    operations = (document["operations"][name]["messages"] for name in ("receiveAudio", "sendAudio"))
    assert sum(map(len, operations)) == len(channel) == len(told) + len(asked)


def check_socket(
    document: Any,
    prefix: str,
    told: Sequence[msgspec.Struct],
    asked: Sequence[msgspec.Struct],
    all_told: Sequence[type[msgspec.Struct]],
    all_asked: Sequence[type[msgspec.Struct]],
) -> None:
    described = document["components"]["messages"]
    assert {type(each) for each in told} == set(all_told)
    assert {type(each) for each in asked} == set(all_asked)
    for each in (*told, *asked):
        name = f"{prefix}.{type(each).__name__}"
        sent = msgspec.json.decode(msgspec.json.encode(each))
        assert sent["type"] == described[name]["name"]
        validator_of(document, name).validate(sent)
