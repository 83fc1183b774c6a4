"""The messages of a media stream to its client, without the audio, one struct a type. ``type`` is the name
that clients see.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cc_tts.calls.events.types import Milliseconds
from cc_tts.calls.prompts.utterance import CompletionCause, Interrupter
from cc_tts.processes.channel import kinds_of
from cc_tts.ua.messages import AudioDirection

MediaDirection = Literal["in", "out", "both", "talk"]
HEARD: Final[Mapping[MediaDirection, tuple[AudioDirection, ...]]] = {
    "in": ("in",),
    "out": ("out",),
    "both": ("in", "out"),
    "talk": ("in",),
}
"""The directions of the call's audio that a client gets, by the direction of its stream."""


class MediaMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all messages."""


class MediaStart(MediaMessage, frozen=True, kw_only=True, tag="start"):
    """The first message. Binary messages follow, 20 ms of PCM each: signed 16-bit little-endian, two ``channels`` sample by
    sample, the caller first.
    """

    call_id: str
    direction: MediaDirection
    encoding: Literal["s16le"] = "s16le"
    rate: Annotated[int, Meta(description="Hz, of both ways.")]
    channels: int
    frame_ms: int
    caller: str
    callee: str
    headers: Annotated[Mapping[str, str], Meta(description="X-* and User-to-User of the INVITE.")]
    metadata: Mapping[str, str]
    api: Annotated[
        str | UnsetType, Meta(description="Base URL of the API that has the call; left out without `cluster.base_url`.")
    ] = UNSET


class FramesDropped(MediaMessage, frozen=True, kw_only=True, tag="dropped"):
    """Frames are missing here, since the client or the server was too slow."""

    frames: int


class MediaDtmf(MediaMessage, frozen=True, kw_only=True, tag="dtmf"):
    """The caller pressed a key; ``x`` while a sensitive gather runs. ``duration_ms`` 0: unknown."""

    digit: str
    duration_ms: int


class MediaSpeechStarted(MediaMessage, frozen=True, kw_only=True, tag="speech.started"):
    """The caller speaks, on a call whose prompts speech may interrupt."""

    speech_id: str
    at_ms: Annotated[
        Milliseconds, Meta(description="Where it began in the caller's audio of this stream, milliseconds.")
    ]


class MediaSpeechStopped(MediaMessage, frozen=True, kw_only=True, tag="speech.stopped"):
    """The caller stopped speaking; sent after `vad.silence_ms` of silence."""

    speech_id: str
    at_ms: Annotated[
        Milliseconds, Meta(description="Where it ended in the caller's audio of this stream, milliseconds.")
    ]


class MediaPaused(MediaMessage, frozen=True, kw_only=True, tag="paused"):
    """The client should send no more audio for now, since enough waits to be played; what goes beyond twice as much is
    dropped.
    """

    buffered_ms: Annotated[Milliseconds, Meta(description="Audio of this client that waits to be played.")]


class MediaResumed(MediaMessage, frozen=True, kw_only=True, tag="resumed"):
    """There is room for audio again."""


class MediaUtteranceMessage(MediaMessage, frozen=True, kw_only=True):
    """Base of what is said about audio that is played."""

    utterance_id: str


class MediaSpeakStarted(MediaUtteranceMessage, frozen=True, kw_only=True, tag="speak.started"):
    """The first frame that carries sound was sent to the caller."""

    time_to_first_audio_ms: Annotated[
        Milliseconds | None, Meta(description="From the first audio of the client, or from its turn.")
    ]


class MediaMark(MediaMessage, frozen=True, kw_only=True, tag="mark"):
    """The line has come to a mark; ``cleared``: the audio before it was not all played, and will not be."""

    name: str
    cleared: bool


class MediaSpeakInterrupted(MediaUtteranceMessage, frozen=True, kw_only=True, tag="speak.interrupted"):
    """The rest of the client's audio was dropped. What follows is dropped too: until ``clear`` or ``end``, until the client
    pauses for half a second, or for two seconds.
    """

    by: Interrupter
    played_ms: Milliseconds


class MediaSpeakComplete(MediaUtteranceMessage, frozen=True, kw_only=True, tag="speak.complete"):
    """The audio was played to its end, or broken off by an ``error``."""

    completion_cause: CompletionCause
    played_ms: Milliseconds
    error: str | UnsetType = UNSET


class MediaError(MediaMessage, frozen=True, kw_only=True, tag="error"):
    """A message could not be followed, or audio was dropped. The stream stays open."""

    code: str
    detail: str


class MediaStop(MediaMessage, frozen=True, kw_only=True, tag="stop"):
    """The last message: the call is over, for this reason."""

    reason: str


MESSAGES: Final = kinds_of(MediaMessage)
"""All messages, in the order in which the documents list them."""
