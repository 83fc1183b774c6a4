"""What a call leaves in a trace: which spans, what they are a part of, and what they do not say."""

from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics

from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.originate import OriginateRequest
from cc_tts.clock import NS_PER_MS
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import CURRENT, Span
from cc_tts.tracing.tracer import Tracer
from tests.fakes.exchange import Exchange
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOT_SAMPLED = CLIENT.removesuffix("01") + "00"
SECRET = "The code is four seven one one"


class Traced:
    """An exchange whose spans are kept here."""

    def __init__(self, *, sample_ratio: float = 1.0, salt: str = "") -> None:
        self.spans: list[Span] = []
        self.tracer = Tracer(FakeClock(), export=self.spans.append, sample_ratio=sample_ratio, salt=salt)
        self.exchange = Exchange(tracer=self.tracer)
        self.ua = self.exchange.ua

    def named(self, name: str) -> Span:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    async def spoken(self, call_id: str, text: str = "hello", *, heard_after_ms: int = 40) -> str:
        """A prompt that is heard to its end; returns its id."""
        exchange = self.exchange
        utterance = exchange.registry.call(call_id).speak(Prompt(content=TextContent(text)))
        await exchange.settle()
        at_ns = exchange.clock.now_ns() + heard_after_ms * NS_PER_MS
        self.ua.speech(call_id, utterance.id, at_ns=at_ns)
        self.ua.finished(call_id, utterance.id, at_ns=at_ns + 500 * NS_PER_MS)
        return utterance.id


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
def request_span() -> Iterator[Span]:
    span = Tracer(FakeClock(), export=lambda _: None).begin("POST /v1/calls", kind="server")
    assert span is not None
    token = CURRENT.set(span)
    yield span
    CURRENT.reset(token)


async def test_a_call_its_invite_and_its_utterances_are_one_trace(traced: Traced) -> None:
    call_id = traced.exchange.talking("silent")
    utterance_id = await traced.spoken(call_id)
    traced.ua.ended(call_id)
    call, invite, utterance, playout = map(traced.named, ("call", "sip.invite", "utterance", "playout"))
    assert {span.context.trace_id for span in traced.spans} == {call.context.trace_id}
    assert call.parent is None
    assert (invite.parent, utterance.parent) == (call.context, call.context)
    assert playout.parent == utterance.context
    assert (call.kind, call.attributes["cctts.call_id"], call.attributes["result"]) == ("server", call_id, "completed")
    assert (invite.attributes["sip.method"], invite.attributes["sip.response_code"]) == ("INVITE", 200)
    assert utterance.attributes == {
        "cctts.utterance_id": utterance_id,
        "gen_ai.operation.name": "tts",
        "gen_ai.output.type": "speech",
        "gen_ai.provider.name": "cc-tts",
        "gen_ai.request.model": "fake",
        "cctts.voice": "en-us",
        "cctts.chars": 5,
        "cctts.cached": False,
        "cctts.played_ms": 400,
        "completion_cause": "normal",
        "gen_ai.response.time_to_first_chunk": 0.04,
    }
    assert [name for name, _, _ in playout.events] == ["first_frame"]


async def test_a_trusted_peer_names_the_trace_of_its_call(traced: Traced) -> None:
    trusted = traced.ua.incoming("silent", headers={"x-traceparent": CLIENT})
    stranger = traced.ua.incoming("silent", headers={"X-Traceparent": CLIENT}, source="192.0.2.9")
    for call_id in (trusted, stranger):
        traced.ua.ended(call_id)
    parents = {span.attributes["cctts.call_id"]: span.parent for span in traced.spans if span.name == "call"}
    assert parents == {trusted: TraceContext.parse(CLIENT), stranger: None}


@pytest.mark.parametrize(
    ("header", "named"),
    [(CLIENT, CLIENT), (f"01{CLIENT[2:]}-{'later' * 2000}", CLIENT), ("nonsense" * 1000, ""), ("", "")],
)
async def test_of_a_trace_context_a_call_keeps_what_this_version_knows(header: str, named: str) -> None:
    """It is in the record of the call, and goes on to its applications, also where nothing is traced here."""
    exchange = Exchange()
    call = exchange.registry.call(exchange.ua.incoming("silent", headers={"X-Traceparent": header}))
    assert call.traceparent == named
    assert call.trace_headers == ({"traceparent": named} if named else {})


async def test_a_call_that_a_request_places_is_a_part_of_it(traced: Traced, request_span: Span) -> None:
    call = await traced.exchange.registry.originate(OriginateRequest(to="sip:1000@127.0.0.1"))
    traced.ua.ended(call.id, sip_code=486)
    assert traced.named("call").parent == request_span.context
    invite = traced.named("sip.invite")
    assert (invite.kind, invite.error, invite.attributes["sip.response_code"]) == ("client", "486", 486)


async def test_the_invite_of_a_call_that_we_place_names_its_trace(traced: Traced) -> None:
    call = await traced.exchange.registry.originate(OriginateRequest(to="sip:1000@127.0.0.1"))
    own = {"x-traceparent": CLIENT}
    await traced.exchange.registry.originate(OriginateRequest(to="sip:1000@127.0.0.1", headers=own))
    headers = [command[3] for command in traced.ua.commands("originate")]
    assert headers == [{"X-Traceparent": call.traceparent}, own]
    traced.ua.ended(call.id)
    assert TraceContext.parse(call.traceparent) == traced.named("call").context


