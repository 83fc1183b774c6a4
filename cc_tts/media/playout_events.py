"""The events of a playout buffer, reported at the tick at which they happen. The server gets them unchanged.

``at_ns`` is the ``now_ns`` of the frame, on CLOCK_MONOTONIC.
"""

from typing import Literal

import msgspec

from cc_tts.errors import ServerError

PlayoutCause = Literal["drained", "cut"]


class PlayoutOverflow(ServerError, code="playout_overflow", title="The playout buffer is full"):
    """More audio or more utterances than the buffer takes, so flow control has failed."""


class _Event(msgspec.Struct, frozen=True, tag=True):
    utterance_id: str
    at_ns: int


class PlayoutStarted(_Event, frozen=True):
    """The first frame of the utterance was sent."""


class PlayoutSpeech(_Event, frozen=True):
    """The first frame of the utterance with speech was sent (peak of −50 dBFS or more)."""


class PlayoutUnderrun(_Event, frozen=True):
    """The utterance ran dry in the middle. Reported when its audio continues or it is cut, with the length of the inserted
    silence. An utterance that turns out to be finished has not run dry.
    """

    missing_ms: float


class PlayoutProgress(_Event, frozen=True):
    """About every 100 ms of audio. ``played_ms`` counts as in :class:`PlayoutFinished`."""

    played_ms: float


class PlayoutFinished(_Event, frozen=True):
    """The last frame of the utterance was sent. ``played_ms`` counts its audio, not the silence of underruns and pauses."""

    cause: PlayoutCause
    played_ms: float
    underruns: int


PlayoutEvent = PlayoutStarted | PlayoutSpeech | PlayoutUnderrun | PlayoutProgress | PlayoutFinished
