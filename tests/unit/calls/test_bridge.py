"""Two calls that are bridged, in virtual time: what the UA process is asked for, and the events of both."""

from typing import Any

import pytest
from msgspec.structs import asdict

from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.transfers.bridge import new_bridge_id
from cc_tts.errors import BridgeActive, BridgeImpossible, UserAgentUnavailable, WrongState
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

AGENT = "sip:1001@pbx.example.com"


class Pair:
    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.ua = exchange, exchange.ua
        self.first, self.second = (exchange.registry.call(exchange.talking()) for _ in range(2))

    def bridge(self, **wanted: Any) -> str:
        bridge = KeptBridge(**{"id": new_bridge_id(), "other_call_id": self.second.id, **wanted})
        self.first.bridge.begin(self.second.bridge, bridge)
        return bridge.id

    def made(self, bridge_id: str) -> None:
        for call in (self.first, self.second):
            self.ua.report(messages.Bridged(call.id, bridge_id))

    def parted(self, bridge_id: str, because: messages.UnbridgedBecause = "call_ended") -> None:
        for call in (self.first, self.second):
            self.ua.report(messages.Unbridged(call.id, bridge_id, because))

    def up(self, **wanted: Any) -> str:
        bridge_id = self.bridge(**wanted)
        self.made(bridge_id)
        return bridge_id

    def events(self, call: Call, exchange: Exchange | None = None) -> list[tuple[str, Any]]:
        of_bridges = [each for each in (exchange or self.exchange).seen if each.type.endswith("bridged")]
        return [(each.type, asdict(each.data).get("reason")) for each in of_bridges if each.call_id == call.id]


@pytest.fixture
async def pair() -> Pair:
    return Pair(Exchange())


async def placed_for(pair: Pair, **wanted: Any) -> Call:
    bridge = KeptBridge(**{"id": new_bridge_id(), "other_call_id": pair.first.id, "waits": True, **wanted})
    return await pair.exchange.registry.originate(OriginateRequest(to=AGENT, bridge=bridge))


async def test_both_calls_are_told_once_that_they_are_bridged_and_that_they_are_no_more(pair: Pair) -> None:
    bridge_id = pair.up(id="b1", client_state="s")
    assert pair.ua.commands("bridge") == [(pair.first.id, pair.second.id, "b1", "end")]
    pair.parted(bridge_id)
    pair.parted(bridge_id)
    for call in (pair.first, pair.second):
        assert pair.events(call) == [("call.bridged", None), ("call.unbridged", "call_ended")]
    told = [event.data for event in pair.exchange.seen if event.type == "call.bridged"]
    assert [asdict(each)["other_call_id"] for each in told] == [pair.second.id, pair.first.id]
    assert {asdict(each)["client_state"] for each in told} == {"s"}


async def test_a_bridge_that_cannot_be_made_is_over_at_once(pair: Pair) -> None:
    pair.parted(pair.bridge(), "failed")
    assert pair.events(pair.first) == pair.events(pair.second) == [("call.unbridged", "failed")]
    assert pair.exchange.sample("cctts_bridges_total", reason="failed") == 2
    assert pair.ua.causes == [], "a call that was bridged by a command stays"


async def test_it_is_ended_on_request_and_the_calls_stay(pair: Pair) -> None:
    bridge_id = pair.up()
    pair.second.bridge.ask_end()
    assert pair.ua.commands("unbridge") == [(pair.second.id,)]
    pair.parted(bridge_id, "requested")
    assert pair.events(pair.first)[-1] == ("call.unbridged", "requested")
    assert pair.first.state is CallState.ESTABLISHED
    with pytest.raises(WrongState):
        pair.second.bridge.ask_end()
    pair.up()
    pair.ua.die()
    for call in (pair.first, pair.second):
        assert pair.exchange.kinds(call.id)[-2:] == ["call.unbridged", "call.terminated"], "the last word comes before"


async def test_one_bridge_a_call(pair: Pair) -> None:
    pair.bridge()
    third = pair.exchange.registry.call(pair.exchange.talking())
    for one, other in ((third, pair.first), (pair.second, third)):
        with pytest.raises(BridgeActive):
            one.bridge.begin(other.bridge, KeptBridge(id=new_bridge_id(), other_call_id=other.id))


async def test_what_cannot_be_bridged_is_refused(pair: Pair) -> None:
    ringing = pair.exchange.registry.call(pair.exchange.ua.incoming("manual"))
    for other in (pair.first, ringing):
        with pytest.raises(WrongState):
            pair.first.bridge.begin(other.bridge, KeptBridge(id=new_bridge_id(), other_call_id=other.id))
    pair.ua.has_one_process = False
    with pytest.raises(BridgeImpossible):
        pair.bridge()
    pair.ua.has_one_process, pair.ua.is_ready = True, False
    with pytest.raises(UserAgentUnavailable):
        pair.bridge()
    assert pair.first.bridge.kept is None


