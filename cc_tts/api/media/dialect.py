"""A dialect is the wire format of a media stream. Ours is here; others are beside it."""

from typing import Annotated, Final

from msgspec import Meta

from cc_tts.api.events.websocket import as_json
from cc_tts.api.http import bodies
from cc_tts.api.media.connection import Frame
from cc_tts.calls.audio.messages import MediaMessage
from cc_tts.ua.messages import AudioDirection

MarkName = Annotated[str, Meta(min_length=1, max_length=128)]


class MarkAudio(Frame, frozen=True, kw_only=True, tag="mark"):
    """Report when playback reaches this place in the audio."""

    name: MarkName


class ClearAudio(Frame, frozen=True, kw_only=True, tag="clear"):
    """Drop this client's audio that was not played, and report its marks at once."""


class EndAudio(Frame, frozen=True, kw_only=True, tag="end"):
    """No more audio comes for now: the utterance is complete when it has been played."""


FRAMES: Final = (MarkAudio, ClearAudio, EndAudio)
"""The client's text messages, in the order in which the documents list them."""
TextCommand = MarkAudio | ClearAudio | EndAudio
Command = TextCommand | bytes
"""A request of a client; ``bytes`` is PCM to be played."""
Item = MediaMessage | tuple[AudioDirection, bytes]
"""One item for a client: a message, or a frame of PCM."""


class Dialect:
    """The dialect of one client, here our own: binary messages are PCM, text messages JSON with a ``type``. Its methods
    raise ``msgspec.DecodeError`` and ``MalformedRequest`` for messages that cannot be read.
    """

    interleaves = True
    barge_in_dtmf: bool | None = None

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz

    def encode(self, item: Item) -> list[str | bytes]:
        """Return the messages for the wire; none if the dialect cannot express the item."""
        return [item[1]] if isinstance(item, tuple) else as_json(item)

    def read_text(self, text: str) -> Command | None:
        """Return the command in a text message; ``None`` if it has none."""
        command: Command = bodies.parsed(text, TextCommand)
        return command

    def read_binary(self, data: bytes) -> Command | None:
        return data
