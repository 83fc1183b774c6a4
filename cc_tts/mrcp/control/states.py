"""The states of a synthesiser (RFC 6787 §8.1), as a table. A method that is not in it gets 402.

A SPEAK that waits behind another does not change the state; when the one before it is over, the next is as a new one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class SynthState(StrEnum):
    IDLE = "idle"
    SPEAKING = "speaking"
    PAUSED = "paused"


class SynthEvent(StrEnum):
    """The methods, and ``COMPLETE``: the request was spoken, or failed."""

    SPEAK = "SPEAK"
    STOP = "STOP"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    BARGE_IN = "BARGE-IN-OCCURRED"
    CONTROL = "CONTROL"
    DEFINE_LEXICON = "DEFINE-LEXICON"
    SET_PARAMS = "SET-PARAMS"
    GET_PARAMS = "GET-PARAMS"
    COMPLETE = "SPEAK-COMPLETE"


_IDLE, _SPEAKING, _PAUSED = SynthState.IDLE, SynthState.SPEAKING, SynthState.PAUSED
SYNTH_TABLE: Final[Mapping[tuple[SynthState, SynthEvent], SynthState]] = {
    (_IDLE, SynthEvent.SPEAK): _SPEAKING,
    (_IDLE, SynthEvent.STOP): _IDLE,
    (_IDLE, SynthEvent.BARGE_IN): _IDLE,
    (_IDLE, SynthEvent.DEFINE_LEXICON): _IDLE,
    (_IDLE, SynthEvent.SET_PARAMS): _IDLE,
    (_IDLE, SynthEvent.GET_PARAMS): _IDLE,
    (_SPEAKING, SynthEvent.SPEAK): _SPEAKING,
    (_SPEAKING, SynthEvent.STOP): _IDLE,
    (_SPEAKING, SynthEvent.PAUSE): _PAUSED,
    (_SPEAKING, SynthEvent.RESUME): _SPEAKING,
    (_SPEAKING, SynthEvent.BARGE_IN): _IDLE,
    (_SPEAKING, SynthEvent.CONTROL): _SPEAKING,
    (_SPEAKING, SynthEvent.SET_PARAMS): _SPEAKING,
    (_SPEAKING, SynthEvent.GET_PARAMS): _SPEAKING,
    (_SPEAKING, SynthEvent.COMPLETE): _IDLE,
    (_PAUSED, SynthEvent.SPEAK): _PAUSED,
    (_PAUSED, SynthEvent.STOP): _IDLE,
    (_PAUSED, SynthEvent.PAUSE): _PAUSED,
    (_PAUSED, SynthEvent.RESUME): _SPEAKING,
    (_PAUSED, SynthEvent.BARGE_IN): _IDLE,
    (_PAUSED, SynthEvent.CONTROL): _PAUSED,
    (_PAUSED, SynthEvent.SET_PARAMS): _PAUSED,
    (_PAUSED, SynthEvent.GET_PARAMS): _PAUSED,
    (_PAUSED, SynthEvent.COMPLETE): _IDLE,
}
