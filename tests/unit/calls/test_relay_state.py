"""Relays without connections: what a server before this one had, hearing, messages that wait."""

from contextlib import suppress
from typing import Any

import pytest

from cc_tts.calls.adoption import record as records
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.relay import messages
from cc_tts.calls.relay import relay as relays
from cc_tts.calls.relay.relay import MAX_KEPT, Relay
from cc_tts.calls.transfers import transfers
from cc_tts.calls.transfers.transfer import ReferRequest
from cc_tts.config.schema import RouteConfig
from cc_tts.config.sections.relay import RelayConfig, RelaySettings
from cc_tts.errors import CcTtsError, Unprocessable
from cc_tts.speech.prompt import text_of
from cc_tts.vad.client import SpeechNotHeard
from lab.waiting import until
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

SETTINGS = RelaySettings(url="ws://127.0.0.1:9/relay", welcome_greeting="A secret greeting")


def relaying(exchange: Exchange) -> list[Relay]:
    wanted: list[Relay] = []
    exchange.registry.relays.connect = wanted.append
    return wanted


def ended(exchange: Exchange) -> list[Any]:
    return [each.data for each in exchange.seen if each.type == "call.relay_ended"]


async def begun(exchange: Exchange, **settings: Any) -> tuple[Relay, Outbox[Any]]:
    wanted = relaying(exchange)
    call = exchange.registry.call(exchange.talking())
    exchange.registry.relays.begin(call, RelaySettings(url=SETTINGS.url, **settings))
    (relay,) = wanted
    outbox: Outbox[Any] = Outbox(2 * MAX_KEPT)
    relay.connected(outbox)
    return relay, outbox


def taken(outbox: Outbox[Any]) -> list[Any]:
    found = []
    while outbox.has_queued:
        found.append(outbox.take())
    return found


async def test_another_server_connects_it_again_and_greets_nobody() -> None:
    before = Exchange()
    relaying(before)
    call = before.registry.call(before.talking())
    request = before.registry.relays.begin(call, SETTINGS, client_state="s")
    kept = before.ua.records[call.id]
    record = records.decode(kept)
    assert record is not None
    assert record.relay_request is not None
    assert b"greeting" not in kept.replace(b"welcome_greeting", b""), "no text that was said is kept"

    after = Exchange()
    wanted = relaying(after)
    after.ua.report(before.snapshot(call.id))
    after.registry.incoming.present_adopted()
    (relay,) = wanted
    assert (relay.request.id, relay.request.sid) == (request.id, request.sid)
    outbox: Outbox[Any] = Outbox(10)
    relay.connected(outbox)
    assert [type(each) for each in taken(outbox)] == [messages.Setup]
    assert not after.registry.call(call.id).utterances
    assert "call.relay_started" not in after.kinds(call.id)
    after.ua.ended(call.id)
    (over,) = ended(after)
    assert (over.relay_id, over.cause, over.client_state) == (request.id, "call_ended", "s")


@pytest.mark.parametrize("state", ["invited", "answered"])
async def test_a_relay_of_a_call_without_an_answer_ends_and_begins_with_its_route(state: str) -> None:
    """One that was answered goes on, though the caller has not acknowledged it."""
    routes = {"greet": RouteConfig(relay=SETTINGS)}
    before = Exchange(routes=routes)
    begun = relaying(before)
    before.ua.incoming("greet")
    (first,) = begun
    after = Exchange(routes=routes)
    wanted = relaying(after)
    after.ua.report(before.snapshot(first.call.id, state, established_ns=0))
    after.registry.incoming.present_adopted()
    if state == "answered":
        assert [each.request.id for each in wanted] == [first.request.id]
        assert not ended(after)
        return
    assert [(each.relay_id, each.cause) for each in ended(after)] == [(first.request.id, "server_restarted")]
    assert [each.request.id != first.request.id for each in wanted] == [True]
    assert after.sample("cctts_relays_ended_total", cause="server_restarted") == 1
    assert not after.ua.commands("hangup")


@pytest.mark.parametrize("fallback", ["", "Please call again"])
async def test_a_caller_whose_relay_cannot_go_on_after_a_restart_is_not_left_in_silence(fallback: str) -> None:
    before = Exchange()
    relaying(before)
    call = before.registry.call(before.talking())
    settings = RelaySettings(url=SETTINGS.url, interruptible="speech", fallback=fallback)
    before.registry.relays.begin(call, settings)

    after = Exchange()
    after.vad.is_installed = False
    wanted = relaying(after)
    after.ua.report(before.snapshot(call.id))
    after.registry.incoming.present_adopted()
    assert not wanted
    assert [each.cause for each in ended(after)] == ["server_restarted"]
    adopted = after.registry.call(call.id)
    assert [text_of(each.prompt.content) for each in adopted.utterances.values()] == [fallback] * bool(fallback)
    assert after.ua.causes == ["relay_failed"] * (not fallback)


async def test_a_call_that_is_over_has_no_relay_afterwards() -> None:
    exchange = Exchange()
    relay, outbox = await begun(exchange)
    exchange.ua.ended(relay.call.id)
    relay.conclude("lost")
    relay.disconnected()
    assert [each.cause for each in ended(exchange)] == ["call_ended"]
    assert outbox.is_closed
    assert not exchange.registry.call(relay.call.id).followers
    assert exchange.sample("cctts_text_streams") == 0


