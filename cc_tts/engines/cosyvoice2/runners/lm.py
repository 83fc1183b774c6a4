"""Many sequences of speech tokens, drawn together (§3; engine-performance §5.1).

::

    start, feed ─▸ prefill (ragged, draws the first id) ─┐
                                                         ├─▸ slots on the device ─▸ decode: n steps, then ONE copy ─▸ ids
    until (how far each slot may run ahead) ─────────────┘

A slot is a place in the cache and a row of numbers (:mod:`lm_slots`). The same ids are sampled in whatever batch a sequence
is: those of ``generation.speak`` and ``speak_streamed`` with ``SeededRas``. Nothing waits for the device but the end of
:meth:`LmRunner.decode`.

Runs on: the thread that owns the device.
"""

import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice2.engine.sampling_rules import SamplingRules
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import SOS, LmInput, Table, text_inputs
from cc_tts.engines.cosyvoice2.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice2.runners.graphs import GraphedCall, bucket_of, buckets_up_to, thinned, upload
from cc_tts.engines.cosyvoice2.runners.lm_slots import KEPT, NUM_TOLD, Column, Flag, SlotRows, numbers_of
from cc_tts.engines.cosyvoice2.runners.sampler import RasParams
from cc_tts.errors import EngineFailed

__all__ = ["Drawn", "LmFeed", "LmRunner", "LmVoice", "SamplingRules"]

ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
PREFILL_ROW_BUCKETS: Final = (1, 2, 4, 8, 16)
WIDTH_BUCKETS: Final = (8, 16, 32, 64, 128, 256, 512)
KEY_BUCKETS: Final = (128, 256, 512, 1024, 2048, 4096)

_HEAD: Final = 4  # of a packed feeding: slot, fresh, start, num_new; then the numbers of the slot, tables and rows


@dataclass(frozen=True, slots=True)
class LmVoice:
    """Keys and values of what every text of a voice begins with, kept on the device."""

    inputs: tuple[LmInput, ...]  # SOS and the prompt's text
    cached: Tensor  # [layers, 2, kv_heads, positions, head_dim]


@dataclass(frozen=True, slots=True)
class LmFeed:
    """What to feed a slot, and how to draw then."""

    slot: int
    inputs: Sequence[LmInput]
    rules: SamplingRules
    seed: int | None = None
    """Decides, with the inputs, what is drawn; a signed number of 64 bits. None: a fresh one. Unused with ``goes_on``."""
    voice: LmVoice | None = None
    """Spares the inputs it has in common with these. Unused with ``goes_on``."""
    goes_on: bool = False
    """Feed after the past of the slot, which must have stopped; otherwise the slot must be free, and begins."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a slot has drawn since it was last asked."""

    ids: tuple[int, ...]
    """Speech tokens. With ``rules.reports_special`` the special id that stopped the slot is the last one: FILL, say."""
    stopped: bool
    """It draws no more until it is fed, if ever."""
    failed: bool = False
    """It stopped because its numbers were not finite, or because it filled its slot of the cache. Release it."""


@dataclass(slots=True)
class _Used:
    """What the host knows of a slot in use: the state after the last decode, and what was fed since."""

    length: int = 0
    num_drawn: int = 0
    flags: Flag = Flag.NONE


@dataclass(frozen=True, slots=True)
class _Feeding:
    """A feeding that was found to be possible."""

    feed: LmFeed
    start: int  # positions that need not be run
    new: Sequence[LmInput]

    @property
    def end(self) -> int:
        return self.start + len(self.new)


