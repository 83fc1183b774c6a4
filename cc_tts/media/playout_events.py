"""Events of a playout buffer, each reported at the tick at which it happened. The server gets them as they are.

``at_ns`` is the ``now_ns`` of the frame, on CLOCK_MONOTONIC.
"""

from typing import Literal

import msgspec

from cc_tts.errors import ServerError

PlayoutCause = Literal["drained", "cut"]


class PlayoutOverflow(ServerError, code="playout_overflow", title="The playout buffer is full"):
    """More audio or more utterances than the buffer takes: flow control was broken."""


class _Event(msgspec.Struct, frozen=True, tag=True):
    utterance_id: str
    at_ns: int


class PlayoutStarted(_Event, frozen=True):
    """The utterance's first frame left."""


class PlayoutSpeech(_Event, frozen=True):
    """The utterance's first frame that holds speech left (peak of −50 dBFS or more)."""


class PlayoutUnderrun(_Event, frozen=True):
    """The utterance ran dry in the middle.

    Reported when its audio goes on, or when it is cut, with the silence that was inserted. An utterance that turns out
    to be finished has not run dry.
    """

    missing_ms: float


class PlayoutProgress(_Event, frozen=True):
    """About every 100 ms of audio. ``played_ms`` counts as in :class:`PlayoutFinished`."""

    played_ms: float


class PlayoutFinished(_Event, frozen=True):
    """The utterance's last frame left. ``played_ms`` counts its audio, not the silence of underruns and pauses."""

    cause: PlayoutCause
    played_ms: float
    underruns: int


PlayoutEvent = PlayoutStarted | PlayoutSpeech | PlayoutUnderrun | PlayoutProgress | PlayoutFinished
