"""Staged prompts whose audio is not in memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineOverloaded
from cc_tts.speech.prompt import Content, ReadyContent, StagedContent, TextContent
from cc_tts.speech.staged.prompts import StagedPrompts, StagedText
from cc_tts.tenants.quotas import Reservation
from tests.fakes.fake_engine import FakeChunks, pcm
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


class Stage:
    """Staged prompts of at most a second of audio; ``opened`` is what was synthesised."""

    def __init__(self) -> None:
        self.opened: list[Content] = []
        self.opened_again: list[bool] = []
        self.num_late_refusals = 0
        self.is_full = False
        self.marks: tuple[tuple[float, str], ...] = ()
        self.staged = StagedPrompts(
            PromptsConfig(max_total_s=1.0),
            rate_hz=8000,
            clock=FakeClock(),
            open_stream=self.open,
            hold_stream=self.hold,
            on_ready=lambda _: None,
        )

    def hold(self, _tenant: str, _content: Content) -> Reservation:
        if self.is_full:
            raise EngineOverloaded
        return Reservation()

    def open(self, content: Content, *, is_again: bool) -> FakeChunks:
        assert isinstance(content, TextContent)
        self.opened.append(content)
        self.opened_again.append(is_again)
        if self.num_late_refusals:
            self.num_late_refusals -= 1
            return FakeChunks([EngineOverloaded()])
        return FakeChunks([SpeechChunk(pcm(600), content.text, marks=self.marks)])

    async def stage(self, prompt_id: str) -> None:
        await (await self.staged.put_text(prompt_id, StagedText(text="One two."))).made.wait()

    def speak(self, prompt_id: str) -> Content:
        return self.staged.resolved(StagedContent(prompt_id), "")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.staged.stop()


async def test_audio_that_made_room_is_made_again_when_it_is_spoken(stage: Stage) -> None:
    await stage.stage("first")
    await stage.stage("second")
    assert isinstance(stage.speak("second"), ReadyContent)
    assert isinstance(stage.speak("first"), TextContent)
    await stage.staged.get("first").made.wait()
    await stage.staged.stop()
    assert len(stage.opened) == 3


async def test_a_text_that_a_full_engine_refuses_late_counts_as_one_use_of_the_cache(stage: Stage) -> None:
    stage.num_late_refusals = 2
    await stage.stage("first")
    assert isinstance(stage.speak("first"), ReadyContent)
    assert stage.opened_again == [False, True, True]


async def test_audio_that_cannot_be_kept_is_not_made_for_nothing(stage: Stage) -> None:
    stage.marks = ((0.5, "middle"),)
    await stage.stage("marked")
    assert [isinstance(stage.speak("marked"), TextContent) for _ in range(3)] == [True] * 3
    await stage.staged.stop()
    assert len(stage.opened) == 1


async def test_whoever_waits_for_a_prompt_goes_on_when_it_is_deleted(stage: Stage) -> None:
    stage.is_full = True
    prompt = await stage.staged.put_text("slow", StagedText(text="One two."))
    await asyncio.sleep(0)
    await stage.staged.delete("slow", "")
    async with asyncio.timeout(1):
        await prompt.made.wait()