class LmRunner:
    """The language model with a fixed number of slots; whoever uses it chooses them, the lowest free one at best.

    Args:
        lm: the network.
        num_slots: how many sequences there can be at a time.
        num_positions: how long each can become, inputs and speech tokens together.
        params: how to draw.
        max_steps: the most steps of one decode.
        graphs: record CUDA graphs.

    """

    def __init__(
        self,
        lm: SpeechLm,
        *,
        num_slots: int,
        num_positions: int,
        params: RasParams | None = None,
        max_steps: int = 64,
        graphs: bool = False,
    ) -> None:
        if min(num_slots, num_positions, max_steps) < 1:
            raise ValueError("slots, positions and steps must be at least 1")
        self.num_slots = num_slots
        self.num_positions = num_positions
        self.max_steps = max_steps
        self.num_not_finite = 0
        """Sequences that stopped because their numbers were not finite."""
        self.num_full = 0
        """Sequences that stopped because they filled their slot."""
        self._lm = lm
        self._ids = lm.config.speech_ids
        self._params = RasParams() if params is None else params
        # One slot more than there are: rows that only fill a batch up read and write there.
        self._cache = lm.new_cache(num_slots + 1, num_positions)
        self._rows = SlotRows.new(num_slots + 1, max_out=max_steps + 1, params=self._params, device=lm.device)
        self._kept = torch.tensor([column in KEPT for column in Column], device=lm.device)
        self._table_sizes = np.array([2, lm.config.text_vocab_size, lm.config.num_speech_codes])
        self._used: dict[int, _Used] = {}
        self._step = GraphedCall(self._run_step, enabled=graphs)
        self._prefill = GraphedCall(self._run_prefill, enabled=graphs)

    @torch.inference_mode()
    def warm_up(self, *, max_width: int = 128, step: int = 1) -> None:
        """Run each shape of decodes, and of feedings of up to ``max_width`` inputs, once; only these have graphs then.

        Args:
            max_width: inputs of a feeding at most.
            step: every so many-th number of rows is enough.

        Raises:
            ValueError: a slot is in use.

        """
        if self._used:
            raise ValueError("slots are in use")
        for key in self.step_keys(step=step):
            self.record_step(key)
        for num_rows, width, num_keys in self.prefill_keys(max_width, step=step):
            self._run_feedings([], num_rows, width, num_keys)
        self._step.freeze()
        self._prefill.freeze()

    @property
    def num_rows(self) -> int:
        """Rows that a decode step computes: all up to the highest slot in use, and more to fill a size up."""
        return min(bucket_of(max(self._used, default=0) + 1, ROW_BUCKETS), self.num_slots)

    @torch.inference_mode()
    def record_step(self, key: tuple[int, int]) -> None:
        """Run and record one shape of decodes, of slots that draw nothing."""
        self._rows.column(Column.UNTIL).zero_()
        self._step.call(key)

    def step_keys(self, num_slots: int = 0, *, step: int = 1) -> list[tuple[int, int]]:
        """Rows and keys of the decode steps that there can be with so many slots, or with its own; the largest first."""
        num_slots = num_slots or self.num_slots
        rows = {min(bucket, num_slots) for bucket in buckets_up_to(num_slots, ROW_BUCKETS)}
        return list(itertools.product(thinned(sorted(rows), step), self._key_buckets()))

    def prefill_keys(self, max_width: int, *, step: int = 1) -> list[tuple[int, int, int]]:
        """Rows, width and keys of feedings of up to ``max_width`` inputs, the widest first."""
        widths = buckets_up_to(min(max_width, self.num_positions), WIDTH_BUCKETS)
        rows, keys = thinned(PREFILL_ROW_BUCKETS, step), self._key_buckets()
        return [
            (num_rows, width, num_keys)
            for width, num_rows, num_keys in itertools.product(widths, rows, keys)
            if num_keys >= width or num_keys == self.num_positions
        ]

    def _key_buckets(self) -> list[int]:
        return sorted({self._num_keys(bucket) for bucket in KEY_BUCKETS}, reverse=True)

    @torch.inference_mode()
    def add_voice(self, prompt_text_ids: Iterable[int] | None = None) -> LmVoice:
        """Run what each text of a voice begins with, once. The voice lasts as long as it is held.

        Raises:
            ValueError: no such text tokens, or more than a slot has room for.

        """
        inputs = (SOS, *text_inputs(prompt_text_ids or ()))
        if len(inputs) > self.num_positions:
            raise ValueError(f"a prompt of {len(inputs)} positions does not fit into {self.num_positions}")
        self._check_inputs(inputs)
        tables, rows, num_new = self._lm.pack([inputs])
        _, cache = self._lm.prefill(self._lm.embed(tables, rows), num_new, self._lm.new_cache(1, len(inputs)))
        return LmVoice(inputs, cache[:, :, 0, :, : len(inputs)].clone())

    @torch.inference_mode()
    def start(self, feeds: Sequence[LmFeed]) -> None:
        """Feed slots and draw one id for each, which the next :meth:`decode` reports. All of them are fed, or none.

        Raises:
            ValueError: a slot is out of range or fed twice; it is in use, or with ``goes_on`` it has not stopped or has
                failed; the inputs or the seed are out of range.
            EngineFailed: the inputs do not fit into their slot.

        """
        if len({feed.slot for feed in feeds}) < len(feeds):
            raise ValueError("a slot is fed twice")
        by_width: dict[int, list[_Feeding]] = {}
        for feeding in [self._feeding(feed) for feed in feeds]:
            by_width.setdefault(bucket_of(len(feeding.new), WIDTH_BUCKETS), []).append(feeding)
        most = PREFILL_ROW_BUCKETS[-1]
        for width, alike in by_width.items():
            for batch in (alike[first : first + most] for first in range(0, len(alike), most)):
                num_keys = self._num_keys(max(feeding.end for feeding in batch))
                key = self._prefill.fit((bucket_of(len(batch), PREFILL_ROW_BUCKETS), width, num_keys))
                self._run_feedings(batch, *key)

    def feed(self, slot: int, inputs: Sequence[LmInput], rules: SamplingRules) -> None:
        """Go on with one stopped slot, see :meth:`start`."""
        self.start([LmFeed(slot, inputs, rules, goes_on=True)])

    @torch.inference_mode()
    def decode(self, until: Mapping[int, int], num_steps: int) -> dict[int, Drawn]:
        """Draw up to ``num_steps`` ids for each slot that has not stopped.

        Args:
            until: how many ids each slot may have drawn since it began, FILL among them; a slot that is not there pauses.
                The id that a feeding draws comes in any case.
            num_steps: at most ``max_steps``; with 0 only what feedings drew is reported.

        Returns:
            What each slot in use has drawn since the last call.

        Raises:
            ValueError: a slot that is not in use, or too many steps.

        """
        if not 0 <= num_steps <= self.max_steps:
            raise ValueError(f"{num_steps} steps at a time; there are 0 to {self.max_steps}")
        if not self._used.keys() >= until.keys():
            raise ValueError("a slot that is not in use cannot be decoded")
        wanted = {
            slot: min(num_steps, until[slot] - used.num_drawn)
            for slot, used in self._used.items()
            if slot in until and not used.flags and until[slot] > used.num_drawn
        }
        num_steps = max(wanted.values(), default=0)
        if num_steps:
            num_keys = self._num_keys(max(self._used[slot].length + steps for slot, steps in wanted.items()))
            num_rows, num_keys = self._step.fit((self.num_rows, num_keys))
            limits = upload(torch.tensor([until.get(slot, 0) for slot in range(num_rows)]), self._lm.device)
            self._rows.column(Column.UNTIL)[:num_rows].copy_(limits)
            for _ in range(num_steps):
                self._step.call((num_rows, num_keys))
        return self._collect(num_steps)

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Free a slot, whatever it is doing. A free slot stays free.

        Raises:
            ValueError: the slot is out of range.

        """
        self._check_slot(slot)
        if self._used.pop(slot, None) is not None:
            self._cache[:, :, slot].zero_()  # numbers that are not finite would reach the next sequence past any mask

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.num_slots:
            raise ValueError(f"slot {slot} of {self.num_slots}")

    def _check_inputs(self, inputs: Sequence[LmInput]) -> None:
        """An index past a table would take the whole device down."""
        tables, rows = _as_rows(inputs)
        unknown = (tables < 0) | (tables >= len(Table))
        if unknown.any() or ((rows < 0) | (rows >= self._table_sizes[tables])).any():
            raise ValueError("an input past the end of its table")

    def _feeding(self, feed: LmFeed) -> _Feeding:
        self._check_slot(feed.slot)
        if not feed.inputs:
            raise ValueError("nothing to feed")
        self._check_inputs(feed.inputs)
        if feed.seed is not None and not -(2**63) <= feed.seed < 2**63:
            raise ValueError("a seed is a signed number of 64 bits")
        used = self._used.get(feed.slot)
        if not feed.goes_on:
            if used is not None:
                raise ValueError(f"slot {feed.slot} is in use")
            start = 0 if feed.voice is None else _num_common(feed.voice.inputs, feed.inputs[:-1])
            feeding = _Feeding(feed, start, feed.inputs[start:])
        else:
            if used is None or used.flags != Flag.STOPPED:
                raise ValueError(f"slot {feed.slot} cannot go on")
            feeding = _Feeding(feed, used.length, feed.inputs)
        if feeding.end > self.num_positions:
            raise EngineFailed(f"a sequence of {feeding.end} positions does not fit into {self.num_positions}")
        return feeding

    def _num_keys(self, length: int) -> int:
        return min(bucket_of(length, KEY_BUCKETS), self.num_positions)

    def _run_feedings(self, batch: Sequence[_Feeding], num_rows: int, width: int, num_keys: int) -> None:
        packed = np.zeros((num_rows, _HEAD + len(Column) + 2 * width), np.int64)
        packed[:, 0] = self.num_slots
        for row, feeding in zip(packed, batch, strict=False):
            _pack(feeding, row)
        for feeding in batch:
            slot, voice = feeding.feed.slot, feeding.feed.voice
            used = self._used.setdefault(slot, _Used())
            if voice is not None and not feeding.feed.goes_on:
                self._cache[:, :, slot, :, : feeding.start] = voice.cached[..., : feeding.start, :]
            used.length = feeding.end
            used.num_drawn += 1
            used.flags = Flag.NONE
        self._prefill.call((num_rows, width, num_keys), packed=upload(torch.from_numpy(packed), self._lm.device))

    def _run_prefill(self, _num_rows: int, width: int, num_keys: int, *, packed: Tensor) -> tuple[()]:
        head, numbers, tables, rows = torch.split(packed, [_HEAD, len(Column), width, width], dim=1)
        slots, fresh, starts, num_new = head.unbind(dim=1)  # [B] each
        x = self._lm.embed(tables, rows)  # [B, T, hidden]
        log_probs, _ = self._lm.prefill(x, num_new, self._cache, starts=starts, slots=slots, num_keys=num_keys)
        fed = self._rows.fed(slots, numbers, fresh.bool(), self._kept)
        fed.draw(log_probs, num_new > 0, self._ids, self._params)
        self._rows.put(slots, fed)
        return ()

    def _run_step(self, num_rows: int, num_keys: int) -> tuple[()]:
        rows = self._rows.first(num_rows)
        lengths = rows.column(Column.LENGTH)
        waiting = (rows.column(Column.FLAGS) == 0) & (rows.column(Column.NUM_DRAWN) < rows.column(Column.UNTIL))
        active = waiting & (lengths < self.num_positions)
        rows.raise_flags(Flag.STOPPED | Flag.FULL, waiting & ~active)
        last = rows.column(Column.LAST)
        log_probs, _ = self._lm.decode(last, lengths, self._cache, active=active, num_keys=num_keys)
        rows.draw(log_probs, active, self._ids, self._params)
        lengths.add_(active)
        return ()

    def _collect(self, num_steps: int) -> dict[int, Drawn]:
        """Bring the news of all slots to the host, in one copy; here it waits for the device."""
        if not self._used:
            return {}
        rows = self._rows.first(max(self._used) + 1)
        news = torch.cat((rows.numbers[:, :NUM_TOLD], rows.out[:, : num_steps + 1]), dim=1)
        rows.column(Column.NUM_OUT).zero_()
        numbers: list[list[int]] = news.tolist()
        result = {}
        for slot, used in self._used.items():
            used.length, used.num_drawn, flags, num_out, *ids = numbers[slot]
            raised = Flag(flags) & ~used.flags
            self.num_not_finite += Flag.NOT_FINITE in raised
            self.num_full += Flag.FULL in raised
            used.flags = Flag(flags)
            result[slot] = Drawn(tuple(ids[:num_out]), bool(used.flags), bool(used.flags & ~Flag.STOPPED))
        return result


def _num_common(some: Sequence[LmInput], others: Sequence[LmInput]) -> int:
    """How many inputs are the same from the first on."""
    pairs = zip(some, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _as_rows(inputs: Sequence[LmInput]) -> npt.NDArray[np.int64]:
    """Tables and rows, [2, inputs]."""
    numbers = np.fromiter(itertools.chain.from_iterable(inputs), np.int64, 2 * len(inputs))
    return numbers.reshape(-1, 2).T


def _pack(feeding: _Feeding, row: npt.NDArray[np.int64]) -> None:
    """Write a feeding to a row of zeros."""
    feed, num_new = feeding.feed, len(feeding.new)
    seed = secrets.randbits(62) if feed.seed is None else feed.seed
    row[:_HEAD] = feed.slot, not feed.goes_on, feeding.start, num_new
    inputs = row[_HEAD + len(Column) :].reshape(2, -1)
    row[_HEAD : _HEAD + len(Column)] = numbers_of(feed.rules, seed=seed, length=feeding.end)
    inputs[:, :num_new] = _as_rows(feeding.new)
