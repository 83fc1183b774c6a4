"""Many sequences of speech tokens, sampled together (§3; engine-performance §5.1).

::

    start ─▸ prefill (ragged, samples the first id) ─────┐
                                                         ├─▸ slots on the device ─▸ decode: n steps, then ONE copy ─▸ ids
    until (how far each slot may run ahead) ─────────────┘

A slot is a place in the cache and a row of numbers (:mod:`lm_slots`). A sequence gets the same ids in whatever batch it is.
Nothing waits for the device but the end of :meth:`LmRunner.decode`.

Runs on: the thread that owns the device.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.device import Sampled, SlotPrefill
from cc_tts.engines.cosyvoice.model.networks.compiling import compiled, vary
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmInput, Table, text_inputs
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall, batches, bucket_of, buckets_up_to, thinned
from cc_tts.engines.cosyvoice.runners.lanes import Fetched, upload
from cc_tts.engines.cosyvoice.runners.lm_slots import EXTENDED, NUM_REPORTED, Column, Flag, SlotRows, numbers_of
from cc_tts.errors import EngineFailed

ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
PREFILL_ROW_BUCKETS: Final = (1, 2, 4, 8, 16)
WIDTH_BUCKETS: Final = (8, 16, 32, 64, 128, 256, 512)
KEY_BUCKETS: Final = (128, 256, 512, 1024, 2048, 4096)

MAX_STEPS: Final = 64  # of one decode; unmeasured
_HEAD: Final = 4  # of a packed prefill: slot, fresh, start, num_new; then the numbers of the slot, tables and rows


_Advance = Callable[[SlotRows, Tensor], None]


@dataclass(frozen=True, slots=True)
class LmVoice:
    """Keys and values of what every text of a voice begins with, kept on the device."""

    inputs: tuple[LmInput, ...]  # SOS and the prompt's text
    cached: Tensor  # [layers, 2, kv_heads, positions, head_dim]


@dataclass(slots=True)
class _Used:
    """The host's view of a slot in use: the state after the last decode, and the prefills since."""

    length: int = 0
    num_sampled: int = 0
    flags: Flag = Flag.NONE


@dataclass(frozen=True, slots=True)
class _Prefill:
    """A :class:`SlotPrefill` that was checked."""

    given: SlotPrefill
    voice: LmVoice | None
    start: int  # positions that need not be run
    new: Sequence[LmInput]  # inputs that are run

    @property
    def end(self) -> int:
        return self.start + len(self.new)


