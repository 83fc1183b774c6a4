"""A call as the picture of its report."""

import pytest

from cc_tts.api.reports.timeline import picture_of
from cc_tts.calls.events import types
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit


def notes(exchange: Exchange, call_id: str) -> list[str]:
    events = exchange.events.of_call(call_id)
    picture = picture_of(exchange.registry.call(call_id), events, now_s=exchange.clock.wall_s())
    return [value for name, value in picture.facts if name == "note"]


async def test_a_report_says_when_it_is_not_of_the_whole_call() -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    assert notes(exchange, call_id) == []
    call = exchange.registry.call(call_id)
    call.publish(types.CallAdopted(state=call.state, **call.parties))
    (note,) = notes(exchange, call_id)
    assert "restart" in note
