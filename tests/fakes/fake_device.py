"""A device without a network: slots, pages and voices are counted, what is sampled follows from the seed, time is virtual.

::

    Engine ─▸ FakeDevice.start · decode · speak ─▸ FakeClock goes on by what that costs

With ``overlaps`` a call of flow and vocoder ends after its time, whatever is done meanwhile, and asserts that nobody asks
for its audio before, that no other begins, and that a slot which is released under it is wiped.

The audio of a token is 40 ms of its number, so all audio of a stream is the same whatever the hops were.
It asserts what the real device would refuse: a slot that is used twice, extended while it runs, or spoken with tokens that
were not sampled.
"""

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_tts.engines.cosyvoice.engine.device import (
    PagesExhausted,
    Sampled,
    SlotPrefill,
    SpeakJob,
    SpokenBatch,
)
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from cc_tts.engines.cosyvoice.engine.sequence import MAX_SILENT_IN_A_ROW
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits, SpeechIds, Table, speech_inputs
from cc_tts.engines.cosyvoice.prefill import Bistream, Prefill, SamplingRules
from cc_tts.errors import UnknownVoice, Unprocessable
from cc_tts.voices.inline_ipa import without_pronunciations
from tests.fakes.fake_line import FakeClock

IDS: Final = SpeechIds(num_codes=200)
UNUSABLE: Final = "unusable"
"""A text with this word is refused."""
VOICES: Final = {"anna": 45, "ben": 0, "cleo": 30, "dora": 38}
"""Speech tokens of their prompts."""
BYTES_PER_TOKEN: Final = 1920
MUTE: Final = "mute"
"""A text of which the model makes no sound."""


@dataclass
class FakeCosts:
    """ms; those of a batch are together."""

    start_ms: float = 4.0
    lm_step_ms: float = 2.0
    call_ms: float = 10.0
    call_ms_per_row: float = 0.5


@dataclass
class _Slot:
    voice_id: str
    seed: int
    rules: SamplingRules
    num_to_sample: int
    """Until the end of speech."""
    num_inputs: int = 0
    sampled: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    """The speech tokens that the model has in its cache, or was just given."""
    num_kept: int = 0
    """Of these, when it was turned back."""
    script: Iterator[int] | None = None
    """What it samples until the end of speech, if that is given."""
    news: list[int] = field(default_factory=list)
    is_stopped: bool = False
    has_failed: bool = False
    num_told: int = 0
    spoken: list[int] = field(default_factory=list)
    num_given: int = 0
    num_pages: int = 0


class FakeFront:
    max_words = 60

    def __init__(self) -> None:
        self.num_calls = 0
        """Texts that were cut or turned into tokens."""

    def instruction(self, text: str) -> tuple[int, ...]:
        return tuple(range(1, 1 + len(text.split())))

    def prepare(
        self, voice_id: str, text: str, *, more_follows: bool = False, instruction: Sequence[int] = ()
    ) -> Prefill | None:
        if UNUSABLE in text:
            raise Unprocessable("a text that is too long for the model")
        ids = self.text_ids(voice_id, text)
        if not any(character.isalnum() for character in text):
            return None
        limits = LengthLimits(0 if MUTE in text else 2, 20 * len(ids))
        inputs = IDS.unistream_inputs(instruction, ids, ())
        return Prefill(inputs, SamplingRules.of_request(limits), num_likely=5.0 * sum(1 for each in ids if each))

    def spelled(self, text: str) -> str:
        return without_pronunciations(text)

    def cut(self, text: str, instruction: Sequence[int] = ()) -> tuple[str, str]:
        self.num_calls += 1
        return text, ""

    def begin_interleaved(self, voice_id: str, instruction: Sequence[int] = ()) -> Bistream:
        assert voice_id in VOICES
        return Bistream(instruction, speech_ids=IDS)

    def text_ids(self, voice_id: str, text: str, instruction: Sequence[int] = ()) -> tuple[int, ...]:
        self.num_calls += 1
        assert voice_id in VOICES
        return tuple(0 if word == MUTE else 1 + zlib.crc32(word.encode()) % 100 for word in text.split())

    def max_interleaved(self, voice_id: str, instruction: Sequence[int] = ()) -> int:
        assert voice_id in VOICES
        return self.max_words

    def seed(self, voice_id: str, text: str) -> int:
        return zlib.crc32(f"{voice_id}/{text}".encode())

    def num_flow_prompt(self, voice_id: str) -> int:
        if voice_id not in VOICES:
            raise UnknownVoice(f"no voice is called {voice_id!r}")
        return VOICES[voice_id]


@dataclass
class FakeSpeaking:
    """See :class:`cc_tts.engines.cosyvoice.engine.device.Speaking`."""

    made: SpokenBatch
    end_ms: float
    clock: FakeClock
    device: "FakeDevice"
    slots: tuple[int, ...]
    error: Exception | None = None
    held: set[int] = field(default_factory=set)
    """Those that were not released since."""

    @property
    def is_done(self) -> bool:
        return self.clock.at_ns / 1e6 >= self.end_ms - 1e-6

    def wait(self, limit_ms: float) -> bool:
        if not self.is_done:
            self.clock.advance(min(limit_ms, self.end_ms - self.clock.at_ns / 1e6))
        if self.is_done and self.error is not None:
            self.device.under_way = None
            raise self.error
        return self.is_done

    def batch(self) -> SpokenBatch:
        assert self.is_done, "audio that is not there yet"
        assert self.device.under_way is self, "audio that was handed out"
        self.device.under_way = None
        return self.made


