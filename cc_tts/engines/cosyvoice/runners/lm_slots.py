"""The state of each slot of the language model on the device, and how its next id is sampled (§3.3, §3.4, §3.5).

All of it is tensors of fixed places, written in place, and no value is asked for: a step can be recorded in a CUDA graph.

Runs on: the thread that owns the device.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpecialKind, SpeechIds
from cc_tts.engines.cosyvoice.prefill import SamplingRules
from cc_tts.engines.cosyvoice.runners.sampler import NO_TOKEN, empty_history, forbid, push_history, sample_ras


class Column(IntEnum):
    """The numbers of a slot. The host reads the first :data:`NUM_REPORTED` of them after each decode."""

    LENGTH = 0  # positions in the cache
    NUM_IDS = 1  # ids since the sequence began, all of them
    FLAGS = 2
    NUM_OUT = 3  # ids the host has not read
    LAST = 4  # the last id, the input of the next step
    SAMPLER_STEP = 5  # ids the sampler was asked for
    UNTIL = 6  # the number of ids at which the slot pauses
    SEED = 7
    MIN_IDS = 8
    MAX_IDS = 9
    FILL_AT = 10  # -1: never
    FORBIDDEN = 11  # a bit for each kind of special id
    REPORTS_SPECIAL = 12


NUM_REPORTED: Final = 4
EXTENDED: Final = (Column.NUM_IDS, Column.NUM_OUT, Column.SAMPLER_STEP, Column.SEED)  # stay when a sequence is extended


class Flag(IntFlag):
    """Why a slot samples nothing."""

    NONE = 0
    STOPPED = 1
    NOT_FINITE = 2
    FULL = 4


def numbers_of(rules: SamplingRules, *, seed: int, length: int) -> list[int]:
    """The numbers of a sequence without ids, in the order of :class:`Column`."""
    forbidden = sum(int(is_forbidden) << bit for bit, is_forbidden in enumerate(rules.forbidden))
    fill_at = -1 if rules.forced_fill_at is None else rules.forced_fill_at
    counts = [rules.min_sampled, rules.max_sampled, fill_at, forbidden, int(rules.reports_special)]
    return [length, 0, 0, 0, 0, 0, 0, seed, *counts]


@dataclass(frozen=True, slots=True)
class SlotRows:
    """Some slots: all, the first few (views), or a choice of them (copies)."""

    numbers: Tensor  # [B, columns], int64
    history: Tensor  # [B, window], int64
    out: Tensor  # [B, max_out + 1], int64: ids the host has not read; the last place is scratch

    @classmethod
    def new(cls, num_rows: int, *, max_out: int, device: torch.device) -> "SlotRows":
        numbers = torch.zeros((num_rows, len(Column)), dtype=torch.int64, device=device)
        out = torch.zeros((num_rows, max_out + 1), dtype=torch.int64, device=device)
        return cls(numbers, empty_history(num_rows, device), out)

    def first(self, num_rows: int) -> "SlotRows":
        """The first slots; what is written there is written here."""
        return SlotRows(self.numbers[:num_rows], self.history[:num_rows], self.out[:num_rows])

    def prefilled(self, slots: Tensor, ordered: Tensor, fresh: Tensor, extended: Tensor) -> "SlotRows":
        """Copies of ``slots`` [B] after a prefill: with the numbers ``ordered`` [B, columns] of :func:`numbers_of`, but that
        rows that are not ``fresh`` [B] keep the columns that are ``extended`` [columns].
        """
        numbers = torch.where(fresh[:, None] | ~extended, ordered, self.numbers[slots])
        history = self.history[slots].masked_fill(fresh[:, None], NO_TOKEN)
        return SlotRows(numbers, history, self.out[slots])

    def put(self, slots: Tensor, rows: "SlotRows") -> None:
        """Write copies back to their slots."""
        self.numbers[slots] = rows.numbers
        self.history[slots] = rows.history
        self.out[slots] = rows.out

    def column(self, column: Column) -> Tensor:
        """One number of each slot, [B], a view."""
        return self.numbers[:, column]

    def sample(self, log_probs: Tensor, sampling: Tensor, ids: SpeechIds, kinds: Tensor) -> None:
        """Sample the next id of the rows that are ``sampling`` [B] from ``log_probs`` [B, rows of the head], by their rules;
        ``kinds`` [special] are those of ``ids``, on the device.

        A row whose numbers are not all finite is flagged and stopped.
        """
        num_ids = self.column(Column.NUM_IDS)
        sampling = sampling & (num_ids < self.column(Column.MAX_IDS))
        finite = log_probs.isfinite().all(dim=-1)
        log_probs = log_probs.masked_fill(~finite[:, None], 0.0)
        masked = forbid(log_probs, self._forbidden(kinds))
        steps = self.column(Column.SAMPLER_STEP)
        sampled = sample_ras(masked, self.history, self.column(Column.SEED), steps)
        forced = num_ids == self.column(Column.FILL_AT)
        next_ids = torch.where(forced, ids.fill, sampled)

        done, broken = sampling & finite, sampling & ~finite
        special = next_ids >= ids.num_codes
        reported = done & (~special | self.column(Column.REPORTS_SPECIAL).bool())
        places = torch.where(reported, self.column(Column.NUM_OUT), self.out.shape[1] - 1)
        self.out.scatter_(1, places[:, None], next_ids[:, None])
        self.history.copy_(torch.where(done[:, None], push_history(self.history, next_ids), self.history))
        self.column(Column.LAST).copy_(torch.where(done, next_ids, self.column(Column.LAST)))
        self.column(Column.NUM_OUT).add_(reported)
        steps.add_(done & ~forced)
        num_ids.add_(done)
        stopped = (done & special) | broken | (num_ids >= self.column(Column.MAX_IDS))
        self.raise_flags(Flag.STOPPED, stopped)
        self.raise_flags(Flag.NOT_FINITE, broken)

    def raise_flags(self, flag: Flag, where: Tensor) -> None:
        """Set a flag on the rows ``where`` [B] says so."""
        self.column(Column.FLAGS).bitwise_or_(where * int(flag))

    def _forbidden(self, kinds: Tensor) -> Tensor:
        """The special ids that must not come now, [B, special]."""
        always = (self.column(Column.FORBIDDEN)[:, None] >> kinds) & 1  # [B, special]
        early = self.column(Column.NUM_IDS) < self.column(Column.MIN_IDS)  # [B]
        return always.bool() | (early[:, None] & (kinds == SpecialKind.END))
