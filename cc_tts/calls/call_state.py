"""The states of a call and of an utterance, as tables. ``docs/architecture.md`` prints them; tests walk every cell."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class CallState(StrEnum):
    """States of a call (RFC 3261 §12, §13 seen from the application)."""

    INCOMING = "incoming"
    OUTGOING = "outgoing"
    EARLY = "early"
    ESTABLISHED = "established"
    TERMINATED = "terminated"


class CallEvent(StrEnum):
    """An event that changes the state of a call."""

    RING = "ring"
    """A provisional response above 100 went out or came in."""
    ANSWER = "answer"
    """The ACK of our 200 came in, or we sent the ACK of theirs."""
    END = "end"
    """BYE, CANCEL, a final refusal, a timeout, or the death of the UA process."""
    SPEAK = "speak"
    """Prompts are accepted, stopped, paused or resumed."""
    MODIFY = "modify"
    """Hold or resume by re-INVITE (RFC 3261 §14), or DTMF."""


CALL_TABLE: Final[Mapping[tuple[CallState, CallEvent], CallState]] = {
    (CallState.INCOMING, CallEvent.RING): CallState.EARLY,
    (CallState.INCOMING, CallEvent.ANSWER): CallState.ESTABLISHED,
    (CallState.INCOMING, CallEvent.END): CallState.TERMINATED,
    (CallState.OUTGOING, CallEvent.RING): CallState.EARLY,
    (CallState.OUTGOING, CallEvent.ANSWER): CallState.ESTABLISHED,
    (CallState.OUTGOING, CallEvent.END): CallState.TERMINATED,
    (CallState.EARLY, CallEvent.RING): CallState.EARLY,
    (CallState.EARLY, CallEvent.ANSWER): CallState.ESTABLISHED,
    (CallState.EARLY, CallEvent.END): CallState.TERMINATED,
    (CallState.ESTABLISHED, CallEvent.END): CallState.TERMINATED,
    (CallState.ESTABLISHED, CallEvent.MODIFY): CallState.ESTABLISHED,
    **{(state, CallEvent.SPEAK): state for state in CallState if state is not CallState.TERMINATED},
}


class UtteranceState(StrEnum):
    """States of an utterance (RFC 6787 §7: request states PENDING, IN-PROGRESS, COMPLETE)."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"


class UtteranceEvent(StrEnum):
    """An event that changes the state of an utterance."""

    START = "start"
    """Its turn has come."""
    COMPLETE = "complete"
    """It was played to its end, cut, has failed, or its call has ended."""


UTTERANCE_TABLE: Final[Mapping[tuple[UtteranceState, UtteranceEvent], UtteranceState]] = {
    (UtteranceState.PENDING, UtteranceEvent.START): UtteranceState.IN_PROGRESS,
    (UtteranceState.PENDING, UtteranceEvent.COMPLETE): UtteranceState.COMPLETE,
    (UtteranceState.IN_PROGRESS, UtteranceEvent.COMPLETE): UtteranceState.COMPLETE,
}
