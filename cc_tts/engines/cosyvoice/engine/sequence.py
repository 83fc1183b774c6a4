"""A text chunk in the engine, and the stream that it belongs to.

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
"""A longer run of silence is cut: 200 ms are a pause, seconds of it are a fault of the model (unmeasured)."""
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
    """The tokens of the next flow call, before they are rounded up to the grid; ``ALL_AT_ONCE`` if the speed is changed
    (§6).
    """
    silent_tokens: frozenset[int] = frozenset()
    prefill: Prefill | None = None  # to be done next
    is_sampled: bool = False  # the language model is done
    tokens: list[int] = field(default_factory=list)
    num_ids: int = 0  # sampled, all of them
    num_silent: int = 0  # sampled last, in a row
    num_given: int = 0  # whose frames were given out, or are being made
    speaking_ms: float = 0.0  # audio of the call of flow and vocoder that is under way
    may_use_reserve: bool = False
    """Whether its flow may use the reserved pages; it is then spoken to its end, however far ahead of its listener."""
    marks: list[tuple[int, int]]
    """The text tokens before each text chunk, and its index. The counts are 0 unless the text is interleaved."""
    bistream: Bistream | None = None
    """The state of an interleaved text, with the next two: its text tokens so far, and what the next text chunk is joined
    to.
    """
    num_text: int = 0
    last_text: str = ""
    guard: RunawayGuard | None = None

    @property
    def num_unspoken(self) -> int:
        """The sampled ids that become no audio: requests for more text, silence beyond the fifth in a row, and runaway
        speech.
        """
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
        """Return whether a round of the language model would advance it."""
        return not self.is_sampled and (self.bistream is None or self.bistream.state is not BistreamState.WAITING)

    @property
    def waits_for_first(self) -> bool:
        """Return whether its listener waits for a first piece that was not begun."""
        return self.stream.clock.is_first and self is self.stream.head and not self.is_speaking

    @property
    def is_moving(self) -> bool:
        """Return whether the device can advance it without any input."""
        return self.is_ready or self.is_sampling or self.is_speaking

    @property
    def is_empty(self) -> bool:
        """Return whether the model produced no speech."""
        return self.is_sampled and not self.tokens

    @property
    def takes_text(self) -> bool:
        """Return whether more text can be added."""
        return self.bistream is not None and not self.bistream.has_all_text

    @property
    def is_well_ahead(self) -> bool:
        """Return whether its listener needs no more of it for now. The first sequence may sample all that its next call
        needs.
        """
        stream = self.stream
        ahead_ms = stream.clock.sent_ms - stream.taken_ms if self is stream.head else stream.ahead_ms
        return ahead_ms >= MAX_AHEAD_MS and not self.may_use_reserve

    @property
    def deadline_ms(self) -> float:
        """Return when its next audio is due: after the audio before it."""
        before = itertools.takewhile(lambda each: each is not self, self.stream.sequences)
        return self.stream.clock.deadline_ms + sum(each.unsent_ms for each in before) + self.speaking_ms

    @property
    def needed_tokens(self) -> int:
        """The tokens that the next flow call needs, unless the speech ends before; a hop shorter than a chunk is exact."""
        hop = self.hop if self.hop < CHUNK_TOKENS else hop_to_grid(self.num_prompt + self.num_given, self.hop)
        return self.num_given + hop + LOOKAHEAD_TOKENS

    @property
    def is_last_call(self) -> bool:
        """Return whether a flow call now would cover the rest."""
        return len(self.tokens) < self.needed_tokens

    @property
    def num_needed(self) -> int:
        """The tokens that the next flow call waits for, as far as known."""
        return min(self.needed_tokens, len(self.tokens) + CHUNK_TOKENS)

    @property
    def num_keys(self) -> int:
        """The frames that a flow call would attend to now."""
        return FRAMES_PER_TOKEN * (self.num_prompt + min(len(self.tokens), self.needed_tokens))

    @property
    def num_frames(self) -> int:
        """The frames that it would solve: those since the last grid line."""
        num_chunks = (self.num_prompt + self.num_given) // CHUNK_TOKENS
        return self.num_keys - FRAMES_PER_TOKEN * CHUNK_TOKENS * num_chunks

    @property
    def num_new_pages(self) -> int:
        """An upper bound of the pages that it would allocate, at most two above them."""
        return -(-self.num_frames // (FRAMES_PER_TOKEN * CHUNK_TOKENS)) + 1

    @property
    def text_chunk_index(self) -> int:
        """The text chunk that it would speak; the last one, if it is the last call."""
        num_text = sys.maxsize if self.is_last_call else self.num_given * TEXT_GROUP // SPEECH_GROUP
        return self.marks[bisect.bisect_right(self.marks, (num_text, sys.maxsize)) - 1][1]

    @property
    def unsent_ms(self) -> float:
        """The audio of the tokens that were sampled but not handed out."""
        return (len(self.tokens) - self.num_given) * MS_PER_TOKEN / self.stream.speed + self.speaking_ms

    def next_job(self) -> SpeakJob:
        """Return the next job for flow and vocoder, and take its tokens."""
        given, begin = self.num_given, self.num_given + LOOKAHEAD_TOKENS if self.num_given else 0
        tokens, is_first, is_last = self.tokens[begin : self.needed_tokens], not self.num_given, self.is_last_call
        self.num_given = len(self.tokens) if is_last else self.needed_tokens - LOOKAHEAD_TOKENS
        speed = self.stream.speed
        self.speaking_ms = (self.num_given - given) * MS_PER_TOKEN / speed
        return SpeakJob(slot=self.slot, tokens=tokens, is_first=is_first, is_last=is_last, seed=self.seed, speed=speed)

    def take_sampled(self, ids: Row[int], *, stopped: bool) -> Alarm | None:
        """Take what the language model has sampled; if it runs away, return an alarm and drop what came after it. Raises
        ``EngineFailed`` for an id without a meaning here.
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
        """Return whether the model's limit stopped it, and not an id that ends speech."""
        return self.num_ids >= guard.max_ids if self.bistream is None else self.bistream.is_at_limit

    def _take(self, sampled: int) -> Alarm | None:
        token = sampled if self.bistream is None else self.bistream.take(sampled)
        if token is None:
            return None
        guard, self.num_silent = self.guard, self.num_silent + 1 if token in self.silent_tokens else 0
        if self.num_silent > MAX_SILENT_IN_A_ROW:
            num_good = len(self.tokens) - MAX_SILENT_IN_A_ROW
            return guard.check_silence(self.num_silent, num_good) if guard is not None else None
        self.tokens.append(token)
        return guard.look(self.tokens, self.num_ids - 1) if guard is not None else None

    def turn_back(self, alarm: Alarm) -> bool:
        """Forget the runaway speech, except what the flow has already taken; return whether the rest will be
        sampled again.
        """
        assert self.guard is not None
        num_flowed = self.num_given + LOOKAHEAD_TOKENS if self.num_given else 0
        del self.tokens[max(alarm.num_good or 0, num_flowed) :]
        self.num_silent = 0
        self.prefill = self.guard.turn_back(alarm, self.tokens, self.num_ids)
        self.is_sampled = self.prefill is None
        return not self.is_sampled

    @property
    def unsaid(self) -> Row[tuple[int, float]]:
        """Return the text chunks that it did not finish, as it ran away, and how much of each it said, 0 to 1."""
        return () if self.guard is None else self.guard.unsaid(self.marks, self.num_text)

    def add_text(self, ids: Row[int], *, text_chunk_index: int) -> None:
        """Add more of an interleaved text, in tokens."""
        assert self.bistream is not None
        self.marks.append((self.num_text, text_chunk_index))
        self.num_text += len(ids)
        if self.guard is not None:
            self.guard.add_text(len(ids))
        self.bistream.add_text(ids)
        self._extend()

    def end_text(self) -> None:
        """Note that an interleaved text has ended."""
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
        """The sequence that the language model still works on; there is at most one."""
        return self.sequences[-1] if self.sequences and not self.sequences[-1].is_sampled else None

    @property
    def ahead_ms(self) -> float:
        """The audio that was handed out but not taken, including tokens that become audio as soon as it is wanted."""
        return self.clock.sent_ms - self.taken_ms + sum(sequence.unsent_ms for sequence in self.sequences)

    @property
    def owes_nothing(self) -> bool:
        """Return whether the next audio depends only on more text, or on its end."""
        head = self.head
        return not self.texts and (head is None or not (head.is_sampled or head.is_moving))

    @property
    def left_ms(self) -> float:
        """Return how long until its last audio is handed out; infinite while its length is unknown."""
        if not self.has_ended or self.texts or not all(sequence.is_sampled for sequence in self.sequences):
            return math.inf
        return max(0.0, self.ahead_ms - MAX_AHEAD_MS)

    @property
    def is_over(self) -> bool:
        """Return whether everything has been said and no more text will come."""
        return self.has_ended and not self.texts and not self.sequences
