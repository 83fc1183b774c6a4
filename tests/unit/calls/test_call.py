"""What may be done with one call, and what it tells."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState, UtteranceState
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.ending import Ending
from cc_tts.calls.prompts import player as player_module
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.errors import DuplicateId, EngineOverloaded, NothingToSay, QueueFull, UserAgentUnavailable, WrongState
from cc_tts.speech.prompt import Prompt, SilenceContent, TextContent, ToneContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(max_queued_prompts=3)


def the_call(exchange: Exchange, user: str = "silent") -> Call:
    return exchange.registry.call(exchange.talking(user))


def say(call: Call, text: str = "one two", **prompt: Any) -> str:
    """Queue a prompt; returns the utterance's id."""
    return call.speak(Prompt(content=TextContent(text), **prompt)).id


async def test_a_prompt_on_an_answered_call_is_late_while_the_engine_is_full(exchange: Exchange) -> None:
    call = the_call(exchange)
    exchange.source.full = EngineOverloaded("no slot is free", retry_after_s=1)
    say(call)
    call.gather(GatherRequest(prompt=Prompt(content=TextContent("Press a key."))))
    assert len(call.utterances) == 2
    tts = dataclasses.replace(exchange.config.tts, refuse_when_full=True)
    exchange.services.config = dataclasses.replace(exchange.config, tts=tts)
    with pytest.raises(EngineOverloaded, match="no slot"):
        say(the_call(exchange))


async def test_a_prompt_of_a_new_call_is_refused_while_the_engine_is_full(exchange: Exchange) -> None:
    call = exchange.registry.call(exchange.ua.incoming("manual"))
    exchange.source.full = EngineOverloaded("no slot is free", retry_after_s=1)
    with pytest.raises(EngineOverloaded, match="no slot"):
        say(call)
    assert not call.utterances
    call.accept()
    say(call)
    assert len(call.utterances) == 1


async def test_no_more_than_the_limit_is_queued(exchange: Exchange) -> None:
    call = the_call(exchange)
    ids = [say(call) for _ in range(3)]
    with pytest.raises(QueueFull) as refusal:
        say(call)
    assert refusal.value.retry_after_s == 1
    await exchange.settle()
    exchange.ua.finished(call.id, ids[0])
    say(call)
    assert len(call.utterances) == 4


async def test_replace_goes_past_the_limit_and_cancels_the_rest(exchange: Exchange) -> None:
    call = the_call(exchange)
    ids = [say(call) for _ in range(3)]
    await exchange.settle()
    late = say(call, "instead", queue="replace")
    assert set(exchange.ua.commands("cut")) == {(call.id, id_) for id_ in ids}
    for id_ in ids:
        exchange.ua.finished(call.id, id_, cut=True)
    assert [call.utterances[id_].completion_cause for id_ in ids] == [CompletionCause.CANCELLED] * 3
    assert call.player.queue == [call.utterances[late]]


async def test_replace_while_the_ua_process_goes_leaves_no_orphan(exchange: Exchange) -> None:
    call = the_call(exchange)
    say(call)
    await exchange.settle()
    exchange.ua.is_ready = False
    say(call, queue="replace")
    exchange.ua.die()
    causes = [utterance.completion_cause for utterance in call.utterances.values()]
    assert causes == [CompletionCause.CANCELLED, CompletionCause.CALL_ENDED]
    assert exchange.sample("cctts_utterances_active") == 0


async def test_ids_and_refused_content(exchange: Exchange) -> None:
    call = the_call(exchange)
    assert say(call, utterance_id="mine") == "mine"
    with pytest.raises(DuplicateId):
        say(the_call(exchange), utterance_id="mine")
    exchange.source.refusal = NothingToSay()
    with pytest.raises(NothingToSay):
        say(call)
    assert list(call.utterances) == ["mine"]


