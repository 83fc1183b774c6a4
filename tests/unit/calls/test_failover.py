"""A call that its trunk does not take goes on by the next one, or ends once."""

import pytest

from cc_tts.calls.call import Call
from cc_tts.calls.events.types import CallTrunkFailed
from cc_tts.calls.originate import OriginateRequest
from cc_tts.config.sections.trunks import TrunkConfig
from cc_tts.errors import CapacityExceeded, Unprocessable
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

TRUNKS = {
    "alpha": TrunkConfig(registrar="a.example:5080", username="u-alpha", prefixes=("+49",), failover_to=("beta",)),
    "beta": TrunkConfig(domain="b.example", caller_id="+4930555"),
}


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(trunks=TRUNKS)


async def placed(exchange: Exchange) -> Call:
    return await exchange.registry.originate(OriginateRequest(to="+49301", display_name="Shop"))


def invites(exchange: Exchange) -> list[str]:
    return [to for _, to, *_ in exchange.ua.commands("originate")]


async def test_each_attempt_has_the_address_of_its_trunk(exchange: Exchange) -> None:
    call = await placed(exchange)
    assert call.caller == '"Shop" <sip:u-alpha@a.example>'
    exchange.ua.ended(call.id, by="unreachable", sip_code=503)
    (failed,) = [event.data for event in exchange.seen if isinstance(event.data, CallTrunkFailed)]
    assert failed.sip_code == 0, "nobody has sent a status"
    assert exchange.sample("cctts_trunk_failures_total", trunk="alpha", code="0") == 1
    assert call.caller == '"Shop" <sip:+4930555@b.example>'
    froms = [from_ for _, _, from_, *_ in exchange.ua.commands("originate")]
    assert froms == ["sip:u-alpha@a.example", "sip:+4930555@b.example"]


@pytest.mark.parametrize("num_failed", [0, 1])
async def test_a_call_that_is_hung_up_is_placed_no_more_and_ends_once(exchange: Exchange, num_failed: int) -> None:
    call = await placed(exchange)
    for _ in range(num_failed):
        exchange.ua.ended(call.id, by="failure", sip_code=503)
    call.end("api_hangup")
    exchange.ua.ended(call.id, by="failure", sip_code=503)  # it crosses our CANCEL
    assert len(invites(exchange)) == 1 + num_failed
    assert exchange.kinds(call.id).count("call.terminated") == 1
    assert exchange.registry.num_calls == 0
    for trunk in TRUNKS:
        assert exchange.sample("cctts_trunk_calls", trunk=trunk) == 0


@pytest.mark.parametrize("drains", [True, False])
async def test_a_call_that_cannot_be_placed_again_ends_once(exchange: Exchange, *, drains: bool) -> None:
    call = await placed(exchange)
    if drains:
        exchange.registry.start_drain()
    else:
        exchange.ua.is_ready = False
    exchange.ua.ended(call.id, by="failure", sip_code=503)
    assert len(invites(exchange)) == 1
    assert exchange.kinds(call.id) == ["call.outgoing", "call.terminated"]
    assert exchange.sample("cctts_trunk_calls", trunk="beta") == 0


async def test_a_user_agent_that_is_full_is_no_fault_of_a_trunk(exchange: Exchange) -> None:
    call = await placed(exchange)
    exchange.ua.ended(call.id, by="full", sip_code=503)
    assert len(invites(exchange)) == 1
    assert exchange.ended_as(call.id) == ("failed", "overload")
    assert exchange.sample("cctts_trunk_failures_total", trunk="alpha", code="503") == 0


async def test_a_call_that_is_refused_takes_no_part_of_the_rate() -> None:
    exchange = Exchange(trunks={"slow": TrunkConfig(domain="s.example", max_calls_per_s=1.0, prefixes=("",))})
    for _ in range(3):
        with pytest.raises(Unprocessable, match="/to"):  # there is no TLS
            await exchange.registry.originate(OriginateRequest(to="sip:1@s.example;transport=tls", trunk="slow"))
    assert (await exchange.registry.originate(OriginateRequest(to="+49301"))).trunk == "slow"
    with pytest.raises(CapacityExceeded):
        await exchange.registry.originate(OriginateRequest(to="+49301"))
