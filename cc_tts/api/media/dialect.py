"""A dialect is the wire format of a media stream. Ours is here; others are beside it."""

from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from cc_tts.calls.audio.messages import MediaMessage
from cc_tts.ua.messages import AudioDirection

MarkName = Annotated[str, Meta(min_length=1, max_length=128)]


class MediaFrame(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="type"):
    """Base of the client's text messages."""


class MarkAudio(MediaFrame, frozen=True, kw_only=True, tag="mark"):
    """Report when playback reaches this place in the audio."""

    name: MarkName


class ClearAudio(MediaFrame, frozen=True, kw_only=True, tag="clear"):
    """Drop this client's audio that was not played, and report its marks at once."""


class EndAudio(MediaFrame, frozen=True, kw_only=True, tag="end"):
    """No more audio comes for now: the utterance is complete when it has been played."""


FRAMES: Final = (MarkAudio, ClearAudio, EndAudio)
"""The client's text messages, in the order in which the documents list them."""
TextCommand = MarkAudio | ClearAudio | EndAudio
Command = TextCommand | bytes
"""A request of a client; ``bytes`` is PCM to be played."""
Item = MediaMessage | tuple[AudioDirection, bytes]
"""One item for a client: a message, or a frame of PCM."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(TextCommand)


class Dialect(Protocol):
    """The dialect of one client. Its methods raise ``msgspec.DecodeError`` and ``MalformedRequest`` for messages that cannot
    be read.
    """

    rate_hz: int
    interleaves: bool
    barge_in_dtmf: bool | None

    def encode(self, item: Item) -> list[str | bytes]:
        """Return the messages for the wire; none if the dialect cannot express the item."""
        ...

    def read_text(self, text: str) -> Command | None:
        """Return the command in a text message; ``None`` if it has none."""
        ...

    def read_binary(self, data: bytes) -> Command | None: ...


class OwnDialect:
    """Binary messages are PCM, text messages JSON with a ``type``."""

    barge_in_dtmf: bool | None = None

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.interleaves = True

    def encode(self, item: Item) -> list[str | bytes]:
        return [item[1]] if isinstance(item, tuple) else [_ENCODER.encode(item).decode()]

    def read_text(self, text: str) -> Command | None:
        command: Command = _DECODER.decode(text)
        return command

    def read_binary(self, data: bytes) -> Command | None:
        return data
