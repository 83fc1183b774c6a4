"""A text chunk inside the engine, and the stream it belongs to. No torch here.

::

    Stream     texts ─▸ Sequence ─▸ Sequence ─▸ …        one listener, one clock; audio goes out in this order
    Sequence   inputs ─▸ [language model] ─▸ tokens ─▸ [flow · vocoder, hop by hop] ─▸ audio

Runs on: the thread that owns the device.
"""

import bisect
import sys
from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Final, Protocol

from cc_tts.tts.cosyvoice2.bistream import SPEECH_GROUP as SPEECH_PER_GROUP
from cc_tts.tts.cosyvoice2.bistream import TEXT_GROUP, Bistream, BistreamState
from cc_tts.tts.cosyvoice2.draw_rules import DrawRules
from cc_tts.tts.cosyvoice2.listener_clock import ListenerClock
from cc_tts.tts.cosyvoice2.models.lm_input import LmInput
from cc_tts.tts.cosyvoice2.schedule import CHUNK_TOKENS, FlowCall, HopSchedule

FRAMES_PER_TOKEN: Final = 2
MS_PER_TOKEN: Final = 40.0


@dataclass(frozen=True, slots=True)
class Feed:
    """What the language model is fed next, and how it draws then."""

    inputs: Row[LmInput]
    rules: DrawRules
    goes_on: bool = False


class Hops(Protocol):
    """When the flow is called: :class:`HopSchedule`, or all at once."""

    hop: int

    @property
    def needed_tokens(self) -> int:
        """Tokens that must be there for the next call, unless they end before."""
        ...

    def poll(self, num_tokens: int, *, finished: bool) -> FlowCall | None:
        """The next call, or None."""
        ...


class OneHop:
    """One call when all tokens are there: speech whose speed is changed (§6)."""

    hop = CHUNK_TOKENS
    needed_tokens = sys.maxsize

    def __init__(self) -> None:
        self._is_over = False

    def poll(self, num_tokens: int, *, finished: bool) -> FlowCall | None:
        """The call, once the tokens have ended."""
        if self._is_over or not finished:
            return None
        self._is_over = True
        return FlowCall(num_tokens, 0, num_tokens, streaming=True, finalize=True)


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One run of the model. Counts are of generated speech tokens."""

    key: int
    stream: "Stream"
    text_chunk_index: int
    seed: int
    hops: Hops
    num_prompt: int
    """Tokens of the flow's prompt."""
    feed: Feed | None = None
    """To be fed; None while the language model runs, waits for text, or is done."""
    bistream: Bistream | None = None
    slot: int | None = None
    tokens: list[int] = field(default_factory=list)
    num_fills: int = 0
    num_flowed: int = 0
    """Tokens that the flow has been given."""
    num_given: int = 0
    """Tokens whose frames were given out."""
    is_drawn: bool = False
    """The language model is done."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Of an interleaved text: text tokens before each text chunk, and its index."""
    num_text: int = 0
    """Of an interleaved text: its tokens so far."""

    @property
    def is_ready(self) -> bool:
        """Whether the flow can be called."""
        return bool(self.tokens) and (self.is_drawn or len(self.tokens) >= self.hops.needed_tokens)

    @property
    def num_needed(self) -> int:
        """Tokens that the next flow call waits for, as far as can be told."""
        return min(self.hops.needed_tokens, len(self.tokens) + CHUNK_TOKENS)

    @property
    def num_next(self) -> int:
        """Tokens that the next flow call would know, if it ran now."""
        return min(len(self.tokens), self.hops.needed_tokens)

    @property
    def num_frames(self) -> int:
        """Frames that it would solve: those since the last line of the chunk grid."""
        behind = self.num_prompt + self.num_given
        return FRAMES_PER_TOKEN * (self.num_prompt + self.num_next - behind // CHUNK_TOKENS * CHUNK_TOKENS)

    @property
    def num_keys(self) -> int:
        """Frames that it would attend to."""
        return FRAMES_PER_TOKEN * (self.num_prompt + self.num_next)

    @property
    def unsent_ms(self) -> float:
        """Audio of the tokens that were drawn and not given out."""
        return (len(self.tokens) - self.num_given) * MS_PER_TOKEN

    @property
    def index_now(self) -> int:
        """The text chunk whose audio comes next."""
        if not self.marks:
            return self.text_chunk_index
        num_text = self.num_given * TEXT_GROUP // SPEECH_PER_GROUP
        return self.marks[max(0, bisect.bisect_right(self.marks, (num_text, sys.maxsize)) - 1)][1]

    @property
    def last_index(self) -> int:
        """The last text chunk of it."""
        return self.marks[-1][1] if self.marks else self.text_chunk_index

    def drew(self, ids: Row[int], *, stopped: bool) -> None:
        """Take what the language model has drawn.

        Raises:
            EngineFailed: an id that has no meaning here.

        """
        if self.bistream is None:
            self.tokens.extend(ids)
            self.is_drawn = self.is_drawn or stopped
            return
        for drawn in ids:
            emitted = self.bistream.take(drawn)
            if emitted is None:
                self.num_fills += 1
            else:
                self.tokens.append(emitted)
        if stopped:
            self.go_on()

    def go_on(self) -> None:
        """Look what an interleaved sequence is to be fed now: more text may have come, or have ended."""
        if self.bistream is None or self.is_drawn or self.feed is not None:
            return
        step = self.bistream.next_step()
        if step is not None:
            self.feed = Feed(step.inputs, self.bistream.rules, goes_on=bool(self.bistream.history))
        elif self.bistream.state is BistreamState.DONE:
            self.is_drawn = True

    @property
    def waits_for_text(self) -> bool:
        """Whether only more text brings an interleaved sequence on."""
        return self.bistream is not None and self.bistream.state is BistreamState.WAITING


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    """One utterance of one listener."""

    stream_id: int
    voice_id: str
    speed: float
    clock: ListenerClock
    texts: deque[tuple[int, str]] = field(default_factory=deque)
    """Text chunks that are no sequence yet."""
    sequences: deque[Sequence] = field(default_factory=deque)
    has_ended: bool = False
    taken_ms: float = 0.0
    num_underruns: int = 0

    @property
    def head(self) -> Sequence | None:
        """The sequence whose audio comes next."""
        return self.sequences[0] if self.sequences else None

    @property
    def drawing(self) -> Sequence | None:
        """The sequence that the language model is not done with; there is one at most."""
        return self.sequences[-1] if self.sequences and not self.sequences[-1].is_drawn else None

    @property
    def untaken_ms(self) -> float:
        """Audio that was handed out and not taken, and that of the tokens behind it."""
        return self.clock.sent_ms - self.taken_ms + sum(sequence.unsent_ms for sequence in self.sequences)

    @property
    def is_over(self) -> bool:
        """Whether all that will ever be said has been said."""
        return self.has_ended and not self.texts and not self.sequences

    def deadline_ms(self, sequence: Sequence) -> float:
        """When the next audio of ``sequence`` is due: after what comes before it."""
        before = 0.0
        for each in self.sequences:
            if each is sequence:
                break
            before += each.unsent_ms
        return self.clock.deadline_ms + before


def hops_of(num_prompt: int, *, first_hop: int, speed: float) -> Hops:
    """The flow calls of a new sequence."""
    return HopSchedule(num_prompt, hop=first_hop) if speed == 1.0 else OneHop()
