"""The engine's interfaces to the networks and to the text front, which turns text into tokens. It does not import torch."""

from collections.abc import Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Protocol

from cc_tts.engines.cosyvoice.prefill import Bistream, Prefill
from cc_tts.errors import EngineOverloaded


class PagesExhausted(EngineOverloaded):
    """There are too few free pages; none was allocated."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The ids that a slot of the language model has sampled since the last call."""

    ids: tuple[int, ...]
    """Speech tokens. With ``rules.reports_special`` the last one is the special id that stopped the slot, for
    example FILL.
    """
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
    """New tokens of a slot that will become audio."""

    slot: int
    tokens: Row[int]
    is_first: bool
    is_last: bool
    seed: int = 0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class SpokenBatch:
    """The audio of a batch of jobs, in their order, and how long each stage took, ms."""

    pieces: Row[bytes | None]  # PCM; None: its numbers were not finite
    flow_ms: float
    vocoder_ms: float


class Speaking(Protocol):
    """A call of flow and vocoder that is under way."""

    def wait(self, limit_ms: float) -> bool:
        """Wait until it is done, for at most this long; return whether it is."""

    def batch(self) -> SpokenBatch:
        """Return its result, once it is done."""


class Device(Protocol):
    """The device that runs the networks; see :class:`cc_tts.engines.cosyvoice.runners.runner.ModelRunner`."""

    num_slots: int
    max_tokens: int  # of speech in a sequence, those of the flow's prompt among them
    silent_tokens: frozenset[int]  # speech tokens that sound of nothing

    def start(self, prefills: Row[SlotPrefill]) -> None:
        """Prefill slots of the language model; a slot that is not extended is opened, also for the flow. Raises
        ``CcTtsError`` before any change if one of them does not fit; like all methods below, ``DeviceLost``.
        """

    def decode(self, until: Mapping[int, int], num_steps: int) -> Mapping[int, Sampled]:
        """Run ``num_steps`` for these slots, up to this many ids each; return what each slot has sampled since the last
        call.
        """

    def speak(self, jobs: Row[SpeakJob]) -> Speaking:
        """Begin flow and vocoder, one call at a time. Raises ``PagesExhausted`` before any change. Everything else may be
        called before it ends; a slot that is released meanwhile must be wiped.
        """

    def release(self, slot: int, *, wipe: bool = False) -> None:
        """Free all that a slot holds."""

    def forget(self, voice_id: str) -> None:
        """Free the prompt of a voice that no slot uses."""

    def pages_needed(self, voice_id: str, num_tokens: int) -> int:
        """Return the pages that a sequence needs, including those of its voice if that is not loaded yet."""

    @property
    def num_rows(self) -> int:
        """Return the rows that a decode step computes: up to the highest slot in use, rounded up to a size with a graph."""

    @property
    def num_not_finite(self) -> int:
        """The number of results that were not finite, since the start."""

    @property
    def num_free_pages(self) -> int:
        """The number of pages that can be allocated."""

    @property
    def num_pages(self) -> int:
        """Return the number of all pages."""


class PrefillFront(Protocol):
    """Turns text into prefills; see :class:`cc_tts.engines.cosyvoice.voice.text_front.PrefillFront`. ``instruction``: the
    tokens of the stream's instruction, if it has one of its own.
    """

    def instruction(self, text: str) -> tuple[int, ...]:
        """Return the tokens of an instruction; none if the text is blank. Raises ``Unprocessable``."""

    def prepare(
        self, voice_id: str, text: str, *, more_follows: bool = False, instruction: Row[int] = ()
    ) -> Prefill | None:
        """Return the prefill of a text chunk as a sequence of its own; None if it has nothing to say. Raises
        ``Unprocessable``.
        """

    def spelled(self, text: str) -> str:
        """Return a text chunk with its sounds and pronunciations in the model's notation, or as words where the model has
        none.
        """

    def cut(self, text: str, instruction: Row[int] = ()) -> tuple[str, str]:
        """Return as much of a text chunk as fits in a sequence, and the rest. Raises ``Unprocessable``."""

    def begin_interleaved(self, voice_id: str, instruction: Row[int] = ()) -> Bistream:
        """Begin a sequence whose text arrives in pieces."""

    def text_ids(self, voice_id: str, text: str, instruction: Row[int] = ()) -> tuple[int, ...]:
        """Return the tokens of such a piece. Raises ``Unprocessable``, also if they are more than
        :meth:`max_interleaved`.
        """

    def max_interleaved(self, voice_id: str, instruction: Row[int] = ()) -> int:
        """Return how many text tokens such a sequence may have."""

    def seed(self, voice_id: str, text: str) -> int:
        """Decides what is sampled."""

    def num_flow_prompt(self, voice_id: str) -> int:
        """Speech tokens of the flow's prompt. Raises ``UnknownVoice``."""
