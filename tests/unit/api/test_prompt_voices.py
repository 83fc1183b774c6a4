"""The voices of recordings that come with requests of CosyVoice's clients."""

import asyncio
from typing import Any, cast

import pytest

from cc_tts.api.plugs.cosyvoice import DIGEST_CHARS, MAX_PROMPT_VOICES, PREFIX, PromptVoices
from cc_tts.engines.enrolment.own_voices import NewVoice
from cc_tts.errors import DuplicateId, VoiceNeeded

pytestmark = pytest.mark.unit

EARLIER = PREFIX + "0" * DIGEST_CHARS


class OwnVoicesOfTest:
    """Voices that are enrolled at once, unless the ``gate`` is closed."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)
        self.unseen: list[str] = []
        """Voices in the folder that the engine has not taken yet."""
        self.enrolled: list[NewVoice] = []
        self.is_needed = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def enrol(self, new: NewVoice) -> None:
        await self.gate.wait()
        if new.voice_id in self.unseen:
            raise DuplicateId("there is such a voice")
        self.enrolled.append(new)
        self.ids.append(new.voice_id)

    async def look_again(self) -> None:
        self.ids += self.unseen

    async def remove(self, voice_id: str) -> None:
        if self.is_needed:
            raise VoiceNeeded("tts.voice names this voice")
        self.ids.remove(voice_id)


async def voice_of(voices: PromptVoices, own: OwnVoicesOfTest, audio: bytes, mode: Any = "zero_shot") -> str:
    words = "what is said" if mode == "zero_shot" else ""
    return await voices.voice_of(cast("Any", own), audio, mode, language="en", words=words)


async def test_a_recording_is_enrolled_once_for_each_way_to_use_it() -> None:
    voices, own = PromptVoices(), OwnVoicesOfTest()
    ids = [await voice_of(voices, own, b"anna", mode) for mode in ("zero_shot", "cross_lingual") * 2]
    assert len(set(ids)) == len(own.enrolled) == 2
    assert [each.transcript for each in own.enrolled] == ["what is said", ""]


async def test_the_one_that_was_asked_for_longest_ago_is_deleted() -> None:
    voices, own = PromptVoices(), OwnVoicesOfTest("builtin", EARLIER)
    first = await voice_of(voices, own, b"0")
    for number in range(1, MAX_PROMPT_VOICES):
        await voice_of(voices, own, bytes([number]))
    assert EARLIER not in own.ids  # that no request has asked for since the server began
    await voice_of(voices, own, b"0")
    await voice_of(voices, own, b"another")
    assert first in own.ids
    assert len(own.ids) == 1 + MAX_PROMPT_VOICES


async def test_a_voice_that_was_enrolled_by_hand_is_nobodys_to_delete() -> None:
    voices, own = PromptVoices(), OwnVoicesOfTest(f"{PREFIX}lisa")
    for number in range(MAX_PROMPT_VOICES + 2):
        await voice_of(voices, own, bytes([number]))
    assert own.ids[0] == f"{PREFIX}lisa"
    assert len(own.ids) == 1 + MAX_PROMPT_VOICES


async def test_a_voice_that_another_server_has_put_into_the_folder_is_taken_from_there() -> None:
    first, second = OwnVoicesOfTest(), OwnVoicesOfTest()
    voice = await voice_of(PromptVoices(), first, b"anna")
    second.unseen = [voice]
    assert await voice_of(PromptVoices(), second, b"anna") == voice
    assert voice in second.ids
    assert not second.enrolled


async def test_a_voice_that_cannot_be_deleted_is_in_nobodys_way() -> None:
    voices, own = PromptVoices(), OwnVoicesOfTest()
    own.is_needed = True
    for number in range(MAX_PROMPT_VOICES + 2):
        assert await voice_of(voices, own, bytes([number])) in own.ids


async def test_one_is_enrolled_at_a_time_and_those_that_are_there_do_not_wait() -> None:
    voices, own = PromptVoices(), OwnVoicesOfTest()
    known = await voice_of(voices, own, b"known")
    own.gate.clear()
    waiting = [asyncio.create_task(voice_of(voices, own, b"new")) for _ in range(3)]
    await asyncio.sleep(0)
    assert await voice_of(voices, own, b"known") == known
    own.gate.set()
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert len(own.enrolled) == 2
