"""What becomes of the findings about who answered a call: events, one result whatever happens."""

import asyncio
from typing import Any

import msgspec
import pytest

from cc_tts.calls.adoption import record as records
from cc_tts.calls.originate import OriginateRequest
from cc_tts.ua import messages
from cc_tts.vad.answering.settings import Amd, Answered, EarlyMedia, GreetingEnded
from cc_tts.vad.client import SpeechNotHeard
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

LEG = "amd:out"
HUMAN = Answered(1300.0, result="human", cause="short_greeting", words=1, greeting_ms=420.0)
MACHINE = Answered(5400.0, result="machine", cause="long_greeting", words=9, greeting_ms=4900.0)


async def placed(exchange: Exchange, **settings: Any) -> None:
    await exchange.registry.originate(
        OriginateRequest(to="sip:bob@127.0.0.1", call_id="out", amd=Amd(**settings), client_state="c")
    )


async def answered(exchange: Exchange, **settings: Any) -> None:
    await placed(exchange, **settings)
    exchange.ua.established("out", at_ns=exchange.clock.now_ns())


def data(exchange: Exchange, kind: str) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(event.data) for event in exchange.seen if event.type == kind]


def results(exchange: Exchange) -> list[tuple[str, str]]:
    return [(each["result"], each["cause"]) for each in data(exchange, "call.machine_detected")]


async def test_a_person_is_told_once_with_what_was_heard() -> None:
    exchange = Exchange()
    await answered(exchange)
    exchange.vad.found("out", HUMAN)
    assert data(exchange, "call.machine_detected") == [
        {
            "client_state": "c",
            "result": "human",
            "cause": "short_greeting",
            "after_ms": 1300.0,
            "words": 1,
            "greeting_ms": 420.0,
        }
    ]
    assert exchange.sample("cctts_machine_detections_total", result="human") == 1
    assert exchange.vad.classified == {}
    exchange.ua.ended("out")
    assert len(results(exchange)) == 1
    assert data(exchange, "call.machine_greeting_ended") == []


async def test_a_machine_is_followed_by_the_end_of_its_greeting() -> None:
    exchange = Exchange()
    await answered(exchange)
    exchange.vad.found("out", MACHINE)
    on_finding = exchange.vad.classified[LEG][2]
    on_finding(GreetingEnded(8800.0, by="beep"))
    on_finding(GreetingEnded(9900.0, by="silence"))
    assert results(exchange) == [("machine", "long_greeting")]
    ended = data(exchange, "call.machine_greeting_ended")
    assert [(each["by"], each["at_ms"]) for each in ended] == [("beep", 8800.0)]
    assert exchange.vad.classified == {}


async def test_audio_is_listened_to_from_the_invite_on_and_only_with_amd() -> None:
    exchange = Exchange()
    await exchange.registry.originate(OriginateRequest(to="sip:bob@127.0.0.1", call_id="plain"))
    assert exchange.vad.classified == {}
    assert exchange.ua.commands("listen") == []
    await placed(exchange, greeting_ms=2000)
    assert exchange.ua.commands("listen") == [("out", ("in", "out"))]
    assert exchange.vad.classified[LEG][:2] == (Amd(greeting_ms=2000), False)
    exchange.vad.found("out", EarlyMedia(0.0, sound="ringback"))
    assert [each["sound"] for each in data(exchange, "call.early_media")] == ["ringback"]
    exchange.ua.established("out", at_ns=exchange.clock.now_ns())
    assert exchange.vad.classified[LEG][1]


@pytest.mark.parametrize(
    ("sound", "result"),
    [(None, "unknown"), ("ringback", "unknown"), ("busy", "unavailable"), ("information_tone", "unavailable")],
)
async def test_a_call_that_is_not_answered_has_a_result_too(sound: Any, result: str) -> None:
    exchange = Exchange()
    await placed(exchange)
    if sound is not None:
        exchange.vad.found("out", EarlyMedia(0.0, sound=sound))
    exchange.ua.ended("out")
    assert results(exchange) == [(result, "call_ended")]
    assert exchange.kinds("out")[-2:] == ["call.machine_detected", "call.terminated"]


async def test_a_hang_up_in_the_middle_has_a_result_and_a_machine_only_its_first() -> None:
    exchange = Exchange()
    await answered(exchange)
    exchange.ua.ended("out")
    assert results(exchange) == [("unknown", "call_ended")]
    other = Exchange()
    await answered(other)
    other.vad.found("out", MACHINE)
    other.ua.ended("out")
    assert results(other) == [("machine", "long_greeting")]
    assert data(other, "call.machine_greeting_ended") == []


async def test_what_a_dead_process_has_heard_is_unknown_and_a_greeting_is_not_waited_for() -> None:
    exchange = Exchange()
    await answered(exchange)
    exchange.vad.found("out", None)
    assert results(exchange) == [("unknown", "not_heard")]
    other = Exchange()
    await answered(other)
    other.vad.found("out", MACHINE)
    other.vad.found("out", None)
    assert [each["by"] for each in data(other, "call.machine_greeting_ended")] == ["timeout"]


async def test_a_process_that_dies_while_it_rings_costs_nothing() -> None:
    exchange = Exchange()
    await placed(exchange)
    exchange.vad.found("out", None)
    assert results(exchange) == []
    exchange.ua.established("out", at_ns=exchange.clock.now_ns())
    exchange.vad.found("out", HUMAN)
    assert results(exchange) == [("human", "short_greeting")]


async def test_a_process_that_hears_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cc_tts.calls.audio.machine_detection.MARGIN_MS", 0.0)
    monkeypatch.setattr(Amd, "longest_ms", 10)
    exchange = Exchange()
    await answered(exchange)
    await asyncio.sleep(0.05)
    assert results(exchange) == [("unknown", "not_heard")]


async def test_without_the_model_no_call_is_placed() -> None:
    exchange = Exchange()
    exchange.vad.is_installed = False
    with pytest.raises(SpeechNotHeard):
        await placed(exchange)
    assert exchange.ua.commands("originate") == []


@pytest.mark.parametrize("is_machine", [False, True])
async def test_the_next_server_ends_a_detection_that_was_under_way(*, is_machine: bool) -> None:
    before = Exchange()
    await answered(before)
    if is_machine:
        before.vad.found("out", MACHINE)
    record = records.decode(before.ua.records["out"])
    assert record is not None
    assert record.amd_stage == ("greeting" if is_machine else "answer")
    after = Exchange.adopted(before.snapshot("out"))
    assert results(after) == ([] if is_machine else [("unknown", "server_restarted")])
    ended = [each["by"] for each in data(after, "call.machine_greeting_ended")]
    assert ended == (["timeout"] if is_machine else [])
    assert isinstance(after.ua.sent, list)
    assert not [each for each in after.ua.sent if isinstance(each, messages.SetListening)]
