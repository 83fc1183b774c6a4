"""Calls of tenants: which they are, what they count as, and what becomes of those beyond a limit."""

import asyncio
import dataclasses
import json
from typing import Any, cast

import msgspec
import pytest

from cc_tts.calls.dialplan import routing
from cc_tts.calls.ending import Ending
from cc_tts.calls.input.text import TextStream
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.prompts import utterance_index
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.config.schema import CallsConfig, Config, RouteConfig, TenantConfig
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    CapacityExceeded,
    DuplicateId,
    EngineOverloaded,
    QuotaExceeded,
    UserAgentUnavailable,
    UtteranceNotFound,
)
from cc_tts.speech.chunks import CHUNK_MS
from cc_tts.speech.prompt import Prompt, SilenceContent, TextContent, text_of
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import CallLine, UtteranceLine
from cc_tts.text.normalizer import Normalizer
from cc_tts.ua import messages
from tests.fakes.exchange import ROUTES, Exchange
from tests.fakes.fake_engine import pcm
from tests.fakes.fake_ua import invite_of

pytestmark = pytest.mark.unit

TARGET = "sip:bob@127.0.0.1"


def exchange_of(tenants: dict[str, TenantConfig], *, waits: bool = False, max_calls: int = 4) -> Exchange:
    """Calls to ``greet`` and ``silent`` are acme's, those to ``german`` the operator's."""
    exchange = Exchange(max_calls=max_calls)
    routes = {user: dataclasses.replace(route, tenant="acme") for user, route in ROUTES.items() if user != "german"}
    config = dataclasses.replace(exchange.config, tenants=tenants, routes=ROUTES | routes)
    if waits:
        config = dataclasses.replace(config, tts=dataclasses.replace(config.tts, overload_wait_ms=0.0))
    exchange.registry.services.reload(config)
    return exchange


def used(exchange: Exchange) -> tuple[int, int, int]:
    use = exchange.services.tenants.use()["acme"]
    return use.calls, use.streams, use.characters


def say(text: str = "Hello there") -> Prompt:
    return Prompt(content=TextContent(text))


def endless(exchange: Exchange) -> asyncio.Event:
    """``Hello there`` is spoken until this is set."""
    gate = asyncio.Event()
    exchange.source.plans["Hello there"] = [SpeechChunk(pcm(CHUNK_MS), "Hello "), gate]
    return gate


@pytest.mark.parametrize(
    ("uri", "route", "tenant"),
    [
        ("sip:sales@127.0.0.1", "sales", "acme"),
        ("sip:anybody@127.0.0.1;transport=tcp", "*", "rest"),
        ("sip:annc@127.0.0.1;play=tts:hello", "annc", ""),
        ("nonsense", "", ""),
        ("sip:%ff@127.0.0.1", "", ""),
    ],
)
def test_the_route_says_whose_call_it_is(uri: str, route: str, tenant: str) -> None:
    routes = {"sales": RouteConfig(tenant="acme"), "*": RouteConfig(tenant="rest")}
    assert routing.route_of(uri, Config(routes=routes)) == (route, tenant)


@pytest.mark.parametrize(
    ("user", "trunk", "route"),
    [
        ("sales", "alpha", "sales"),
        ("4711", "alpha", "trunk:alpha"),
        ("4711", "beta", "*"),
        ("4711", "", "*"),
        ("trunk%3Aalpha", "", "*"),
        ("trunk%3Aalpha", "beta", "*"),
    ],
)
def test_a_route_of_a_trunk_takes_what_came_by_it_and_nothing_else(user: str, trunk: str, route: str) -> None:
    named = {"sales": "sale", "trunk:alpha": "alpha", "*": "rest"}
    config = Config(routes={key: RouteConfig(greeting=said, tenant=said) for key, said in named.items()})
    uri = f"sip:{user}@127.0.0.1"
    assert routing.route_of(uri, config, trunk) == (route, named[route])
    decision = routing.decide(request_uri=uri, trusted=False, headers={}, config=config, trunk=trunk)
    assert decision.prompt is not None
    assert text_of(decision.prompt.content) == named[route]


def test_no_route_no_tenant() -> None:
    assert routing.route_of("sip:a@127.0.0.1", Config(routes={})) == ("", "")


