"""The disclosure of a call is heard, whole, before its first synthetic words; or they are not heard."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import asdict

from cc_tts.calls import timer
from cc_tts.calls.adoption import record as records
from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.events.types import CallDisclosed, CallDisclosureFailed
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.prompts.disclosure import is_synthetic
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.traces import accounting_line
from cc_tts.config.schema import CallsConfig, RouteConfig
from cc_tts.errors import DisclosureFailed, EngineFailed, Unprocessable
from cc_tts.speech.cache.prompt_files import CachedChunk, CachedPrompt
from cc_tts.speech.prompt import (
    AudioContent,
    Disclosure,
    IncrementalContent,
    Prompt,
    ReadyContent,
    TextContent,
    ToneContent,
    text_of,
)
from tests.fakes.exchange import Exchange
from tests.fakes.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit

LABEL = "I am a machine"
RECORDED = ReadyContent(CachedPrompt((CachedChunk(bytes(3200)),)))
MADE = ReadyContent(CachedPrompt((CachedChunk(bytes(3200)),)), "Good morning")


class Line:
    def __init__(self, exchange: Exchange, call_id: str) -> None:
        self.exchange = exchange
        self.call: Call = exchange.registry.call(call_id)

    def say(self, text: str = "Good morning", **prompt: Any) -> Utterance:
        return self.call.speak(Prompt(content=prompt.pop("content", TextContent(text)), **prompt))

    @property
    def begun(self) -> list[str]:
        ids = [command[1] for command in self.exchange.ua.commands("begin")]
        return [self.call.utterances[each].spoken_text or self._text(each) for each in ids]

    def _text(self, utterance_id: str) -> str:
        return text_of(self.call.utterances[utterance_id].prompt.content)

    @property
    def waiting(self) -> list[str]:
        return [text_of(each.prompt.content) for each in self.call.player.queue]

    async def begins(self) -> Utterance:
        await self.exchange.settle()
        head = self.call.player.queue[0]
        self.exchange.ua.speech(self.call.id, head.id, at_ns=self.exchange.clock.now_ns())
        await self.exchange.settle()
        return head

    async def ends(self, *, cut: bool = False, heard: bool = True) -> Utterance:
        head = await self.begins() if heard else self.call.player.queue[0]
        self.exchange.ua.finished(self.call.id, head.id, cut=cut)
        await self.exchange.settle()
        return head

    def events(self, kind: str) -> list[Any]:
        return [event.data for event in self.exchange.seen if event.type == kind]


def exchange_with(disclosure: str = LABEL, **route: Any) -> Exchange:
    exchange = Exchange()
    exchange.config.routes["labelled"] = RouteConfig(disclosure=disclosure, **route)
    exchange.registry.services.reload(exchange.config)
    return exchange


@pytest.fixture
async def line() -> Line:
    exchange = exchange_with()
    return Line(exchange, exchange.talking("labelled"))


async def test_it_is_heard_once_before_the_first_words(line: Line) -> None:
    said = line.say()
    assert line.waiting == [LABEL, "Good morning"]
    label = await line.ends()
    assert label.completion_cause is CompletionCause.NORMAL
    assert label.id != said.id
    await line.ends()
    line.say("What else?")
    assert line.waiting == ["What else?"]
    (event,) = line.events("call.disclosed")
    assert event == CallDisclosed(utterance_id=label.id, played_ms=400.0)
    assert line.exchange.sample("cctts_disclosures_total", result="heard") == 1


async def test_the_words_reach_the_line_only_when_it_is_heard(line: Line) -> None:
    line.say()
    await line.exchange.settle()
    assert len(line.exchange.ua.commands("begin")) == 1
    await line.begins()
    assert len(line.exchange.ua.commands("begin")) == 2  # without a gap


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(ToneContent("beep"), False, id="a tone"),
        pytest.param(RECORDED, False, id="a recorded announcement"),
        pytest.param(MADE, True, id="a text that was staged"),
    ],
)
async def test_synthetic_words_alone_need_it(line: Line, content: Any, expected: bool) -> None:
    line.say(content=content)
    assert (line.waiting[0] == LABEL) is expected
    assert len(line.waiting) == 1 + expected


async def test_a_tone_before_it_is_played_first(line: Line) -> None:
    line.say(content=ToneContent("beep"))
    line.say()
    await line.ends()
    assert (await line.ends()).is_disclosure
    assert line.waiting == ["Good morning"]


async def test_neither_keys_nor_speech_interrupt_it(line: Line) -> None:
    line.say(barge_in_speech=True)
    await line.begins()
    line.exchange.ua.digit(line.call.id, "5", at_ns=7)
    line.call.player.barge_in(8, "speech")
    assert line.waiting == [LABEL, "Good morning"]
    assert not line.exchange.ua.commands("cut")
    line.exchange.clock.advance(60_000)
    await line.ends()
    assert line.call.gather(GatherRequest(max_digits=4)).digits == "5", "typed ahead, however long it is"


async def test_the_timers_of_a_gather_stand_still_until_it_is_heard(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = VirtualLoop(line.exchange)
    monkeypatch.setattr(timer, "asyncio", loop.module)
    line.call.gather(GatherRequest(prompt=Prompt(content=TextContent("Your number, please")), max_digits=4))
    assert line.waiting == [LABEL, "Your number, please"]
    await line.begins()
    line.exchange.ua.digit(line.call.id, "5", at_ns=7)
    assert line.waiting[0] == LABEL
    loop.advance(60_000)
    assert not line.events("call.gather_complete")
    await line.ends()
    loop.advance(5001)
    (complete,) = line.events("call.gather_complete")
    assert (complete.digits, complete.timed_out) == ("5", "inter_digit")


async def test_a_prompt_that_replaces_others_leaves_it(line: Line) -> None:
    line.say("One")
    await line.begins()
    line.say("Two", queue="replace")
    assert [each for each in line.waiting if each != "One"] == [LABEL, "Two"]
    await line.ends()
    assert line.events("call.disclosed")


async def test_stop_passes_it_over_and_stopping_all_begins_anew(line: Line) -> None:
    one, two = line.say("One"), line.say("Two")
    await line.exchange.settle()
    ids, _ = await line.call.stop("current")
    assert ids == [one.id]
    assert line.waiting == [LABEL, "Two"]
    line.call.player.cancel_all()
    assert two.is_complete
    await line.ends(cut=True)
    line.say("Three")
    assert line.waiting == [LABEL, "Three"]
    assert not line.events("call.disclosed")


@pytest.mark.parametrize("is_heard", [True, False])
async def test_if_it_fails_the_words_are_not_heard_and_it_is_tried_again(line: Line, is_heard: bool) -> None:
    good = line.exchange.source.plans
    line.exchange.source.plans = {LABEL: [EngineFailed("broken")]}
    one, two, beep = line.say("One"), line.say("Two", then="hangup"), line.say(content=ToneContent("beep"))
    if is_heard:
        label = line.call.player.queue[0]
        line.exchange.ua.speech(line.call.id, label.id, at_ns=1)
    await line.exchange.settle()
    await line.ends(cut=True, heard=False)
    assert [command[1] for command in line.exchange.ua.commands("begin")] == [
        line.events("call.disclosure_failed")[0].utterance_id
    ]
    assert [each.error.code for each in (one, two) if each.error] == ["disclosure_failed"] * 2
    assert one.played_ms == two.played_ms == 0.0
    assert not beep.is_complete, "sounds behind it are played"
    (failed,) = line.events("call.disclosure_failed")
    assert failed == CallDisclosureFailed(utterance_id=failed.utterance_id, error="engine_failed")
    assert [asdict(each)["error"] for each in line.events("speak.complete")][1:] == ["disclosure_failed"] * 2
    assert line.exchange.ua.commands("hangup")  # as the second has wished
    assert line.exchange.sample("cctts_disclosures_total", result="failed") == 1
    line.exchange.source.plans = good


async def test_one_that_cannot_be_spoken_refuses_the_words() -> None:
    exchange = exchange_with("prompt:gone")
    line = Line(exchange, exchange.talking("labelled"))
    with pytest.raises(DisclosureFailed, match="gone"):
        line.say()
    assert not line.waiting


async def test_a_call_with_a_greeting_is_refused_if_it_cannot_be_spoken() -> None:
    exchange = exchange_with("prompt:gone", greeting="Good morning")
    exchange.ua.incoming("labelled")
    assert exchange.ua.commands("hangup")[0][1] == 500
    assert not exchange.ua.commands("answer")


async def test_a_greeting_is_preceded_by_it_and_nothing_is_heard_before_the_answer() -> None:
    exchange = exchange_with(greeting="Good morning", voice="de", language="de")
    line = Line(exchange, exchange.ua.incoming("labelled"))
    assert line.waiting == [LABEL, "Good morning"]
    label = line.call.player.queue[0].prompt.content
    assert isinstance(label, TextContent)
    assert (label.voice, label.language) == ("de", "de")


@pytest.mark.parametrize(
    ("of_route", "of_all", "expected"),
    [
        ("", LABEL, Disclosure(LABEL)),
        ("Robot here", LABEL, Disclosure("Robot here")),
        ("off", LABEL, None),
        ("", "", None),
        ("prompt:robot", "", Disclosure(prompt_id="robot")),
    ],
)
async def test_a_route_has_its_own_or_that_of_all_calls_or_none(
    of_route: str, of_all: str, expected: Disclosure | None
) -> None:
    exchange = exchange_with(of_route)
    exchange.registry.services.reload(replace(exchange.config, calls=CallsConfig(disclosure=of_all)))
    assert exchange.registry.call(exchange.ua.incoming("labelled")).disclosure == expected


async def test_calls_that_are_placed_have_that_of_all_calls_or_their_own() -> None:
    exchange = Exchange(disclosure=LABEL)
    usual = await exchange.registry.originate(OriginateRequest(to="sip:a@127.0.0.1"))
    own = await exchange.registry.originate(OriginateRequest(to="sip:a@127.0.0.1", disclosure=Disclosure("Robot")))
    assert (usual.disclosure, own.disclosure) == (Disclosure(LABEL), Disclosure("Robot"))
    usual.speak(Prompt(content=TextContent("Hello")))
    assert [text_of(each.prompt.content) for each in usual.player.queue] == [LABEL, "Hello"]


async def test_no_call_is_placed_whose_disclosure_cannot_be_spoken() -> None:
    exchange = Exchange(disclosure="prompt:gone")
    with pytest.raises(DisclosureFailed):
        await exchange.registry.originate(OriginateRequest(to="sip:a@127.0.0.1"))
    with pytest.raises(Unprocessable) as refused:
        request = OriginateRequest(to="sip:a@127.0.0.1", disclosure=Disclosure(prompt_id="other"))
        await exchange.registry.originate(request)
    assert [each.pointer for each in refused.value.field_errors] == ["/disclosure"]
    assert not exchange.ua.commands("originate")


def test_text_that_is_still_to_come_is_synthetic_and_the_audio_of_an_application_is_not() -> None:
    text, audio = cast("Any", SimpleNamespace(text="")), cast("Any", None)
    assert is_synthetic(IncrementalContent(TextContent(""), text))
    assert not is_synthetic(AudioContent(audio))


@pytest.mark.parametrize("is_heard", [True, False])
async def test_the_next_server_says_it_if_it_was_not_heard(line: Line, is_heard: bool) -> None:
    line.say()
    if is_heard:
        await line.ends()
    after = Line(Exchange.adopted(line.exchange.snapshot(line.call.id)), line.call.id)
    after.say("What else?")
    assert after.waiting == (["What else?"] if is_heard else [LABEL, "What else?"])


async def test_the_instant_is_in_the_accounting_line_and_in_the_record_for_the_next_server(line: Line) -> None:
    line.say()
    await line.ends()
    at_s = line.call.disclosed_at_s
    assert at_s is not None
    kept = records.decode(line.exchange.ua.records[line.call.id])
    assert kept is not None
    assert (kept.disclosed_at_s, kept.disclosure) == (at_s, Disclosure(LABEL))
    line.exchange.ua.ended(line.call.id)
    assert line.call.ending is not None
    assert accounting_line(line.call, line.call.ending).disclosed == round(at_s, 3)
