"""Relays to a real application: a WebSocket server that is written for ConversationRelay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from cc_tts.api.relay import connector
from cc_tts.api.relay.connector import RelayConnector
from cc_tts.calls.call import Call
from cc_tts.config.schema import RouteConfig
from cc_tts.config.sections.relay import RelayConfig, RelaySettings
from lab.waiting import until
from tests.fakes.exchange import Exchange
from tests.fakes.served_call import Served, served
from tests.support.captured_logs import capture_logs
from tests.support.relay_application import Application, running_application

pytestmark = pytest.mark.integration

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@asynccontextmanager
async def scene(**relay: Any) -> AsyncIterator[tuple[Served, Application]]:
    config = RelayConfig(
        **{"allowed_hosts": ("127.0.0.0/8",), "connect_timeout_s": 0.5, "silence_timeout_s": 30.0, **relay}
    )
    async with running_application() as application, served("relay", relay=config) as api:
        relays = RelayConnector(api.exchange.config, api.exchange.clock)
        api.exchange.registry.relays.connect = relays.connect
        try:
            yield api, application
        finally:
            api.exchange.ua.die()
            await relays.stop()


def told_of(api: Served, kind: str) -> list[Any]:
    return [each.data for each in api.exchange.seen if each.type == kind]


def ended(api: Served) -> list[Any]:
    return told_of(api, "call.relay_ended")


async def begin(api: Served, application: Application, *, status: int = 202, **body: Any) -> Any:
    async with api.session.post(api.path, json={"url": application.url, **body}) as response:
        answer = await response.json()
        assert response.status == status, answer
        return answer


async def talking(api: Served, application: Application, **body: Any) -> Any:
    answer = await begin(api, application, **body)
    await until(lambda: application.of("setup"))
    return answer


@asynccontextmanager
async def conversation(**body: Any) -> AsyncIterator[tuple[Served, Application]]:
    async with scene() as (api, application):
        await talking(api, application, **body)
        yield api, application


async def incoming(api: Served, application: Application, **relay: Any) -> Call:
    exchange = api.exchange
    routes = {"app": RouteConfig(relay=RelaySettings(url=application.url, **relay))}
    exchange.registry.services.reload(replace(exchange.config, routes=routes))
    api.call = exchange.registry.call(exchange.ua.incoming("app", caller='"A" <sip:+4930123@10.0.0.1;user=phone>'))
    return api.call


async def heard(api: Served, text: str) -> None:
    await until(lambda: text in "".join(each.spoken_text for each in api.call.utterances.values()))


async def test_the_application_is_told_who_talks_and_its_tokens_are_spoken() -> None:
    async with scene() as (api, application):
        answer = await talking(
            api, application, parameters={"customer": "4711"}, relay_id="r1", client_state="s", secret=SECRET
        )
        assert answer["relay_id"] == "r1"
        (setup,) = application.last
        assert (setup["sessionId"], setup["callSid"]) == (answer["sid"], api.call.id)
        assert (setup["direction"], setup["callStatus"]) == ("inbound", "IN-PROGRESS")
        assert setup["customParameters"] == {"customer": "4711"}
        assert setup["transcriptionProvider"] == "none"
        (headers,) = application.headers
        assert headers["webhook-id"] == "r1"
        assert headers["webhook-signature"].startswith("v1,")
        await application.say(type="text", token="Good ", last=False)
        await application.say(type="text", token="morning.", last=True)
        await heard(api, "Good morning.")
        (started,) = told_of(api, "call.relay_started")
        assert (started.relay_id, started.client_state) == ("r1", "s")
        await application.say(type="end", handoffData='{"to":"sales"}')
        await until(lambda: ended(api))
        (over,) = ended(api)
        assert (over.relay_id, over.cause, over.handoff_data, over.client_state) == (
            "r1",
            "completed",
            '{"to":"sales"}',
            "s",
        )
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert api.exchange.ua.causes == ["relay_ended"]
        assert api.exchange.sample("cctts_relays_ended_total", cause="completed") == 1


async def test_what_was_sent_before_the_end_is_heard_first() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="Good bye and thank you.", last=True)
        await application.say(type="end")
        await until(lambda: ended(api))
        assert [each.spoken_text for each in api.call.utterances.values()] == ["Good bye and thank you."]
        await until(lambda: application.sockets[-1].closed)
        assert application.sockets[-1].close_code == 1000


async def test_a_key_interrupts_and_the_application_knows_what_was_heard() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="one two three four five six seven eight nine ten", last=True)
        await application.say(type="text", token="and what waits behind it", last=True)
        await heard(api, "one two")
        at_ns = api.exchange.clock.now_ns()
        api.exchange.ua.key_down(api.call.id, at_ns=at_ns)
        api.exchange.ua.digit(api.call.id, "7", at_ns=at_ns)
        await until(lambda: application.of("dtmf"))
        _, interrupt, dtmf = application.last
        spoken = next(iter(api.call.utterances.values()))
        assert interrupt == {
            "type": "interrupt",
            "utteranceUntilInterrupt": spoken.spoken_text,
            "durationUntilInterruptMs": round(spoken.played_ms),
        }
        assert spoken.spoken_text.startswith("one two")
        assert dtmf == {"type": "dtmf", "digit": "7"}
        await application.say(type="text", token="You pressed seven.", last=True)
        await heard(api, "You pressed seven.")
        assert "waits" not in "".join(each.spoken_text for each in api.call.utterances.values())


async def test_an_answer_to_the_key_that_interrupted_an_open_answer_is_heard() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="one two three four five six seven. eight nine ten eleven. ")
        await heard(api, "one two")
        api.exchange.ua.digit(api.call.id, "7", at_ns=api.exchange.clock.now_ns())
        await until(lambda: application.of("dtmf"))
        await application.say(type="text", token="You pressed seven.", last=True)
        await heard(api, "You pressed seven.")


async def test_words_that_nothing_interrupts() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="one two three four", last=True, interruptible=False)
        await heard(api, "one")
        api.exchange.ua.digit(api.call.id, "7", at_ns=api.exchange.clock.now_ns())
        await heard(api, "one two three four")
        assert [each["type"] for each in application.last] == ["setup", "dtmf"]


async def test_the_next_answer_cuts_off_one_that_is_preemptible() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="one moment please " * 5, last=True, preemptible=True)
        await heard(api, "one moment")
        await application.say(type="text", token="here it is", last=True)
        await heard(api, "here it is")
        first, second = api.call.utterances.values()
        assert (first.completion_cause, second.completion_cause) == ("cancelled", "normal")
        assert not application.of("interrupt")


async def test_languages_and_their_voices() -> None:
    async with conversation(languages={"de-DE": "de"}) as (api, application):
        await application.say(type="text", token="Guten Tag", last=True, lang="de-DE")
        await application.say(type="language", ttsLanguage="de-DE", transcriptionLanguage="de-DE")
        await application.say(type="text", token="noch einmal", last=True)
        await heard(api, "noch einmal")
        assert [each.voice for each in api.call.utterances.values()] == ["de", "de"]
        await application.say(type="text", token="bonjour", last=True, lang="fr-FR")
        await until(lambda: application.of("error"))
        assert "fr-FR" in application.of("error")[0]["description"]


async def test_digits_to_the_far_side() -> None:
    async with conversation() as (api, application):
        await application.say(type="sendDigits", digits="9w12#")
        await until(lambda: len(api.exchange.ua.commands("dtmf")) == 2)
        assert [each[1] for each in api.exchange.ua.commands("dtmf")] == ["9", "12#"]


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ('{"type":"sing"}', "sing"),
        ('{"type":"text"}', "token"),
        ("no JSON", "not JSON"),
        ('{"type":"play","source":"https://elsewhere.example/a.wav"}', "prompts.allowed_hosts"),
        ('{"type":"play","source":"file:///etc/passwd"}', "http"),
        ('{"type":"text","token":' + "[" * 3000, "token"),
        ('{"type":"text","a":' + "[" * 3000, "deep"),
        ('{"type":"text","token":"One.","token":"Two."}', "comes twice"),
    ],
)
async def test_messages_that_cannot_be_followed(message: str, word: str) -> None:
    async with conversation() as (api, application):
        await application.sockets[-1].send_str(message)
        await until(lambda: application.of("error"))
        assert word in application.of("error")[0]["description"]
        await application.say(type="text", token="all the same", last=True)
        await heard(api, "all the same")


async def test_an_application_of_a_route_takes_the_call() -> None:
    async with scene() as (api, application):
        call = await incoming(api, application, welcome_greeting="Good morning")
        assert api.exchange.ua.commands("ring")
        await until(lambda: (call.id,) in api.exchange.ua.commands("answer"))
        api.exchange.ua.established(call.id, at_ns=api.exchange.clock.now_ns())
        await heard(api, "Good morning")
        (setup,) = application.last
        assert (setup["from"], setup["callStatus"]) == ("+4930123", "RINGING")
        api.exchange.ua.ended(call.id)
        assert [each.cause for each in ended(api)] == ["call_ended"]
        await until(lambda: application.sockets[-1].closed)


@pytest.mark.parametrize(("status", "delay_s"), [(404, 0.0), (302, 0.0), (101, 5.0)])
async def test_an_application_that_takes_no_connection(status: int, delay_s: float) -> None:
    with capture_logs() as lines:
        async with scene() as (api, application):
            application.status, application.delay_s = status, delay_s
            call = await incoming(api, application)
            await until(lambda: api.exchange.ua.commands("hangup"))
            assert api.exchange.ua.commands("hangup") == [(call.id, 480, "", 0)]
            assert [each.cause for each in ended(api)] == ["unreachable"]
            api.exchange.ua.ended(call.id, by="local", sip_code=480)
            assert call.ending is not None
            assert call.ending.reason == "relay_failed"
    assert "4711" not in str(lines)


async def test_the_fallback_is_said_to_a_caller_whose_application_cannot_be_reached() -> None:
    async with scene() as (api, application):
        application.status = 503
        call = await incoming(api, application, fallback="Please call again")
        await until(lambda: (call.id,) in api.exchange.ua.commands("answer"))
        api.exchange.ua.established(call.id, at_ns=0)
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert [each.spoken_text for each in call.utterances.values()] == ["Please call again"]
        assert [each.cause for each in ended(api)] == ["unreachable"]


async def test_an_application_that_says_nothing() -> None:
    async with scene(silence_timeout_s=0.2) as (api, application):
        await talking(api, application, fallback="Please call again", then="stay")
        await heard(api, "Please call again")
        assert [each.cause for each in ended(api)] == ["silent"]
        assert not api.exchange.ua.commands("hangup")


async def test_an_application_that_does_not_answer_a_key() -> None:
    async with scene(silence_timeout_s=0.4) as (api, application):
        await talking(api, application, welcome_greeting="Hello", fallback="Please call again", then="stay")
        await heard(api, "Hello")
        await asyncio.sleep(0.6)
        assert not ended(api), "it is the caller's turn"
        api.exchange.ua.digit(api.call.id, "1")
        await until(lambda: application.of("dtmf"))
        await application.say(type="text", token="one two three four five six seven eight nine ten", last=True)
        await asyncio.sleep(0.6)
        assert not ended(api), "it has answered"
        api.exchange.ua.digit(api.call.id, "2", at_ns=5)
        await heard(api, "Please call again")
        assert [each.cause for each in ended(api)] == ["silent"]


async def test_an_application_that_closes_has_finished() -> None:
    async with conversation(application_reconnect=True, fallback="not this") as (api, application):
        await application.sockets[-1].close()
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert [each.cause for each in ended(api)] == ["closed"]
        assert not api.call.utterances


@pytest.mark.parametrize("how", ["reset", "end of the stream"])
async def test_a_lost_connection_without_reconnect(how: str) -> None:
    async with conversation(fallback="Please call again") as (api, application):
        await application.say(type="text", token="said before", last=True)
        await heard(api, "said")
        application.break_off(resets=how == "reset")
        await heard(api, "Please call again")
        assert [each.cause for each in ended(api)] == ["lost"]
        assert [each.spoken_text for each in api.call.utterances.values()] == ["said before", "Please call again"]


async def test_a_lost_connection_is_made_again_and_what_happened_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "FIRST_RETRY_S", 0.05)
    async with conversation(application_reconnect=True, welcome_greeting="Hello") as (api, application):
        await heard(api, "Hello")
        application.status = 503
        application.break_off()
        await until(lambda: len(application.headers) > 1)
        for digit in "123":
            api.exchange.ua.digit(api.call.id, digit)
        application.status = 101
        await until(lambda: len(application.told) == 2 and len(application.of("dtmf")) == 3)
        setup, *keys = application.last
        assert (setup["type"], setup["sessionId"]) == ("setup", application.told[0][0]["sessionId"])
        assert "".join(each["digit"] for each in keys) == "123"
        await application.say(type="text", token="here again", last=True)
        await heard(api, "here again")
        assert [each.spoken_text for each in api.call.utterances.values()] == ["Hello", "here again"]
        assert not ended(api)


async def test_a_connection_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "FIRST_RETRY_S", 0.05)
    async with scene(reconnect_timeout_s=0.2) as (api, application):
        await talking(api, application, application_reconnect=True)
        application.status = 503
        application.break_off()
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert [each.cause for each in ended(api)] == ["lost"]
        api.exchange.ua.ended(api.call.id, by="local")
        assert api.call.ending is not None
        assert (api.call.ending.result, api.call.ending.reason) == ("failed", "relay_failed")


async def test_a_hundred_at_once() -> None:
    exchange = Exchange(max_calls=100)
    async with running_application() as application:
        relays = RelayConnector(exchange.config, exchange.clock)
        exchange.registry.relays.connect = relays.connect

        async def finish(socket: web.WebSocketResponse) -> None:
            call_id = (await socket.receive_json())["callSid"]
            await socket.send_json({"type": "end", "handoffData": call_id})

        application.behaviour = finish
        calls = [exchange.registry.call(exchange.talking()) for _ in range(100)]
        for call in calls:
            exchange.registry.relays.begin(call, RelaySettings(url=application.url))
        await until(lambda: len(exchange.ua.commands("hangup")) == 100)
        over: list[tuple[str | None, Any]] = [
            (each.call_id, each.data) for each in exchange.seen if each.type == "call.relay_ended"
        ]
        assert len(over) == 100
        assert {call_id: data.handoff_data for call_id, data in over} == {call.id: call.id for call in calls}
        await relays.stop()


async def test_messages_that_are_too_long_or_too_many_end_the_connection() -> None:
    for message, num, code in (("a" * (connector.MAX_FRAME_BYTES + 1), 1, 1009), ("{}", 20, 1008)):
        async with scene() as (api, application):
            await talking(api, application, application_reconnect=True)
            for _ in range(num):
                await application.sockets[-1].send_str(message)
            await until(lambda: ended(api))
            assert [each.cause for each in ended(api)] == ["lost"]
            assert application.sockets[-1].close_code == code


async def test_a_client_ends_it() -> None:
    async with conversation() as (api, application):
        await application.say(type="text", token="one two three four five six seven eight nine ten", last=True)
        await heard(api, "one")
        async with api.session.delete(api.path) as response:
            assert response.status == 200
        await until(lambda: application.sockets[-1].closed)
        assert [each.cause for each in ended(api)] == ["stopped"]
        await until(lambda: not api.call.player.queue)
        assert not api.exchange.ua.commands("hangup")
        async with api.session.delete(api.path) as response:
            assert response.status == 404
        await talking(api, application)


async def test_what_cannot_be_begun() -> None:
    async with scene() as (api, application):
        answer = await begin(api, application, status=403, url="ws://10.0.0.1/relay")
        assert answer["code"] == "relay_not_allowed"
        assert (await begin(api, application, status=422, url="http://127.0.0.1/"))["errors"][0]["pointer"] == "/url"
        assert (await begin(api, application, status=422, secret="s"))["errors"][0]["pointer"] == "/secret"
        assert (await begin(api, application, status=422, voice="nobody"))["errors"][0]["pointer"] == "/voice"
        await talking(api, application)
        assert (await begin(api, application, status=409))["code"] == "relay_active"
        api.exchange.ua.ended(api.call.id)
        await begin(api, application, status=409)
