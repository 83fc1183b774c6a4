"""A state that changes by a table. The tables are printed in ``docs/architecture.md``; tests walk every cell."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from cc_tts.errors import WrongState

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class StateMachine(Generic[S, E]):
    """Holds one state and changes it by a table; an event without a cell is refused."""

    def __init__(self, table: Mapping[tuple[S, E], S], initial: S) -> None:
        self._table = table
        self.state: S = initial

    def can(self, event: E) -> bool:
        """Return whether ``event`` is possible now."""
        return (self.state, event) in self._table

    def fire(self, event: E) -> S:
        """Apply an event; raises ``WrongState`` if the table has no such cell."""
        try:
            self.state = self._table[self.state, event]
        except KeyError:
            raise WrongState(f"{event} is not possible in state {self.state}") from None
        return self.state
