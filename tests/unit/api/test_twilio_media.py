"""The dialect of Twilio Media Streams."""

import base64
import json
from typing import Any

import msgspec
import pytest

from cc_tts.api.media.dialect import ClearAudio, MarkAudio
from cc_tts.api.media.twilio import TwilioDialect
from cc_tts.calls.audio.messages import (
    FramesDropped,
    MediaDirection,
    MediaDtmf,
    MediaError,
    MediaMark,
    MediaPaused,
    MediaStart,
    MediaStop,
)
from cc_tts.errors import MalformedRequest
from cc_tts.media.g711 import ulaw_decode

pytestmark = pytest.mark.unit

FRAME = b"\x10\x00" * 160


def start(direction: MediaDirection) -> MediaStart:
    return MediaStart(
        call_id="call_1",
        direction=direction,
        rate=8000,
        channels=1,
        frame_ms=20,
        caller="<sip:a@h>",
        callee="<sip:b@h>",
        headers={"X-Queue": "sales"},
        metadata={"customer": "17"},
    )


def told(dialect: TwilioDialect, item: Any) -> list[Any]:
    return [json.loads(each) for each in dialect.encode(item)]


def test_a_stream_begins_and_ends_as_twilios_does() -> None:
    dialect = TwilioDialect()
    connected, started = told(dialect, start("talk"))
    assert connected == {"event": "connected", "protocol": "Call", "version": "1.0.0"}
    sid = started["streamSid"]
    assert sid.startswith("MZ")
    assert len(sid) == 34
    assert (started["event"], started["sequenceNumber"]) == ("start", "1")
    assert started["start"] == {
        "accountSid": "AC" + "0" * 32,
        "streamSid": sid,
        "callSid": "call_1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {
            "X-Queue": "sales",
            "customer": "17",
            "from_number": "<sip:a@h>",
            "to_number": "<sip:b@h>",
        },
    }
    first, second = (told(dialect, ("in", FRAME))[0] for _ in range(2))
    assert first["media"] | {"payload": ""} == {"track": "inbound", "chunk": "1", "timestamp": "0", "payload": ""}
    assert (second["media"]["chunk"], second["media"]["timestamp"]) == ("2", "20")
    assert ulaw_decode(base64.b64decode(first["media"]["payload"])) == FRAME
    assert told(dialect, MediaDtmf(digit="5", duration_ms=100))[0]["dtmf"] == {"track": "inbound_track", "digit": "5"}
    assert told(dialect, MediaMark(name="m", cleared=True))[0]["mark"] == {"name": "m"}
    (stopped,) = told(dialect, MediaStop(reason="remote_hangup"))
    assert stopped == {
        "event": "stop",
        "sequenceNumber": "6",
        "stop": {"accountSid": "AC" + "0" * 32, "callSid": "call_1"},
        "streamSid": sid,
    }


def test_both_directions_are_two_tracks() -> None:
    dialect = TwilioDialect()
    assert told(dialect, start("both"))[1]["start"]["tracks"] == ["inbound", "outbound"]
    media = [told(dialect, (each, FRAME))[0]["media"] for each in ("in", "out", "in")]
    assert [(each["track"], each["timestamp"]) for each in media] == [
        ("inbound", "0"),
        ("outbound", "0"),
        ("inbound", "20"),
    ]


def test_what_was_dropped_shows_in_the_timestamps() -> None:
    dialect = TwilioDialect()
    told(dialect, start("in"))
    assert told(dialect, FramesDropped(frames=5)) == []
    assert told(dialect, ("in", FRAME))[0]["media"]["timestamp"] == "100"


def test_twilio_has_no_word_for_the_rest() -> None:
    dialect = TwilioDialect()
    assert told(dialect, MediaPaused(buffered_ms=1.0)) == []
    assert told(dialect, MediaError(code="malformed", detail="why")) == []


def test_what_clients_send() -> None:
    dialect = TwilioDialect()
    payload = base64.b64encode(bytes(range(160))).decode()
    sid = told(dialect, start("talk"))[1]["streamSid"]
    for of_stream in ({"streamSid": sid}, {"streamSid": None}, {}):
        media = {"event": "media", "media": {"payload": payload, "track": "outbound"}, **of_stream}
        assert dialect.read_text(json.dumps(media)) == ulaw_decode(bytes(range(160)))
        assert dialect.read_text(json.dumps({"event": "mark", "mark": {"name": "m"}, **of_stream})) == MarkAudio(
            name="m"
        )
        assert dialect.read_text(json.dumps({"event": "clear", **of_stream})) == ClearAudio()


@pytest.mark.parametrize(
    "message",
    [{"event": "media", "media": {"payload": "/w=="}}, {"event": "mark", "mark": {"name": "m"}}, {"event": "clear"}],
)
def test_messages_for_another_stream_have_no_effect(message: dict[str, Any]) -> None:
    dialect = TwilioDialect()
    told(dialect, start("talk"))
    assert dialect.read_text(json.dumps({**message, "streamSid": f"MZ{'0' * 32}"})) is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"event": "media"}',
        '{"event": "media", "media": {"payload": 5}}',
        '{"event": "dial"}',
        '{"event": "mark", "mark": {"name": ""}}',
    ],
)
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        TwilioDialect().read_text(text)


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="comes twice"):
        TwilioDialect().read_text('{"event": "mark", "mark": {"name": "a", "name": "b"}}')


@pytest.mark.parametrize("payload", ["%%%%", "abc", "ab cd"])
def test_payloads_that_are_not_base64(payload: str) -> None:
    with pytest.raises(MalformedRequest):
        TwilioDialect().read_text(json.dumps({"event": "media", "media": {"payload": payload}}))
    with pytest.raises(MalformedRequest):
        TwilioDialect().read_binary(b"x")