class LmRunner:
    """The language model with a fixed number of slots. Its user chooses them, the lowest free one at best. A sequence can
    have ``num_positions``, inputs and speech tokens together.
    """

    def __init__(
        self, lm: SpeechLm, *, num_slots: int, num_positions: int, graphs: bool = False, compiles: bool = False
    ) -> None:
        self.num_slots = num_slots
        self.num_positions = num_positions
        self.num_not_finite = 0  # sequences that stopped because their numbers were not
        self._lm = lm
        self._ids = lm.config.speech_ids
        # One slot more than there are: rows that only fill a batch up read and write there.
        self._cache = lm.new_cache(num_slots + 1, num_positions)
        self._rows = SlotRows.new(num_slots + 1, max_out=MAX_STEPS + 1, device=lm.device)
        self._extended = torch.tensor([column in EXTENDED for column in Column], device=lm.device)
        self._kinds = torch.tensor(self._ids.kinds, device=lm.device)
        num_special, num_speech = self._ids.table_sizes
        self._table_sizes = np.array([num_special, lm.config.text_vocab_size, num_speech])
        self._used: dict[int, _Used] = {}
        self._positions = torch.arange(num_positions, device=lm.device)
        self._step = GraphedCall(
            self._run_step,
            enabled=graphs,
            in_few_kernels=partial(self._run_step, advance=self._compiled_advance()) if compiles else None,
        )
        self._prefill = GraphedCall(self._run_prefill, enabled=graphs)

    @torch.inference_mode()
    def warm_up(self, *, max_width: int = 128, step: int = 1) -> None:
        """Run each shape of decodes, and of prefills of up to ``max_width`` inputs, once; only these have graphs then.

        ``step``: the distance between two numbers of rows. No slot may be in use.
        """
        for key in self.step_keys(step=step):
            self.record_step(key)
        for prefill_key in self.prefill_keys(max_width, step=step):
            self.record_prefill(prefill_key)
        self._step.freeze()
        self._prefill.freeze()

    @property
    def num_rows(self) -> int:
        """Rows that a decode step computes: all up to the highest slot in use, and more to fill a size up."""
        return min(bucket_of(max(self._used, default=0) + 1, ROW_BUCKETS), self.num_slots)

    @torch.inference_mode()
    def record_step(self, key: tuple[int, int]) -> None:
        """Run and record one shape of decodes, of slots that sample nothing."""
        self._rows.column(Column.UNTIL).zero_()
        self._step.call(key)

    @torch.inference_mode()
    def record_prefill(self, key: tuple[int, int, int]) -> None:
        """Run and record one shape of prefills, on scratch."""
        self._run_batch([], *key)

    def step_keys(self, num_slots: int = 0, *, step: int = 1) -> list[tuple[int, int]]:
        """Return rows and keys of the decode steps that are possible with ``num_slots`` slots (0: its own), the largest
        first.
        """
        num_slots = num_slots or self.num_slots
        rows = {min(bucket, num_slots) for bucket in buckets_up_to(num_slots, ROW_BUCKETS)}
        return list(itertools.product(thinned(sorted(rows), step), self._key_buckets()))

    def prefill_keys(self, max_width: int, *, step: int = 1) -> list[tuple[int, int, int]]:
        """Rows, width and keys of prefills of up to ``max_width`` inputs, the widest first."""
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
        """Run what each text of a voice begins with, once. ``ValueError``: no such tokens, or more than a slot holds."""
        inputs = (self._ids.sos, *text_inputs(prompt_text_ids or ()))
        if len(inputs) > self.num_positions:
            raise ValueError(f"a prompt of {len(inputs)} positions does not fit into {self.num_positions}")
        self._check_inputs(inputs)
        tables, rows, num_new = self._lm.pack([inputs])
        _, cache = self._lm.prefill(self._lm.embed(tables, rows), num_new, self._lm.new_cache(1, len(inputs)))
        return LmVoice(inputs, cache[:, :, 0, :, : len(inputs)].clone())

    @torch.inference_mode()
    def start(self, prefills: Sequence[SlotPrefill], voices: Mapping[int, LmVoice | None] | None = None) -> None:
        """Prefill free slots or extend others, and sample one id for each, which the next :meth:`decode` reports; all of
        them, or none. Raises ``EngineFailed`` if the inputs do not fit into their slot, ``ValueError`` if one of them is out
        of range.

        A slot that is extended must have stopped, unless it is told what it keeps. ``voices`` of slots that begin spare the
        inputs that both have in common.
        """
        checked = [self._checked(each, (voices or {}).get(each.slot)) for each in prefills]
        for width, batch in batches(
            checked, lambda each: len(each.new), WIDTH_BUCKETS, lambda _: PREFILL_ROW_BUCKETS[-1]
        ):
            num_keys = self._num_keys(max(prefill.end for prefill in batch))
            key = self._prefill.fit((bucket_of(len(batch), PREFILL_ROW_BUCKETS), width, num_keys))
            self._run_batch(batch, *key)

    @torch.inference_mode()
    def decode(self, until: Mapping[int, int], num_steps: int) -> dict[int, Sampled]:
        """Sample up to ``num_steps`` ids for each slot that has not stopped; what each in use has sampled since then.

        Args:
            until: how many ids each slot may have sampled since it began, FILL among them; a slot that is not there pauses.
                The id that :meth:`start` samples comes in any case.
            num_steps: at most :data:`MAX_STEPS`; with 0 only what :meth:`start` sampled is reported.
        """
        wanted = {
            slot: min(num_steps, until[slot] - used.num_sampled)
            for slot, used in self._used.items()
            if slot in until and not used.flags and until[slot] > used.num_sampled
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
        """Free a slot, whatever it is doing. A free slot stays free."""
        if self._used.pop(slot, None) is not None:
            self._cache[:, :, slot].zero_()  # numbers that are not finite would reach the next sequence past any mask

    def _check_inputs(self, inputs: Sequence[LmInput]) -> None:
        """An index past a table would take the whole device down."""
        tables, rows = _as_rows(inputs)
        unknown = (tables < 0) | (tables >= len(Table))
        if unknown.any() or ((rows < 0) | (rows >= self._table_sizes[tables])).any():
            raise ValueError("an input past the end of its table")

    def _checked(self, given: SlotPrefill, voice: LmVoice | None) -> _Prefill:
        inputs, keeps = given.prefill.inputs, given.prefill.keeps
        self._check_inputs(inputs)
        if given.prefill.extends:
            start = self._used[given.slot].length if keeps is None else keeps
            prefill = _Prefill(given, None, start, inputs)
        else:
            start = 0 if voice is None else _num_common(voice.inputs, inputs[:-1])
            prefill = _Prefill(given, voice, start, inputs[start:])
        if prefill.end > self.num_positions:
            raise EngineFailed(f"a sequence of {prefill.end} positions does not fit into {self.num_positions}")
        return prefill

    def _num_keys(self, length: int) -> int:
        if self._lm.reads_in_place:
            return self.num_positions  # each row reads its own keys, so one shape does for all
        return min(bucket_of(length, KEY_BUCKETS), self.num_positions)

    def _run_batch(self, batch: Sequence[_Prefill], num_rows: int, width: int, num_keys: int) -> None:
        packed = np.zeros((num_rows, _HEAD + len(Column) + 2 * width), np.int64)
        packed[:, 0] = self.num_slots
        for row, prefill in zip(packed, batch, strict=False):
            _pack(prefill, row)
        for prefill in batch:
            slot, voice = prefill.given.slot, prefill.voice
            used = self._used.setdefault(slot, _Used())
            if voice is not None:
                self._cache[:, :, slot, :, : prefill.start] = voice.cached[..., : prefill.start, :]
            used.length = prefill.end
            used.num_sampled += 1
            used.flags = Flag.NONE
        self._prefill.call((num_rows, width, num_keys), packed=upload(torch.from_numpy(packed), self._lm.device))

    def _run_prefill(self, _num_rows: int, width: int, num_keys: int, *, packed: Tensor) -> tuple[()]:
        head, numbers, tables, rows = torch.split(packed, [_HEAD, len(Column), width, width], dim=1)
        slots, fresh, starts, num_new = head.unbind(dim=1)  # [B] each
        x = self._lm.embed(tables, rows)  # [B, T, hidden]
        log_probs, _ = self._lm.prefill(x, num_new, self._cache, starts=starts, slots=slots, num_keys=num_keys)
        prefilled = self._rows.prefilled(slots, numbers, fresh.bool(), self._extended)
        prefilled.sample(log_probs, num_new > 0, self._ids, self._kinds)
        self._rows.put(slots, prefilled)
        return ()

    def _run_step(self, num_rows: int, num_keys: int, *, advance: _Advance | None = None) -> tuple[()]:
        rows, positions = self._rows.first(num_rows), self._positions[:num_keys]
        if advance is None:
            self._advance(rows, positions, self._cache)
        else:
            advance(rows, positions)
        return ()

    def _compiled_advance(self) -> _Advance:
        advance = compiled(self._advance)

        def varying(rows: SlotRows, positions: Tensor) -> None:
            vary(positions, 0)
            for part in (rows.numbers, rows.history, rows.out):
                vary(part, 0)
            layers = self._cache.unbind()  # the compiler copies what it is given a part of and writes to
            for layer in layers:
                vary(layer, 1)
            advance(rows, positions, cast("Tensor", layers))  # indexed alike

        return varying

    def _advance(self, rows: SlotRows, positions: Tensor, cache: Tensor) -> None:
        """Sample an id for the first slots, which look at ``positions`` of their past."""
        lengths = rows.column(Column.LENGTH)
        waiting = (rows.column(Column.FLAGS) == 0) & (rows.column(Column.NUM_IDS) < rows.column(Column.UNTIL))
        active = waiting & (lengths < self.num_positions)
        rows.raise_flags(Flag.STOPPED | Flag.FULL, waiting & ~active)
        last, num_keys = rows.column(Column.LAST), positions.shape[0]
        log_probs, _ = self._lm.decode(last, lengths, cache, active=active, num_keys=num_keys)
        rows.sample(log_probs, active, self._ids, self._kinds)
        lengths.add_(active)

    def _collect(self, num_steps: int) -> dict[int, Sampled]:
        """Copy what all slots report to the host, at once; here it waits for the device."""
        if not self._used:
            return {}
        rows = self._rows.first(max(self._used) + 1)
        report = torch.cat((rows.numbers[:, :NUM_REPORTED], rows.out[:, : num_steps + 1]), dim=1)
        fetched = Fetched(report)
        rows.column(Column.NUM_OUT).zero_()
        numbers: list[list[int]] = fetched.numbers().tolist()
        result = {}
        for slot, used in self._used.items():
            used.length, used.num_sampled, flags, num_out, *ids = numbers[slot]
            self.num_not_finite += Flag.NOT_FINITE in Flag(flags) & ~used.flags
            used.flags = Flag(flags)
            result[slot] = Sampled(tuple(ids[:num_out]), bool(used.flags), bool(used.flags & ~Flag.STOPPED))
        return result


def _num_common(some: Sequence[LmInput], others: Sequence[LmInput]) -> int:
    """Return how many inputs are the same from the first on."""
    pairs = zip(some, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _as_rows(inputs: Sequence[LmInput]) -> npt.NDArray[np.int64]:
    """Tables and rows, [2, inputs]."""
    numbers = np.fromiter(itertools.chain.from_iterable(inputs), np.int64, 2 * len(inputs))
    return numbers.reshape(-1, 2).T


def _pack(prefill: _Prefill, row: npt.NDArray[np.int64]) -> None:
    given, num_new = prefill.given, len(prefill.new)
    row[:_HEAD] = given.slot, not given.prefill.extends, prefill.start, num_new
    inputs = row[_HEAD + len(Column) :].reshape(2, -1)
    row[_HEAD : _HEAD + len(Column)] = numbers_of(given.prefill.rules, seed=given.seed, length=prefill.end)
    inputs[:, :num_new] = _as_rows(prefill.new)
