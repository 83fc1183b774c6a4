"""Streaming text input: what the language model is fed as text arrives (§3.5). Scheduling only, no network.

::

    text tokens ─▸ add_text ─▸ WAITING ─ five text tokens ─▸ INTERLEAVED ─ FILL ─▸ WAITING … end_text ─▸ LAST ─▸ DONE

Groups of five text tokens alternate with fifteen speech tokens, after which FILL is forced. After the last text comes TASK
and the rest of the speech. What is fed depends on the text and the sampled tokens alone, never on when the text came. A text
that ends before anything was spoken is fed as a whole (§3.2), with that mode's limits.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from cc_tts.engines.cosyvoice2.engine.feed import Feed, SamplingRules
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import (
    SOS,
    TASK,
    ForbiddenIds,
    LengthLimits,
    LmInput,
    SpeechIds,
    text_inputs,
    unistream_inputs,
)
from cc_tts.errors import EngineFailed

TEXT_GROUP: Final = 5
SPEECH_GROUP: Final = 15


class BistreamState(Enum):
    """Where the interleaving stands."""

    WAITING = auto()  # too little text
    INTERLEAVED = auto()  # speaking, until FILL
    LAST = auto()  # all text is in; speaking, until the end of speech
    DONE = auto()


class Bistream:
    """The interleaving of one sequence; ``prompt_text`` comes before the text and is not spoken."""

    def __init__(self, prompt_text: Iterable[int] = (), *, speech_ids: SpeechIds) -> None:
        self.state = BistreamState.WAITING
        self.has_all_text = False
        self._ids = speech_ids
        self._prompt_text = tuple(prompt_text)
        self._text: list[int] = []
        self._queue = deque(text_inputs(self._prompt_text))  # text that has not been fed
        self._num_sampled = 0  # FILL is counted
        self._max_sampled = 0

    def add_text(self, text_ids: Iterable[int]) -> None:
        """More text tokens came."""
        text = list(text_ids)
        self._text += text
        self._queue.extend(text_inputs(text))

    def end_text(self) -> None:
        """No more text will come."""
        self.has_all_text = True

    def next_feed(self) -> Feed | None:
        """What to feed now; None while more text is needed, while speech is sampled, and when all is spoken."""
        if self.state is not BistreamState.WAITING:
            return None
        if len(self._queue) >= TEXT_GROUP:
            self.state = BistreamState.INTERLEAVED
            group = [self._queue.popleft() for _ in range(TEXT_GROUP)]
            return self._feed(group if self._num_sampled else [SOS, *group], forced_fill=True)
        if not self.has_all_text:
            return None
        if not self._num_sampled and not self._text:
            self.state = BistreamState.DONE
            return None
        self.state = BistreamState.LAST
        limits = LengthLimits.of_text(len(self._text))
        self._max_sampled = self._num_sampled + limits.max_len
        if self._num_sampled:
            return self._feed([*self._queue, TASK])
        return self._feed(unistream_inputs(self._prompt_text, self._text, ()), min_sampled=limits.min_len)

    def _feed(self, inputs: list[LmInput], *, min_sampled: int = 0, forced_fill: bool = False) -> Feed:
        """Inputs with their rules; of the special ids only FILL can be sampled in between, and only the end in the end."""
        if forced_fill:
            forbidden = ForbiddenIds(end=True, unused=True, fill=False)
            fill_at = self._num_sampled + SPEECH_GROUP
            rules = SamplingRules(forbidden=forbidden, forced_fill_at=fill_at, reports_special=True)
        else:
            forbidden = ForbiddenIds(end=False, unused=True, fill=True)
            least = self._num_sampled + min_sampled
            rules = SamplingRules(
                forbidden=forbidden, min_sampled=least, max_sampled=self._max_sampled, reports_special=True
            )
        return Feed(inputs, rules, goes_on=self._num_sampled > 0)

    def take(self, sampled: int) -> int | None:
        """An id was sampled; returns the speech token, None if it is a special id.

        Raises:
            EngineFailed: an id that has no meaning here; only possible when it was not forbidden.

        """
        self._num_sampled += 1
        if self.state is BistreamState.INTERLEAVED and sampled == self._ids.fill:
            self.state = BistreamState.WAITING
            return None
        if self.state is BistreamState.LAST and sampled == self._ids.end:
            self.state = BistreamState.DONE
            return None
        if sampled >= self._ids.num_codes:
            raise EngineFailed(f"the language model sampled the special id {sampled} out of its place")
        if self.state is BistreamState.LAST and self._num_sampled >= self._max_sampled:
            self.state = BistreamState.DONE
        return sampled
