"""Collecting keys, in virtual time."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import asdict

from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.collector import Gather
from cc_tts.calls.dtmf.gather import DigitsTo, GatherRequest
from cc_tts.calls.events.types import CallGatherComplete
from cc_tts.errors import EngineFailed, GatherActive, GatherNotFound, UnknownVoice, WrongState
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.fakes.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit


class Caller:
    def __init__(self, exchange: Exchange, loop: VirtualLoop, call: Call) -> None:
        self.exchange, self.loop, self.call = exchange, loop, call

    def press(self, keys: str, *, every_ms: float = 0, method: Any = "rfc4733") -> None:
        for key in keys:
            now_ns = self.exchange.clock.now_ns()
            if method == "rfc4733":
                self.exchange.ua.key_down(self.call.id, at_ns=now_ns)
            self.exchange.ua.report(
                messages.DtmfReceived(call_id=self.call.id, digit=key, duration_ms=80, method=method, at_ns=now_ns)
            )
            self.loop.advance(every_ms)

    def gather(self, **wanted: Any) -> Gather:
        return self.call.gather(GatherRequest(**wanted))

    async def prompt_ends(self, *, cut: bool = False) -> None:
        await self.exchange.settle()
        self.exchange.ua.finished(self.call.id, self.call.player.queue[0].id, cut=cut)
        await self.exchange.settle()

    @property
    def results(self) -> list[dict[str, Any]]:
        events = self.exchange.seen
        return [asdict(event.data) for event in events if event.type == "call.gather_complete"]

    @property
    def result(self) -> dict[str, Any]:
        (result,) = self.results
        return result

    @property
    def keys_published(self) -> list[tuple[str, str | None]]:
        events = self.exchange.seen
        keys = [asdict(event.data) for event in events if event.type == "call.dtmf"]
        return [(key["digit"], None if key["gather_id"] is UNSET else key["gather_id"]) for key in keys]


@pytest.fixture
def caller(timed: tuple[Exchange, VirtualLoop]) -> Caller:
    exchange, loop = timed
    return Caller(exchange, loop, exchange.registry.call(exchange.talking("silent")))


def words(text: str = "Enter your code", **more: Any) -> Prompt:
    return Prompt(content=TextContent(text), **more)


async def test_the_finish_key_ends_it_and_is_no_digit(caller: Caller) -> None:
    caller.gather(gather_id="g1")
    caller.press("42#")
    assert caller.result == {
        "client_state": UNSET,
        "metadata": UNSET,
        "gather_id": "g1",
        "result": "finish_key",
        "valid": True,
        "digits": "42",
        "terminator": "#",
        "timed_out": None,
        "tries": 1,
        "digits_withheld": UNSET,
        "prompt_error": None,
        "duration_ms": 0.0,
    }
    assert caller.keys_published == [("4", "g1"), ("2", "g1"), ("#", "g1")]
    with pytest.raises(GatherNotFound):
        _ = caller.call.keys.running


async def test_the_last_digit_ends_it(caller: Caller) -> None:
    caller.gather(max_digits=4)
    caller.press("1234", every_ms=100)
    assert (caller.result["result"], caller.result["digits"], caller.result["terminator"]) == (
        "max_digits",
        "1234",
        None,
    )
    assert caller.result["duration_ms"] == 300


async def test_the_client_state_of_a_gather_is_that_of_its_result(caller: Caller) -> None:
    caller.call.client_state = "call"
    caller.gather(client_state="gather")
    caller.press("1#")
    caller.gather()
    caller.press("1#")
    assert [result["client_state"] for result in caller.results] == ["gather", "call"]


async def test_129_digits(caller: Caller) -> None:
    caller.gather()
    caller.press("7" * 129)
    assert caller.result["digits"] == "7" * 128


@pytest.mark.parametrize(
    ("pressed", "timed_out", "after_ms"),
    [("", "initial", 5000), ("1", "inter_digit", 3000), ("12", "inter_digit", 3000)],
)
async def test_the_timer_before_the_first_key_and_the_one_between_keys(
    caller: Caller, pressed: str, timed_out: str, after_ms: float
) -> None:
    caller.gather(inter_digit_timeout_ms=3000)
    caller.press(pressed)
    caller.loop.advance(after_ms - 1)
    assert not caller.results
    caller.loop.advance(1)
    assert caller.result["result"] == "timeout"
    assert caller.result["timed_out"] == timed_out
    assert (caller.result["valid"], caller.result["digits"]) == (bool(pressed), pressed)


async def test_the_total_time_ends_it_whatever_is_pressed_and_without_another_try(caller: Caller) -> None:
    caller.gather(timeout_ms=10_000, max_tries=3, min_digits=50)
    caller.press("1" * 20, every_ms=600)
    assert (caller.result["timed_out"], caller.result["tries"], caller.result["duration_ms"]) == ("total", 1, 10_000)


async def test_a_timeout_of_none_never_comes(caller: Caller) -> None:
    caller.gather(initial_timeout_ms=None, inter_digit_timeout_ms=None)
    caller.loop.advance(10_000_000)
    caller.press("1")
    caller.loop.advance(10_000_000)
    assert not caller.results
    caller.press("#")
    assert caller.result["valid"]


async def test_the_timers_begin_where_the_prompt_ends(caller: Caller) -> None:
    caller.gather(prompt=words(), timeout_ms=6000)
    await caller.exchange.settle()
    caller.loop.advance(60_000)
    assert not caller.results
    await caller.prompt_ends()
    caller.loop.advance(4999)
    assert not caller.results
    caller.loop.advance(1)
    assert caller.result["timed_out"] == "initial"


async def test_a_key_interrupts_the_prompt_and_is_the_first_digit(caller: Caller) -> None:
    caller.gather(prompt=words(), max_digits=2)
    await caller.exchange.settle()
    caller.press("9")
    assert [cut[1] for cut in caller.exchange.ua.commands("cut")] == [caller.call.player.queue[0].id]
    caller.press("8")
    assert caller.result["digits"] == "98"
    await caller.prompt_ends(cut=True)
    assert len(caller.results) == 1


async def test_keys_of_a_protected_prompt_wait_for_its_end(caller: Caller) -> None:
    caller.gather(prompt=words(barge_in_dtmf=False), max_digits=3, inter_digit_timeout_ms=1000)
    await caller.exchange.settle()
    caller.press("123", every_ms=5000)
    assert not caller.results
    assert not caller.exchange.ua.commands("cut")
    await caller.prompt_ends()
    assert caller.result["digits"] == "123"


async def test_keys_beyond_those_of_a_protected_prompt_are_for_the_next_gather(caller: Caller) -> None:
    caller.gather(prompt=words(barge_in_dtmf=False), max_digits=1)
    await caller.exchange.settle()
    caller.press("1#23")  # the finish key belongs to the first
    await caller.prompt_ends()
    assert caller.result["digits"] == "1"
    caller.gather(max_digits=2)
    assert caller.results[1]["digits"] == "23"


async def test_a_prompt_behind_a_protected_one_is_not_said_once_keys_are_pressed(caller: Caller) -> None:
    caller.call.speak(words("Welcome", barge_in_dtmf=False))
    caller.gather(prompt=words(), max_digits=2)
    await caller.exchange.settle()
    caller.press("5")
    welcome, prompt = caller.call.utterances.values()
    assert not welcome.is_complete
    assert prompt.discard_cause or prompt.is_complete
    caller.press("6")
    assert caller.result["digits"] == "56"


@pytest.mark.parametrize(
    ("before_ms", "flush_buffer", "expected"),
    [(0, False, "12"), (1999, False, "12"), (2001, False, ""), (0, True, "")],
)
async def test_keys_typed_ahead_are_the_first_digits(
    caller: Caller, before_ms: float, expected: str, *, flush_buffer: bool
) -> None:
    caller.press("12")
    caller.loop.advance(before_ms)
    assert caller.gather(flush_buffer=flush_buffer).digits == expected


async def test_keys_typed_ahead_interrupt_the_prompt_before_it_is_heard(caller: Caller) -> None:
    caller.press("1")
    gather = caller.gather(prompt=words(), max_digits=2)
    (prompt,) = caller.call.utterances.values()
    assert prompt.discard_cause or prompt.is_complete
    assert gather.digits == "1"


async def test_keys_typed_ahead_of_a_protected_prompt_wait_for_its_end(caller: Caller) -> None:
    caller.press("1")
    gather = caller.gather(prompt=words(barge_in_dtmf=False), max_digits=2)
    assert gather.digits == ""
    await caller.prompt_ends()
    assert gather.digits == "1"


async def test_a_try_that_is_not_valid_says_the_invalid_prompt_and_begins_anew(caller: Caller) -> None:
    caller.gather(prompt=words(), invalid_prompt=words("Wrong"), min_digits=4, max_tries=3)
    await caller.prompt_ends()
    caller.press("12#")
    assert not caller.results
    await caller.prompt_ends()
    caller.loop.advance(5000)  # nothing is pressed
    await caller.prompt_ends()
    caller.press("4711#")
    assert (caller.result["digits"], caller.result["valid"], caller.result["tries"]) == ("4711", True, 3)
    queued = [asdict(event.data)["text_chars"] for event in caller.exchange.seen if event.type == "speak.queued"]
    assert queued == [len("Enter your code"), len("Wrong"), len("Wrong")]


async def test_without_an_invalid_prompt_the_prompt_is_said_again(caller: Caller) -> None:
    caller.gather(prompt=words(utterance_id="u1"), max_tries=2)
    await caller.prompt_ends()
    caller.press("#")
    await caller.prompt_ends()
    caller.press("#")
    assert (caller.result["valid"], caller.result["tries"], caller.result["terminator"]) == (False, 2, "#")
    assert len(caller.call.utterances) == 2


async def test_a_key_that_is_not_allowed_makes_the_digits_invalid(caller: Caller) -> None:
    caller.gather(valid_digits="123", max_digits=2)
    caller.press("19")
    assert (caller.result["digits"], caller.result["valid"]) == ("19", False)


async def test_a_next_try_goes_on_without_its_prompt_if_that_cannot_be_spoken(caller: Caller) -> None:
    caller.gather(invalid_prompt=words("Wrong"), max_tries=2)
    caller.exchange.source.refusal = UnknownVoice("gone")
    caller.press("#")
    caller.press("1#")
    assert (caller.result["digits"], caller.result["tries"]) == ("1", 2)
    assert caller.result["prompt_error"] == "unknown_voice"


async def test_timers_stand_still_on_hold(caller: Caller) -> None:
    caller.gather(timeout_ms=8000)
    caller.loop.advance(4000)
    caller.exchange.ua.report(messages.HoldChanged(call_id=caller.call.id, by="remote"))
    caller.loop.advance(100_000)
    assert not caller.results
    caller.exchange.ua.report(messages.HoldChanged(call_id=caller.call.id, by="none"))
    caller.loop.advance(999)
    assert not caller.results
    caller.loop.advance(1)
    assert caller.result["timed_out"] == "initial"


async def test_a_key_that_is_held_down_is_no_silence(caller: Caller) -> None:
    caller.gather(initial_timeout_ms=1000, max_digits=1)
    at_ns = caller.exchange.clock.now_ns()
    caller.exchange.ua.key_down(caller.call.id, at_ns=at_ns)
    caller.loop.advance(4000)
    assert not caller.results
    caller.exchange.ua.digit(caller.call.id, "3", at_ns=at_ns)
    assert caller.result["digits"] == "3"


async def test_before_the_answer_no_timer_runs(caller: Caller) -> None:
    exchange = caller.exchange
    call = exchange.registry.call(exchange.ua.incoming("manual"))
    call.gather(GatherRequest())
    caller.loop.advance(60_000)
    assert not caller.results
    exchange.ua.established(call.id)
    caller.loop.advance(5000)
    assert caller.result["timed_out"] == "initial"


async def test_one_gather_at_a_time(caller: Caller) -> None:
    caller.gather()
    with pytest.raises(GatherActive):
        caller.gather()
    caller.call.stop_gather()
    assert caller.result["result"] == "cancelled"
    caller.gather()


async def test_a_gather_that_is_stopped_is_silent(caller: Caller) -> None:
    caller.gather(prompt=words())
    await caller.exchange.settle()
    caller.call.stop_gather()
    await caller.prompt_ends(cut=True)
    (prompt,) = caller.call.utterances.values()
    assert prompt.completion_cause == "cancelled"


@pytest.mark.parametrize(("in_prompt", "dies"), [(True, False), (False, False), (False, True)])
async def test_a_hangup_ends_it_once_and_before_the_call(caller: Caller, *, in_prompt: bool, dies: bool) -> None:
    caller.gather(prompt=words(barge_in_dtmf=False), max_tries=3)
    if not in_prompt:
        await caller.prompt_ends()
    caller.press("1")
    if dies:
        caller.exchange.ua.die()
    else:
        caller.exchange.ua.ended(caller.call.id)
    caller.loop.advance(60_000)
    assert caller.result["result"] == "call_ended"
    kinds = caller.exchange.kinds(caller.call.id)
    assert kinds.index("call.gather_complete") < kinds.index("call.terminated")
    with pytest.raises(WrongState):
        caller.gather()


async def test_sensitive_keys_go_to_nobody_who_may_not_see_them(caller: Caller) -> None:
    caller.gather(gather_id="pin", sensitive=True)
    caller.press("42#7")
    assert caller.keys_published == [("x", "pin")] * 3 + [("7", None)]
    assert (caller.result["digits"], caller.result["digits_withheld"]) == ("xx", True)


async def test_sensitive_digits_reach_the_named_connection_and_readers_with_the_scope(caller: Caller) -> None:
    events = caller.exchange.events
    before = events.last_id
    readers = {
        "named": events.subscribe(connection="token/payments"),
        "of another token": events.subscribe(connection="other/payments"),
        "with the scope": events.subscribe(sees_digits=True),
        "nameless": events.subscribe(),
    }
    caller.gather(gather_id="card", sensitive=True, digits_to=DigitsTo(connection="token/payments"))
    caller.press("42#")
    again = events.subscribe(since=before, sees_digits=True)
    for reader in (*readers.values(), again):
        reader.close()
    digits = {
        name: [event.data.digits async for event in reader if isinstance(event.data, CallGatherComplete)]
        for name, reader in (readers | {"again": again}).items()
    }
    assert digits == {
        "named": ["42"],
        "of another token": ["xx"],
        "with the scope": ["42"],
        "nameless": ["xx"],
        "again": ["xx"],  # the history has none
    }


async def test_a_finish_key_after_the_last_digit_does_not_end_the_next_gather(caller: Caller) -> None:
    caller.gather(max_digits=4)
    caller.press("1234")
    caller.gather(max_digits=3)
    caller.loop.advance(300)
    caller.press("#56#")
    assert caller.results[1]["digits"] == "56"


async def test_a_finish_key_is_a_digit_of_a_gather_that_asks_for_it(caller: Caller) -> None:
    caller.gather(max_digits=1)
    caller.press("1")
    caller.gather(max_digits=1, finish_on_key="")
    caller.press("#")
    assert caller.results[1]["digits"] == "#"


async def test_a_late_finish_key_ends_the_next_gather(caller: Caller) -> None:
    caller.gather(max_digits=1)
    caller.press("1")
    caller.gather()
    caller.loop.advance(2001)
    caller.press("#")
    assert caller.results[1]["terminator"] == "#"


async def test_a_key_by_two_methods_counts_once(caller: Caller) -> None:
    caller.gather()
    caller.press("4", every_ms=60)
    caller.press("4", method="sip_info", every_ms=200)
    caller.press("4", method="sip_info", every_ms=20)
    caller.press("4")
    caller.press("#")
    assert caller.result["digits"] == "44"


async def test_a_key_that_comes_again_by_the_other_method_stops_no_timer(caller: Caller) -> None:
    caller.gather(max_digits=2)
    caller.press("4", method="sip_info", every_ms=20)
    caller.press("4", every_ms=5000)
    assert (caller.result["digits"], caller.result["timed_out"]) == ("4", "inter_digit")


async def test_a_key_by_info_while_it_is_down_counts_once(caller: Caller) -> None:
    caller.gather()
    at_ns = caller.exchange.clock.now_ns()
    caller.exchange.ua.key_down(caller.call.id, at_ns=at_ns)
    caller.press("4", method="sip_info")
    caller.loop.advance(300)
    caller.exchange.ua.digit(caller.call.id, "4", at_ns=at_ns)
    caller.press("44", every_ms=150)  # pressed twice, quickly
    caller.press("#")
    assert caller.result["digits"] == "444"


async def test_a_prompt_that_cannot_be_spoken_begins_no_gather(caller: Caller) -> None:
    caller.exchange.source.refusal = UnknownVoice("nobody")
    with pytest.raises(UnknownVoice):
        caller.gather(prompt=words())
    with pytest.raises(GatherNotFound):
        caller.call.stop_gather()


async def test_a_thousand_gathers_in_a_row_leave_nothing_behind(caller: Caller) -> None:
    for _ in range(1000):
        caller.gather(max_digits=2, timeout_ms=9000)
        caller.press("12", every_ms=10)
    assert len(caller.results) == 1000
    assert {result["digits"] for result in caller.results} == {"12"}
    assert caller.loop.num_due == 1, "the timer of the longest call"
    assert not caller.call.player.queue


async def test_the_dialplans_gather_ends_the_call_with_the_digits_in_the_bye(caller: Caller) -> None:
    headers = {"X-TTS-Text": "Your%20code", "X-TTS-Gather": "max=4;finish=#"}
    exchange = caller.exchange
    call = exchange.registry.call(exchange.talking("silent", headers=headers))
    other = Caller(exchange, caller.loop, call)
    await exchange.settle()
    assert len(call.utterances) == 1
    other.press("12#")
    hangups = [each for each in exchange.ua.sent if isinstance(each, messages.Hangup)]
    assert [(each.call_id, each.digits, each.cause) for each in hangups] == [(call.id, "12", "finish_key")]


async def test_a_dialplans_gather_that_is_not_valid_has_no_digits(caller: Caller) -> None:
    headers = {"X-TTS-Gather": "max=4;min=4"}
    exchange = caller.exchange
    call = exchange.registry.call(exchange.talking("silent", headers=headers))
    Caller(exchange, caller.loop, call).press("12")
    caller.loop.advance(5000)
    hangups = [each for each in exchange.ua.sent if isinstance(each, messages.Hangup)]
    assert [(each.digits, each.cause) for each in hangups] == [("", "timeout")]


async def test_a_time_that_ran_out_after_a_question_that_failed_ends_the_call_with_error(caller: Caller) -> None:
    exchange = caller.exchange
    exchange.source.open_error = EngineFailed()
    caller.gather(prompt=words(), then="hangup")
    await exchange.settle()
    exchange.ua.finished(caller.call.id, next(iter(caller.call.utterances)), cut=True)
    caller.loop.advance(60_000)
    assert caller.result["result"] == "timeout"
    assert caller.result["prompt_error"] == "engine_failed"
    assert [each.cause for each in exchange.ua.sent if isinstance(each, messages.Hangup)] == ["error"]


async def test_a_question_that_is_heard_at_the_second_try_has_no_error(caller: Caller) -> None:
    exchange = caller.exchange
    exchange.source.open_error = EngineFailed()
    caller.gather(prompt=words(), max_tries=2)
    await exchange.settle()
    exchange.ua.finished(caller.call.id, next(iter(caller.call.utterances)), cut=True)
    exchange.source.open_error = None
    caller.press("#")
    await caller.prompt_ends()
    caller.press("#")
    assert (caller.result["tries"], caller.result["prompt_error"]) == (2, None)