async def test_stop_waits_for_silence(exchange: Exchange) -> None:
    call = the_call(exchange)
    first, second = say(call), say(call)
    await exchange.settle()
    stopping = asyncio.create_task(call.stop("current"))
    await exchange.settle()
    assert not stopping.done()
    exchange.ua.finished(call.id, first, cut=True)
    assert await stopping == ([first], 400.0)
    assert call.utterances[second].state is UtteranceState.IN_PROGRESS


async def test_stop_all_and_nothing(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player_module, "CUT_TIMEOUT_S", 0.01)
    call = the_call(exchange)
    assert await call.stop("all") == ([], 0)
    ids = [say(call) for _ in range(3)]
    stopped, _ = await call.stop("all")  # the line says nothing: the timeout ends the wait
    assert stopped == ids
    exchange.ua.ended(call.id)
    with pytest.raises(WrongState):
        await call.stop("all")


async def test_a_key_interrupts_what_may_be_interrupted(exchange: Exchange) -> None:
    call = the_call(exchange)
    first, second, third = say(call), say(call, barge_in_dtmf=False), say(call)
    await exchange.settle()
    exchange.ua.digit(call.id, "5", at_ns=7)
    exchange.ua.finished(call.id, first, cut=True, at_ns=20_000_007)
    exchange.ua.finished(call.id, third, cut=True)
    causes = [call.utterances[id_].completion_cause for id_ in (first, second, third)]
    assert causes == [CompletionCause.BARGE_IN, None, CompletionCause.BARGE_IN]
    assert exchange.sample("cctts_barge_in_seconds_sum", by="dtmf") == 0.02
    exchange.ua.digit(call.id)
    assert not call.utterances[second].is_complete
    assert exchange.kinds(call.id).count("call.dtmf") == 2


async def test_a_prompt_is_interrupted_when_the_key_goes_down_and_not_again_when_it_goes_up(exchange: Exchange) -> None:
    call = the_call(exchange)
    first = say(call)
    await exchange.settle()
    exchange.ua.key_down(call.id, at_ns=7)
    assert exchange.ua.commands("cut") == [(call.id, first)]
    assert "call.dtmf" not in exchange.kinds(call.id)
    exchange.ua.finished(call.id, first, cut=True, at_ns=20_000_007)
    assert exchange.sample("cctts_barge_in_seconds_sum", by="dtmf") == 0.02
    second = say(call)
    await exchange.settle()
    exchange.ua.digit(call.id, at_ns=7)
    assert exchange.kinds(call.id).count("call.dtmf") == 1
    assert not call.utterances[second].is_complete
    assert len(exchange.ua.commands("cut")) == 1


async def test_a_key_leaves_alone_what_waits_behind_a_prompt_that_may_not_be_interrupted(exchange: Exchange) -> None:
    call = the_call(exchange)
    say(call, barge_in_dtmf=False)
    say(call)
    await exchange.settle()
    exchange.ua.digit(call.id)
    assert exchange.ua.commands("cut") == []


async def test_barge_in_may_be_off_by_default() -> None:
    exchange = Exchange(barge_in_dtmf=False)
    call = the_call(exchange)
    say(call)
    await exchange.settle()
    exchange.ua.digit(call.id)
    assert exchange.ua.commands("cut") == []


@pytest.mark.parametrize(("cause", "hangs_up"), [("normal", True), ("barge_in", False), ("cancelled", False)])
async def test_then_hangup(exchange: Exchange, cause: str, *, hangs_up: bool) -> None:
    call = the_call(exchange)
    utterance_id = say(call, then="hangup")
    await exchange.settle()
    if cause == "barge_in":
        exchange.ua.digit(call.id)
    elif cause == "cancelled":
        call.player.discard(call.utterances[utterance_id], CompletionCause.CANCELLED)
    exchange.ua.finished(call.id, utterance_id, cut=cause != "normal")
    assert call.utterances[utterance_id].completion_cause == cause
    assert bool(exchange.ua.commands("hangup")) is hangs_up
    if hangs_up:
        assert exchange.ua.tails_ms == {call.id: 200}
        exchange.ua.ended(call.id, by="local")
        assert call.ending is not None
        assert call.ending.reason == "prompt_finished"


