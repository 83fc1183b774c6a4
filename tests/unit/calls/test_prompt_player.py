"""The flow of prompts on one call: order, back-pressure, stop, barge-in, failure, end. Nothing here takes time."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts import logs
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.call_state import UtteranceState
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.prompts.player import MAX_ON_LINE, PromptPlayer
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, UtteranceError
from cc_tts.calls.services import CallServices
from cc_tts.clock import NS_PER_MS
from cc_tts.config.schema import Config, PlayoutConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineFailed, EngineOverloaded
from cc_tts.metrics import Metrics
from cc_tts.speech.incremental.text import IncrementalText, segmenting_of
from cc_tts.speech.prompt import Content, IncrementalContent, Prompt, TextContent, ToneContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.waiting import until
from tests.fakes.fake_engine import FakeEngine, FakeSource, Step, pcm
from tests.fakes.fake_line import FakeClock, FakeLine
from tests.fakes.fake_vad import FakeVad
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

WINDOW_MS = 1000
CHUNK_MS = 200
MAX_TURNS = 100_000
CONFIG = Config(playout=PlayoutConfig(window_ms=WINDOW_MS), tts=TtsConfig(overload_wait_ms=0))


class Stage:
    """A player with everything around it made up."""

    def __init__(self) -> None:
        self.line = FakeLine()
        self.source = FakeSource()
        self.clock = FakeClock()
        self.completed: list[Utterance] = []
        self.services = services = CallServices(
            config=CONFIG,
            ua=cast("Any", self.line),
            source=cast("Any", self.source),
            vad=cast("Any", FakeVad()),
            events=EventBus(self.clock),
            metrics=Metrics(),
            clock=self.clock,
        )
        self.player = PromptPlayer(
            CallInfo(services=services, id="c", direction="inbound", caller="", callee="", sip_call_id="", headers={}),
            on_started=lambda *_: None,
            on_complete=self.completed.append,
        )
        self.line.listener = self.player

    def say(self, text: str = "one", *, content: Content | None = None, **prompt: Any) -> Utterance:
        utterance = Utterance(
            id=f"u{len(self.completed) + len(self.player.queue)}",
            call_id="c",
            prompt=Prompt(content=content or TextContent(text), **prompt),
            voice="en-us",
            engine="fake",
            accepted_at_s=0.0,
            origin_ns=self.clock.now_ns(),
            barge_in_dtmf=True,
        )
        self.player.enqueue(utterance)
        return utterance

    def waits_for_engine(self, wait_ms: float) -> None:
        self.services.config = Config(playout=CONFIG.playout, tts=TtsConfig(overload_wait_ms=wait_ms))

    @property
    def recovered(self) -> list[tuple[int, int, str]]:
        events = [event.data for event in self.services.events.of_call("c")]
        told = [each for each in events if isinstance(each, types.SpeakRecovered)]
        return [(each.text_chunk, each.char_start, each.reason) for each in told]

    async def settle(self) -> None:
        """Let every task go as far as it can."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def play_all(self) -> None:
        for _ in range(MAX_TURNS):
            await self.settle()
            if not self.player.queue:
                return
            self.line.play(100)
        raise AssertionError(f"never drained: {self.player.queue}")

    @property
    def causes(self) -> list[tuple[str, str | None]]:
        return [(utterance.id, utterance.completion_cause) for utterance in self.completed]

    def must_be_empty(self) -> None:
        assert not self.player.queue
        assert all(stream.is_over or stream.num_cancels for stream in self.source.streams)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    stage.player.close(CompletionCause.CALL_ENDED)
    await stage.settle()


async def test_prompts_are_played_in_order_and_without_a_gap(stage: Stage) -> None:
    stage.player.open_line(0)
    first, second = stage.say("one two"), stage.say("three")
    await stage.settle()
    # the second is on the line before the first has played a single frame
    assert stage.line.begun == [first.id, second.id]
    assert [each.is_finished for each in stage.line.queue] == [True, True]
    assert (first.state, second.state) == (UtteranceState.IN_PROGRESS, UtteranceState.PENDING)
    stage.line.play(500)
    assert (first.state, second.state) == (UtteranceState.COMPLETE, UtteranceState.IN_PROGRESS)
    assert second.played_ms == 100
    await stage.play_all()
    assert stage.causes == [(first.id, "normal"), (second.id, "normal")]
    assert (first.played_ms, first.spoken_text) == (400, "one two")
    stage.must_be_empty()