async def test_speech_that_nobody_hears() -> None:
    exchange = Exchange()
    exchange.vad.is_installed = False
    relay, _ = await begun(exchange, interruptible="any")
    relay.take(messages.Text(token="Hello", last=True))
    (utterance,) = exchange.registry.call(relay.call.id).utterances.values()
    assert (utterance.barge_in_dtmf, utterance.barge_in_speech) == (True, None)
    other = exchange.registry.call(exchange.talking())
    with pytest.raises(SpeechNotHeard):
        exchange.registry.relays.begin(other, RelaySettings(url=SETTINGS.url, interruptible="speech"))
    assert not other.followers


async def test_what_speech_may_interrupt() -> None:
    exchange = Exchange()
    relay, _ = await begun(exchange, interruptible="dtmf")
    for interruptible in (None, "speech", "any", True, False):
        relay.take(messages.Text(token="Hello", last=True, interruptible=interruptible))
    utterances = exchange.registry.call(relay.call.id).utterances.values()
    assert [(each.barge_in_dtmf, each.barge_in_speech is not None) for each in utterances] == [
        (True, False),
        (False, True),
        (True, True),
        (True, False),
        (False, False),
    ]


async def test_so_many_messages_wait_for_a_connection() -> None:
    exchange = Exchange()
    relay, outbox = await begun(exchange, application_reconnect=True)
    assert len(taken(outbox)) == 1
    relay.disconnected()
    for _ in range(MAX_KEPT + 5):
        exchange.ua.digit(relay.call.id)
        exchange.clock.advance(1000)
        await exchange.settle()
    relay.connected(outbox)
    assert len(taken(outbox)) == 1 + MAX_KEPT


@pytest.mark.parametrize("is_detected", [True, False])
async def test_hidden_keys_are_not_told_nor_any_where_that_is_off(*, is_detected: bool) -> None:
    exchange = Exchange()
    relay, outbox = await begun(exchange, dtmf_detection=is_detected)
    if is_detected:
        exchange.registry.call(relay.call.id).gather(GatherRequest(prompt=None, sensitive=True))
    exchange.ua.digit(relay.call.id, "4")
    await exchange.settle()
    assert [type(each) for each in taken(outbox)] == [messages.Setup]


async def test_a_caller_who_was_handed_over_stays() -> None:
    exchange = Exchange()
    relay, _ = await begun(exchange)
    call = exchange.registry.call(relay.call.id)
    transfers.begin(call, ReferRequest(to="sip:1001@pbx.example.com"))
    relay.take(messages.End(handoff_data="sales"))
    assert [each.cause for each in ended(exchange)] == ["completed"]
    assert not exchange.ua.commands("hangup")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(messages.Language(tts_language="de-DE"), id="a language"),
        pytest.param(messages.Text(token="", last=True), id="an answer without a word"),
        pytest.param(messages.Text(token=" "), id="a blank"),
        pytest.param(messages.Text(token="a" * 101), id="what is refused"),
    ],
)
async def test_a_message_of_which_nothing_is_heard_does_not_end_the_silence(message: messages.Message) -> None:
    exchange = Exchange(relay=RelayConfig(silence_timeout_s=0.01))
    relay, _ = await begun(exchange)
    with suppress(CcTtsError):
        relay.take(message)
    await until(lambda: ended(exchange))
    assert [each.cause for each in ended(exchange)] == ["silent"]


async def test_the_rest_of_an_answer_that_was_interrupted_does_not_end_the_silence() -> None:
    exchange = Exchange(relay=RelayConfig(silence_timeout_s=0.01))
    relay, outbox = await begun(exchange, interruptible="dtmf", dtmf_detection=False)
    relay.take(messages.Text(token="one two three. "))
    (utterance_id,) = exchange.registry.call(relay.call.id).utterances
    exchange.ua.digit(relay.call.id, "5", at_ns=1)
    exchange.ua.finished(relay.call.id, utterance_id, cut=True)
    assert isinstance(taken(outbox)[-1], messages.Interrupt)
    relay.take(messages.Text(token="four five six. "))
    await until(lambda: ended(exchange))
    assert [each.cause for each in ended(exchange)] == ["silent"]


async def test_keys_are_sent_in_their_order_and_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "PAUSE_S", 0.02)
    exchange = Exchange()
    relay, _ = await begun(exchange)
    relay.take(messages.SendDigits(digits="1W2"))
    relay.take(messages.SendDigits(digits="3"))
    assert [keys for _, keys, *_ in exchange.ua.commands("dtmf")] == ["1"]
    await until(lambda: len(exchange.ua.commands("dtmf")) == 3)
    assert [keys for _, keys, *_ in exchange.ua.commands("dtmf")] == ["1", "2", "3"]
    with pytest.raises(Unprocessable):
        for _ in range(10):
            relay.take(messages.SendDigits(digits="1w" * 32))
    exchange.ua.ended(relay.call.id)