async def test_no_silence_before_a_hang_up_that_follows_an_interruption(exchange: Exchange) -> None:
    call = the_call(exchange)
    utterance_id = say(call, then="hangup", unattended=True)
    await exchange.settle()
    exchange.ua.digit(call.id)
    exchange.ua.finished(call.id, utterance_id, cut=True)
    assert exchange.ua.tails_ms == {call.id: 0}


async def test_the_first_prompt_starts_after_the_lead_in_and_counts_from_there(exchange: Exchange) -> None:
    call_id = exchange.ua.incoming("greet", headers={"X-TTS-Delay": "300"})
    exchange.ua.established(call_id, at_ns=1_000)
    await exchange.settle()
    call = exchange.registry.call(call_id)
    (greeting,) = call.utterances
    assert exchange.ua.lead_in_ms[call_id] == 300
    late = call.utterances[greeting]
    late.origin_ns = 1_000  # the clock of this test is ahead of the UA's
    exchange.ua.speech(call_id, greeting, at_ns=340_001_000)
    assert late.time_to_first_audio_ms == 40.0


async def test_then_hangup_when_the_prompt_fails(exchange: Exchange) -> None:
    exchange.source.open_error = ValueError("broken")
    call = the_call(exchange)
    utterance_id = say(call, then="hangup")
    await exchange.settle()
    exchange.ua.finished(call.id, utterance_id, cut=True)
    assert call.utterances[utterance_id].completion_cause is CompletionCause.ERROR
    assert len(exchange.ua.commands("hangup")) == 1
    exchange.ua.ended(call.id, by="local")
    assert call.ending == Ending("failed", "prompt_failed", 200)


async def test_pause_and_resume(exchange: Exchange) -> None:
    call = the_call(exchange)
    with pytest.raises(WrongState):
        call.set_paused(paused=False)
    call.set_paused(paused=True)
    with pytest.raises(WrongState):
        call.set_paused(paused=True)
    call.set_paused(paused=False)
    assert exchange.ua.commands("paused") == [(call.id, True), (call.id, False)]
    exchange.ua.is_ready = False
    with pytest.raises(UserAgentUnavailable):
        call.set_paused(paused=True)
    assert call.paused is False


async def test_hold_and_unhold(exchange: Exchange) -> None:
    call = the_call(exchange)
    with pytest.raises(WrongState):
        call.set_hold(hold=False)
    call.set_hold(hold=True)
    exchange.ua.report(messages.HoldChanged(call.id, by="local"))
    assert vars(call)["held"] is True
    with pytest.raises(WrongState):
        call.set_hold(hold=True)
    call.set_hold(hold=False)
    exchange.ua.report(messages.HoldChanged(call.id, by="none"))
    assert vars(call)["held"] is False
    assert exchange.kinds(call.id)[-2:] == ["call.held", "call.unheld"]


async def test_answer_ring_and_dtmf_only_where_they_mean_something(exchange: Exchange) -> None:
    manual = exchange.registry.call(exchange.ua.incoming("manual"))
    with pytest.raises(WrongState):
        manual.send_dtmf("1")
    with pytest.raises(WrongState):
        manual.set_hold(hold=True)
    manual.ring(early_media=True)
    manual.answer()
    with pytest.raises(WrongState):
        manual.answer()
    with pytest.raises(WrongState):
        manual.ring()
    exchange.ua.established(manual.id)
    manual.send_dtmf("12", duration_ms=80)
    assert exchange.ua.commands("dtmf") == [(manual.id, "12", 80)]
    automatic = exchange.registry.call(exchange.ua.incoming("greet"))
    with pytest.raises(WrongState):
        automatic.answer()
    assert exchange.ua.commands("answer") == [(manual.id,), (automatic.id,)]