async def test_nothing_goes_to_a_line_that_is_not_open(stage: Stage) -> None:
    utterance = stage.say()
    await stage.settle()
    assert (stage.line.begun, stage.source.opened, utterance.state) == ([], [], UtteranceState.PENDING)
    stage.player.open_line(0)
    await stage.play_all()
    assert stage.causes == [(utterance.id, "normal")]


async def test_no_more_than_the_window_is_ahead(stage: Stage) -> None:
    stage.player.open_line(0)
    stage.say("word " * 50)
    stage.say("word " * 50)
    await stage.settle()
    assert stage.line.buffered_ms == WINDOW_MS + CHUNK_MS
    assert stage.source.streams[0].num_read == WINDOW_MS / CHUNK_MS + 2  # one waits in the player's hand
    stage.line.play(100)
    await stage.settle()
    assert stage.line.buffered_ms == WINDOW_MS + CHUNK_MS - 100
    await stage.play_all()
    assert stage.line.most_buffered_ms <= WINDOW_MS + CHUNK_MS
    assert [utterance.played_ms for utterance in stage.completed] == [10_000, 10_000]


async def test_stop_current(stage: Stage) -> None:
    stage.player.open_line(0)
    first, second = stage.say("word " * 50), stage.say("two")
    await stage.settle()
    stage.line.play(250)
    assert stage.player.discard(first, CompletionCause.CANCELLED) == WINDOW_MS + CHUNK_MS - 250
    assert stage.player.discard(first, CompletionCause.BARGE_IN) == 0  # the first cause counts
    assert not first.is_complete, "the line has not said yet that it is silent"
    await stage.play_all()
    assert stage.causes == [(first.id, "cancelled"), (second.id, "normal")]
    assert stage.line.cuts == [first.id]
    assert first.played_ms == 250
    assert stage.source.streams[0].num_cancels
    stage.must_be_empty()


async def test_stop_before_the_feed_has_run(stage: Stage) -> None:
    stage.player.open_line(0)
    first = stage.say("one")
    stage.player.discard(first, CompletionCause.CANCELLED)
    second = stage.say("two")
    await stage.play_all()
    assert stage.causes == [(first.id, "cancelled"), (second.id, "normal")]
    assert stage.source.opened == [TextContent("two")]
    stage.must_be_empty()


async def test_a_cut_by_the_line_itself_ends_the_feed(stage: Stage) -> None:
    stage.player.open_line(0)
    first, second = stage.say("word " * 1000), stage.say("two")
    await stage.settle()
    stage.line.cut_by_itself()
    await stage.play_all()
    assert stage.causes == [(first.id, "cancelled"), (second.id, "normal")]
    assert stage.source.streams[0].num_read < 10
    stage.must_be_empty()


@pytest.mark.parametrize("known", [True, False])
async def test_the_engine_fails_in_the_middle(stage: Stage, *, known: bool) -> None:
    error: Exception = EngineOverloaded("too much") if known else ValueError("secret detail")
    stage.source.plans["bad"] = [SpeechChunk(pcm(200), "bad "), error]
    stage.waits_for_engine(1000.0)
    stage.player.open_line(0)
    first, second = stage.say("bad"), stage.say("good")
    await stage.play_all()
    assert stage.causes == [(first.id, "error"), (second.id, "normal")]
    code, detail = ("engine_overloaded", "too much") if known else (EngineFailed.code, EngineFailed.title)
    assert first.error == UtteranceError(code, detail)
    assert stage.source.streams[0].num_cancels, "the failed stream is freed"
    assert len(stage.source.opened) == 2, "what has been heard is not begun anew"
    stage.must_be_empty()


