"""What the flow is called with when its past lies in pages, in few shapes, so that few CUDA graphs are needed.

Runs on: the thread that owns the device.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice2.runners.graphs import upload

ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CHUNK_BUCKETS: Final = (1, 2, 3, 4, 5, 6, 8)
PAGE_BUCKETS: Final = (8, 16, 24, 32, 48, 64)
"""Few, for each is a graph of its own; multiples of 4 keep the keys of attention aligned."""


class FlowShape(NamedTuple):
    """What the shapes of all tensors of a call depend on."""

    num_rows: int
    num_tokens: int  # that are run, without the lookahead
    num_pages: int  # that each row looks at

    def bucket(self, chunk: int) -> "FlowShape | None":
        """The smallest shape of the buckets that this one fits in; None when it is beyond them."""
        num_rows = _bucket(self.num_rows, ROW_BUCKETS)
        num_chunks = _bucket(-(-self.num_tokens // chunk), CHUNK_BUCKETS)
        num_pages = _bucket(self.num_pages, PAGE_BUCKETS)
        if num_rows is None or num_chunks is None or num_pages is None:
            return None
        return FlowShape(num_rows, num_chunks * chunk, num_pages)


class RowCounts(NamedTuple):
    """Numbers of one row; see :meth:`Flow.run_window`."""

    start: int = 0
    known: int = 0
    run: int = 0
    kept: int = 0


class FlowInputs(NamedTuple):
    """Arguments of :meth:`Flow.run_pages`, on the device. Rows that are all zeros touch nothing but scratch."""

    window: Tensor  # [B, T + lookahead]
    counts: Tensor  # [4, B]
    pages: Tensor  # [B, n]
    slots: Tensor  # [B]
    cond: Tensor  # [B, 2 T, mels], float32, zeros at first

    @classmethod
    def of(
        cls,
        shape: FlowShape,
        *,
        windows: Sequence[Sequence[int]] = (),
        counts: Sequence[RowCounts] = (),
        pages: Sequence[Sequence[int]] = (),
        slots: Sequence[int] = (),
        lookahead: int,
        num_mels: int,
        device: torch.device,
    ) -> Self:
        """The rows, filled up with zeros to ``shape``; pages behind it are left out."""
        num_rows, num_tokens, num_pages = shape
        return cls(
            window=upload(_table(windows, num_rows, num_tokens + lookahead), device),
            counts=upload(_table(counts, num_rows, len(RowCounts())).transpose(0, 1).contiguous(), device),
            pages=upload(_table(pages, num_rows, num_pages), device),
            slots=upload(_table([slots], 1, num_rows)[0], device),
            cond=torch.zeros((num_rows, num_tokens * FRAMES_PER_TOKEN, num_mels), device=device),
        )


def _bucket(count: int, buckets: Sequence[int]) -> int | None:
    return next((bucket for bucket in buckets if bucket >= count), None)


def _table(rows: Sequence[Sequence[int]], num_rows: int, width: int) -> Tensor:
    """Rows as a tensor [num_rows, width]: zeros behind and below them, what is behind the width cut off."""
    filled = [[*row[:width], *(0,) * (width - len(row))] for row in rows]
    filled += [[0] * width] * (num_rows - len(filled))
    return torch.tensor(filled, dtype=torch.int64, device="cpu")
