"""A dialect is what a media stream looks like on the wire: ours is here, others are beside it."""

from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from cc_tts.calls.audio.messages import MediaMessage
from cc_tts.ua.messages import AudioDirection

MarkName = Annotated[str, Meta(min_length=1, max_length=128)]


class MediaFrame(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="type"):
    """Base of what clients say in text."""


class MarkAudio(MediaFrame, frozen=True, kw_only=True, tag="mark"):
    """Report when the line has come to this place in the audio."""

    name: MarkName


class ClearAudio(MediaFrame, frozen=True, kw_only=True, tag="clear"):
    """Drop what was not played of this client's audio, and report its marks at once."""


class EndAudio(MediaFrame, frozen=True, kw_only=True, tag="end"):
    """No more audio comes for now: the utterance is complete when it was played."""


FRAMES: Final = (MarkAudio, ClearAudio, EndAudio)
"""Clients send these in text, in the order in which documents list them."""
TextCommand = MarkAudio | ClearAudio | EndAudio
Command = TextCommand | bytes
"""A client wants one of these; ``bytes`` is PCM to be played."""
Item = MediaMessage | tuple[AudioDirection, bytes]
"""A client is sent these: a message, or a frame of PCM."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(TextCommand)


class Dialect(Protocol):
    """One client's. Its methods raise ``msgspec.DecodeError`` and ``MalformedRequest`` for what cannot be read."""

    rate_hz: int
    interleaves: bool
    barge_in_dtmf: bool | None

    def encode(self, item: Item) -> list[str | bytes]:
        """The messages for the wire; none for what the dialect has no word for."""
        ...

    def read_text(self, text: str) -> Command | None:
        """The command in a text message; ``None``: there is none."""
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