class FakeDevice:
    """See :class:`cc_tts.engines.cosyvoice.engine.device.Device`."""

    def __init__(
        self,
        clock: FakeClock,
        *,
        num_slots: int = 8,
        num_pages: int = 1000,
        costs: FakeCosts | None = None,
        overlaps: bool = False,
    ) -> None:
        self.overlaps = overlaps
        self.under_way: FakeSpeaking | None = None
        """The call whose audio nobody has asked for."""
        self.num_beside = 0
        """Rounds of the language model while a call was under way."""
        self.num_slots = num_slots
        self.max_tokens = 2048
        self.silent_tokens: frozenset[int] = frozenset()
        self.num_pages = num_pages
        self.num_not_finite = 0
        self.costs = costs or FakeCosts()
        self.slots: dict[int, _Slot] = {}
        self.voices: dict[str, int] = {}
        """Pages of each voice that is kept."""
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        """What was called, for which slots."""
        self.wiped: list[int] = []
        self.errors: dict[str, list[Exception]] = {"start": [], "decode": [], "speak": [], "batch": []}
        """Raised by the next calls; ``batch``: by a call that has begun, when it ends."""
        self.broken_sampling: set[int] = set()
        self.broken_speech: set[int] = set()
        """Seeds of sequences whose numbers are not finite."""
        self.scripts: dict[int, list[Iterable[int]]] = {}
        """By seed: what a sequence samples, and what it samples when it is turned back."""
        self._clock = clock

    # --- pages

    def forget(self, voice_id: str) -> None:
        """Nothing is kept of voices."""

    def pages_needed(self, voice_id: str, num_tokens: int) -> int:
        own = _pages(VOICES[voice_id] + num_tokens) - _final(VOICES[voice_id])
        return own if voice_id in self.voices else own + _final(VOICES[voice_id])

    @property
    def num_free_pages(self) -> int:
        held = sum(each.num_pages for each in self.slots.values())
        users = {each.voice_id for each in self.slots.values()}
        return self.num_pages - held - sum(pages for voice_id, pages in self.voices.items() if voice_id in users)

    def _take(self, num_pages: int) -> None:
        if num_pages > self.num_free_pages:
            raise PagesExhausted(f"{num_pages} pages are needed and {self.num_free_pages} free", retry_after_s=1)
        users = {each.voice_id for each in self.slots.values()}
        if num_pages > self.num_free_pages - sum(p for v, p in self.voices.items() if v not in users):
            self.voices = {voice_id: pages for voice_id, pages in self.voices.items() if voice_id in users}

    # --- the language model

    @property
    def num_rows(self) -> int:
        return max(self.slots, default=0) + 1

    def start(self, prefills: Sequence[SlotPrefill]) -> None:
        self._called("start", [prefill.slot for prefill in prefills])
        for voice_id in {each.voice_id for each in prefills if not each.prefill.extends} - self.voices.keys():
            self._take(_final(VOICES[voice_id]))
            self.voices[voice_id] = _final(VOICES[voice_id])
        for each in prefills:
            rules = each.prefill.rules
            if each.prefill.extends:
                slot = self.slots[each.slot]
                self._turn_back(slot, each.prefill)
                assert slot.is_stopped, "extended while it runs"
                slot.rules, slot.is_stopped = rules, False
            else:
                assert each.slot not in self.slots, "a slot is used twice"
                slot = self.slots[each.slot] = _Slot(each.voice_id, each.seed, rules, 0, len(each.prefill.inputs))
                self._take_script(slot)
            text = [given.row for given in each.prefill.inputs if given.table is Table.TEXT]
            length = random.Random(f"{each.seed}/{len(slot.sampled)}").randint(3, 7)
            slot.num_to_sample = len(slot.sampled) + length * sum(1 for row in text if row)
            self._sample(slot, 1)
        self._clock.advance(self.costs.start_ms)

    def _turn_back(self, slot: _Slot, prefill: Prefill) -> None:
        """Go on after an earlier position; its input must be what was there."""
        if prefill.keeps is None:
            return
        num_said = prefill.keeps - slot.num_inputs + 1
        assert 0 <= num_said <= len(slot.said)
        del slot.said[num_said:]
        if num_said:
            assert prefill.inputs == speech_inputs(slot.said[-1:])
        slot.is_stopped, slot.num_kept = True, num_said
        self._take_script(slot)

    def _take_script(self, slot: _Slot) -> None:
        scripts = self.scripts.get(slot.seed)
        slot.script = iter(scripts.pop(0)) if scripts else None

    def decode(self, until: Mapping[int, int], num_steps: int) -> dict[int, Sampled]:
        self._called("decode", list(until))
        self.num_beside += self.under_way is not None and not self.under_way.is_done
        for number, limit in until.items():
            slot = self.slots[number]
            self._sample(slot, min(num_steps, limit - len(slot.sampled)))
        self._clock.advance(num_steps * self.costs.lm_step_ms)
        answers = {}
        for number, slot in self.slots.items():
            answers[number] = Sampled(tuple(slot.news), slot.is_stopped, slot.has_failed)
            slot.news.clear()
        return answers

    def _sample(self, slot: _Slot, count: int) -> None:
        rules = slot.rules
        for _ in range(count):
            if slot.is_stopped:
                return
            if slot.seed in self.broken_sampling and len(slot.sampled) >= 5:
                slot.is_stopped = slot.has_failed = True
                self.num_not_finite += 1
                return
            number = len(slot.sampled)
            sampled = zlib.crc32(f"{slot.seed}.{number}".encode()) % IDS.num_codes
            if slot.script is not None:
                sampled = next(slot.script, IDS.end)
            elif rules.forced_fill_at == number:
                sampled = IDS.fill
            elif rules.forced_fill_at is None and number >= max(rules.min_sampled, slot.num_to_sample):
                sampled = IDS.end
            slot.sampled.append(sampled)
            if sampled < IDS.num_codes:
                slot.said.append(sampled)
            if sampled < IDS.num_codes or rules.reports_special:
                slot.news.append(sampled)
            slot.is_stopped = sampled >= IDS.num_codes or len(slot.sampled) >= rules.max_sampled

    # --- flow and vocoder

    def speak(self, jobs: Sequence[SpeakJob]) -> FakeSpeaking:
        self._called("speak", [job.slot for job in jobs])
        assert self.under_way is None, "two calls at a time"
        needs = []
        for job in jobs:
            slot = self.slots[job.slot]
            assert not job.is_first or not slot.spoken
            needs.append(self._pages_of(slot, job) - slot.num_pages)
        self._take(sum(needs))
        pieces = []
        for job, need in zip(jobs, needs, strict=True):
            slot = self.slots[job.slot]
            slot.num_pages += need
            pieces.append(self._piece(slot, job))
        cost_ms = self.costs.call_ms + len(jobs) * self.costs.call_ms_per_row
        begin_ms = self._clock.at_ns / 1e6
        if not self.overlaps:
            self._clock.advance(cost_ms)
        made = SpokenBatch(pieces, cost_ms * 0.8, cost_ms * 0.2)
        error = self.errors["batch"].pop(0) if self.errors["batch"] else None
        slots = tuple(job.slot for job in jobs)
        self.under_way = FakeSpeaking(made, begin_ms + cost_ms, self._clock, self, slots, error, set(slots))
        return self.under_way

    def _pages_of(self, slot: _Slot, job: SpeakJob) -> int:
        num_prompt = VOICES[slot.voice_id]
        return _pages(num_prompt + len(slot.spoken) + len(job.tokens)) - _final(num_prompt)

    def _piece(self, slot: _Slot, job: SpeakJob) -> bytes | None:
        slot.spoken += job.tokens
        assert slot.spoken == self._heard(slot)[: len(slot.spoken)], "tokens lost or twice"
        assert job.seed == slot.seed
        assert job.is_first == (slot.num_given == 0)
        end = len(slot.spoken) - (0 if job.is_last else LOOKAHEAD_TOKENS)
        if not job.is_last:
            num_prompt = VOICES[slot.voice_id]
            end = (num_prompt + end) // CHUNK_TOKENS * CHUNK_TOKENS - num_prompt
        assert end > slot.num_given, "a call that gives nothing"
        tokens, slot.num_given = slot.spoken[slot.num_given : end], end
        if slot.seed in self.broken_speech:
            self.num_not_finite += 1
            return None
        length = int(BYTES_PER_TOKEN / 2 / job.speed) * 2
        return b"".join(bytes([token]) * length for token in tokens)

    def _heard(self, slot: _Slot) -> list[int]:
        """The tokens that become audio: no more silence than a pause."""
        heard, num_silent = [], 0
        for place, token in enumerate(slot.said):
            num_silent = 0 if token not in self.silent_tokens else 1 if place == slot.num_kept else num_silent + 1
            if num_silent <= MAX_SILENT_IN_A_ROW:
                heard.append(token)
        return heard

    def release(self, slot: int, *, wipe: bool = False) -> None:
        if self.under_way is not None and slot in self.under_way.held:
            self.under_way.held.discard(slot)
            assert wipe or self.under_way.is_done, "its numbers may not be finite"
        if self.slots.pop(slot, None) is not None and wipe:
            self.wiped.append(slot)

    def _called(self, name: str, slots: list[int]) -> None:
        assert len(set(slots)) == len(slots)
        self.calls.append((name, tuple(slots)))
        if self.errors[name]:
            raise self.errors[name].pop(0)


def _pages(num_tokens: int) -> int:
    return -(-num_tokens // CHUNK_TOKENS)


def _final(num_prompt: int) -> int:
    return max(0, num_prompt - LOOKAHEAD_TOKENS) // CHUNK_TOKENS