async def test_a_call_that_ends_with_the_other_one_says_so(pair: Pair) -> None:
    pair.up()
    pair.ua.ended(pair.second.id, by="bridge")
    assert pair.exchange.ended_as(pair.second.id) == ("completed", "bridge_ended")


async def test_keys_of_a_sensitive_gather_are_withheld_while_it_runs(pair: Pair) -> None:
    pair.up()
    pair.first.gather(GatherRequest(sensitive=True))
    assert pair.ua.commands("withhold_keys") == [(pair.first.id, True)]
    pair.first.stop_gather()
    assert pair.ua.commands("withhold_keys")[1:] == [(pair.first.id, False)]
    pair.first.gather(GatherRequest())
    assert len(pair.ua.commands("withhold_keys")) == 2


async def test_a_call_that_is_placed_for_another_one_is_bridged_when_it_is_answered(pair: Pair) -> None:
    call = await placed_for(pair)
    assert pair.ua.placed_beside == {call.id: pair.first.id}
    assert pair.ua.commands("bridge") == []
    pair.ua.established(call.id)
    assert [each[:2] for each in pair.ua.commands("bridge")] == [(call.id, pair.first.id)]


async def test_a_call_that_rings_for_another_one_ends_with_it(pair: Pair) -> None:
    calls = [await placed_for(pair), await placed_for(pair, on_hangup="keep")]
    pair.ua.ended(pair.first.id)
    assert [each[0] for each in pair.ua.commands("hangup")] == [calls[0].id]


@pytest.mark.parametrize(("on_hangup", "ends"), [("end", True), ("keep", False)])
async def test_a_call_whose_other_one_is_gone_when_it_is_answered_is_not_left_alone(
    pair: Pair, on_hangup: Any, *, ends: bool
) -> None:
    call = await placed_for(pair, on_hangup=on_hangup)
    pair.up()
    pair.ua.established(call.id)
    assert pair.exchange.kinds(call.id)[-1] == "call.command_failed"
    assert bool(pair.ua.commands("hangup")) is ends


@pytest.mark.parametrize(("on_hangup", "ends"), [("end", True), ("keep", False)])
async def test_a_call_whose_other_one_hangs_up_while_they_are_bridged_is_not_left_alone(
    pair: Pair, on_hangup: Any, *, ends: bool
) -> None:
    call = await placed_for(pair, on_hangup=on_hangup, id="b1")
    pair.ua.established(call.id)
    pair.ua.ended(pair.first.id)
    pair.ua.report(messages.Unbridged(call.id, "b1", "call_ended"))
    assert pair.events(call) == [("call.unbridged", "call_ended")]
    assert pair.ua.causes == (["bridge_failed"] if ends else [])


async def test_a_call_that_is_answered_without_a_server_is_bridged_by_the_next_one(pair: Pair) -> None:
    call = await placed_for(pair, id="b1")
    snapshots = [pair.exchange.snapshot(each.id, invite=None) for each in (pair.first, call)]
    after = Exchange.adopted(*snapshots)
    assert after.ua.commands("bridge") == [(call.id, pair.first.id, "b1", "end")]
    alone = Exchange.adopted(snapshots[1])
    assert alone.ua.causes == ["bridge_failed"]


async def test_the_next_server_knows_of_it(pair: Pair) -> None:
    bridge_id = pair.up(client_state="s")
    snapshots = [pair.exchange.snapshot(each.id, bridge_id=bridge_id) for each in (pair.first, pair.second)]
    after = Exchange.adopted(*snapshots)
    assert after.registry.call(pair.first.id).bridge.other == pair.second.id
    assert pair.events(pair.first, after) == []
    after.ua.report(messages.Unbridged(pair.first.id, bridge_id, "requested"))
    assert pair.events(pair.first, after) == [("call.unbridged", "requested")]


@pytest.mark.parametrize(
    ("was_up", "is_up", "told"),
    [
        (True, False, [("call.unbridged", "call_ended")]),
        (False, False, [("call.unbridged", "failed")]),
        (False, True, [("call.bridged", None)]),
    ],
)
async def test_what_became_of_it_without_a_server_is_told_by_the_next_one(
    pair: Pair, told: list[tuple[str, Any]], *, was_up: bool, is_up: bool
) -> None:
    bridge_id = pair.up() if was_up else pair.bridge()
    after = Exchange.adopted(pair.exchange.snapshot(pair.first.id, bridge_id=bridge_id if is_up else ""))
    assert pair.events(pair.first, after) == told