async def test_an_inbound_call_beyond_the_limit_is_refused_and_the_next_one_is_not() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_calls=1)})
    first, second, theirs = (exchange.ua.incoming(user) for user in ("silent", "greet", "german"))
    (hangup,) = (sent for sent in exchange.ua.sent if isinstance(sent, messages.Hangup))
    assert (hangup.call_id, hangup.sip_code) == (second, 480)
    assert hangup.retry_after_s > 0
    assert "max_calls of this tenant is 1" in hangup.reason
    exchange.ua.ended(second, by="local", sip_code=480)
    assert exchange.registry.call(second).ending == Ending("rejected", "quota_exceeded", 480)
    assert exchange.ua.commands("answer") == [(first,), (theirs,)]
    assert [event.tenant for event in exchange.seen if event.type == "call.incoming" and event.call_id == second] == [
        "acme"
    ]
    assert used(exchange)[0] == 1
    exchange.ua.ended(first)
    assert used(exchange)[0] == 0
    assert exchange.ua.incoming("silent") in [call_id for (call_id,) in exchange.ua.commands("answer")]


@pytest.mark.parametrize("how", ["cancelled", "bad header", "unknown voice", "ua died"])
async def test_however_a_call_ends_it_counts_no_more(how: str) -> None:
    exchange = exchange_of({"acme": TenantConfig(max_calls=2)})
    match how:
        case "cancelled":
            exchange.ua.ended(exchange.ua.incoming("manual"), sip_code=487)
        case "bad header":
            exchange.ua.ended(exchange.ua.incoming("silent", headers={"X-TTS-Then": "dance"}), by="local", sip_code=400)
        case "unknown voice":
            exchange.ua.ended(exchange.ua.incoming("wrong"), by="local", sip_code=422)
        case "ua died":
            exchange.talking("silent")
            exchange.ua.die()
    assert used(exchange)[0] == 0


async def test_an_outbound_call_that_is_not_placed_counts_no_more() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_calls=1)}, max_calls=2)
    registry = exchange.registry

    async def place(**more: object) -> object:
        return await registry.originate(OriginateRequest(to=TARGET, tenant="acme", **more))  # type: ignore[arg-type]

    exchange.source.full = EngineOverloaded()
    with pytest.raises(EngineOverloaded):
        await place(prompt=say())
    exchange.source.full = None
    assert exchange.ua.commands("originate") == [], "it is refused before anybody's telephone rings"
    call = await place(call_id="one")
    for again, error in (({"call_id": "one"}, DuplicateId), ({"call_id": "two"}, QuotaExceeded)):
        with pytest.raises(error):
            await place(**again)
    exchange.ua.ended("one")
    assert call is registry.call("one")
    send, exchange.ua.send = exchange.ua.send, _unavailable  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(UserAgentUnavailable):
            await place()
    exchange.ua.send = send  # type: ignore[method-assign]
    await place()
    exchange.talking("german")
    with pytest.raises(CapacityExceeded):
        await place()
    assert used(exchange)[0] == 1


def _unavailable(*_: object, **__: object) -> None:
    raise UserAgentUnavailable


async def test_texts_that_are_spoken_at_once() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_streams=1)}, waits=True)
    endless(exchange)
    one, two, theirs = (exchange.registry.call(exchange.talking(user)) for user in ("silent", "silent", "german"))
    one.speak(say())
    await exchange.settle()
    assert used(exchange)[1] == 1
    with pytest.raises(QuotaExceeded) as refused:
        two.speak(say())
    assert refused.value.retry_after_s == 1
    two.speak(Prompt(content=SilenceContent(100)))
    queued = two.speak(say())
    theirs.speak(say())
    await exchange.settle()
    assert (queued.completion_cause, queued.error and queued.error.code) == (None, "quota_exceeded")
    assert used(exchange)[1] == 1
    for call in (one, two, theirs):
        exchange.ua.ended(call.id)
    await exchange.settle()
    assert used(exchange)[1] == 0


