"""A far side that refers us, in virtual time: who decides, the call that is placed, what is told of it."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import asdict

from cc_tts.calls.call import Call
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.transfers.referrals import BYE_AFTER_S
from cc_tts.config.schema import Config, RouteConfig
from cc_tts.config.transfer import TransferConfig
from cc_tts.errors import CapacityExceeded, ReferNotFound, TransferNotAllowed
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.fakes.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit

TARGET = "sip:agent@pbx.example.com"
REFER = "refer_1"


class Referrer:
    """An established call of a route, whose far side refers us."""

    def __init__(self, exchange: Exchange, loop: VirtualLoop) -> None:
        self.exchange, self.loop, self.ua = exchange, loop, exchange.ua
        self.call: Call

    def on_route(self, refer: Any, **more: Any) -> "Referrer":
        routes = {"referring": RouteConfig(refer=refer, **more)}
        self.exchange.registry.services.reload(replace(self.exchange.config, routes=routes))
        self.call = self.exchange.registry.call(self.exchange.talking("referring"))
        self.call.metadata = {"customer": "4711"}
        return self

    def refers(self, refer_id: str = REFER, headers: dict[str, str] | None = None) -> None:
        self.ua.report(
            messages.ReferRequested(
                call_id=self.call.id,
                refer_id=refer_id,
                to=TARGET,
                headers=headers or {},
                referred_by="sip:boss@pbx.example.com",
            )
        )

    def accept(self, **wanted: Any) -> Call:
        return self.exchange.registry.referrals.accept(self.call, REFER, OriginateRequest(to="", **wanted))

    @property
    def placed(self) -> str:
        ((call_id, *_),) = self.ua.commands("originate")
        return str(call_id)

    @property
    def told(self) -> list[int]:
        return [sip_code for call_id, refer_id, sip_code in self.ua.commands("tell_referrer")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [asdict(event.data) for event in self.exchange.seen if event.type == kind]

    @property
    def result(self) -> tuple[Any, ...]:
        (last,) = self.events("call.refer_complete")
        return last["result"], last["sip_code"], last["new_call_id"]


@pytest.fixture
def referrer(timed: tuple[Exchange, VirtualLoop]) -> Referrer:
    return Referrer(*timed)


async def test_a_route_that_refuses_lets_none_in(referrer: Referrer) -> None:
    referrer.on_route("refuse")
    assert referrer.ua.commands("allow_refers") == []


async def test_a_route_that_allows_places_the_call_which_says_its_greeting(referrer: Referrer) -> None:
    referrer.on_route("allow", greeting="Good morning", voice="de")
    assert referrer.ua.commands("allow_refers") == [(referrer.call.id, ("sip:*@pbx.example.com",))]
    referrer.refers(headers={"X-Ticket": "17"})
    ((_, to, _, headers),) = referrer.ua.commands("originate")
    assert to == TARGET
    assert headers == {"X-Ticket": "17", "Referred-By": "<sip:boss@pbx.example.com>"}
    placed = referrer.exchange.registry.call(referrer.placed)
    assert (placed.metadata, placed.defaults.voice) == ({"customer": "4711"}, "de")
    assert [utterance.prompt.content.text for utterance in placed.player.queue] == ["Good morning"]  # type: ignore[union-attr]
    (outgoing,) = referrer.events("call.outgoing")
    assert asdict(outgoing["referral"]) == {"call_id": referrer.call.id, "refer_id": REFER}
    (asked,) = referrer.events("call.refer_requested")
    assert asked["answer_within_ms"] is None


async def test_progress_is_told_and_the_old_call_ends_if_the_referrer_does_not_end_it(referrer: Referrer) -> None:
    referrer.on_route("allow").refers()
    referrer.ua.report(messages.CallRinging(call_id=referrer.placed, sip_call_id="n", sip_code=180))
    referrer.ua.established(referrer.placed)
    assert referrer.told == [100, 180, 200]
    assert referrer.result == ("succeeded", 200, referrer.placed)
    assert referrer.ua.commands("hangup") == []
    referrer.loop.advance(BYE_AFTER_S * 1000)
    assert [call_id for call_id, *_ in referrer.ua.commands("hangup")] == [referrer.call.id]
    assert referrer.ua.causes == ["transferred"]
    assert referrer.exchange.sample("cctts_refers_total", result="succeeded") == 1


@pytest.mark.parametrize(("by", "sip_code", "told"), [("remote", 486, 486), ("unreachable", 0, 487), ("local", 0, 487)])
async def test_a_call_that_is_not_answered_leaves_the_old_one(
    referrer: Referrer, by: Any, sip_code: int, told: int
) -> None:
    referrer.on_route("allow").refers()
    referrer.ua.ended(referrer.placed, by=by, sip_code=sip_code)
    assert referrer.result == ("failed", told, referrer.placed)
    assert referrer.told == [100, told]
    referrer.loop.advance(60_000)
    assert referrer.ua.commands("hangup") == []


async def test_the_application_accepts(referrer: Referrer) -> None:
    referrer.on_route("ask").refers()
    (asked,) = referrer.events("call.refer_requested")
    assert (asked["answer_within_ms"], asked["replaces"]) == (10_000, False)
    assert referrer.ua.commands("originate") == []
    placed = referrer.accept(call_id="next", client_state="s")
    assert (placed.id, placed.client_state, placed.callee) == ("next", "s", TARGET)
    referrer.loop.advance(60_000 - 1)
    referrer.ua.established("next")
    assert referrer.result == ("succeeded", 200, "next")
    with pytest.raises(ReferNotFound):
        referrer.accept()


async def test_the_application_refuses(referrer: Referrer) -> None:
    referrer.on_route("ask").refers()
    with pytest.raises(ReferNotFound):
        referrer.exchange.registry.referrals.refuse(referrer.call, "another", 603)
    referrer.exchange.registry.referrals.refuse(referrer.call, REFER, 480)
    assert referrer.result == ("refused", 480, UNSET)
    assert referrer.told == [480]


async def test_nobody_decides(referrer: Referrer) -> None:
    referrer.on_route("ask").refers()
    referrer.loop.advance(9_999)
    assert referrer.events("call.refer_complete") == []
    referrer.loop.advance(1)
    assert referrer.result == ("timeout", 603, UNSET)


async def test_a_refer_outlives_the_call_of_its_referrer(referrer: Referrer) -> None:
    referrer.on_route("ask").refers()
    referrer.ua.ended(referrer.call.id)
    referrer.accept(call_id="next")
    referrer.ua.established("next")
    assert referrer.result == ("succeeded", 200, "next")
    referrer.loop.advance(BYE_AFTER_S * 1000)
    assert referrer.ua.commands("hangup") == []


async def test_a_target_that_a_reload_no_longer_allows_is_not_called(referrer: Referrer) -> None:
    referrer.on_route("ask").refers()
    config: Config = replace(referrer.exchange.config, transfer=TransferConfig(allowed=("sip:1@pbx.example.com",)))
    referrer.exchange.registry.services.reload(config)
    with pytest.raises(TransferNotAllowed):
        referrer.accept()
    assert referrer.told == [], "it still waits"
    referrer.loop.advance(10_000)
    assert referrer.result[0] == "timeout"


async def test_a_server_without_a_free_line_tells_so(referrer: Referrer) -> None:
    referrer.on_route("allow")
    referrer.ua.max_calls = 0
    referrer.refers()
    assert referrer.result == ("failed", CapacityExceeded.sip_status, UNSET)
    assert referrer.told == [CapacityExceeded.sip_status]


async def test_the_death_of_the_user_agent_is_the_end_of_it(referrer: Referrer) -> None:
    referrer.on_route("allow").refers()
    referrer.ua.die()
    assert referrer.result[0] == "failed"


@pytest.mark.parametrize("state", ["invited", "established"])
async def test_another_server_tells_the_outcome(referrer: Referrer, state: str) -> None:
    referrer.on_route("allow").refers()
    after = Exchange()
    for call_id, leg in ((referrer.placed, state), (referrer.call.id, "established")):
        after.ua.report(referrer.exchange.snapshot(call_id, state=leg, invite=None))
    if state == "invited":
        assert after.ua.commands("tell_referrer") == []
        after.ua.established(referrer.placed)
    assert after.ua.commands("tell_referrer") == [(referrer.call.id, REFER, 200)]


async def test_a_call_that_ended_without_a_server_is_told_of_once_the_old_one_is_adopted(referrer: Referrer) -> None:
    referrer.on_route("allow").refers()
    after = Exchange()
    after.ua.report(referrer.exchange.snapshot(referrer.placed, state="invited", invite=None))
    after.ua.ended(referrer.placed, by="remote", sip_code=486)
    assert after.ua.commands("tell_referrer") == []
    after.ua.report(referrer.exchange.snapshot(referrer.call.id, invite=None))
    assert after.ua.commands("tell_referrer") == [(referrer.call.id, REFER, 486)]
    assert after.kinds(referrer.call.id).count("call.refer_complete") == 1


async def test_a_call_whose_refer_was_over_long_ago_is_adopted_without_a_word(referrer: Referrer) -> None:
    referrer.on_route("allow").refers()
    after = Exchange()
    after.ua.report(referrer.exchange.snapshot(referrer.placed, invite=None))
    assert after.sample("cctts_refers_total", result="succeeded") == 0
