"""Inputs and outputs of the language model, by number: rows of three embedding tables and the ids of its head.

No torch here, so the scheduling of text and speech (``bistream``) stays free of it. Section numbers are those of the
specification of CosyVoice2, those behind "v3" of that of CosyVoice3.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


class Table(IntEnum):
    """The embedding table an input comes from (§3.1)."""

    SPECIAL = 0
    TEXT = 1
    SPEECH = 2


class LmInput(NamedTuple):
    """One position of the input: a row of one of the tables."""

    table: Table
    row: int


SOS: Final = LmInput(Table.SPECIAL, 0)
TASK: Final = LmInput(Table.SPECIAL, 1)
_input = functools.lru_cache(maxsize=2**14)(LmInput)  # every text of a voice begins with the same ones


def text_inputs(text_ids: Iterable[int]) -> list[LmInput]:
    return [_input(Table.TEXT, text_id) for text_id in text_ids]


def speech_inputs(speech_ids: Iterable[int]) -> list[LmInput]:
    return [_input(Table.SPEECH, speech_id) for speech_id in speech_ids]


class SpecialKind(IntEnum):
    """The meaning of a special id: its place in :class:`ForbiddenIds`."""

    END = 0
    UNUSED = 1
    FILL = 2


class _Layout(NamedTuple):
    """The special ids of a generation, counted from the number of codes, and the inputs that are none of its codes."""

    num_special: int
    end: int
    fill: int
    sos: int | None  # the speech row that begins a sequence; None: the first special row
    task: int | None  # that parts text and speech; None: the second special row


_LAYOUTS: Final = {2: _Layout(3, end=0, fill=2, sos=None, task=None), 3: _Layout(200, end=1, fill=3, sos=0, task=2)}
"""The layout of each generation (§3.1, v3 §3.1)."""


@dataclass(frozen=True, slots=True)
class SpeechIds:
    """The ids of the head: ``num_codes`` speech tokens, then the special ids of the generation."""

    num_codes: int = 6561
    generation: int = 2

    @property
    def num_special(self) -> int:
        """Return how many ids follow on the codes."""
        return _LAYOUTS[self.generation].num_special

    @property
    def num_rows(self) -> int:
        return self.num_codes + self.num_special

    @property
    def end(self) -> int:
        return self.num_codes + _LAYOUTS[self.generation].end

    @property
    def fill(self) -> int:
        """The model asks for more text (§3.5)."""
        return self.num_codes + _LAYOUTS[self.generation].fill

    @property
    def sos(self) -> LmInput:
        """The first input of a sequence."""
        row = _LAYOUTS[self.generation].sos
        return SOS if row is None else _input(Table.SPEECH, self.num_codes + row)

    @property
    def task(self) -> LmInput:
        """The input that parts text and speech."""
        row = _LAYOUTS[self.generation].task
        return TASK if row is None else _input(Table.SPEECH, self.num_codes + row)

    @property
    def instructs_apart(self) -> bool:
        """Return whether an instruction comes before groups of text and speech, and is not one of them (v3 §3.5)."""
        return _LAYOUTS[self.generation].sos is not None

    @property
    def table_sizes(self) -> tuple[int, int]:
        """Rows of the special table, and of the speech table as far as they may be inputs."""
        row = _LAYOUTS[self.generation].task
        return (2, self.num_codes) if row is None else (0, self.num_codes + row + 1)

    @property
    def kinds(self) -> tuple[int, ...]:
        """Return for each special id its place in :class:`ForbiddenIds`."""
        layout = _LAYOUTS[self.generation]
        known = {layout.end: SpecialKind.END, layout.fill: SpecialKind.FILL}
        return tuple(known.get(place, SpecialKind.UNUSED) for place in range(layout.num_special))

    def unistream_inputs(
        self, prompt_text: Iterable[int], text: Iterable[int], prompt_speech: Iterable[int]
    ) -> list[LmInput]:
        """The layout of a text that is there as a whole (§3.2); nothing parts the prompt's text from that to be spoken."""
        return [self.sos, *text_inputs(prompt_text), *text_inputs(text), self.task, *speech_inputs(prompt_speech)]


class ForbiddenIds(NamedTuple):
    """Which of the special ids must not be sampled at a step: the end, FILL, and all those that mean nothing."""

    end: bool
    unused: bool
    fill: bool


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """How many speech tokens a text may become: before ``min_len`` the end is forbidden, at ``max_len`` it is there."""

    min_len: int
    max_len: int

    @classmethod
    def of_text(cls, num_text_tokens: int) -> "LengthLimits":
        """The limits for the text to be spoken, prompt text not counted (§3.3)."""
        return cls(min_len=2 * num_text_tokens, max_len=20 * num_text_tokens)


@dataclass(frozen=True, slots=True)
class LmRequest:
    """The tokens that the language model gets to speak a text.

    With a prompt's text and speech it continues the prompt. A prompt's text alone is an instruction (§7.5). Without either,
    the voice comes from the flow alone.
    """

    text: Sequence[int]
    prompt_text: Sequence[int] = ()
    prompt_speech: Sequence[int] = ()

    def inputs_for(self, speech_ids: SpeechIds) -> list[LmInput]:
        """The layout that is prefilled in a model with these ids (§3.2)."""
        return speech_ids.unistream_inputs(self.prompt_text, self.text, self.prompt_speech)

    @property
    def limits(self) -> LengthLimits:
        """Return how long the speech may be; the prompt's text does not count (§3.3)."""
        return LengthLimits.of_text(len(self.text))