async def test_a_prompt_whose_turn_has_come_waits_for_another_of_its_tenant() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_streams=1)})
    endless(exchange)
    one, two = (exchange.registry.call(exchange.talking("silent")) for _ in range(2))
    one.speak(say())
    two.speak(Prompt(content=SilenceContent(20)))
    queued = two.speak(say())
    await exchange.settle()
    exchange.ua.ended(one.id)
    async with asyncio.timeout(100):
        while queued.first_pcm_ns is None:
            assert queued.error is None
            await asyncio.sleep(0.01)


async def test_characters_are_charged_once_the_prompt_is_accepted() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_characters_per_day=20)})
    endless(exchange)
    call = exchange.registry.call(exchange.talking("silent"))
    call.speak(dataclasses.replace(say("0123456789"), utterance_id="u1"))
    with pytest.raises(DuplicateId):
        call.speak(dataclasses.replace(say("0123456789"), utterance_id="u1"))
    with pytest.raises(QuotaExceeded):
        call.speak(say("0123456789a"))
    assert used(exchange)[2] == 10
    with pytest.raises(QuotaExceeded):
        await exchange.registry.originate(OriginateRequest(to=TARGET, tenant="acme", prompt=say("0123456789a")))
    assert exchange.ua.commands("originate") == []
    call.speak(say("0123456789"))
    refused = exchange.ua.incoming("greet")
    assert [sent.sip_code for sent in exchange.ua.sent if isinstance(sent, messages.Hangup)] == [480]
    exchange.ua.ended(refused, by="local", sip_code=480)
    assert used(exchange)[2] == 20


async def test_the_characters_of_the_disclosure_count_before_a_call_is_placed() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_characters_per_day=15)})
    exchange.services.config = dataclasses.replace(exchange.services.config, calls=CallsConfig(disclosure="0123456789"))
    with pytest.raises(QuotaExceeded):
        await exchange.registry.originate(OriginateRequest(to=TARGET, tenant="acme", prompt=say("0123456789")))
    assert exchange.ua.commands("originate") == [], "nobody is called to hear nothing"
    assert used(exchange) == (0, 0, 0)


async def test_the_text_of_a_stream_is_charged_as_it_comes() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_characters_per_day=10)})
    services = exchange.services
    services.source = SpeechSource(cast("Any", exchange.engine), Normalizer(), exchange.config.tts)
    call = exchange.registry.call(exchange.talking("silent"))
    stream = TextStream(call, send=lambda _message: None, on_call_ended=lambda: None, has_words=False)
    with pytest.raises(QuotaExceeded):
        stream.tokens("Hello everybody")
    assert call.utterances == {}, "none that would wait for text"
    stream.tokens("Hello ")
    with pytest.raises(QuotaExceeded):
        stream.tokens("everybody")
    stream.tokens("you.")
    stream.close()
    assert used(exchange)[2] == 10
    assert next(iter(call.utterances.values())).text_chars == 10


async def test_a_busy_engine_is_shared_by_tenants() -> None:
    exchange = exchange_of({"acme": TenantConfig(), "other": TenantConfig()})
    endless(exchange)
    tenants = exchange.services.tenants
    one, two = (exchange.registry.call(exchange.talking("silent")) for _ in range(2))
    one.speak(say())
    await exchange.settle()
    exchange.source.busy = 0.95
    with pytest.raises(EngineOverloaded, match="has its share"):
        two.speak(say())
    tenants.check_stream("other", lambda: 0.95)
    exchange.source.busy = 0.5
    assert two.speak(say()).completion_cause is not CompletionCause.ERROR


async def test_calls_and_utterances_have_a_line_each_without_texts_and_numbers() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_calls=1)})
    lines: list[UtteranceLine | CallLine] = []
    services = exchange.services
    services.accounting.add = lambda line, **_: lines.append(line)  # type: ignore[method-assign]
    call = exchange.registry.call(exchange.talking("greet"))
    exchange.ua.ended(exchange.ua.incoming("silent"), by="local", sip_code=480)
    await exchange.settle()
    exchange.clock.advance(2500)
    (utterance_id,) = call.utterances
    exchange.ua.finished(call.id, utterance_id)
    exchange.ua.ended(call.id)
    refused, spoken, ended = lines
    assert isinstance(refused, CallLine)
    assert (refused.answered, refused.duration_ms, refused.result, refused.reason, refused.sip_code) == (
        None,
        0,
        "rejected",
        "quota_exceeded",
        480,
    )
    assert isinstance(spoken, UtteranceLine)
    assert (spoken.tenant, spoken.call_id, spoken.utterance_id, spoken.characters, spoken.reason, spoken.error) == (
        "acme",
        call.id,
        utterance_id,
        len("Good morning"),
        "normal",
        None,
    )
    assert isinstance(ended, CallLine)
    assert (ended.tenant, ended.direction, ended.duration_ms, ended.codec) == ("acme", "inbound", 2500, "PCMU")
    assert ended.ended - ended.started == 2.5
    assert not {"Good morning", "alice"} & set(json.dumps(msgspec.to_builtins(lines)).split('"'))
    assert "alice" not in json.dumps(msgspec.to_builtins(lines))


