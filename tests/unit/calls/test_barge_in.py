"""What the caller's speech does to prompts, with real playout buffers, in virtual time."""

import asyncio
from typing import Any

import msgspec
import pytest

from cc_tts.calls.audio.barge_in import ANSWER_MS
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, policy_of
from cc_tts.clock import NS_PER_MS
from cc_tts.config.schema import BargeInBySpeech, RouteConfig, SpeechBargeIn
from cc_tts.errors import WrongState
from cc_tts.speech.prompt import Prompt, PromptDefaults, TextContent
from cc_tts.ua import messages
from cc_tts.vad.client import SpeechNotHeard
from tests.fakes.exchange import ROUTES
from tests.fakes.live_call import LiveCall
from tests.support.virtual_time import Decorator, in_virtual_time

pytestmark = pytest.mark.unit

WORDS = "one two three four five six seven eight nine ten"
"""Two seconds: 200 ms a word."""
PAUSE = SpeechBargeIn(action="pause")
NOBODY = "silent"


class Line(LiveCall):
    speaks = False

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.vad = self.exchange.vad
        self.begun_ns = self.clock.now_ns()

    def speak(self, text: str = WORDS, *, speech: BargeInBySpeech | None = None, **prompt: Any) -> Utterance:
        return self.call.speak(Prompt(content=TextContent(text), barge_in_speech=speech, **prompt))

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns()

    def started(self, ms_ago: int = 300) -> int:
        """The VAD process has heard speech; returns its onset."""
        onset_ns = self.now_ns - ms_ago * NS_PER_MS
        self.vad.started(self.call.id, onset_ns)
        return onset_ns

    def stopped(self, onset_ns: int, *, duration_ms: int = 400) -> None:
        self.vad.stopped(self.call.id, onset_ns, onset_ns + duration_ms * NS_PER_MS)

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        found = [event for event in self.exchange.seen if event.type in kinds]
        return [{"type": event.type} | msgspec.to_builtins(event.data) for event in found]

    @property
    def kinds(self) -> list[str]:
        wanted = ("call.speech_started", "call.speech_stopped", "speak.paused", "speak.resumed", "speak.complete")
        return [event.type for event in self.exchange.seen if event.type in wanted]

    async def after(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    @property
    def is_listened_to(self) -> bool:
        return self.call.id in self.vad.legs

    @property
    def heard_ms(self) -> float:
        heard = bytes(self.ua.legs[self.call.id].heard)
        return sum(any(heard[at : at + 320]) for at in range(0, len(heard), 320)) * 20


def on_a_line(**given: Any) -> Decorator[Line]:
    return in_virtual_time(lambda: Line.made(**given))


def test_the_nearest_wish_wins() -> None:
    assert policy_of(None, None) is None
    assert policy_of(None, True) == SpeechBargeIn()
    assert policy_of(False, True) is None
    assert policy_of(PAUSE, False) is PAUSE


@on_a_line()
async def test_speech_stops_the_prompt_and_those_behind_it_that_allow_it(line: Line) -> None:
    first, protected, third = line.speak(speech=True), line.speak(speech=False), line.speak(speech=True)
    await line.after(1000)
    onset_ns = line.started()
    assert line.kinds == ["call.speech_started", "speak.complete"], "the third was waiting"
    await line.after(60)
    (speech,) = line.events("call.speech_started")
    complete = line.events("speak.complete")
    assert [each["utterance_id"] for each in complete] == [third.id, first.id]
    for each in complete:
        assert (each["completion_cause"], each["interrupted_by"]) == ("barge_in", "speech")
        assert each["speech_id"] == speech["speech_id"]
    assert speech["during"] == first.id
    assert speech["at_ms"] == pytest.approx((onset_ns - line.begun_ns) / NS_PER_MS)
    assert complete[1]["spoken_text"] == "one two three four five"
    assert line.exchange.sample("cctts_barge_in_seconds_sum", by="speech") == pytest.approx(0.32, abs=0.025)
    await line.after(1000)
    assert protected.state == "in_progress"
    line.stopped(onset_ns)
    assert line.events("call.speech_stopped")[0]["duration_ms"] == 400.0


@on_a_line()
async def test_a_protected_prompt_is_not_touched_and_speech_is_told(line: Line) -> None:
    line.call.update(defaults=PromptDefaults(barge_in_speech=True), metadata={})
    protected, behind = line.speak(speech=False), line.speak()
    await line.after(500)
    line.started()
    await line.after(1000)
    assert line.kinds == ["call.speech_started"]
    assert line.events("call.speech_started")[0]["during"] == protected.id
    assert (protected.state, behind.state) == ("in_progress", "pending")


@on_a_line()
async def test_speech_while_nothing_is_said(line: Line) -> None:
    line.call.update(defaults=PromptDefaults(barge_in_speech=True), metadata={"who": "me"})
    onset_ns = line.started()
    await line.after(500)
    line.stopped(onset_ns)
    started, stopped = line.events("call.speech_started", "call.speech_stopped")
    assert started["during"] is None
    assert started["metadata"] == {"who": "me"}
    assert started["speech_id"] == stopped["speech_id"]
    assert line.is_listened_to


@on_a_line()
async def test_a_call_is_listened_to_while_it_must_be(line: Line) -> None:
    listened = [line.is_listened_to]
    line.speak()
    listened.append(line.is_listened_to)
    waiting = line.speak(speech=True)
    listened.append(line.is_listened_to)
    await line.after(4500)
    listened.append(line.is_listened_to)
    assert waiting.is_complete
    assert listened == [False, False, True, False]
    assert line.ua.commands("listen") == [(line.call.id, ("in", "out")), (line.call.id, ())]


@on_a_line()
async def test_it_is_listened_to_until_the_speech_is_over(line: Line) -> None:
    line.speak(speech=True)
    await line.after(500)
    onset_ns = line.started()
    await line.after(100)
    assert not line.call.player.queue
    assert line.is_listened_to
    line.stopped(onset_ns)
    assert not line.is_listened_to
    assert line.kinds == ["call.speech_started", "speak.complete", "call.speech_stopped"]


@on_a_line()
async def test_audio_of_both_directions_goes_to_the_vad_process(line: Line) -> None:
    line.speak(speech=True)
    for direction in ("in", "out"):
        audio = messages.CallAudio(line.call.id, direction, 7)
        line.exchange.registry.on_ua_message(audio, bytes(320))
    assert line.vad.audio == [(line.call.id, 7, False), (line.call.id, 7, True)]


@on_a_line()
async def test_how_it_is_listened_to_is_what_the_prompt_wants(line: Line) -> None:
    line.call.update(defaults=PromptDefaults(barge_in_speech=SpeechBargeIn(min_speech_ms=111)), metadata={})
    assert line.vad.listening(line.call.id).min_speech_ms == 111
    line.speak("one", speech=SpeechBargeIn(min_speech_ms=222, threshold=0.7))
    line.speak("two", speech=False)
    line.speak("three", speech=SpeechBargeIn(min_speech_ms=444, action="pause", confirm_ms=999))
    wanted = []
    for _ in range(3):
        await line.after(100)
        wanted.append(line.vad.listening(line.call.id))
        await line.after(100)
    assert [each.min_speech_ms for each in wanted] == [222, 111, 444]
    assert [each.confirm_ms for each in wanted] == [0, 0, 999]
    assert wanted[0].threshold == 0.7
    assert {each.silence_ms for each in wanted} == {550}


@on_a_line()
async def test_nothing_is_heard_at_the_begin_of_a_prompt(line: Line) -> None:
    line.speak(speech=SpeechBargeIn(guard_ms=250))
    assert line.vad.listening(line.call.id).deaf_until_ns == 0
    await line.after(200)
    first = next(iter(line.call.utterances.values()))
    assert first.first_speech_ns is not None
    assert line.vad.listening(line.call.id).deaf_until_ns == first.first_speech_ns + 250 * NS_PER_MS


@on_a_line()
async def test_a_prompt_is_held_and_goes_on_with_the_word_that_was_said(line: Line) -> None:
    prompt = line.speak(speech=PAUSE, client_state="mine")
    await line.after(950)
    onset_ns = line.started()
    await line.after(500)
    held_ms = line.heard_ms
    line.stopped(onset_ns, duration_ms=300)
    await line.after(500)
    assert line.heard_ms == held_ms
    assert line.kinds == ["call.speech_started", "speak.paused", "call.speech_stopped"]
    await line.after(600)
    assert line.kinds[-1] == "speak.resumed"
    (paused,), (resumed,) = line.events("speak.paused"), line.events("speak.resumed")
    assert (paused["by"], paused["utterance_id"], paused["client_state"]) == ("speech", prompt.id, "mine")
    assert resumed["played_ms"] == 800.0
    await line.after(2000)
    (complete,) = line.events("speak.complete")
    assert (complete["completion_cause"], complete["played_ms"]) == ("normal", 2000.0)
    assert complete["spoken_text"] == WORDS
    assert line.heard_ms == pytest.approx(2000 + (held_ms - 800), abs=20)
    assert line.exchange.sample("cctts_false_interruptions_total") == 1


@on_a_line()
async def test_silence_is_counted_from_the_end_of_the_speech(line: Line) -> None:
    line.speak(speech=SpeechBargeIn(action="pause", resume_after_ms=1500))
    await line.after(500)
    onset_ns = line.started()
    await line.after(550)
    line.stopped(onset_ns, duration_ms=300)
    end_ns = onset_ns + 300 * NS_PER_MS
    while not line.events("speak.resumed"):
        await line.after(10)
    assert (line.now_ns - end_ns) / NS_PER_MS == pytest.approx(1500, abs=10)


@on_a_line()
async def test_a_prompt_that_is_held_ends_when_the_caller_goes_on(line: Line) -> None:
    first, behind = line.speak(speech=PAUSE), line.speak("eleven", speech=False)
    await line.after(950)
    onset_ns = line.started()
    await line.after(300)
    line.vad.confirmed(line.call.id, onset_ns)
    await line.after(60)
    assert line.kinds == ["call.speech_started", "speak.paused", "speak.complete"]
    assert first.completion_cause is CompletionCause.BARGE_IN
    assert line.exchange.sample("cctts_barge_in_seconds_sum", by="speech") == pytest.approx(0.32, abs=0.025)
    await line.after(400)
    assert behind.completion_cause is CompletionCause.NORMAL, "the line goes on"
    assert line.exchange.sample("cctts_false_interruptions_total") == 0


@on_a_line()
async def test_speech_in_pieces_adds_up(line: Line) -> None:
    line.speak(speech=PAUSE)
    await line.after(500)
    onset_ns = line.started()
    assert line.vad.listening(line.call.id).confirm_ms == 600
    await line.after(800)
    line.stopped(onset_ns, duration_ms=350)
    assert line.vad.listening(line.call.id).confirm_ms == 250
    await line.after(600)
    again_ns = line.started()
    await line.after(3000)
    assert line.kinds.count("speak.resumed") == 0, "who speaks again is waited for"
    line.vad.confirmed(line.call.id, again_ns)
    await line.after(60)
    (complete,) = line.events("speak.complete")
    assert complete["completion_cause"] == "barge_in"
    assert complete["speech_id"] == line.events("speak.paused")[0]["speech_id"]


@on_a_line()
async def test_a_prompt_may_be_held_for_good(line: Line) -> None:
    line.speak(speech=SpeechBargeIn(action="pause", resume_after_ms=None))
    await line.after(500)
    line.stopped(line.started())
    await line.after(60_000)
    assert line.kinds == ["call.speech_started", "speak.paused", "call.speech_stopped"]
    line.call.set_paused(paused=False)
    await line.after(2500)
    assert line.kinds[-2:] == ["speak.resumed", "speak.complete"]
    with pytest.raises(WrongState):
        line.call.set_paused(paused=False)


@on_a_line()
async def test_what_the_client_paused_stays_so(line: Line) -> None:
    line.speak(speech=PAUSE)
    await line.after(500)
    onset_ns = line.started()
    line.call.set_paused(paused=True)
    line.stopped(onset_ns)
    await line.after(3000)
    assert line.kinds[-1] == "speak.resumed"
    heard_ms = line.heard_ms
    await line.after(1000)
    assert line.heard_ms == heard_ms
    line.call.set_paused(paused=False)
    await line.after(3000)
    assert line.kinds[-1] == "speak.complete"


@on_a_line()
async def test_what_is_held_may_end_otherwise(line: Line) -> None:
    held = line.speak(speech=PAUSE)
    await line.after(500)
    onset_ns = line.started()
    await line.after(100)
    new = line.speak("eleven", queue="replace")
    await line.after(60)
    assert (held.completion_cause, held.interrupted_by) == (CompletionCause.CANCELLED, "replace")
    line.stopped(onset_ns)
    await line.after(500)
    assert new.completion_cause is CompletionCause.NORMAL
    assert "speak.resumed" not in line.kinds
    assert not line.is_listened_to


@on_a_line()
async def test_a_key_ends_what_speech_holds(line: Line) -> None:
    held = line.speak(speech=PAUSE)
    await line.after(500)
    line.started()
    line.ua.digit(line.call.id, "5", at_ns=line.now_ns)
    await line.after(60)
    (complete,) = line.events("speak.complete")
    assert (complete["completion_cause"], complete["interrupted_by"]) == ("barge_in", "dtmf")
    assert held.speech_id is None


@on_a_line(barge_in_speech=True)
async def test_who_speaks_already_interrupts_by_going_on(line: Line) -> None:
    onset_ns = line.started()
    prompt = line.speak()
    await line.after(300 + 550 + ANSWER_MS - 100)
    assert "speak.complete" not in line.kinds
    await line.after(300)
    assert (prompt.completion_cause, prompt.interrupted_by) == (CompletionCause.BARGE_IN, "speech")
    line.stopped(onset_ns, duration_ms=2000)
    assert line.kinds == ["call.speech_started", "speak.complete", "call.speech_stopped"]


@on_a_line(barge_in_speech=True)
async def test_who_speaks_already_and_went_on_long_enough_ends_a_prompt_that_would_be_held(line: Line) -> None:
    line.call.update(defaults=PromptDefaults(barge_in_speech=PAUSE), metadata={})
    onset_ns = line.clock.now_ns()
    line.vad.started(line.call.id, onset_ns)
    line.vad.confirmed(line.call.id, onset_ns)
    line.speak()
    await asyncio.sleep(2.0)
    assert "speak.paused" not in line.kinds
    assert line.events("speak.complete")[0]["interrupted_by"] == "speech"


@on_a_line(barge_in_speech=True)
async def test_who_has_just_stopped_does_not_interrupt_the_answer(line: Line) -> None:
    onset_ns = line.started()
    prompt = line.speak()
    await line.after(500)
    line.stopped(onset_ns)
    await line.after(3000)
    assert prompt.completion_cause is CompletionCause.NORMAL


@on_a_line(barge_in_speech=True)
async def test_a_prompt_that_is_not_heard_yet_is_dropped(line: Line) -> None:
    prompt = line.speak()
    line.started()
    await line.after(100)
    assert prompt.interrupted_by == "speech"
    assert line.events("call.speech_started")[0]["during"] is None


@on_a_line(barge_in_speech=True)
async def test_a_held_call_is_not_listened_to(line: Line) -> None:
    line.started()
    line.ua.report(messages.HoldChanged(call_id=line.call.id, by="remote"))
    assert line.kinds == ["call.speech_started", "call.speech_stopped"]
    assert not line.is_listened_to
    line.ua.report(messages.HoldChanged(call_id=line.call.id, by="none"))
    assert line.is_listened_to


@on_a_line(barge_in_speech=PAUSE)
async def test_the_end_of_the_call_ends_everything(line: Line) -> None:
    line.speak()
    await line.after(500)
    line.started()
    line.ua.ended(line.call.id)
    kinds = line.exchange.kinds(line.call.id)[-3:]
    assert kinds == ["call.speech_stopped", "speak.complete", "call.terminated"]
    assert not line.is_listened_to
    await line.after(3000)
    assert line.exchange.kinds(line.call.id)[-1] == "call.terminated"


@on_a_line(barge_in_speech=True)
async def test_the_call_goes_on_without_the_vad_process(line: Line) -> None:
    """Its client says that speech has stopped."""
    prompt = line.speak()
    await line.after(500)
    onset_ns = line.started()
    await line.after(100)
    line.stopped(onset_ns)
    prompt = line.speak()
    await line.after(3000)
    assert prompt.completion_cause is CompletionCause.NORMAL


@on_a_line()
async def test_without_the_model_nothing_can_be_interrupted_by_speech(line: Line) -> None:
    line.vad.is_installed = False
    with pytest.raises(SpeechNotHeard):
        line.speak(speech=True)
    with pytest.raises(SpeechNotHeard):
        line.call.update(defaults=PromptDefaults(barge_in_speech=PAUSE), metadata={})
    assert line.call.defaults == PromptDefaults()
    assert not line.call.player.queue
    line.speak(speech=False)
    line.call.update(defaults=PromptDefaults(barge_in_speech=False), metadata={})


def test_the_route_says_it_for_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROUTES, "talk", RouteConfig(greeting=WORDS, barge_in_speech=PAUSE))

    @on_a_line(user="talk")
    async def run(line: Line) -> None:
        assert line.call.defaults.barge_in_speech == PAUSE
        await line.after(500)
        line.started()
        assert line.kinds == ["call.speech_started", "speak.paused"]

    run()
