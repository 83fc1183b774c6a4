"""The dialect of Twilio Media Streams (https://www.twilio.com/docs/voice/media-streams/websocket-messages), for applications
that are written for it: JSON alone, G.711 μ-law at 8 kHz in Base64.

``callSid`` is the id of the call here. What Twilio has no word for is not sent: ``paused``, ``speak.started``, errors. A key
interrupts nothing: the application gets ``dtmf`` and sends ``clear`` if it should.
"""

import base64
import secrets
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from cc_tts.api.http import bodies
from cc_tts.api.media.dialect import ClearAudio, Command, Dialect, Item, MarkAudio, MarkName
from cc_tts.audio import PTIME_MS
from cc_tts.calls.audio.messages import HEARD, FramesDropped, MediaDtmf, MediaMark, MediaMessage, MediaStart, MediaStop
from cc_tts.errors import MalformedRequest
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.ua.messages import AudioDirection

RATE_HZ: Final = 8000
ACCOUNT_SID: Final = "AC00000000000000000000000000000000"
"""A placeholder: there are no accounts here, but applications expect the field."""
_TRACKS: Final[dict[AudioDirection, str]] = {"in": "inbound", "out": "outbound"}


class _Media(msgspec.Struct):
    payload: str


class _Mark(msgspec.Struct):
    name: MarkName


class _Frame(msgspec.Struct, tag_field="event", kw_only=True):
    stream_sid: Annotated[str, Meta(max_length=128)] | None = msgspec.field(name="streamSid", default=None)


class _MediaFrame(_Frame, tag="media"):
    media: _Media


class _MarkFrame(_Frame, tag="mark"):
    mark: _Mark


class _ClearFrame(_Frame, tag="clear"):
    """The application takes back audio that was not played."""


_ENCODER: Final = msgspec.json.Encoder()


class TwilioDialect(Dialect):
    interleaves = False
    barge_in_dtmf = False

    def __init__(self) -> None:
        super().__init__(RATE_HZ)
        self._stream_sid = f"MZ{secrets.token_hex(16)}"
        self._call_sid = ""
        self._num_sent = self._num_chunks = 0
        self._ms: dict[AudioDirection, int] = {}
        """The audio of each track since the start, ms."""

    def encode(self, item: Item) -> list[str | bytes]:
        if isinstance(item, tuple):
            return [self._media(*item)]
        if isinstance(item, MediaStart):
            self._call_sid = item.call_id
            self._ms = dict.fromkeys(HEARD[item.direction], 0)
            connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
            return [_ENCODER.encode(connected).decode(), self._event("start", self._start(item))]
        return self._message(item)

    def read_text(self, text: str) -> Command | None:
        frame = bodies.parsed(text, _MediaFrame | _MarkFrame | _ClearFrame)
        if frame.stream_sid not in (None, "", self._stream_sid):  # of another stream; Twilio ignores it too
            return None
        match frame:
            case _MediaFrame(media=media):
                try:
                    return ulaw_decode(base64.b64decode(media.payload, validate=True))
                except ValueError as error:  # not base64, or not ASCII
                    raise MalformedRequest(f"media.payload: {error}") from None
            case _MarkFrame(mark=mark):
                return MarkAudio(name=mark.name)
        return ClearAudio()

    def read_binary(self, _data: bytes) -> Command | None:
        raise MalformedRequest("messages are JSON in text frames")

    def _message(self, message: MediaMessage) -> list[str | bytes]:
        match message:
            case MediaDtmf(digit=digit):
                return [self._event("dtmf", {"track": "inbound_track", "digit": digit})]
            case MediaMark(name=name):
                return [self._event("mark", {"name": name})]
            case MediaStop():
                return [self._event("stop", {"accountSid": ACCOUNT_SID, "callSid": self._call_sid})]
            case FramesDropped(frames=frames):
                for direction in self._ms:
                    self._ms[direction] += frames // len(self._ms) * PTIME_MS
        return []

    def _start(self, start: MediaStart) -> dict[str, Any]:
        return {
            "accountSid": ACCOUNT_SID,
            "streamSid": self._stream_sid,
            "callSid": start.call_id,
            "tracks": [_TRACKS[each] for each in self._ms],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE_HZ, "channels": 1},
            "customParameters": {
                **start.headers,
                **start.metadata,
                "from_number": start.caller,
                "to_number": start.callee,
                **({} if start.api is UNSET else {"api": start.api}),
            },
        }

    def _media(self, direction: AudioDirection, frame: bytes) -> str:
        self._num_chunks += 1
        at_ms, self._ms[direction] = self._ms[direction], self._ms[direction] + PTIME_MS
        payload = base64.b64encode(ulaw_encode(frame)).decode()
        return self._event(
            "media",
            {
                "track": _TRACKS[direction],
                "chunk": str(self._num_chunks),
                "timestamp": str(at_ms),
                "payload": payload,
            },
        )

    def _event(self, event: str, content: dict[str, Any]) -> str:
        self._num_sent += 1
        return _ENCODER.encode(
            {"event": event, "sequenceNumber": str(self._num_sent), event: content, "streamSid": self._stream_sid}
        ).decode()
