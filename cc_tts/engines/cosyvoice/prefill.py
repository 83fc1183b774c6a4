"""The inputs of a prefill of the language model, and which ids it may then sample (§3.3, §3.5).

::

    text tokens ─▸ add_text ─▸ WAITING ─ five text tokens ─▸ INTERLEAVED ─ FILL ─▸ WAITING … end_text ─▸ LAST ─▸ DONE

Groups of five text tokens alternate with fifteen speech tokens, after which FILL is forced. After the last text come TASK
and the rest of the speech. A prefill depends on the text and the sampled tokens alone, never on when the text came. A text
that ends before anything was sampled is prefilled as a whole (§3.2), with that mode's limits.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Row
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    ForbiddenIds,
    LengthLimits,
    LmInput,
    SpeechIds,
    text_inputs,
)
from cc_tts.errors import EngineFailed

UNLIMITED: Final = 2**62
TEXT_GROUP: Final = 5
SPEECH_GROUP: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """How ids are sampled until the next prefill. Counts are of all ids the sequence has sampled, FILL included.

    A special id can never be an input, so whichever is sampled ends the sampling until the sequence is extended.
    """

    forbidden: ForbiddenIds  # special ids that are never sampled
    min_sampled: int = 0  # the number of ids before which the end of speech is forbidden, too
    max_sampled: int = UNLIMITED  # the number of ids after which sampling ends
    forced_fill_at: int | None = None  # the number of ids after which FILL is taken without sampling
    reports_special: bool = False  # a special id that ends the sampling is reported as the last of the ids

    @classmethod
    def of_request(cls, limits: LengthLimits) -> "SamplingRules":
        """Return the rules for a text that is known as a whole (§3.3)."""
        forbidden = ForbiddenIds(end=False, unused=True, fill=True)
        return cls(forbidden=forbidden, min_sampled=limits.min_len, max_sampled=limits.max_len)


@dataclass(frozen=True, slots=True)
class Prefill:
    """The next inputs of the language model, and how it samples after them."""

    inputs: Row[LmInput]
    rules: SamplingRules
    extends: bool = False  # a sequence that has begun
    keeps: int | None = None
    """How many positions of the extended sequence stay; all, if it has stopped by itself."""
    num_likely: float = 0.0  # speech tokens that its text takes as a rule; 0: unknown


class BistreamState(Enum):
    WAITING = auto()  # too little text
    INTERLEAVED = auto()  # sampling, until FILL
    LAST = auto()  # all text is in; sampling, until the end of speech
    DONE = auto()


class Bistream:
    """The interleaving of one sequence; ``prompt_text`` comes before the text and is not spoken.

    In the second generation it is text like the other; in the third it is an instruction, which comes before the groups.
    """

    def __init__(self, prompt_text: Iterable[int] = (), *, speech_ids: SpeechIds) -> None:
        self.state = BistreamState.WAITING
        self.has_all_text = False
        self.is_at_limit = False  # sampling has ended, and not by the end of speech
        self._ids = speech_ids
        self._prompt_text = tuple(prompt_text)
        self._text: list[int] = []
        prompt = text_inputs(self._prompt_text)
        is_apart = speech_ids.instructs_apart
        self._begin = [speech_ids.sos, *prompt] if is_apart else [speech_ids.sos]
        self._queue = deque([] if is_apart else prompt)  # text that was not prefilled yet
        self._num_sampled = 0  # FILL is counted
        self._max_sampled = 0

    def add_text(self, text_ids: Row[int]) -> None:
        """More text tokens came."""
        self._text += text_ids
        self._queue.extend(text_inputs(text_ids))

    def end_text(self) -> None:
        """No more text will come."""
        self.has_all_text = True

    def next_prefill(self) -> Prefill | None:
        """The next prefill; None while more text is needed, while speech is sampled, and when all is spoken.

        Of the special ids only FILL can be sampled in between, and only the end of speech in the end.
        """
        if self.state is not BistreamState.WAITING:
            return None
        extends = self._num_sampled > 0
        if len(self._queue) >= TEXT_GROUP:
            self.state = BistreamState.INTERLEAVED
            group = [self._queue.popleft() for _ in range(TEXT_GROUP)]
            forbidden, fill_at = ForbiddenIds(end=True, unused=True, fill=False), self._num_sampled + SPEECH_GROUP
            rules = SamplingRules(forbidden=forbidden, forced_fill_at=fill_at, reports_special=True)
            return Prefill(group if extends else [*self._begin, *group], rules, extends)
        if not self.has_all_text:
            return None
        if not extends and not self._text:
            self.state = BistreamState.DONE
            return None
        self.state = BistreamState.LAST
        limits = LengthLimits.of_text(len(self._text))
        self._max_sampled = self._num_sampled + limits.max_len
        limits = LengthLimits(self._num_sampled if extends else limits.min_len, self._max_sampled)
        rules = replace(SamplingRules.of_request(limits), reports_special=True)
        inputs = [*self._queue, self._ids.task]
        if not extends:
            inputs = self._ids.unistream_inputs(self._prompt_text, self._text, ())
        return Prefill(inputs, rules, extends)

    def take(self, sampled: int) -> int | None:
        """An id was sampled; returns the speech token, None if it is a special id. Raises ``EngineFailed`` for one that
        has no meaning here, which is only possible when it was not forbidden.
        """
        self._num_sampled += 1
        is_last = self.state is BistreamState.LAST
        if sampled == (self._ids.end if is_last else self._ids.fill):
            self.state = BistreamState.DONE if is_last else BistreamState.WAITING
            return None
        if sampled >= self._ids.num_codes:
            raise EngineFailed(f"the language model sampled the special id {sampled} out of its place")
        if is_last and self._num_sampled >= self._max_sampled:
            self.state, self.is_at_limit = BistreamState.DONE, True
        return sampled
