"""The states of a leg, as a table; ``docs/architecture.md`` prints it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class LegState(StrEnum):
    """The state of a leg's INVITE transaction (RFC 3261 §13)."""

    INVITED = "invited"
    """There is no final response yet."""
    ANSWERED = "answered"
    """A 2xx was sent or received."""
    ESTABLISHED = "established"
    """The ACK was received or sent."""
    OVER = "over"


class LegEvent(StrEnum):
    ANSWER = "answer"
    ACK = "ack"
    END = "end"
    """PJSIP has ended the call, or could not place it."""


LEG_TABLE: Final[Mapping[tuple[LegState, LegEvent], LegState]] = {
    (LegState.INVITED, LegEvent.ANSWER): LegState.ANSWERED,
    (LegState.INVITED, LegEvent.END): LegState.OVER,
    (LegState.ANSWERED, LegEvent.ACK): LegState.ESTABLISHED,
    (LegState.ANSWERED, LegEvent.END): LegState.OVER,
    (LegState.ESTABLISHED, LegEvent.END): LegState.OVER,
}