@pytest.mark.parametrize(
    ("error", "level", "has_traceback"),
    [
        (EngineOverloaded("too much"), "warning", False),
        (EngineFailed("no audio for 3.2 s"), "error", False),
        (ValueError("unforeseen"), "error", True),
    ],
    ids=["refused", "stalled", "a fault"],
)
async def test_only_a_fault_is_logged_with_a_traceback(
    stage: Stage, error: Exception, level: str, *, has_traceback: bool
) -> None:
    stage.source.plans["bad"] = [error]
    stage.player.open_line(0)
    with capture_logs() as lines:
        stage.say("bad")
        await stage.play_all()
    (line,) = [line for line in lines if line["event"] == "utterance_failed"]
    assert (line["log_level"], bool(line.get("exc_info"))) == (level, has_traceback)


async def test_a_failure_is_logged_with_the_ids_of_its_own_request(stage: Stage) -> None:
    stage.source.plans["bad"] = [SpeechChunk(pcm(200), "bad "), EngineFailed("it broke")]
    stage.player.open_line(0)
    with capture_logs() as lines:
        logs.bind(request_id="req_first")
        stage.say("good")
        logs.bind(request_id="req_second")
        failing = stage.say("bad")
        await stage.play_all()
    (line,) = [line for line in lines if line["event"] == "utterance_failed"]
    assert (line["utterance_id"], line["request_id"]) == (failing.id, "req_second")


async def test_a_prompt_without_any_audio_is_over_at_once(stage: Stage) -> None:
    stage.player.open_line(0)
    first, second = stage.say(""), stage.say("two")
    await stage.play_all()
    assert stage.causes == [(first.id, "normal"), (second.id, "normal")]


async def test_repeat_with_delay(stage: Stage) -> None:
    stage.player.open_line(0)
    utterance = stage.say("one two", repeat=3, delay_ms=500)
    await stage.play_all()
    assert utterance.played_ms == 3 * 400 + 2 * 500
    assert utterance.spoken_text == "one two"
    assert len(stage.source.opened) == 5


@pytest.mark.parametrize(("repeat", "delay_ms"), [(sys.maxsize, 0), (100, 100), (100, 700)])
async def test_max_duration(stage: Stage, repeat: int, delay_ms: int) -> None:
    stage.player.open_line(0)
    utterance = stage.say("one two", repeat=repeat, delay_ms=delay_ms, max_duration_ms=950)
    cut_off = stage.say("one two three", max_duration_ms=250)
    await stage.play_all()
    assert utterance.played_ms == 950
    assert utterance.completion_cause is cut_off.completion_cause is CompletionCause.NORMAL
    assert cut_off.spoken_text == "one", "what is cut off was not said"
    stage.must_be_empty()


async def test_close_completes_everything_once(stage: Stage) -> None:
    stage.player.open_line(0)
    said = [stage.say("word " * 20) for _ in range(30)]
    await stage.settle()
    stage.line.play(150)
    stage.player.discard(said[0], CompletionCause.BARGE_IN)
    stage.player.close(CompletionCause.CALL_ENDED)
    assert stage.causes == [(said[0].id, "barge_in"), *((utterance.id, "call_ended") for utterance in said[1:])]
    stage.player.close(CompletionCause.CALL_ENDED)
    stage.line.play(10_000)  # reports that were on their way
    await stage.settle()
    assert len(stage.completed) == 30
    assert said[0].played_ms == 150
    stage.must_be_empty()


