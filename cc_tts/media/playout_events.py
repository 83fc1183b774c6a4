"""What a playout buffer reports, each at the tick at which it happened.

``at_ns`` is the ``now_ns`` of the frame, on CLOCK_MONOTONIC.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from cc_tts.errors import ServerError

PlayoutCause = Literal["drained", "cut"]


class PlayoutOverflow(ServerError):
    """More audio or more utterances than the buffer takes: flow control was broken."""

    code: ClassVar[str] = "playout_overflow"
    title: ClassVar[str] = "The playout buffer is full"


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    """The utterance's first frame left."""

    utterance_id: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class PlayoutSpeech:
    """The utterance's first frame that holds speech left (peak of −50 dBFS or more)."""

    utterance_id: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class PlayoutLowWater:
    """Less than the low water mark is left of an utterance that is not finished. Once per fall."""

    utterance_id: str
    at_ns: int
    buffered_ms: float


@dataclass(frozen=True, slots=True)
class PlayoutUnderrun:
    """The utterance ran dry in the middle.

    Reported when its audio goes on, or when it is cut, with the silence that was inserted. An utterance that turns out
    to be finished has not run dry.
    """

    utterance_id: str
    at_ns: int
    missing_ms: float


@dataclass(frozen=True, slots=True)
class PlayoutProgress:
    """About every 100 ms of audio. ``buffered_ms`` is what is left of this utterance."""

    utterance_id: str
    at_ns: int
    played_ms: float
    buffered_ms: float


@dataclass(frozen=True, slots=True)
class PlayoutFinished:
    """The utterance's last frame left. ``played_ms`` counts its audio, not the silence of underruns and pauses."""

    utterance_id: str
    at_ns: int
    cause: PlayoutCause
    played_ms: float
    underruns: int
    first_speech_ns: int | None


PlayoutEvent = PlayoutStarted | PlayoutSpeech | PlayoutLowWater | PlayoutUnderrun | PlayoutProgress | PlayoutFinished
