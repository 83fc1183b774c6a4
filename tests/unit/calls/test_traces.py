"""What an operator finds of a call: lines of the log, a line of the accounting file, figures of its sound."""

import dataclasses
import json
import re
from typing import Any

import msgspec
import pytest

from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.originate import OriginateRequest
from cc_tts.media.quality import Quality
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.tenants.accounting import CallLine
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

QUALITY = Quality(
    packets_sent=500, packets_received=475, packets_lost=25, jitter_ms=4.0, round_trip_ms=80.0, underruns=1, mos=3.4
)


def accounted(exchange: Exchange) -> list[CallLine]:
    lines: list[Any] = []
    exchange.services.accounting.add = lambda line, **_: lines.append(line)  # type: ignore[method-assign]
    return lines


def facts(lines: list[Any], event: str) -> dict[str, Any]:
    (line,) = (line for line in lines if line["event"] == event)
    assert line["log_level"] == "info"
    return {name: value for name, value in line.items() if name not in ("event", "log_level", "module")}


async def test_a_call_that_comes_in_has_a_line_when_it_comes_is_answered_and_ends(exchange: Exchange) -> None:
    with capture_logs() as lines:
        call_id = exchange.ua.incoming("silent", source="192.0.2.7")
        exchange.ua.established(call_id)
        exchange.clock.advance(9500)
        exchange.ua.ended(call_id, quality=QUALITY)
    both = {"call_id": call_id, "sip_call_id": f"sip-{call_id}"}
    assert facts(lines, "call_incoming") == both | {"source": "192.0.2.7", "route": "silent", "transport": None}
    assert facts(lines, "call_answered") == both | {"codec": "PCMU", "transport": None, "srtp": False}
    assert facts(lines, "call_ended") == both | {
        "result": "completed",
        "reason": "remote_hangup",
        "sip_code": 200,
        "duration_ms": 9500,
        "packets_sent": 500,
        "packets_received": 475,
        "packets_lost": 25,
        "mos": 3.4,
    }


async def test_a_call_that_is_placed_has_its_call_id_from_the_invite_on(exchange: Exchange) -> None:
    with capture_logs() as lines:
        call = await exchange.registry.originate(OriginateRequest(to="sip:+49301234567@PBX.example.com:5070"))
        exchange.ua.report(messages.CallPlaced(call.id, sip_call_id="of-our-invite"))
        assert call.sip_call_id == "of-our-invite"
        exchange.ua.ended(call.id, sip_code=486)
    target = {"call_id": call.id, "sip_call_id": "of-our-invite", "target": "pbx.example.com", "transport": None}
    assert facts(lines, "call_outgoing") == target
    assert facts(lines, "call_ended")["sip_call_id"] == "of-our-invite"
    assert "49301234567" not in str(lines)


async def test_no_line_has_numbers_digits_or_texts(exchange: Exchange) -> None:
    lines = accounted(exchange)
    with capture_logs() as logged:
        call_id = exchange.talking("greet", headers={"X-Secret": "hidden"})
        call = exchange.registry.call(call_id)
        call.speak(Prompt(content=TextContent("Hidden words")))
        call.gather(GatherRequest(max_digits=2))
        for digit in "73":
            exchange.ua.digit(call_id, digit)
        await exchange.settle()
        exchange.ua.ended(call_id)
    shown = re.sub(r"_[0-9a-f]{16}", "_ID", json.dumps([[str(line) for line in logged], msgspec.to_builtins(lines)]))
    assert logged
    assert lines
    for hidden in ("alice", "idden", "Good morning", "73"):
        assert hidden not in shown, hidden


async def test_the_accounting_line_leads_to_the_records_of_others(exchange: Exchange) -> None:
    lines = accounted(exchange)
    call_id = exchange.talking()
    exchange.ua.ended(call_id, quality=QUALITY)
    refused = exchange.ua.incoming("nobody")
    exchange.ua.ended(refused, by="local", sip_code=404)
    talked, not_found = lines
    assert (talked.sip_call_id, talked.route, talked.q850_cause) == (f"sip-{call_id}", "silent", 16)
    assert talked.quality == dataclasses.asdict(QUALITY)
    assert (not_found.sip_call_id, not_found.route, not_found.q850_cause) == (f"sip-{refused}", "", 1)


async def test_a_call_ended_when_the_user_agent_says(exchange: Exchange) -> None:
    """Its report may have waited for a server."""
    lines = accounted(exchange)
    call_id = exchange.talking()
    exchange.clock.advance(3000)
    ended_ns = exchange.clock.now_ns()
    exchange.clock.advance(20_000)
    exchange.ua.ended(call_id, at_ns=ended_ns)
    assert lines[0].duration_ms == 3000
    assert lines[0].ended - lines[0].started == pytest.approx(3.0)


@pytest.mark.parametrize("is_over", [False, True])
async def test_calls_are_found_by_their_sip_call_id(exchange: Exchange, is_over: bool) -> None:
    call_id = exchange.talking()
    exchange.talking()
    placed = await exchange.registry.originate(OriginateRequest(to="sip:bob@127.0.0.1"))
    exchange.ua.report(messages.CallPlaced(placed.id, sip_call_id="placed"))
    if is_over:
        exchange.ua.ended(call_id)
    assert [call.id for call in exchange.registry.calls(None, f"sip-{call_id}")] == [call_id]
    assert [call.id for call in exchange.registry.calls(None, "placed")] == [placed.id]
    assert exchange.registry.calls(None, "unknown") == []
    assert len(exchange.registry.calls(CallState.TERMINATED, f"sip-{call_id}")) == is_over


async def test_how_answered_calls_sounded_is_counted(exchange: Exchange) -> None:
    exchange.ua.ended(exchange.talking(), quality=QUALITY)
    exchange.ua.ended(exchange.talking(), quality=Quality(packets_sent=10))
    exchange.ua.ended(exchange.ua.incoming("manual"), sip_code=487, quality=QUALITY)
    assert exchange.sample("cctts_call_mos_sum") == 3.4
    assert exchange.sample("cctts_call_lost_ratio_sum") == pytest.approx(0.05)
    assert exchange.sample("cctts_call_jitter_seconds_sum") == pytest.approx(0.004)
    assert exchange.sample("cctts_call_round_trip_seconds_sum") == pytest.approx(0.08)
    for name in ("call_mos", "call_lost_ratio", "call_jitter_seconds", "call_round_trip_seconds"):
        assert exchange.sample(f"cctts_{name}_count") == 1, "nothing is known of the others, or they were not answered"


async def test_another_server_knows_the_route_and_the_peer(exchange: Exchange) -> None:
    call_id = exchange.talking(source="192.0.2.7")
    after = Exchange()
    after.clock.advance(60_000)
    after.ua.report(exchange.snapshot(call_id, transport="udp"))
    call = after.registry.call(call_id)
    assert (call.route, call.peer) == ("silent", "192.0.2.7")
