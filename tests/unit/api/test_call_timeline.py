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


@pytest.mark.parametrize(("reason", "label"), [("worker_lost", "speech worker lost"), ("runaway", "voice ran away")])
async def test_a_report_says_why_an_utterance_was_said_on_by_another(reason: types.RecoveryReason, label: str) -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    call = exchange.registry.call(call_id)
    call.publish(types.SpeakRecovered(utterance_id="u1", reason=reason, text_chunk=1, char_start=9))
    events = exchange.events.of_call(call_id)
    steps = picture_of(call, events, now_s=exchange.clock.wall_s()).tables[1].rows
    assert [(name, said) for _, name, said in steps][-1] == ("speak.recovered", label)
