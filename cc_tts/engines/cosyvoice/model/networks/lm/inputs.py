"""Inputs and outputs of the language model, by number: rows of three embedding tables and the ids of its head.

No torch here, so the scheduling of text and speech (``bistream``) stays free of it. Section numbers are those of the
specification of CosyVoice2.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

NUM_SPECIAL_SPEECH_IDS: Final = 3


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
    """Text tokens as inputs."""
    return [_input(Table.TEXT, text_id) for text_id in text_ids]


def speech_inputs(speech_ids: Iterable[int]) -> list[LmInput]:
    """Speech tokens as inputs."""
    return [_input(Table.SPEECH, speech_id) for speech_id in speech_ids]


def unistream_inputs(prompt_text: Iterable[int], text: Iterable[int], prompt_speech: Iterable[int]) -> list[LmInput]:
    """The layout of a text that is there as a whole (§3.2); nothing parts the prompt's text from the text to be spoken."""
    return [SOS, *text_inputs(prompt_text), *text_inputs(text), TASK, *speech_inputs(prompt_speech)]


@dataclass(frozen=True, slots=True)
class SpeechIds:
    """The ids of the head: ``num_codes`` speech tokens, then end of speech, an unused id, and FILL (§3.1)."""

    num_codes: int = 6561

    @property
    def end(self) -> int:
        """Return the id that ends speech."""
        return self.num_codes

    @property
    def unused(self) -> int:
        """An id that no training ever asked for."""
        return self.num_codes + 1

    @property
    def fill(self) -> int:
        """The model asks for more text (§3.5)."""
        return self.num_codes + 2


class ForbiddenIds(NamedTuple):
    """Which of the three special ids must not be sampled at a step, in the order in which they end the head's output."""

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

    With a prompt's text and speech it goes on as the prompt does. A prompt's text alone is an instruction (§7.5). Without
    either, the voice comes from the flow alone.
    """

    text: Sequence[int]
    prompt_text: Sequence[int] = ()
    prompt_speech: Sequence[int] = ()

    @property
    def inputs(self) -> list[LmInput]:
        """The layout that is prefilled (§3.2)."""
        return unistream_inputs(self.prompt_text, self.text, self.prompt_speech)

    @property
    def limits(self) -> LengthLimits:
        """Return how long the speech may be; the prompt's text does not count (§3.3)."""
        return LengthLimits.of_text(len(self.text))
