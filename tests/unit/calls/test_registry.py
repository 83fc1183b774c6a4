"""All calls, between a made-up UA process and a made-up engine."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from cc_tts.calls import registry as registry_module
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import types
from cc_tts.calls.follower import Follower
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.registry import OVERLOAD_EVENT_INTERVAL_S
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.gate import FULL_FOR_MS, READY_FOR_MS
from cc_tts.errors import (
    CallNotFound,
    CapacityExceeded,
    Draining,
    DuplicateId,
    EngineOverloaded,
    NothingToSay,
    UnknownVoice,
    Unprocessable,
    UserAgentUnavailable,
    UtteranceNotFound,
)
from cc_tts.speech.admission import OVERLOAD_POLL_S
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.ua import messages
from cc_tts.vad.client import SpeechNotHeard
from lab.waiting import until
from tests.fakes.exchange import Exchange
from tests.fakes.fake_ua import invite_of
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit


async def until_asked(exchange: Exchange, command: str) -> None:
    await until(lambda: exchange.ua.commands(command))


async def test_an_incoming_call_is_answered_and_greeted(exchange: Exchange) -> None:
    call_id = exchange.ua.incoming("greet", headers={"X-Queue": "sales"})
    call = exchange.registry.call(call_id)
    assert exchange.ua.commands("answer") == [(call_id,)]
    assert (call.state, call.direction, call.headers) == (CallState.INCOMING, "inbound", {"X-Queue": "sales"})
    await exchange.settle()
    (utterance_id,) = call.utterances
    told = [command[0] for command in exchange.ua.asked]
    assert told == ["answer", "begin", *["audio"] * (len(told) - 3), "finish"], "the leg has it before the ACK"
    assert call.utterances[utterance_id].state == "pending"
    exchange.clock.advance(250)
    exchange.ua.established(call_id, at_ns=exchange.clock.now_ns())
    await exchange.settle()
    assert call.utterances[utterance_id].state == "in_progress"
    assert exchange.ua.commands("begin") == [(call_id, utterance_id)]
    exchange.ua.speech(call_id, utterance_id, at_ns=exchange.clock.now_ns() + 30_000_000)
    exchange.ua.finished(call_id, utterance_id)
    assert exchange.registry.services.utterances.get(utterance_id).time_to_first_audio_ms == 30, (
        "it counts from the ACK"
    )
    exchange.ua.ended(call_id)
    assert exchange.kinds(call_id) == [
        "call.incoming",
        "speak.queued",
        "call.established",
        "speak.started",
        "speak.complete",
        "call.terminated",
    ]
    assert [event.seq for event in exchange.seen if event.call_id == call_id] == [1, 2, 3, 4, 5, 6]
    assert exchange.ended_as(call.id) == ("completed", "remote_hangup")
    assert call.quality.packets_sent == 7
    assert exchange.registry.num_calls == 0
    assert exchange.sample("cctts_calls_active") == 0
    assert exchange.sample("cctts_utterances_active") == 0


@pytest.mark.parametrize(
    ("user", "headers", "source", "sip_code"),
    [
        ("nobody", {}, "127.0.0.1", 404),
        ("silent", {"X-TTS-Text": "%ZZ"}, "127.0.0.1", 400),
        ("silent", {"X-TTS-Text": "a" * 101}, "127.0.0.1", 413),
        ("silent", {"X-TTS-Prompt-Id": "x"}, "127.0.0.1", 404),
        ("wrong", {}, "127.0.0.1", 400),
        ("annc", {}, "10.1.2.3", 403),
        ("annc", {}, "127.0.0.1", 400),
        ("silent", {"X-TTS-Then": "hangup"}, "127.0.0.1", 400),
    ],
)
async def test_an_incoming_call_is_refused(
    exchange: Exchange, user: str, headers: dict[str, str], source: str, sip_code: int
) -> None:
    call_id = exchange.ua.incoming(user, headers=headers, source=source)
    assert exchange.ua.commands("answer") == []
    ((refused, code, reason, retry_after_s),) = exchange.ua.commands("hangup")
    assert (refused, code, retry_after_s) == (call_id, sip_code, 0)
    assert reason.isascii()
    exchange.ua.ended(call_id, by="local", sip_code=sip_code)
    call = exchange.registry.call(call_id)
    assert call.ending is not None
    assert (call.ending.result, call.ending.sip_code) == ("rejected", sip_code)


async def test_a_call_that_slips_in_while_draining_is_refused(exchange: Exchange) -> None:
    exchange.registry.start_drain()
    call_id = exchange.ua.incoming("greet")
    assert [each[:2] for each in exchange.ua.commands("hangup")] == [(call_id, 503)]
    assert exchange.ua.commands("hangup")[0][3] == exchange.config.sip.retry_after_s


async def test_ring_then_answer(exchange: Exchange) -> None:
    call_id = exchange.ua.incoming("ring")
    assert exchange.ua.commands("ring") == [(call_id, False)]
    exchange.ua.report(messages.CallRinging(call_id, "", 180))
    assert exchange.registry.call(call_id).state is CallState.EARLY
    await exchange.settle()
    assert len(exchange.ua.commands("finish")) == 1, "its greeting is made while it rings"
    assert exchange.ua.commands("answer") == []
    await until_asked(exchange, "answer")
    exchange.ua.report(messages.MediaActive(call_id, "PCMU", 8000))
    exchange.ua.established(call_id)
    await exchange.settle()
    assert exchange.ua.commands("answer") == [(call_id,)]
    assert len(exchange.ua.commands("begin")) == 1


@pytest.mark.parametrize("user", ["greet", "ring"])
async def test_a_call_that_is_cancelled_before_the_ack_leaves_nothing_behind(exchange: Exchange, user: str) -> None:
    exchange.source.plans |= {text: [asyncio.Event()] for text in ("Good morning", "Hello")}
    call_id = exchange.ua.incoming(user)
    await exchange.settle()
    (stream,) = exchange.source.streams
    exchange.ua.ended(call_id, sip_code=487)
    await exchange.settle()
    assert stream.num_cancels == 1
    (utterance,) = exchange.registry.call(call_id).utterances.values()
    assert (utterance.completion_cause, utterance.played_ms) == ("call_ended", 0.0)
    assert "speak.started" not in exchange.kinds(call_id)
    assert exchange.kinds(call_id)[-1] == "call.terminated"


async def test_an_ack_does_not_begin_a_prompt_of_a_call_that_is_about_to_end(exchange: Exchange) -> None:
    call = exchange.registry.call(exchange.ua.incoming("silent"))
    call.hangup()
    exchange.ua.established(call.id)
    call.speak(Prompt(content=TextContent("too late")))
    await exchange.settle()
    assert exchange.source.streams == []


async def test_a_full_engine_is_waited_for_as_long_as_nobody_listens(exchange: Exchange) -> None:
    exchange.services.config = dataclasses.replace(exchange.config, tts=TtsConfig(overload_wait_ms=10))
    exchange.source.open_error = EngineOverloaded("full")
    call_id = exchange.ua.incoming("greet")
    call = exchange.registry.call(call_id)
    await asyncio.sleep(3 * OVERLOAD_POLL_S)
    (utterance,) = call.utterances.values()
    assert utterance.error is None
    exchange.source.open_error = None
    exchange.ua.established(call_id, at_ns=exchange.clock.now_ns())
    await asyncio.sleep(2 * OVERLOAD_POLL_S)
    assert len(exchange.ua.commands("finish")) == 1


@pytest.mark.parametrize("user", ["ring", "office"])
async def test_a_call_that_is_answered_by_hand_is_answered_once_and_hears_no_other_greeting(user: str) -> None:
    exchange = Exchange(manual_answer_timeout_s=0.01)
    call_id = exchange.ua.incoming(user)
    exchange.registry.call(call_id).answer()
    said = list(exchange.registry.call(call_id).utterances)
    await asyncio.sleep(0.05)  # longer than it rings, or waits for an answer
    assert exchange.ua.commands("answer") == [(call_id,)]
    assert list(exchange.registry.call(call_id).utterances) == said


async def test_the_ring_timer_ends_with_the_call(exchange: Exchange) -> None:
    call_id = exchange.ua.incoming("ring")
    exchange.ua.ended(call_id, sip_code=487)
    assert not exchange.registry.call(call_id).timer.is_set
    await asyncio.sleep(0.05)  # longer than the route rings
    assert exchange.ua.commands("answer") == []
    assert exchange.ended_as(call_id) == ("unanswered", "cancelled")


async def test_nobody_answers_by_hand() -> None:
    exchange = Exchange(manual_answer_timeout_s=0.01)
    call_id = exchange.ua.incoming("manual")
    assert exchange.ua.asked == [("ring", call_id, False)]
    await until_asked(exchange, "hangup")
    assert exchange.ua.commands("hangup") == [(call_id, 480, "", 0)]


async def test_a_call_that_the_application_does_not_answer_hears_the_greeting_for_that() -> None:
    exchange = Exchange(manual_answer_timeout_s=0.01)
    call_id = exchange.ua.incoming("office")
    call = exchange.registry.call(call_id)
    earlier = call.speak(Prompt(content=TextContent("said by an application that went away")))
    await until_asked(exchange, "answer")
    assert earlier.completion_cause == "cancelled"
    exchange.ua.established(call_id)
    await exchange.settle()
    utterance = exchange.registry.services.utterances.get(list(call.utterances)[-1])
    assert exchange.ua.commands("begin") == [(call_id, utterance.id)]
    exchange.ua.finished(call_id, utterance.id)
    assert exchange.ua.commands("hangup") == [(call_id, 0, "", 0)]
    assert exchange.ua.causes == ["normal"]


async def test_a_greeting_that_cannot_be_said_refuses_the_call() -> None:
    exchange = Exchange(manual_answer_timeout_s=0.01)
    exchange.source.refusal = UnknownVoice()
    call_id = exchange.ua.incoming("office")
    await until_asked(exchange, "hangup")
    assert exchange.ua.commands("hangup")[0][:2] == (call_id, 400)
    assert exchange.ua.commands("answer") == []


async def test_max_duration() -> None:
    exchange = Exchange(max_duration_s=0.01)
    call_id = exchange.talking()
    await until_asked(exchange, "hangup")
    exchange.ua.ended(call_id, by="local")
    assert exchange.ended_as(call_id) == ("completed", "max_duration")


async def test_the_ua_process_dies_and_comes_back(exchange: Exchange) -> None:
    calls = [exchange.talking("greet"), exchange.ua.incoming("ring"), exchange.talking("silent")]
    await exchange.settle()
    exchange.ua.die()
    for call_id in calls:
        call = exchange.registry.call(call_id)
        assert call.state is CallState.TERMINATED
        assert exchange.ended_as(call.id) == ("failed", "ua_process_died")
        assert exchange.kinds(call_id)[-1] == "call.terminated"
        assert not call.timer.is_set
    assert exchange.sample("cctts_utterances_total", cause="call_ended") == 2
    assert exchange.sample("cctts_utterances_active") == 0
    assert exchange.sample("cctts_process_restarts_total", process="ua") == 1
    assert exchange.registry.not_ready_because == "the SIP user agent is starting"
    with pytest.raises(UserAgentUnavailable):
        await exchange.registry.originate(OriginateRequest(to="sip:x@h"))
    exchange.ua.come_back()
    assert not exchange.registry.not_ready_because
    later = exchange.talking("greet")
    await exchange.settle()
    assert exchange.registry.call(later).state is CallState.ESTABLISHED
    assert exchange.ua.commands("begin")[-1][0] == later


async def test_reports_for_calls_that_are_over_change_nothing(exchange: Exchange) -> None:
    call_id = exchange.talking()
    exchange.ua.ended(call_id)
    before = len(exchange.seen)
    exchange.ua.ended(call_id)
    exchange.ua.established(call_id)
    exchange.ua.digit(call_id)
    exchange.ua.finished(call_id, "nothing")
    assert len(exchange.seen) == before


async def test_drain(exchange: Exchange) -> None:
    call_id = exchange.talking()
    assert exchange.registry.start_drain() is True
    assert exchange.registry.start_drain() is False
    assert exchange.ua.accepting is False
    drained = asyncio.create_task(exchange.registry.drained(timeout_s=100))
    await exchange.settle()
    assert not drained.done(), "it waits for the last call"
    exchange.ua.ended(call_id)
    assert await drained is True
    assert exchange.ua.commands("hangup") == []
    assert exchange.kinds(None) == ["server.draining"]
    assert exchange.registry.not_ready_because == "draining"
    with pytest.raises(Draining) as refusal:
        await exchange.registry.originate(OriginateRequest(to="sip:x@h"))
    assert refusal.value.retry_after_s == exchange.config.sip.retry_after_s


async def test_the_end_of_a_drain_ends_the_calls(exchange: Exchange) -> None:
    talking, ringing = exchange.talking(), exchange.ua.incoming("ring")
    exchange.ua.report(messages.CallRinging(ringing, "", 180))
    exchange.registry.start_drain()
    drained = asyncio.create_task(exchange.registry.drained(timeout_s=0))
    await until_asked(exchange, "hangup")
    assert [each[:2] for each in exchange.ua.commands("hangup")] == [(talking, 0), (ringing, 503)]
    exchange.ua.ended(talking, by="local")
    exchange.ua.ended(ringing, by="local", sip_code=503)
    assert await drained is False
    endings = [call.ending for call in exchange.registry.calls()]
    assert [ending and (ending.result, ending.reason) for ending in endings] == [
        ("completed", "draining"),
        ("rejected", "draining"),
    ]


class Broken(Follower):
    def on_call_ended(self, reason: str) -> None:
        raise RuntimeError(reason)


class Told(Follower):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_call_ended(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_follower_that_breaks_keeps_no_call_up_and_no_word_from_the_others(exchange: Exchange) -> None:
    call, told = exchange.registry.call(exchange.talking("silent")), Told()
    call.followers.join(Broken())
    call.followers.join(told)
    with capture_logs() as lines:
        exchange.ua.ended(call.id)
    assert told.reasons == ["remote_hangup"]
    assert exchange.registry.num_calls == 0
    assert "follower_failed" in [line["event"] for line in lines]


async def test_nobody_is_called_for_a_prompt_that_speech_cannot_interrupt(exchange: Exchange) -> None:
    exchange.vad.is_installed = False
    prompt = Prompt(content=TextContent("Hello"), barge_in_speech=True)
    with pytest.raises(SpeechNotHeard):
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h", prompt=prompt))
    assert not exchange.ua.commands("originate")
    assert exchange.registry.num_calls == 0


async def test_originate(exchange: Exchange) -> None:
    call = await exchange.registry.originate(
        OriginateRequest(
            to="sip:bob@h", from_="sip:me@h", headers={"X-A": "1"}, prompt=Prompt(content=TextContent("x"))
        )
    )
    assert exchange.ua.commands("originate") == [(call.id, "sip:bob@h", "sip:me@h", {"X-A": "1"})]
    assert call.state is CallState.OUTGOING
    exchange.ua.report(messages.CallRinging(call.id, "sip-1", 183))
    exchange.ua.report(messages.MediaActive(call.id, "PCMA", 8000))
    await exchange.settle()
    assert exchange.ua.commands("begin") == [], "nobody is there yet"
    exchange.ua.established(call.id)
    await exchange.settle()
    assert len(exchange.ua.commands("begin")) == 1
    assert (call.codec, call.sip_call_id) == ("PCMU", f"sip-{call.id}")


@pytest.mark.parametrize(
    ("sip_code", "result", "reason"),
    [(486, "rejected", "busy"), (404, "rejected", "not_found"), (503, "failed", "overload")],
)
async def test_an_outgoing_call_is_refused(exchange: Exchange, sip_code: int, result: str, reason: str) -> None:
    call = await exchange.registry.originate(OriginateRequest(to="sip:bob@h"))
    exchange.ua.ended(call.id, by="failure" if sip_code >= 500 else "remote", sip_code=sip_code)
    assert call.ending is not None
    assert (call.ending.result, call.ending.reason, call.ending.sip_code) == (result, reason, sip_code)
    assert not call.timer.is_set


async def test_an_outgoing_call_is_not_answered(exchange: Exchange) -> None:
    call = await exchange.registry.originate(OriginateRequest(to="sip:bob@h", timeout_s=0.01))
    await until_asked(exchange, "hangup")
    exchange.ua.ended(call.id, by="local", sip_code=487)
    assert exchange.ended_as(call.id) == ("unanswered", "no_answer")


async def test_taken_ids_are_refused_before_anybody_is_called(exchange: Exchange) -> None:
    prompt = Prompt(content=TextContent("x"), utterance_id="u")
    await exchange.registry.originate(OriginateRequest(to="sip:bob@h", call_id="c", prompt=prompt))
    with pytest.raises(DuplicateId):
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h", call_id="c"))
    with pytest.raises(DuplicateId):
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h", prompt=prompt))
    exchange.source.refusal = NothingToSay()
    with pytest.raises(NothingToSay):
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h", prompt=Prompt(content=TextContent("…"))))
    assert len(exchange.ua.commands("originate")) == 1
    exchange.ua.ended("c")
    with pytest.raises(DuplicateId):
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h", call_id="c"))


async def test_all_lines_are_busy() -> None:
    exchange = Exchange(max_calls=2)
    first = exchange.talking()
    await exchange.registry.originate(OriginateRequest(to="sip:bob@h"))
    assert exchange.registry.not_ready_because == "all 2 lines are busy"
    with pytest.raises(CapacityExceeded) as refusal:
        await exchange.registry.originate(OriginateRequest(to="sip:bob@h"))
    assert refusal.value.retry_after_s == exchange.config.sip.retry_after_s
    exchange.ua.ended(first)
    assert exchange.registry.not_ready_because is None


async def test_refusals_of_the_gate_are_told_once_a_second(exchange: Exchange) -> None:
    for _ in range(5):
        exchange.ua.report(messages.InviteRefused())
    assert exchange.kinds(None) == ["server.overloaded"]
    exchange.clock.advance(OVERLOAD_EVENT_INTERVAL_S * 1000)
    exchange.ua.report(messages.InviteRefused())
    assert exchange.kinds(None) == ["server.overloaded"] * 2
    assert exchange.sample("cctts_calls_ended_total", direction="inbound", result="rejected", reason="overload") == 6


async def test_readiness_names_what_is_missing(exchange: Exchange) -> None:
    exchange.engine.refusal = "loading"
    assert exchange.registry.not_ready_because == "the speech engine: loading"


async def test_ended_calls_are_kept_for_a_while() -> None:
    exchange = Exchange(ended_retention_s=60.0)
    first = exchange.talking("greet")
    exchange.ua.ended(first)
    (utterance_id,) = exchange.registry.call(first).utterances
    exchange.clock.advance(59_000)
    exchange.ua.ended(exchange.talking())
    assert exchange.registry.services.utterances.get(utterance_id).is_complete
    exchange.clock.advance(2_000)
    exchange.ua.ended(exchange.talking())
    with pytest.raises(CallNotFound):
        exchange.registry.call(first)
    with pytest.raises(UtteranceNotFound):
        exchange.registry.services.utterances.get(utterance_id)
    assert len(exchange.registry.calls(CallState.TERMINATED)) == 2


@pytest.mark.parametrize("set_by_s", [86_400.0, -86_400.0])
async def test_a_clock_that_is_set_changes_no_duration_and_forgets_no_call(set_by_s: float) -> None:
    exchange = Exchange(ended_retention_s=60.0)
    call_id = exchange.talking()
    exchange.clock.advance(7_000)
    exchange.clock.set_by_s = set_by_s
    exchange.ua.ended(call_id)
    call = exchange.registry.call(call_id)
    assert call.answered_at_s is not None
    assert call.ended_at_s == pytest.approx(call.answered_at_s + 7)
    exchange.clock.advance(59_000)
    exchange.ua.ended(exchange.talking())
    assert exchange.registry.call(call_id) is call
    exchange.clock.advance(2_000)
    exchange.ua.ended(exchange.talking())
    with pytest.raises(CallNotFound):
        exchange.registry.call(call_id)


async def test_an_id_that_comes_again_leaves_nothing_of_the_call_before() -> None:
    """AudioSocket names calls by a UUID of the dialplan, which may be the same each time."""
    exchange = Exchange(ended_retention_s=60.0)
    exchange.ua.ended(exchange.talking("greet", call_id="call_1"))
    (utterance_id,) = exchange.registry.call("call_1").utterances
    other = exchange.talking()
    exchange.ua.ended(other)
    exchange.clock.advance(50_000)
    exchange.talking("greet", call_id="call_1")
    assert len(exchange.registry.calls()) == 2
    with pytest.raises(UtteranceNotFound):
        exchange.registry.services.utterances.get(utterance_id)
    assert [event.seq for event in exchange.seen if event.call_id == "call_1" and event.type == "call.incoming"] == [
        1,
        1,
    ]
    exchange.ua.ended("call_1")
    exchange.clock.advance(20_000)
    exchange.ua.ended(exchange.talking())
    with pytest.raises(CallNotFound):
        exchange.registry.call(other)


async def test_nothing_grows_over_thousands_of_calls() -> None:
    exchange = Exchange(max_ended_calls=10)
    call_ids: list[str] = []
    utterance_ids: list[str] = []
    for number in range(5000):
        exchange.clock.advance(1)
        call_id = exchange.talking("greet")
        call_ids.append(call_id)
        utterance_ids += exchange.registry.call(call_id).utterances
        if number % 100 == 0:
            await exchange.settle()
        exchange.ua.digit(call_id)
        exchange.ua.ended(call_id)
    await exchange.settle()
    registry = exchange.registry
    assert len(registry.calls()) == sum(each in exchange.services.utterances for each in utterance_ids) == 10
    again = [exchange.events.publish(types.CallHeld(by="remote"), call_id=call_id).seq for call_id in call_ids]
    assert again[:-10] == [1] * 4990, "the others' events are no longer counted"
    assert registry.num_calls == 0
    assert not any(call.timer.is_set for call in registry.calls())
    assert exchange.sample("cctts_calls_active") == 0
    assert exchange.sample("cctts_utterances_active") == 0
    assert exchange.sample("cctts_calls_total", direction="inbound") == 5000


async def test_a_broken_report_does_not_stop_the_next(exchange: Exchange) -> None:
    exchange.ua.is_ready = False  # answering the call will fail
    exchange.ua.incoming("greet")
    exchange.ua.is_ready = True
    assert exchange.registry.call(exchange.talking()).state is CallState.ESTABLISHED


@pytest.mark.parametrize("command", ["answer", "hold"])
async def test_what_pjsip_refuses(exchange: Exchange, command: str) -> None:
    call_id = exchange.ua.incoming("silent")
    exchange.ua.report(messages.CommandFailed(call_id=call_id, command=command, detail="no"))
    assert len(exchange.ua.commands("hangup")) == (command == "answer")


async def test_a_target_that_cannot_be_reached_is_refused_before_there_is_a_call(exchange: Exchange) -> None:
    for to, identity, pointer in (
        ("sips:x@h", "", "/to"),
        ("sip:x@[::1]", "", "/to"),
        ("sip:x@192.0.2.1", "tel:+1", "/asserted_identity"),
    ):
        with pytest.raises(Unprocessable) as caught:
            await exchange.registry.originate(OriginateRequest(to=to, asserted_identity=identity))
        assert [fault.pointer for fault in caught.value.field_errors] == [pointer]
    assert exchange.ua.asked == []
    assert exchange.registry.num_calls == 0


async def test_an_asserted_identity_goes_to_a_trusted_peer(exchange: Exchange) -> None:
    request = OriginateRequest(to="sip:x@127.0.0.1", asserted_identity="tel:+1", display_name='A "B"')
    call = await exchange.registry.originate(request)
    ((_, to, from_, headers),) = exchange.ua.commands("originate")
    assert (to, from_, headers) == ("sip:x@127.0.0.1", "", {"P-Asserted-Identity": "<tel:+1>"})
    assert call.caller == f'"A \\"B\\"" <{exchange.ua.default_caller}>'
    assert call.headers == {}


async def test_what_is_asserted_of_a_caller_is_told_of_trusted_peers(exchange: Exchange) -> None:
    for source, headers, parameters in (
        ("127.0.0.1", {"X-A": "1", "Diversion": "<sip:d>"}, {"tenant": "red"}),
        ("10.1.2.3", {"X-A": "1"}, {}),
    ):
        identity = {"Diversion": "<sip:d>"}
        uri = "sip:silent@h;tenant=red"
        exchange.ua.report(
            invite_of(source, "silent", request_uri=uri, source=source, headers={"X-A": "1"}, identity=identity)
        )
        call = exchange.registry.call(source)
        assert (call.headers, call.uri_parameters) == (headers, parameters)
        (event,) = [event for event in exchange.seen if event.call_id == source and event.type == "call.incoming"]
        assert isinstance(event.data, types.CallIncoming)
        assert (event.data.headers, event.data.uri_parameters) == (headers, parameters)


@pytest.mark.parametrize(("source", "unknown"), [("127.0.0.1", [["x-tts-txt", "X-TTS-Speed"]]), ("10.1.2.3", [])])
async def test_a_misspelt_header_of_a_trusted_peer_is_logged(
    exchange: Exchange, source: str, unknown: list[list[str]]
) -> None:
    headers = {"x-tts-txt": "s3cret", "X-TTS-Voice": "en-us", "X-TTS-Speed": "2", "X-Order": "1"}
    with capture_logs() as lines:
        exchange.ua.incoming("silent", source=source, headers=headers)
    assert [line["headers"] for line in lines if line["event"] == "headers_not_known"] == unknown
    assert "s3cret" not in str(lines)


async def test_a_route_with_an_application_rings_until_it_is_connected(exchange: Exchange) -> None:
    call_id = exchange.ua.incoming("app")
    ((call, url, dialect, _),) = exchange.dialled
    assert (call.id, url, dialect) == (call_id, "ws://127.0.0.1:9/call", "cc-tts")
    assert exchange.ua.commands("ring") == [(call_id, False)]
    assert exchange.ua.commands("answer") == []
    call.accept()
    exchange.ua.established(call_id)
    await exchange.settle()
    assert exchange.ua.commands("begin"), "the greeting is spoken first"


async def test_an_application_that_cannot_be_reached(exchange: Exchange) -> None:
    call_id, office = exchange.ua.incoming("app"), exchange.ua.incoming("office-app")
    (_, _, _, failed), (_, _, dialect, office_failed) = exchange.dialled
    assert dialect == "twilio"
    failed()
    assert exchange.ua.commands("hangup") == [(call_id, 480, "", 0)]
    assert exchange.registry.call(call_id).local_reason == "media_unreachable"
    office_failed()
    assert exchange.ua.commands("answer") == [(office,)]
    exchange.ua.ended(office)
    office_failed()
    assert len(exchange.ua.commands("hangup")) == 1


Look = Callable[[], Awaitable[None]]


@pytest.fixture
async def look(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Look]:
    """Have the registry look at the engine once."""
    monkeypatch.setattr(registry_module, "LOOK_S", 0.0)
    following = asyncio.create_task(exchange.registry.follow_engine())
    yield lambda: asyncio.sleep(0)
    following.cancel()


async def test_new_calls_are_refused_at_once_without_an_engine_and_taken_when_it_has_been_back_for_a_while(
    exchange: Exchange, look: Look
) -> None:
    exchange.engine.refusal = "no engine worker is ready: killed by SIGKILL"
    await look()
    assert exchange.ua.accepting is False
    exchange.engine.refusal = None
    for _ in range(round(READY_FOR_MS / 100) - 1):
        exchange.clock.advance(100)
        await look()
    assert exchange.ua.accepting is False
    assert "takes prompts again" in str(exchange.registry.not_ready_because), "as OPTIONS and INVITE get 503"
    exchange.clock.advance(200)
    await look()
    assert exchange.ua.accepting is True
    assert exchange.registry.not_ready_because is None


async def test_a_burst_of_prompts_closes_no_gate_and_a_lasting_one_does(exchange: Exchange, look: Look) -> None:
    exchange.engine.refusal, exchange.engine.is_busy = "the engine is at its limit", True
    for turn in range(round(FULL_FOR_MS / 100)):
        await look()
        assert exchange.ua.accepting, turn
        exchange.clock.advance(100)
    await look()
    assert exchange.ua.accepting is False


async def test_a_drain_stays_closed_when_the_engine_comes_back(exchange: Exchange, look: Look) -> None:
    exchange.engine.refusal = "no engine worker is ready"
    await look()
    exchange.registry.start_drain()
    exchange.engine.refusal = None
    for _ in range(2):
        exchange.clock.advance(2 * READY_FOR_MS)
        await look()
    assert exchange.ua.accepting is False


def test_a_refused_caller_is_told_why_in_ascii() -> None:
    exchange = Exchange()
    exchange.ua.incoming("%E9%94%80")
    (command,) = [each for each in exchange.ua.sent if isinstance(each, messages.Hangup)]
    assert (command.sip_code, command.reason) == (404, "no route for user '?'")


def test_a_refused_caller_is_told_nothing_of_the_inside() -> None:
    exchange = Exchange()
    exchange.source.full = EngineOverloaded(
        "no engine worker is ready: Stream removed (Socket closed)", retry_after_s=2
    )
    exchange.ua.incoming("greet")
    (command,) = [each for each in exchange.ua.sent if isinstance(each, messages.Hangup)]
    assert (command.sip_code, command.reason, command.retry_after_s) == (503, EngineOverloaded.title, 2)
