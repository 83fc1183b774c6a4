"""Streaming text input, step by step, as the reference does it and as the engine does (§3.5). No network.

::

    text tokens ─▸ add_text ─┐                      ┌─▸ next_step ─▸ inputs ─▸ network ─▸ sampler ─┐
    end of text ─▸ end_text ─┴─▸ [WAITING for 5] ───┤                                             │
                                  ▲     ▲           └─ emitted speech token ◂─ take ◂──────────────┘
                                  │     └── FILL: the model asks for more text
                                  └──────── five text tokens, then fifteen speech tokens, and so on

Groups of five text tokens alternate with fifteen speech tokens; then the model says FILL. After the last text comes TASK
and the rest of the speech. What is fed depends on the text and the drawn tokens alone, never on when the text came.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    ForbiddenIds,
    LengthLimits,
    LmInput,
    SpeechIds,
    speech_inputs,
    text_inputs,
)
from cc_tts.engines.cosyvoice.prefill import SPEECH_GROUP, TEXT_GROUP, BistreamState
from cc_tts.errors import EngineFailed


@dataclass(frozen=True, slots=True)
class BistreamStep:
    """One run of the network: ``inputs`` to be fed, and how its answer becomes the id for :meth:`Bistream.take`.

    ``forced`` is that id, and the sampler is not asked. Otherwise it samples, with the ``forbidden`` ids at -inf.
    """

    inputs: tuple[LmInput, ...]
    forced: int | None
    forbidden: ForbiddenIds


class SteppedBistream:
    """The interleaving of one utterance.

    With ``compat`` it does what the official code does: at most one group of text for each arrival, the last
    speech token fed twice when the text ends after a FILL, prompt speech dropped when there is too little text. Without,
    it takes groups as long as there is text, feeds nothing twice, and speaks a text that ends before anything was spoken
    as one piece (§3.2) with that mode's limits; the speech after the last text is limited too (§12).

    The first ``num_instruction`` tokens of the prompt's text come before the groups. Officially decoding then begins before
    there is text, where there is no prompt speech (v3 §3.5).
    """

    def __init__(
        self,
        prompt_text: Iterable[int] = (),
        prompt_speech: Iterable[int] = (),
        *,
        speech_ids: SpeechIds | None = None,
        num_instruction: int = 0,
        compat: bool = False,
    ) -> None:
        self.ids = SpeechIds() if speech_ids is None else speech_ids
        self.compat = compat
        self._prompt_text = tuple(prompt_text)
        self._prompt_speech = tuple(prompt_speech)
        self._arrived: deque[tuple[int, ...]] = deque()
        self._text_ended = False
        self._text: list[int] = []  # the streamed text so far
        prompt = text_inputs(self._prompt_text)
        self._begin = [self.ids.sos, *prompt[:num_instruction]]
        self._queue = deque(prompt[num_instruction:])  # text that is not placed yet
        self._unplaced = deque(speech_inputs(self._prompt_speech))  # prompt speech that is not placed yet
        self._feed: list[LmInput] = [*self._begin]
        self._state = BistreamState.WAITING
        num_prompt = len(self._prompt_speech)
        self._next_fill = (num_prompt // SPEECH_GROUP + 1) * SPEECH_GROUP - num_prompt
        self._limits = LengthLimits(0, 0)
        self._num_last = 0
        self.history: list[int] = []  # drawn ids, FILL among them, as the sampler's window sees them

    @property
    def state(self) -> BistreamState:
        return self._state

    def add_text(self, text_ids: Iterable[int]) -> None:
        """More text tokens came.

        Pieces of any size amount to the same; but with ``compat`` at most one group is taken for each call of this, and the
        official front end hands over one token at a time.
        """
        if self._text_ended:
            raise ValueError("text after the end of the text")
        arrived = tuple(text_ids)
        if arrived:
            self._arrived.append(arrived)

    def end_text(self) -> None:
        """No more text will come."""
        self._text_ended = True

    def next_step(self) -> BistreamStep | None:
        """What to run now; ``None`` while more text is needed and when all is spoken."""
        while self._state is BistreamState.WAITING and self._arrived:
            self._receive()
            self._place()
        if self._state is BistreamState.WAITING and self._text_ended:
            self._close()
        if self._state in (BistreamState.WAITING, BistreamState.DONE):
            return None
        return BistreamStep(tuple(self._feed), self._forced(), self._forbidden())

    def take(self, drawn: int) -> int | None:
        """The answer to the last step; the speech token to be given out, if it is one.

        Raises:
            EngineFailed: an id that has no meaning here was drawn; only possible when it was not forbidden.

        """
        self.history.append(drawn)
        if self._state is BistreamState.INTERLEAVED and drawn == self.ids.fill:
            self._next_fill = len(self.history) + SPEECH_GROUP
            self._state = BistreamState.WAITING
            if not self.compat:
                self._feed = []
                self._place()
            return None
        if self._state is BistreamState.LAST and drawn == self.ids.end:
            self._state = BistreamState.DONE
            return None
        if drawn >= self.ids.num_codes:
            raise EngineFailed(f"the language model drew the special id {drawn} out of its place")
        self._feed = speech_inputs([drawn])
        if self._state is BistreamState.LAST:
            self._num_last += 1
            if not self.compat and self._num_last >= self._limits.max_len:
                self._state = BistreamState.DONE
        return drawn

    def _receive(self) -> None:
        """Text moves into the queue: officially arrival by arrival, else all that is there."""
        for _ in range(1 if self.compat else len(self._arrived)):
            received = self._arrived.popleft()
            self._queue.extend(text_inputs(received))
            self._text += received

    def _place(self) -> None:
        """Make groups of the queue; start to speak when the prompt speech is placed and a group is there."""
        while self._unplaced and len(self._queue) >= TEXT_GROUP:
            self._feed += self._next_group()
            self._feed += [self._unplaced.popleft() for _ in range(min(SPEECH_GROUP, len(self._unplaced)))]
        if self._unplaced:
            return
        after_fill = bool(self.history)  # while text is waited for, the last drawn id is FILL
        if after_fill or self._feed == ([self.ids.sos] if self.compat else self._begin):
            if len(self._queue) < TEXT_GROUP:
                return
            self._feed = ([] if after_fill else self._begin) + self._next_group()
        self._state = BistreamState.INTERLEAVED

    def _next_group(self) -> list[LmInput]:
        return [self._queue.popleft() for _ in range(TEXT_GROUP)]

    def _close(self) -> None:
        """The text has ended: what is left of it, then TASK; all of it in one piece when nothing was spoken yet."""
        limits = LengthLimits.of_text(len(self._text))
        self._state = BistreamState.LAST
        if self.compat or self.history:
            self._feed = [*self._feed, *self._queue, self.ids.task]
            self._limits = LengthLimits(0, limits.max_len)
        elif self._text:
            self._feed = self.ids.unistream_inputs(self._prompt_text, self._text, self._prompt_speech)
            self._limits = limits
        else:
            self._state = BistreamState.DONE

    def _forced(self) -> int | None:
        is_fill = self._state is BistreamState.INTERLEAVED and len(self.history) == self._next_fill
        return self.ids.fill if is_fill else None

    def _forbidden(self) -> ForbiddenIds:
        guarded = not self.compat
        if self._state is BistreamState.INTERLEAVED:
            return ForbiddenIds(end=True, unused=guarded, fill=False)
        return ForbiddenIds(end=guarded and self._num_last < self._limits.min_len, unused=guarded, fill=guarded)
