"""A text chunk inside the engine, and the stream it belongs to.

::

    Stream     texts ─▸ Sequence ─▸ Sequence ─▸ …        one listener, one clock; audio goes out in this order
    Sequence   prefill ─▸ [language model] ─▸ tokens ─▸ [flow · vocoder, hop by hop] ─▸ audio
"""

import bisect
import itertools
import math
import sys
from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Final

from cc_tts.engines.cosyvoice.engine.device import SpeakJob
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS, hop_to_grid
from cc_tts.engines.cosyvoice.prefill import SPEECH_GROUP, TEXT_GROUP, Bistream, BistreamState, Prefill
from cc_tts.engines.cosyvoice.runaway import Alarm, RunawayGuard
from cc_tts.media.listener_clock import ListenerClock

MS_PER_TOKEN: Final = 40.0
MAX_SILENT_IN_A_ROW: Final = 5
"""The rest of a longer run is left out: 200 ms of silence are a pause, seconds of it are a fault of the model
(unmeasured).
"""
MAX_AHEAD_MS: Final = (
    4000.0  # a stream whose audio is so far ahead of what its reader has taken gets no turn; unmeasured
)


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One run of the model. Counts are of generated speech tokens."""

    key: int  # the lower, the older
    stream: "Stream"
    slot: int
    seed: int
    num_prompt: int  # tokens of the flow's prompt
    hop: int
    """Tokens of the next flow call, but for what they lack to the grid; ``ALL_AT_ONCE`` where the speed is changed (§6)."""
    silent_tokens: frozenset[int] = frozenset()
    prefill: Prefill | None = None  # to be done next
    is_sampled: bool = False  # the language model is done
    tokens: list[int] = field(default_factory=list)
    num_ids: int = 0  # sampled, all of them
    num_silent: int = 0  # sampled last, in a row
    num_given: int = 0  # whose frames were given out, or are being made
    speaking_ms: float = 0.0  # audio of the call of flow and vocoder that is under way
    may_use_reserve: bool = False
    """Its flow may take the reserved pages; it is then spoken to its end, however far ahead of its listener."""
    marks: list[tuple[int, int]]
    """Text tokens before each text chunk, and its index. The counts are 0 unless the text is interleaved."""
    bistream: Bistream | None = None
    """State of an interleaved text, as the two below: its text tokens so far, and what the next text chunk joins."""
    num_text: int = 0
    last_text: str = ""
    guard: RunawayGuard | None = None

    @property
    def num_unspoken(self) -> int:
        """Sampled ids that are no tokens: they ask for more text, are silence beyond the fifth in a row, or ran away."""
        return self.num_ids - len(self.tokens)

    @property
    def is_speaking(self) -> bool:
        """Return whether a call of flow and vocoder is under way."""
        return self.speaking_ms > 0.0

    @property
    def is_ready(self) -> bool:
        """Return whether the flow can be called."""
        return bool(self.tokens) and not self.is_speaking and (self.is_sampled or not self.is_last_call)

    @property
    def is_sampling(self) -> bool:
        """Return whether a round of the language model brings it on."""
        return not self.is_sampled and (self.bistream is None or self.bistream.state is not BistreamState.WAITING)

    @property
    def waits_for_first(self) -> bool:
        """Return whether its listener waits for a first piece that has not begun."""
        return self.stream.clock.is_first and self is self.stream.head and not self.is_speaking

    @property
    def is_moving(self) -> bool:
        """Return whether the device brings it on, with nothing from outside."""
        return self.is_ready or self.is_sampling or self.is_speaking

    @property
    def is_empty(self) -> bool:
        """Return whether the model had nothing to say."""
        return self.is_sampled and not self.tokens

    @property
    def takes_text(self) -> bool:
        """Return whether more text can be added."""
        return self.bistream is not None and not self.bistream.has_all_text

    @property
    def is_well_ahead(self) -> bool:
        """Return whether its listener can do without more of it for now. The first may sample all that its next call
        needs.
        """
        stream = self.stream
        ahead_ms = stream.clock.sent_ms - stream.taken_ms if self is stream.head else stream.ahead_ms
        return ahead_ms >= MAX_AHEAD_MS and not self.may_use_reserve

    @property
    def deadline_ms(self) -> float:
        """Return when its next audio is due: after what comes before it."""
        before = itertools.takewhile(lambda each: each is not self, self.stream.sequences)
        return self.stream.clock.deadline_ms + sum(each.unsent_ms for each in before) + self.speaking_ms

    @property
    def needed_tokens(self) -> int:
        """Tokens that must be there for the next flow call, unless they end before; a hop below a chunk is exact."""
        hop = self.hop if self.hop < CHUNK_TOKENS else hop_to_grid(self.num_prompt + self.num_given, self.hop)
        return self.num_given + hop + LOOKAHEAD_TOKENS

    @property
    def is_last_call(self) -> bool:
        """Return whether a flow call now would take the rest."""
        return len(self.tokens) < self.needed_tokens

    @property
    def num_needed(self) -> int:
        """Tokens that the next flow call waits for, as far as can be told."""
        return min(self.needed_tokens, len(self.tokens) + CHUNK_TOKENS)

    @property
    def num_keys(self) -> int:
        """Frames that a flow call now would attend to."""
        return FRAMES_PER_TOKEN * (self.num_prompt + min(len(self.tokens), self.needed_tokens))

    @property
    def num_frames(self) -> int:
        """Frames that it would solve: those since the last line of the chunk grid."""
        num_chunks = (self.num_prompt + self.num_given) // CHUNK_TOKENS
        return self.num_keys - FRAMES_PER_TOKEN * CHUNK_TOKENS * num_chunks

    @property
    def num_new_pages(self) -> int:
        """Pages that it would take, or one or two more."""
        return -(-self.num_frames // (FRAMES_PER_TOKEN * CHUNK_TOKENS)) + 1

    @property
    def text_chunk_index(self) -> int:
        """The text chunk that it would speak; the last one, if it is the last call."""
        num_text = sys.maxsize if self.is_last_call else self.num_given * TEXT_GROUP // SPEECH_GROUP
        return self.marks[bisect.bisect_right(self.marks, (num_text, sys.maxsize)) - 1][1]

    @property
    def unsent_ms(self) -> float:
        """Audio of the tokens that were sampled and not given out."""
        return (len(self.tokens) - self.num_given) * MS_PER_TOKEN / self.stream.speed + self.speaking_ms

    def next_job(self) -> SpeakJob:
        """The next call of flow and vocoder, which takes its tokens."""
        given, begin = self.num_given, self.num_given + LOOKAHEAD_TOKENS if self.num_given else 0
        tokens, is_first, is_last = self.tokens[begin : self.needed_tokens], not self.num_given, self.is_last_call
        self.num_given = len(self.tokens) if is_last else self.needed_tokens - LOOKAHEAD_TOKENS
        speed = self.stream.speed
        self.speaking_ms = (self.num_given - given) * MS_PER_TOKEN / speed
        return SpeakJob(slot=self.slot, tokens=tokens, is_first=is_first, is_last=is_last, seed=self.seed, speed=speed)

    def take_sampled(self, ids: Row[int], *, stopped: bool) -> Alarm | None:
        """Take what the language model has sampled; if it has run away, returns an alarm and leaves out what came after it.
        Raises ``EngineFailed`` for an id that has no meaning here.
        """
        if self.is_sampled:
            return None
        alarm = None
        for sampled in ids:
            self.num_ids += 1
            alarm = alarm or self._take(sampled)
        if stopped and self.prefill is None and self.guard is not None and self._is_at_limit(self.guard):
            return alarm or self.guard.at_limit(len(self.tokens))
        if alarm is not None:
            self.num_ids += stopped  # an id that ends speech is not among them
        elif stopped and self.prefill is None:
            self.is_sampled = self.bistream is None
            self._extend()
        return alarm

    def _is_at_limit(self, guard: RunawayGuard) -> bool:
        """Whether it was stopped by the model's limit, and not by an id that ends speech."""
        return self.num_ids >= guard.max_ids if self.bistream is None else self.bistream.is_at_limit

    def _take(self, sampled: int) -> Alarm | None:
        token = sampled if self.bistream is None else self.bistream.take(sampled)
        if token is None:
            return None
        guard, self.num_silent = self.guard, self.num_silent + 1 if token in self.silent_tokens else 0
        if self.num_silent > MAX_SILENT_IN_A_ROW:
            num_good = len(self.tokens) - MAX_SILENT_IN_A_ROW
            return guard.look_at_silence(self.num_silent, num_good) if guard is not None else None
        self.tokens.append(token)
        return guard.look(self.tokens, self.num_ids - 1) if guard is not None else None

    def turn_back(self, alarm: Alarm) -> bool:
        """Forget what has run away, but for what the flow has; returns whether the rest is sampled once more."""
        assert self.guard is not None
        num_flowed = self.num_given + LOOKAHEAD_TOKENS if self.num_given else 0
        del self.tokens[max(alarm.num_good or 0, num_flowed) :]
        self.num_silent = 0
        self.prefill = self.guard.turn_back(alarm, self.tokens, self.num_ids)
        self.is_sampled = self.prefill is None
        return not self.is_sampled

    @property
    def unsaid(self) -> Row[tuple[int, float]]:
        """The text chunks that it did not say to their end, as it had run away, and how much of each it said, 0 to 1."""
        return () if self.guard is None else self.guard.unsaid(self.marks, self.num_text)

    def add_text(self, ids: Row[int], *, text_chunk_index: int) -> None:
        """More of an interleaved text, in tokens."""
        assert self.bistream is not None
        self.marks.append((self.num_text, text_chunk_index))
        self.num_text += len(ids)
        if self.guard is not None:
            self.guard.add_text(len(ids))
        self.bistream.add_text(ids)
        self._extend()

    def end_text(self) -> None:
        """An interleaved text has ended."""
        assert self.bistream is not None
        self.bistream.end_text()
        self._extend()

    def _extend(self) -> None:
        """Extend an interleaved sequence that has stopped, if more text has come or the text has ended."""
        if self.bistream is not None and self.prefill is None:
            self.prefill = self.bistream.next_prefill()
            self.is_sampled = self.bistream.state is BistreamState.DONE


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    stream_id: int
    voice_id: str
    speed: float
    clock: ListenerClock
    instruction: Row[int] = ()  # text tokens; none: as its voice speaks
    is_interleaved: bool = False  # its text chunks extend one sequence (§3.5)
    cut_chunk: tuple[int, int] = (-1, 0)  # the index of the text chunk that was begun last, and its characters
    texts: deque[tuple[int, str]] = field(default_factory=deque)  # that are no sequence yet, with their indices
    held_text: str = ""  # interleaved, before the first word
    sequences: deque[Sequence] = field(default_factory=deque)
    has_ended: bool = False
    taken_ms: float = 0.0

    @property
    def head(self) -> Sequence | None:
        """The sequence whose audio comes next."""
        return self.sequences[0] if self.sequences else None

    @property
    def sampling(self) -> Sequence | None:
        """The sequence that the language model is not done with; there is one at most."""
        return self.sequences[-1] if self.sequences and not self.sequences[-1].is_sampled else None

    @property
    def ahead_ms(self) -> float:
        """Audio that was handed out and not taken, with the tokens that will be audio as soon as it is wanted."""
        return self.clock.sent_ms - self.taken_ms + sum(sequence.unsent_ms for sequence in self.sequences)

    @property
    def owes_nothing(self) -> bool:
        """Return whether only more text, or the end of it, brings the next audio."""
        head = self.head
        return not self.texts and (head is None or not (head.is_sampled or head.is_moving))

    @property
    def left_ms(self) -> float:
        """Return how long until its last audio is handed out; infinite while its length is not known."""
        if not self.has_ended or self.texts or not all(sequence.is_sampled for sequence in self.sequences):
            return math.inf
        return max(0.0, self.ahead_ms - MAX_AHEAD_MS)

    @property
    def is_over(self) -> bool:
        """Return whether all that will ever be said has been said."""
        return self.has_ended and not self.texts and not self.sequences