async def test_an_utterance_is_linked_to_the_request_that_asked_for_it(traced: Traced, request_span: Span) -> None:
    call = await traced.exchange.registry.originate(OriginateRequest(to="sip:1000@127.0.0.1"))
    traced.ua.established(call.id)
    await traced.spoken(call.id)
    assert traced.named("utterance").links == (request_span.context,)


async def test_what_synthesises_an_utterance_is_a_part_of_it(traced: Traced) -> None:
    call_id = traced.exchange.talking("silent")
    call = traced.exchange.registry.call(call_id)
    utterance = call.speak(Prompt(content=TextContent("hello")))
    assert utterance.context[CURRENT] is utterance.span
    assert CURRENT.get() is None


async def test_no_word_no_digit_and_no_number_is_in_a_trace(traced: Traced) -> None:
    call_id = traced.ua.incoming("silent", caller='"Ann" <sip:+493012345@127.0.0.1>', callee="<sip:silent@127.0.0.1>")
    traced.ua.established(call_id)
    call = traced.exchange.registry.call(call_id)
    gather = call.gather(GatherRequest(max_digits=2))
    await traced.spoken(call_id, SECRET)
    for digit in "47":
        traced.ua.digit(call_id, digit)
    traced.ua.ended(call_id)
    said = str([(span.name, span.attributes, span.events, span.error) for span in traced.spans])
    for word in ("four", "4930", "Ann", "'4", "'7", f"sip-{call_id}"):
        assert word not in said, word
    assert [name for name, _, _ in traced.named("call").events].count("call.dtmf") == 2
    assert traced.named("gather").attributes == {"cctts.gather_id": gather.id, "result": "max_digits"}


async def test_with_a_salt_a_call_id_can_be_found_by_its_hash() -> None:
    traced = Traced(salt="site")
    call_id = traced.exchange.talking("silent")
    found = traced.named("sip.invite").attributes["sip.call_id"]
    assert found == traced.tracer.hashed(f"sip-{call_id}")
    assert len(str(found)) == 16
    assert found != Traced(salt="other").tracer.hashed(f"sip-{call_id}")


@pytest.mark.parametrize("headers", [{"X-Traceparent": NOT_SAMPLED}, {}])
async def test_a_call_that_is_not_sampled_is_exported_only_if_it_went_wrong(headers: dict[str, str]) -> None:
    traced = Traced(sample_ratio=0.0)
    call_id = traced.exchange.talking("silent", headers=headers)
    await traced.spoken(call_id)
    traced.ua.ended(call_id)
    assert traced.spans == []
    call_id = traced.exchange.talking("silent", headers=headers)
    await traced.spoken(call_id)
    await traced.spoken(call_id, heard_after_ms=2000)
    traced.ua.ended(call_id)
    names = [span.name for span in traced.spans]
    assert (names.count("utterance"), names.count("sip.invite"), names.count("call")) == (2, 1, 1)


async def test_first_audio_has_an_exemplar_of_a_trace_that_is_exported(traced: Traced) -> None:
    call_id = traced.exchange.talking("silent")
    await traced.spoken(call_id)
    exemplars = exemplars_of(traced.exchange)
    assert exemplars == [
        {"trace_id": traced.named("utterance").context.trace_id, "span_id": traced.named("utterance").context.span_id}
    ]
    shown = traced.exchange.metrics.render(open_metrics).decode()
    assert f'# {{span_id="{exemplars[0]["span_id"]}",trace_id="{exemplars[0]["trace_id"]}"}} 0.04' in shown
    unsampled = Traced(sample_ratio=0.0)
    await unsampled.spoken(unsampled.exchange.talking("silent"))
    assert exemplars_of(unsampled.exchange) == []


def exemplars_of(exchange: Exchange) -> list[dict[str, str]]:
    (family,) = exchange.metrics.time_to_first_audio.collect()
    return [dict(sample.exemplar.labels) for sample in family.samples if sample.exemplar is not None]


def leave(call: Call) -> None:
    assert call.spans is not None
    call.spans.leave()


async def test_the_server_that_adopts_a_call_goes_on_with_its_trace(traced: Traced) -> None:
    call_id = traced.exchange.talking("silent")
    leave(traced.exchange.registry.call(call_id))
    after = Traced()
    after.ua.report(traced.exchange.snapshot(call_id, established_ns=after.exchange.clock.now_ns()))
    after.exchange.registry.incoming.present_adopted()
    await after.spoken(call_id)
    after.ua.ended(call_id)
    assert after.named("call").parent == traced.named("call").context
    assert after.named("utterance").parent == after.named("call").context
    assert [span.name for span in (*traced.spans, *after.spans)].count("sip.invite") == 1


async def test_what_is_under_way_when_another_server_goes_on_is_exported(traced: Traced) -> None:
    call_id = traced.exchange.talking("silent")
    call = traced.exchange.registry.call(call_id)
    gather = call.gather(GatherRequest(max_digits=2))
    utterance = call.speak(Prompt(content=TextContent("hello")))
    leave(call)
    assert traced.named("gather").attributes["cctts.gather_id"] == gather.id
    assert traced.named("utterance").attributes["cctts.utterance_id"] == utterance.id
    for name in ("gather", "utterance", "call"):
        assert [event for event, _, _ in traced.named(name).events][-1] == "handed_over"


async def test_without_tracing_a_call_has_no_spans() -> None:
    exchange = Exchange()
    call = exchange.registry.call(exchange.talking("silent", headers={"X-Traceparent": CLIENT}))
    assert call.speak(Prompt(content=TextContent("hello"))).span is None
    await exchange.registry.originate(OriginateRequest(to="sip:1000@127.0.0.1"))
    assert [command[3] for command in exchange.ua.commands("originate")] == [{}], "an INVITE names no trace"
