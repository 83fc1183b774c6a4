"""What a playout buffer reports, each at the tick at which it happened. The server gets them as they are.

``at_ns`` is the ``now_ns`` of the frame, on CLOCK_MONOTONIC.
"""

from typing import ClassVar, Literal

import msgspec

from cc_tts.errors import ServerError

PlayoutCause = Literal["drained", "cut"]


class PlayoutOverflow(ServerError):
    """More audio or more utterances than the buffer takes: flow control was broken."""

    code: ClassVar[str] = "playout_overflow"
    title: ClassVar[str] = "The playout buffer is full"


class PlayoutStarted(msgspec.Struct, frozen=True, tag=True):
    """The utterance's first frame left."""

    utterance_id: str
    at_ns: int


class PlayoutSpeech(msgspec.Struct, frozen=True, tag=True):
    """The utterance's first frame that holds speech left (peak of −50 dBFS or more)."""

    utterance_id: str
    at_ns: int


class PlayoutUnderrun(msgspec.Struct, frozen=True, tag=True):
    """The utterance ran dry in the middle.

    Reported when its audio goes on, or when it is cut, with the silence that was inserted. An utterance that turns out
    to be finished has not run dry.
    """

    utterance_id: str
    at_ns: int
    missing_ms: float


class PlayoutProgress(msgspec.Struct, frozen=True, tag=True):
    """About every 100 ms of audio. ``played_ms`` counts as in :class:`PlayoutFinished`."""

    utterance_id: str
    at_ns: int
    played_ms: float


class PlayoutFinished(msgspec.Struct, frozen=True, tag=True):
    """The utterance's last frame left. ``played_ms`` counts its audio, not the silence of underruns and pauses."""

    utterance_id: str
    at_ns: int
    cause: PlayoutCause
    played_ms: float
    underruns: int


PlayoutEvent = PlayoutStarted | PlayoutSpeech | PlayoutUnderrun | PlayoutProgress | PlayoutFinished
