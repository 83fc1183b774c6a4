"""What prompts of a call fall back to, and what the client keeps in a call and a prompt, through every event."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from cc_tts.calls.call import Call
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import Event
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.errors import UnknownVoice
from cc_tts.speech.prompt import Prompt, PromptDefaults, SequenceContent, SilenceContent, TextContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

GERMAN = PromptDefaults(voice="de", language="de-DE", speed=1.5, lexicons=("crm",), barge_in_dtmf=False)


def the_call(exchange: Exchange, user: str = "silent") -> Call:
    return exchange.registry.call(exchange.talking(user))


def update(call: Call, defaults: PromptDefaults | None = None, **own: Any) -> None:
    kept: dict[str, Any] = {"metadata": call.metadata, "client_state": call.client_state}
    call.update(defaults=call.defaults if defaults is None else defaults, **(kept | own))


def own_of(event: Event) -> tuple[Any, Any]:
    data: Mapping[str, Any] = msgspec.to_builtins(event.data)
    return data.get("client_state"), data.get("metadata")


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        (TextContent("a"), TextContent("a", "de", "de-DE", 1.5, lexicons=("crm",))),
        (TextContent("a", voice="en"), TextContent("a", "en", "de-DE", 1.5, lexicons=("crm",))),
        (TextContent("a", language="en"), TextContent("a", "de", "en", 1.5, lexicons=("crm",))),
        (TextContent("a", speed=0.5), TextContent("a", "de", "de-DE", 0.5, lexicons=("crm",))),
        (TextContent("a", lexicons=("own",)), TextContent("a", "de", "de-DE", 1.5, lexicons=("own", "crm"))),
    ],
)
def test_a_prompt_falls_back_where_it_says_nothing(text: TextContent, filled: TextContent) -> None:
    assert GERMAN.applied_to(Prompt(content=text)) == Prompt(content=filled, barge_in_dtmf=False)


def test_every_part_of_ssml_falls_back_and_silence_stays() -> None:
    content = SequenceContent((TextContent("a"), SilenceContent(100), TextContent("b", speed=2.0)))
    filled = PromptDefaults(speed=1.5).applied_to(Prompt(content=content)).content
    assert filled == SequenceContent((TextContent("a", speed=1.5), SilenceContent(100), TextContent("b", speed=2.0)))


def test_without_defaults_a_prompt_is_as_it_is() -> None:
    prompt = Prompt(content=TextContent("a"), barge_in_dtmf=True)
    assert PromptDefaults().applied_to(prompt) is prompt
    assert GERMAN.applied_to(prompt).barge_in_dtmf is True


async def test_prompts_from_now_on_use_the_defaults_and_those_that_wait_do_not(exchange: Exchange) -> None:
    call = the_call(exchange)
    before = call.speak(Prompt(content=TextContent("one")))
    update(call, GERMAN)
    after = call.speak(Prompt(content=TextContent("two")))
    assert before.prompt.content == TextContent("one")
    assert after.prompt.content == TextContent("two", "de", "de-DE", 1.5, lexicons=("crm",))
    assert (before.barge_in_dtmf, after.barge_in_dtmf) == (True, False)


async def test_defaults_of_no_use_change_nothing(exchange: Exchange) -> None:
    call = the_call(exchange)
    exchange.source.refusal = UnknownVoice("no voice is called x")
    with pytest.raises(UnknownVoice):
        update(call, PromptDefaults(voice="x"), metadata={"a": "b"}, client_state="s")
    assert (call.defaults, call.metadata, call.client_state) == (PromptDefaults(), {}, None)
    update(call, metadata={"a": "b"})  # the same defaults are not asked for again
    assert call.metadata == {"a": "b"}


async def test_a_route_gives_the_defaults_and_they_can_be_taken_back(exchange: Exchange) -> None:
    call = the_call(exchange, "german")
    assert call.defaults == PromptDefaults(voice="de", language="de-DE")
    update(call, PromptDefaults())
    assert call.speak(Prompt(content=TextContent("one"))).prompt.content == TextContent("one")


async def test_every_event_of_a_call_carries_what_the_client_keeps_in_it(exchange: Exchange) -> None:
    call = await exchange.registry.originate(
        OriginateRequest(to="sip:x@h", metadata={"campaign": "spring"}, client_state="one")
    )
    send = exchange.registry.on_ua_message
    send(messages.CallRinging(call.id, sip_call_id="s", sip_code=180))
    exchange.ua.established(call.id, at_ns=exchange.clock.now_ns())
    update(call, metadata={"campaign": "spring", "customer": "7"}, client_state="two")
    send(messages.HoldChanged(call.id, by="remote"))
    send(messages.HoldChanged(call.id, by="none"))
    send(messages.DtmfReceived(call.id, digit="1", duration_ms=100, method="rfc4733", at_ns=1))
    update(call, metadata={}, client_state=None)
    send(messages.CommandFailed(call.id, command="hold", detail="no"))
    exchange.ua.ended(call.id)
    own = [(event.type, *own_of(event)) for event in exchange.seen if event.call_id == call.id]
    first, later = {"campaign": "spring"}, {"campaign": "spring", "customer": "7"}
    assert own == [
        ("call.outgoing", "one", first),
        ("call.early", "one", first),
        ("call.established", "one", first),
        ("call.held", "two", later),
        ("call.unheld", "two", later),
        ("call.dtmf", "two", later),
        ("call.command_failed", None, None),
        ("call.terminated", None, None),
    ]


@pytest.mark.parametrize("dies", [True, False])
async def test_every_event_of_a_prompt_carries_its_own_state_and_not_that_of_the_call(
    exchange: Exchange, *, dies: bool
) -> None:
    call = the_call(exchange)
    update(call, client_state="of the call", metadata={"a": "b"})
    marked = TextContent("one two", marks=((4, "m"),))
    first = call.speak(Prompt(content=marked, client_state="of the prompt"))
    second = call.speak(Prompt(content=TextContent("three")))
    await exchange.settle()
    exchange.ua.finished(call.id, first.id)
    await exchange.settle()
    if dies:
        exchange.ua.die()
    else:
        exchange.ua.ended(call.id)
    for utterance, state in ((first, "of the prompt"), (second, None)):
        own = {
            event.type: own_of(event)
            for event in exchange.seen
            if isinstance(event.data, types.SpeakData) and event.data.utterance_id == utterance.id
        }
        assert {"speak.queued", "speak.complete"} <= own.keys()
        assert set(own.values()) == {(state, None)}
    assert second.completion_cause is CompletionCause.CALL_ENDED


async def test_a_state_that_an_event_has_of_its_own_goes_before_that_of_the_call(exchange: Exchange) -> None:
    call = the_call(exchange)
    update(call, client_state="of the call")
    call.publish(types.CallUnheld(client_state="of its own"))
    assert own_of(exchange.seen[-1])[0] == "of its own"
    assert types.CallUnheld().client_state is UNSET