async def test_the_line_is_gone_while_it_is_fed(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.source.plans["slow"] = [SpeechChunk(pcm(200), "slow "), gate, SpeechChunk(pcm(200))]
    stage.player.open_line(0)
    utterance = stage.say("slow")
    await stage.settle()
    stage.line.is_down = True
    gate.set()
    await stage.settle()
    assert not utterance.is_complete
    stage.player.close(CompletionCause.CALL_ENDED)
    assert (utterance.completion_cause, utterance.error) == (CompletionCause.CALL_ENDED, None)
    await stage.settle()
    stage.must_be_empty()


async def test_a_thousand_tiny_prompts_drain_in_order(stage: Stage) -> None:
    stage.player.open_line(0)
    said = [stage.say(content=ToneContent("beep", 20)) for _ in range(1000)]
    for _ in range(MAX_TURNS):
        await asyncio.sleep(0)
        assert len(stage.line.queue) <= MAX_ON_LINE
        stage.line.play(40)
        if not stage.player.queue:
            break
    assert stage.causes == [(utterance.id, "normal") for utterance in said]
    await stage.settle()
    stage.must_be_empty()


@pytest.mark.parametrize("cause", [CompletionCause.CANCELLED, CompletionCause.BARGE_IN])
async def test_behind_a_prompt_that_is_cut_the_time_counts_from_the_request(
    stage: Stage, cause: CompletionCause
) -> None:
    stage.player.open_line(0)
    first, second = stage.say("one two three"), stage.say("four")
    await stage.settle()
    stage.line.play(100)
    for earlier in (second, first):
        stage.player.discard(earlier, cause)
    accepted_ns = stage.clock.now_ns()
    third, fourth = stage.say("five"), stage.say("six")
    stage.clock.advance(40)
    await stage.settle()
    stage.line.play(20)
    third.first_speech_ns = stage.clock.now_ns()
    assert third.origin_ns == accepted_ns
    assert third.time_to_first_audio_ms == 40
    stage.clock.advance(300)
    stage.line.play(200)
    assert fourth.origin_ns == accepted_ns + 340_000_000, "it waited for the third"
    await stage.play_all()
    stage.must_be_empty()


async def test_the_time_to_first_audio_counts_from_the_turn_of_a_queued_prompt(stage: Stage) -> None:
    stage.player.open_line(0)
    first = stage.say("one")
    second = stage.say("two")
    accepted_ns = stage.clock.now_ns()
    stage.clock.advance(300)
    await stage.settle()
    assert (first.origin_ns, second.origin_ns) == (accepted_ns, accepted_ns)
    assert first.time_to_first_pcm_ms == 300
    stage.clock.advance(700)
    stage.line.play(200)
    assert second.origin_ns == accepted_ns + 1_000_000_000
    assert second.time_to_first_pcm_ms == 0, "its PCM was there before its turn came"
    stage.line.play(200)
    third = stage.say("three")
    stage.clock.advance(50)
    await stage.settle()
    assert third.time_to_first_pcm_ms == 50, "nothing was before it: it counts from its acceptance"


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run outside a test's own loop, once an example."""
    with asyncio.Runner() as runner:
        runner.run(coroutine)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 12)),
        st.tuples(st.just("say_bad"), st.integers(0, 2)),
        st.tuples(st.just("discard"), st.integers(0, 12)),
        st.tuples(st.just("barge_in"), st.just(0)),
        st.tuples(st.just("play"), st.integers(1, 2500)),
        st.tuples(st.just("turn"), st.integers(1, 30)),
        st.tuples(st.just("cut_by_itself"), st.just(0)),
        st.tuples(st.just("down"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(OPERATIONS, st.booleans())
def test_every_utterance_completes_once_whatever_happens(
    operations: list[tuple[str, int]],
    open_late: bool,
) -> None:
    run(whatever_happens(operations, open_late=open_late))


async def whatever_happens(operations: list[tuple[str, int]], *, open_late: bool) -> None:  # noqa: C901, PLR0912
    stage = Stage()
    said: list[Utterance] = []
    stage.source.plans["bad"] = [SpeechChunk(pcm(200), "bad "), ValueError("broken")]
    is_closed = False
    if not open_late:
        stage.player.open_line(0)
    for number, (operation, amount) in enumerate(operations):
        if open_late and number == 5:
            stage.player.open_line(0)
        queue = stage.player.queue
        match operation:
            case "say" if not is_closed:
                said.append(stage.say("word " * amount))
            case "say_bad" if not is_closed:
                said.append(stage.say("bad", repeat=amount + 1))
            case "discard" if amount < len(queue) and not stage.line.is_down:
                stage.player.discard(queue[amount], CompletionCause.CANCELLED)
            case "barge_in" if not stage.line.is_down:
                for utterance in reversed(queue):
                    stage.player.discard(utterance, CompletionCause.BARGE_IN)
            case "play" if not stage.line.is_down:
                stage.line.play(amount)
            case "turn":
                for _ in range(amount):
                    await asyncio.sleep(0)
            case "cut_by_itself":
                stage.line.cut_by_itself()
            case "down":
                stage.line.is_down = True
            case "close":
                stage.player.close(CompletionCause.CALL_ENDED)
                is_closed = True
        assert len({utterance.id for utterance in stage.completed}) == len(stage.completed)
        assert stage.line.most_buffered_ms <= WINDOW_MS + CHUNK_MS
        in_progress = [utterance for utterance in said if utterance.state is UtteranceState.IN_PROGRESS]
        assert len(in_progress) <= 1
    stage.player.close(CompletionCause.CALL_ENDED)
    await stage.settle()
    assert {utterance.id for utterance in stage.completed} == {utterance.id for utterance in said}
    assert len(stage.completed) == len(said)
    assert all(utterance.completion_cause is not None for utterance in said)
    assert stage.line.heard == sorted(stage.line.heard, key=lambda id_: int(id_[1:]))
    stage.must_be_empty()


@pytest.mark.parametrize("says_so_late", [False, True])
async def test_a_full_engine_is_waited_for_and_then_the_prompt_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, says_so_late: bool
) -> None:
    slept = await _overload(stage, monkeypatch, room_after=3, says_so_late=says_so_late)
    assert stage.causes == [("u0", CompletionCause.NORMAL)]
    assert stage.completed[0].spoken_text == "one"
    assert slept == [0.05] * 3
    assert stage.source.opened_again == ([False, True, True, True] if says_so_late else [False]), "counted as one use"
    stage.must_be_empty()


@pytest.mark.parametrize("says_so_late", [False, True])
async def test_a_prompt_fails_when_the_engine_stays_full(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, says_so_late: bool
) -> None:
    slept = await _overload(stage, monkeypatch, room_after=1000, says_so_late=says_so_late)
    assert stage.causes == [("u0", CompletionCause.ERROR)]
    assert stage.completed[0].error is not None
    assert stage.completed[0].error.code == "engine_overloaded"
    assert len(slept) == 20
    stage.must_be_empty()


async def test_a_prompt_waits_as_long_as_its_caller_still_hears_the_one_before(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_slept = 0

    async def sleep(delay_s: float) -> None:
        nonlocal num_slept
        num_slept += 1
        stage.clock.advance(1000 * delay_s)
        if num_slept == 40:  # twice as long as it would wait in silence
            stage.source.open_error = None

    _patch_sleep(monkeypatch, stage, sleep)
    stage.waits_for_engine(1000.0)
    stage.player.open_line(0)
    stage.say("before")
    await stage.settle()
    stage.source.open_error = EngineOverloaded("full")
    stage.say("after")
    for _ in range(100):
        await stage.settle()
    await stage.play_all()
    assert stage.causes == [("u0", CompletionCause.NORMAL), ("u1", CompletionCause.NORMAL)]
    assert num_slept == 40


async def test_a_text_that_arrives_does_not_go_on_without_the_words_that_a_full_engine_refused(stage: Stage) -> None:
    engine, tts = FakeEngine(), TtsConfig(overload_wait_ms=20)
    stage.services.config = Config(playout=CONFIG.playout, tts=tts)
    stage.services.source = SpeechSource(cast("Any", engine), Normalizer(), tts)
    text = IncrementalText(stage.clock, segmenting=segmenting_of(tts), idle_timeout_s=10)
    engine.error = EngineOverloaded("full")
    stage.player.open_line(0)
    utterance = stage.say(content=IncrementalContent(TextContent(""), text))
    text.append("One two. ")
    text.flush()
    await until(lambda: utterance.error)
    engine.error = None
    text.append("Three.")
    text.end()
    await stage.play_all()
    assert [(each.error.code if each.error else None) for each in stage.completed] == ["engine_overloaded"]


async def test_the_fallback_speaks_when_the_engine_stays_full(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.source.has_fallback = True
    slept = await _overload(stage, monkeypatch, room_after=1000, says_so_late=False)
    assert stage.causes == [("u0", CompletionCause.NORMAL)]
    assert len(slept) == 20
    stage.must_be_empty()


async def test_a_prompt_that_waits_for_the_engine_can_be_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _patch_sleep(monkeypatch, stage, lambda _delay_s: asyncio.Event().wait())
    stage.waits_for_engine(1000.0)
    stage.source.plans["one"] = [EngineOverloaded("full")]
    stage.player.open_line(0)
    waiting, second = stage.say("one"), stage.say("two")
    await stage.settle()
    assert (len(stage.source.opened), stage.causes) == (1, [])
    stage.player.discard(waiting, CompletionCause.CANCELLED)
    await stage.play_all()
    assert stage.causes == [(waiting.id, "cancelled"), (second.id, "normal")]
    assert len(stage.source.opened) == 2
    stage.must_be_empty()


async def test_a_repetition_waits_for_the_engine_as_the_first_time_does(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pass_by(delay_s: float) -> None:
        slept.append(delay_s)

    slept: list[float] = []
    _patch_sleep(monkeypatch, stage, pass_by)
    chunk, full = SpeechChunk(pcm(CHUNK_MS), "one"), EngineOverloaded("full")
    stage.waits_for_engine(1000.0)
    stage.source.plans = _Plans([[chunk], [full], [full], [chunk]])
    stage.player.open_line(0)
    utterance = stage.say("one", repeat=2)
    await stage.play_all()
    assert slept == [0.05] * 2
    assert (stage.causes, utterance.played_ms) == ([(utterance.id, "normal")], 2 * CHUNK_MS)
    assert stage.source.opened_again == [False, False, True, True]
    stage.must_be_empty()


class _Plans(dict[str, Sequence[Step]]):
    def __init__(self, plans: list[list[Step]]) -> None:
        super().__init__()
        self._plans = plans

    def get(self, _text: str, _default: object = None) -> Sequence[Step]:
        return self._plans.pop(0)


def _patch_sleep(monkeypatch: pytest.MonkeyPatch, stage: Stage, sleep: Callable[[float], Awaitable[object]]) -> None:
    """What the player does while it waits for room, by the stage's clock; the tests' own turns of the loop go on."""
    real_sleep = asyncio.sleep

    async def instead(delay_s: float) -> None:
        if delay_s:
            await sleep(delay_s)
        await real_sleep(0)

    monkeypatch.setattr("cc_tts.speech.admission.asyncio.sleep", instead)
    monkeypatch.setattr("cc_tts.speech.admission.now_ms", lambda: stage.clock.now_ns() / NS_PER_MS)


async def _overload(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, room_after: int, says_so_late: bool
) -> list[float]:
    """Say one prompt to an engine that is full so many times, and says so when it is asked or, as a worker, when its stream
    is read; returns the pauses in between.
    """
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        stage.clock.advance(1000 * delay_s)
        if len(slept) >= room_after:
            stage.source.open_error = None
            stage.source.plans.clear()

    _patch_sleep(monkeypatch, stage, sleep)
    stage.waits_for_engine(1000.0)
    if says_so_late:
        stage.source.plans["one"] = [EngineOverloaded("full")]
    else:
        stage.source.open_error = EngineOverloaded("full")
    stage.player.open_line(0)
    stage.say("one")
    for _ in range(100):
        await stage.settle()
    stage.line.play(1000)
    await stage.settle()
    return slept


async def test_where_an_utterance_is_said_on_is_told_each_time_it_is_spoken(stage: Stage) -> None:
    stage.source.plans["it"] = [
        SpeechChunk(pcm(40), "One,"),
        SpeechChunk(pcm(40)),
        SpeechChunk(pcm(40), "", marks=((0.0, "m"),)),
        SpeechChunk(pcm(40), " two, ", after_loss=True),
        SpeechChunk(pcm(40)),
        SpeechChunk(pcm(40), "three.", is_resumed=True),
    ]
    stage.say("it", repeat=2)
    stage.player.open_line(0)
    await stage.play_all()
    assert stage.recovered == [(1, 5, "worker_lost")] * 2


async def test_where_and_why_an_utterance_is_said_on_by_another_voice_is_told(stage: Stage) -> None:
    """Once before its first words, then after the first of them."""
    stage.source.plans["it"] = [
        SpeechChunk(b"", after_loss=True),
        SpeechChunk(pcm(40), "One,"),
        SpeechChunk(pcm(40), " two.", gave_up_after=0.5),
    ]
    stage.say("it")
    stage.player.open_line(0)
    await stage.play_all()
    assert stage.recovered == [(0, 0, "worker_lost"), (1, 5, "runaway")]
