"""The life of a call and of an utterance, as tables. ``docs/architecture.md`` prints them; tests walk every cell."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

from cc_tts.errors import WrongState

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class CallState(StrEnum):
    """States of a call (RFC 3261 §12, §13 seen from the application)."""

    INCOMING = "incoming"
    OUTGOING = "outgoing"
    EARLY = "early"
    ESTABLISHED = "established"
    TERMINATED = "terminated"


class CallEvent(StrEnum):
    """What moves a call on."""

    RING = "ring"
    """A provisional response above 100 went out or came in."""
    ANSWER = "answer"
    """The ACK of our 200 came in, or we sent the ACK of theirs."""
    END = "end"
    """BYE, CANCEL, a final refusal, a timeout, or the death of the UA process."""


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
}


class UtteranceState(StrEnum):
    """States of an utterance (RFC 6787 §7: request states PENDING, IN-PROGRESS, COMPLETE)."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"


class UtteranceEvent(StrEnum):
    """What moves an utterance on."""

    START = "start"
    """Its turn has come: its first audio is asked for."""
    COMPLETE = "complete"
    """Drained, cut, failed, or its call ended."""


UTTERANCE_TABLE: Final[Mapping[tuple[UtteranceState, UtteranceEvent], UtteranceState]] = {
    (UtteranceState.PENDING, UtteranceEvent.START): UtteranceState.IN_PROGRESS,
    (UtteranceState.PENDING, UtteranceEvent.COMPLETE): UtteranceState.COMPLETE,
    (UtteranceState.IN_PROGRESS, UtteranceEvent.COMPLETE): UtteranceState.COMPLETE,
}


class StateMachine(Generic[S, E]):
    """Holds one state and moves it by a table; a cell that is not in the table is refused."""

    def __init__(self, table: Mapping[tuple[S, E], S], initial: S) -> None:
        self._table = table
        self.state: S = initial

    def can(self, event: E) -> bool:
        """Whether ``event`` is possible now."""
        return (self.state, event) in self._table

    def fire(self, event: E) -> S:
        """Move on.

        Raises:
            WrongState: the table has no such cell.
        """
        try:
            self.state = self._table[self.state, event]
        except KeyError:
            raise WrongState(f"{event} is not possible in state {self.state}") from None
        return self.state
