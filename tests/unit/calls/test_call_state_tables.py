"""Every state × event of the tables: where it leads, or that it is refused."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from cc_tts.calls.call_state import (
    CALL_TABLE,
    UTTERANCE_TABLE,
    CallEvent,
    CallState,
    UtteranceEvent,
    UtteranceState,
)
from cc_tts.errors import WrongState
from cc_tts.processes.peer import PROCESS_TABLE, ProcessEvent, ProcessState
from cc_tts.state_machine import StateMachine
from cc_tts.ua.leg_state import LEG_TABLE, LegEvent, LegState

pytestmark = pytest.mark.unit

LEG = """
                answer    ack          end
    invited     answered  -            over
    answered    -         established  over
    established -         -            over
    over        -         -            -
"""

CALL = """
                ring    answer       end         speak        modify
    incoming    early   established  terminated  incoming     -
    outgoing    early   established  terminated  outgoing     -
    early       early   established  terminated  early        -
    established -       -            terminated  established  established
    terminated  -       -            -           -            -
"""

UTTERANCE = """
                start        complete
    pending     in_progress  complete
    in_progress -            complete
    complete    -            -
"""

PROCESS = """
              spawn     ready  down     stop
    stopped   starting  -      -        -
    starting  -         ready  backoff  stopping
    ready     -         -      backoff  stopping
    backoff   starting  -      -        stopped
    stopping  -         -      stopped  -
"""

Cell = tuple[Mapping[tuple[Any, Any], Any], StrEnum, StrEnum, str]


def cells(grid: str, table: Mapping[tuple[Any, Any], Any], states: type[StrEnum], events: type[StrEnum]) -> list[Cell]:
    """The grid's cells; complains if a state or an event is missing from it."""
    head, *rows = (line.split() for line in grid.strip().splitlines())
    assert head == [event.value for event in events]
    assert [row[0] for row in rows] == [state.value for state in states]
    return [
        (table, states(row[0]), events(event), goal) for row in rows for event, goal in zip(head, row[1:], strict=True)
    ]


CELLS = [
    *cells(CALL, CALL_TABLE, CallState, CallEvent),
    *cells(LEG, LEG_TABLE, LegState, LegEvent),
    *cells(UTTERANCE, UTTERANCE_TABLE, UtteranceState, UtteranceEvent),
    *cells(PROCESS, PROCESS_TABLE, ProcessState, ProcessEvent),
]


@pytest.mark.parametrize(("table", "state", "event", "goal"), CELLS, ids=lambda value: str(value)[:12])
def test_cell(table: Mapping[tuple[StrEnum, StrEnum], StrEnum], state: StrEnum, event: StrEnum, goal: str) -> None:
    machine = StateMachine(table, state)
    assert machine.can(event) is (goal != "-")
    if goal == "-":
        with pytest.raises(WrongState, match=f"{event} is not possible in state {state}"):
            machine.fire(event)
        assert machine.state is state, "a refused event changes nothing"
    else:
        assert machine.fire(event) == goal
        assert machine.state == goal


@pytest.mark.parametrize(
    ("table", "start", "end"),
    [
        (CALL_TABLE, CallState.INCOMING, CallState.TERMINATED),
        (CALL_TABLE, CallState.OUTGOING, CallState.TERMINATED),
        (LEG_TABLE, LegState.INVITED, LegState.OVER),
        (UTTERANCE_TABLE, UtteranceState.PENDING, UtteranceState.COMPLETE),
        (PROCESS_TABLE, ProcessState.STOPPED, ProcessState.STOPPED),
    ],
)
def test_from_everywhere_the_end_is_reached(
    table: Mapping[tuple[StrEnum, StrEnum], StrEnum], start: StrEnum, end: StrEnum
) -> None:
    def reach(state: StrEnum) -> set[StrEnum]:
        found, new = set[StrEnum](), {state}
        while new:
            found |= new
            new = {goal for (origin, _), goal in table.items() if origin in new} - found
        return found

    for state in reach(start):
        assert end in reach(state), f"{state} never ends"


def test_the_final_states_are_final() -> None:
    assert not [key for key in CALL_TABLE if key[0] is CallState.TERMINATED]
    assert not [key for key in UTTERANCE_TABLE if key[0] is UtteranceState.COMPLETE]
