"""The interfaces that the engine has to the networks and to what turns text into tokens. It does not import torch."""

from collections.abc import Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Protocol

from cc_tts.engines.cosyvoice.prefill import Bistream, Prefill
from cc_tts.errors import EngineOverloaded


class PagesExhausted(EngineOverloaded):
    """There are not as many free pages as were asked for; nothing has been taken."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The ids that a slot of the language model has sampled since it was asked last."""

    ids: tuple[int, ...]
    """Speech tokens. With ``rules.reports_special`` the special id that stopped the slot is the last one: FILL, say."""
    stopped: bool  # it samples no more until it is extended, if ever
    failed: bool = False  # stopped as its numbers were not finite or its slot of the cache was full; release it


@dataclass(frozen=True, slots=True)
class SlotPrefill:
    slot: int
    voice_id: str
    prefill: Prefill
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakJob:
    """New tokens of a slot that are to become audio."""

    slot: int
    tokens: Row[int]
    is_first: bool
    is_last: bool
    seed: int = 0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """The audio of a job; ``failed``: its numbers were not finite."""

    pcm: bytes
    failed: bool = False


@dataclass(frozen=True, slots=True)
class SpokenBatch:
    """The audio of a batch of jobs, in their order, and what its stages took, ms."""

    pieces: Row[Spoken]
    flow_ms: float
    vocoder_ms: float


class Speaking(Protocol):
    """A call of flow and vocoder that is under way."""

    def wait(self, limit_ms: float) -> bool:
        """Wait until it is done, but at most so long; returns whether it is."""

    def batch(self) -> SpokenBatch:
        """Return what came of it, once it is done."""


class Device(Protocol):
    """The device that runs the networks; see :class:`cc_tts.engines.cosyvoice.runners.runner.ModelRunner`."""

    num_slots: int
    max_tokens: int  # of speech in a sequence, those of the flow's prompt among them
    silent_tokens: frozenset[int]  # speech tokens that sound of nothing

    def start(self, prefills: Row[SlotPrefill]) -> None:
        """Prefill slots of the language model; one that is not extended is opened, for the flow as well. Raises
        ``CcTtsError`` when one of them does not fit, before anything changed; here and below ``DeviceLost``.
        """

    def decode(self, until: Mapping[int, int], num_steps: int) -> Mapping[int, Sampled]:
        """Run ``num_steps`` for these slots, up to so many ids each; return what each slot has sampled since the last
        call.
        """

    def speak(self, jobs: Row[SpeakJob]) -> Speaking:
        """Begin flow and vocoder, one call at a time. Raises ``PagesExhausted`` before anything changed. All else may be
        done before it ends; a slot that is released meanwhile is to be wiped.
        """

    def release(self, slot: int, *, wipe: bool = False) -> None:
        """Free all that a slot holds."""

    def forget(self, voice_id: str) -> None:
        """Free what is kept of a voice that no slot speaks with."""

    def pages_needed(self, voice_id: str, num_tokens: int) -> int:
        """Pages that a sequence takes besides those of its voice; with them, while the voice is not there."""

    @property
    def num_rows(self) -> int:
        """Rows that a decode step computes: up to the highest slot in use, filled up to a size that has a graph."""

    @property
    def num_not_finite(self) -> int:
        """Pieces of work whose numbers were not finite, since the start."""

    @property
    def num_free_pages(self) -> int:
        """Pages that can be taken."""

    @property
    def num_pages(self) -> int:
        """Return the number of all pages."""


class TextFront(Protocol):
    """Turns text into prefills; see :class:`cc_tts.engines.cosyvoice.voice.text_front.TextFront`. ``instruction``: the
    tokens of the stream's instruction, if it has one of its own.
    """

    def instruction(self, text: str) -> tuple[int, ...]:
        """The tokens of an instruction; none if the text is blank. Raises ``Unprocessable``."""

    def prepare(
        self, voice_id: str, text: str, *, more_follows: bool = False, instruction: Row[int] = ()
    ) -> Prefill | None:
        """A text chunk as a sequence of its own; None if it says nothing. Raises ``Unprocessable``."""

    def spelled(self, text: str) -> str:
        """A text chunk with its sounds and pronunciations as the model takes them, or with the words where it takes none."""

    def has_words(self, spelled: str) -> bool:
        """Return whether such a text chunk says something."""

    def cut(self, text: str, instruction: Row[int] = ()) -> tuple[str, str]:
        """Return as much of a text chunk as a sequence may have, and the rest. Raises ``Unprocessable``."""

    def begin_interleaved(self, voice_id: str, instruction: Row[int] = ()) -> Bistream:
        """A sequence whose text comes in pieces."""

    def text_ids(self, voice_id: str, text: str, instruction: Row[int] = ()) -> tuple[int, ...]:
        """The tokens of a piece of it. Raises ``Unprocessable``, too, when they are more than :meth:`max_interleaved`."""

    def max_interleaved(self, voice_id: str, instruction: Row[int] = ()) -> int:
        """Return how many text tokens such a sequence may have."""

    def seed(self, voice_id: str, text: str) -> int:
        """Decides what is sampled."""

    def num_flow_prompt(self, voice_id: str) -> int:
        """Speech tokens of the flow's prompt. Raises ``UnknownVoice``."""