async def test_calls_of_a_server_before_this_one_count_as_they_did() -> None:
    """The limit is lower now: what is up and what rings goes on, and nothing more begins."""
    before = exchange_of({"acme": TenantConfig()})
    talking, ringing = before.talking("silent"), before.ua.incoming("manual")
    after = exchange_of({"acme": TenantConfig(max_calls=1)})
    after.clock.advance(60_000)
    after.ua.report(before.snapshot(talking, media=None))
    after.ua.report(before.snapshot(ringing, "invited", media=None, invite=invite_of(ringing, "manual")))
    assert used(after)[0] == 2
    after.registry.incoming.present_adopted()
    assert used(after)[0] == 2
    assert not [sent for sent in after.ua.sent if isinstance(sent, messages.Hangup)]
    assert after.registry.call(talking).tenant == after.registry.call(ringing).tenant == "acme"
    for call_id in (talking, ringing):
        with pytest.raises(QuotaExceeded):
            await after.registry.originate(OriginateRequest(to=TARGET, tenant="acme"))
        after.ua.ended(call_id)
    assert used(after)[0] == 0
    await after.registry.originate(OriginateRequest(to=TARGET, tenant="acme"))


async def test_a_tenant_that_floods_pushes_out_its_own_ended_calls() -> None:
    exchange = Exchange(max_ended_calls=10)
    exchange.registry.services.reload(
        dataclasses.replace(
            exchange.config,
            tenants={"acme": TenantConfig()},
            routes=ROUTES | {"silent": dataclasses.replace(ROUTES["silent"], tenant="acme")},
        )
    )
    theirs = exchange.talking("greet")
    await exchange.settle()
    (utterance_id,) = exchange.registry.call(theirs).utterances
    exchange.ua.ended(theirs)
    flood = []
    for _ in range(30):
        flood.append(exchange.talking("silent"))
        exchange.ua.ended(flood[-1])
    assert exchange.registry.call(theirs).tenant == ""
    assert exchange.registry.services.utterances.get(utterance_id)
    assert [call.id for call in exchange.registry.calls()] == [theirs, *flood[-9:]]


async def test_a_tenant_that_floods_pushes_out_its_own_utterances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utterance_index, "MAX_UTTERANCES_KEPT", 10)
    exchange = exchange_of({"acme": TenantConfig()})

    def spoken(user: str) -> str:
        call = exchange.registry.call(exchange.talking(user))
        utterance = call.speak(Prompt(content=SilenceContent(20)))
        exchange.ua.ended(call.id)
        return utterance.id

    kept = spoken("german")
    flood = [spoken("silent") for _ in range(30)]
    assert exchange.registry.services.utterances.get(kept)
    assert exchange.registry.services.utterances.get(flood[-1])
    with pytest.raises(UtteranceNotFound):
        exchange.registry.services.utterances.get(flood[0])
    assert len(exchange.registry.calls()) == 31, "the calls are kept"


async def test_a_call_that_ends_before_the_ack_gives_its_stream_back() -> None:
    exchange = exchange_of({"acme": TenantConfig(max_streams=1)})
    exchange.source.plans["Good morning"] = [asyncio.Event()]
    cancelled = exchange.ua.incoming("greet")
    await exchange.settle()
    assert used(exchange)[:2] == (1, 1)
    exchange.ua.ended(cancelled, sip_code=487)
    await exchange.settle()
    assert used(exchange)[:2] == (0, 0)
