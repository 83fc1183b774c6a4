"""Every state × event of the tables, which ``docs/architecture.md`` prints: where it leads, or that it is refused."""

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from cc_tts.calls.call_state import (
    CALL_TABLE,
    UTTERANCE_TABLE,
    CallState,
    UtteranceState,
)
from cc_tts.errors import WrongState
from cc_tts.processes.peer import PROCESS_TABLE, ProcessState
from cc_tts.state_machine import StateMachine
from cc_tts.ua.leg_state import LEG_TABLE, LegState

pytestmark = pytest.mark.unit

TABLES: list[Mapping[tuple[Any, Any], Any]] = [CALL_TABLE, LEG_TABLE, UTTERANCE_TABLE, PROCESS_TABLE]


@pytest.mark.parametrize("table", TABLES)
def test_an_event_leads_where_the_table_says_or_is_refused(table: Mapping[tuple[Any, Any], Any]) -> None:
    states, events = ({key[place] for key in table} for place in (0, 1))
    for state, event in itertools.product({*states, *table.values()}, events):
        machine = StateMachine(table, state)
        assert machine.can(event) is ((state, event) in table)
        if machine.can(event):
            assert machine.fire(event) == machine.state == table[state, event]
            continue
        with pytest.raises(WrongState, match=f"{event} is not possible in state {state}"):
            machine.fire(event)
        assert machine.state is state, "a refused event changes nothing"


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