async def test_a_call_that_perhaps_nobody_answers_uses_no_engine_before_the_answer(exchange: Exchange) -> None:
    call = exchange.registry.call(exchange.ua.incoming("manual"))
    say(call)
    call.ring()
    exchange.ua.report(messages.CallRinging(call.id, "", 180))
    await exchange.settle()
    assert exchange.source.streams == []
    call.answer()
    await exchange.settle()
    assert len(exchange.source.streams) == 1, "its speech is made before the ACK"


async def test_early_media_is_heard_before_the_answer(exchange: Exchange) -> None:
    call = exchange.registry.call(exchange.ua.incoming("manual"))
    say(call)
    call.ring(early_media=True)
    exchange.ua.report(messages.CallRinging(call.id, "", 183))
    exchange.ua.report(messages.MediaActive(call.id, "PCMU", 8000))
    await exchange.settle()
    assert len(exchange.ua.commands("begin")) == 1


async def test_everything_is_refused_once_it_is_over(exchange: Exchange) -> None:
    call = the_call(exchange)
    call.hangup(sip_code=486, reason="later")
    assert exchange.ua.commands("hangup") == [(call.id, 486, "later", 0)]
    exchange.ua.ended(call.id, by="local")
    assert call.state is CallState.TERMINATED
    for refused in (call.answer, call.ring):
        with pytest.raises(WrongState):
            refused()
    call.end("again")
    assert len(exchange.ua.commands("hangup")) == 1
    commands: dict[str, Callable[[], object]] = {
        "speak": lambda: call.speak(Prompt(content=TextContent("Hello"))),
        "play": lambda: call.speak(Prompt(content=SilenceContent(100))),
        "pause": lambda: call.set_paused(paused=True),
        "resume": lambda: call.set_paused(paused=False),
        "gather": lambda: call.gather(GatherRequest()),
        "hold": lambda: call.set_hold(hold=True),
        "unhold": lambda: call.set_hold(hold=False),
        "dtmf": lambda: call.send_dtmf("1"),
        "update": lambda: call.update(defaults=call.defaults, metadata={}),
        "hangup": call.hangup,
    }
    for name, command in commands.items():
        with pytest.raises(WrongState, match=f"is terminated: {name} is not possible"):
            command()


async def test_the_voice_of_the_route_is_the_default(exchange: Exchange) -> None:
    call = the_call(exchange, "german")
    for content in (TextContent("a"), TextContent("b", voice="en-us"), TextContent("c", language="en")):
        call.speak(Prompt(content=content))
    kept = [utterance.prompt.content for utterance in call.utterances.values()]
    assert kept == [
        TextContent("a", "de", "de-DE"),
        TextContent("b", "en-us", "de-DE"),
        TextContent("c", "de", "en"),
    ]


async def test_tones_and_silence_have_no_voice(exchange: Exchange) -> None:
    call = the_call(exchange)
    for content in (ToneContent("beep", 20), SilenceContent(20)):
        utterance = call.speak(Prompt(content=content))
        assert (utterance.voice, utterance.engine, utterance.text_chars) == ("", "", 0)


async def test_old_utterances_of_a_long_call_are_forgotten(exchange: Exchange) -> None:
    call = the_call(exchange)
    total = player_module.MAX_UTTERANCES_KEPT + 50
    for number in range(total):
        id_ = say(call, "x", utterance_id=f"u{number}")
        await exchange.settle()
        exchange.ua.finished(call.id, id_)
    kept = player_module.MAX_UTTERANCES_KEPT + exchange.config.calls.max_queued_prompts
    assert len(call.utterances) == kept
    assert sum(f"u{number}" in exchange.services.utterances for number in range(total)) == kept
    assert "u0" not in call.utterances
    assert all(utterance.is_complete for utterance in call.utterances.values())
