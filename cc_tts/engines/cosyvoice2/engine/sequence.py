"""A text chunk inside the engine, and the stream it belongs to. No torch here.

::

    Stream     texts ─▸ Sequence ─▸ Sequence ─▸ …        one listener, one clock; audio goes out in this order
    Sequence   inputs ─▸ [language model] ─▸ tokens ─▸ [flow · vocoder, hop by hop] ─▸ audio

Runs on: the thread that owns the device.
"""

import bisect
import math
import sys
from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Final, Protocol

from cc_tts.engines.cosyvoice2.engine.bistream import SPEECH_GROUP as SPEECH_PER_GROUP
from cc_tts.engines.cosyvoice2.engine.bistream import TEXT_GROUP, Bistream, BistreamState
from cc_tts.engines.cosyvoice2.engine.listener_clock import ListenerClock
from cc_tts.engines.cosyvoice2.engine.sampling_rules import SamplingRules
from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS, FRAMES_PER_TOKEN, FlowCall, HopSchedule, exact_hop
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import LmInput

MS_PER_TOKEN: Final = 40.0
MAX_SILENT_IN_A_ROW: Final = 5
"""Of a longer run the rest is left out: 200 ms of silence are a pause, seconds of it a model that lost its way."""
MAX_AHEAD_MS: Final = 4000.0
"""A stream whose audio is so far ahead of what its reader has taken gets no turn."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What the language model is fed next, and how it draws then."""

    inputs: Row[LmInput]
    rules: SamplingRules
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
    slot: int
    silent_tokens: frozenset[int] = frozenset()
    """Speech tokens that sound of nothing."""
    feed: Feed | None = None
    """To be fed; None while the language model runs, waits for text, or is done."""
    is_running: bool = False
    """It was fed and has not stopped."""
    bistream: Bistream | None = None
    has_all_text: bool = False
    """Of an interleaved text: it has ended."""
    last_text: str = ""
    """Of an interleaved text: what the next text chunk joins."""
    tokens: list[int] = field(default_factory=list)
    num_unspoken: int = 0
    """Ids among those drawn that became no token: they ask for more text, or are silence beyond the fifth in a row."""
    num_silent: int = 0
    """Silent tokens that were drawn last, in a row."""
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
    def is_drawing(self) -> bool:
        """Whether a round of the language model brings it on."""
        return not self.is_drawn and (self.is_running or self.feed is not None)

    @property
    def is_mute(self) -> bool:
        """Whether the model had nothing to say."""
        return self.is_drawn and not self.tokens

    @property
    def takes_text(self) -> bool:
        """Whether more text can be added."""
        return self.bistream is not None and not self.has_all_text

    @property
    def is_well_ahead(self) -> bool:
        """Whether its listener can do without more of it for now. What a next call needs counts for those behind it only:
        a first sequence may draw as much as its call needs, and that can be much.
        """
        return self.stream.is_far_ahead if self is self.stream.head else self.stream.is_well_ahead

    @property
    def deadline_ms(self) -> float:
        """When its next audio is due: after what comes before it."""
        before_ms = 0.0
        for each in self.stream.sequences:
            if each is self:
                break
            before_ms += each.unsent_ms
        return self.stream.clock.deadline_ms + before_ms

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
        return (len(self.tokens) - self.num_given) * MS_PER_TOKEN / self.stream.speed

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
            for drawn in ids:
                self._take(drawn)
            self.is_drawn = self.is_drawn or stopped
            self.is_running = not self.is_drawn
            return
        for drawn in ids:
            emitted = self.bistream.take(drawn)
            if emitted is None:
                self.num_unspoken += 1
            else:
                self._take(emitted)
        if stopped:
            self.is_running = False
            self._go_on()

    def _take(self, token: int) -> None:
        """A speech token, unless it is one silent token too many."""
        self.num_silent = self.num_silent + 1 if token in self.silent_tokens else 0
        if self.num_silent > MAX_SILENT_IN_A_ROW:
            self.num_unspoken += 1
        else:
            self.tokens.append(token)

    def was_fed(self) -> None:
        """The language model has taken what was to be fed."""
        self.feed = None
        self.is_running = True

    def add_text(self, ids: Row[int], *, text_chunk_index: int) -> None:
        """More of an interleaved text, in tokens."""
        assert self.bistream is not None
        self.marks.append((self.num_text, text_chunk_index))
        self.num_text += len(ids)
        self.bistream.add_text(ids)
        self._go_on()

    def end_text(self) -> None:
        """An interleaved text has ended."""
        assert self.bistream is not None
        self.has_all_text = True
        self.bistream.end_text()
        self._go_on()

    def _go_on(self) -> None:
        """Look what an interleaved sequence is to be fed when it has stopped: more text may have come, or have ended."""
        if self.bistream is None or self.is_drawn or self.is_running or self.feed is not None:
            return
        step = self.bistream.next_step()
        if step is not None:
            self.feed = Feed(step.inputs, self.bistream.rules, goes_on=bool(self.bistream.history))
        else:
            self.is_drawn = self.bistream.state is BistreamState.DONE


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    """One utterance of one listener."""

    stream_id: int
    voice_id: str
    speed: float
    clock: ListenerClock
    is_interleaved: bool = False
    """Its text chunks feed one sequence (§3.5)."""
    texts: deque[tuple[int, str]] = field(default_factory=deque)
    """Text chunks that are no sequence yet, with their indices."""
    held_text: str = ""
    """Interleaved text before the first word."""
    sequences: deque[Sequence] = field(default_factory=deque)
    has_ended: bool = False
    taken_ms: float = 0.0

    @property
    def head(self) -> Sequence | None:
        """The sequence whose audio comes next."""
        return self.sequences[0] if self.sequences else None

    @property
    def drawing(self) -> Sequence | None:
        """The sequence that the language model is not done with; there is one at most."""
        return self.sequences[-1] if self.sequences and not self.sequences[-1].is_drawn else None

    @property
    def is_far_ahead(self) -> bool:
        """Whether so much audio was handed out and not taken that there shall be no more for now."""
        return self.clock.sent_ms - self.taken_ms >= MAX_AHEAD_MS

    @property
    def is_well_ahead(self) -> bool:
        """The same with the tokens that will be audio as soon as it is wanted."""
        unsent_ms = sum(sequence.unsent_ms for sequence in self.sequences)
        return self.clock.sent_ms - self.taken_ms + unsent_ms >= MAX_AHEAD_MS

    @property
    def owes_nothing(self) -> bool:
        """Whether only more text, or the end of it, brings the next audio."""
        if self.texts:
            return False
        head = self.head
        return head is None or not (head.is_drawn or head.is_drawing or head.is_ready or head.has_all_text)

    @property
    def left_ms(self) -> float:
        """How long until its last audio is handed out; infinite while its length is not known."""
        if not self.has_ended or self.texts or not all(sequence.is_drawn for sequence in self.sequences):
            return math.inf
        unsent_ms = sum(sequence.unsent_ms for sequence in self.sequences)
        return max(0.0, self.clock.sent_ms - self.taken_ms + unsent_ms - MAX_AHEAD_MS)

    @property
    def is_over(self) -> bool:
        """Whether all that will ever be said has been said."""
        return self.has_ended and not self.texts and not self.sequences


def hops_of(num_prompt: int, *, first_hop: int, speed: float) -> Hops:
    """The flow calls of a new sequence; the first one gives out ``first_hop`` tokens or, to end on the grid, a few more."""
    return HopSchedule(num_prompt, hop=exact_hop(num_prompt, first_hop)) if speed == 1.0 else OneHop()
