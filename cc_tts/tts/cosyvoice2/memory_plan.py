"""How the memory that is left goes to the state of streams: first their slots, then pages for the flow.

Runs on: the thread that owns the device.
"""

import os
from dataclasses import dataclass
from typing import Final

import torch

from cc_tts.errors import ConfigError
from cc_tts.tts.cosyvoice2.kv_cache import FlowArena
from cc_tts.tts.cosyvoice2.loader import SpeechModel

CUDA_SHARE: Final = 0.75
"""Of the free memory of a card; the rest is for what the networks need while they run, and for CUDA graphs, which take some
ten kilobytes a kernel, outside PyTorch's own count: a call of the flow has 9,000 kernels.
"""
CPU_SHARE: Final = 0.4
CPU_MAX_BYTES: Final = 4 * 2**30
"""A CPU keeps pace with few streams; memory for more would only be touched in vain."""
SLOT_SHARE: Final = 0.5
"""Of that at most for slots."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What is allocated."""

    num_streams: int
    num_slots: int
    slot_bytes: int
    page_bytes: int

    def __str__(self) -> str:
        gib = 2**30
        slots, pages = self.slot_bytes * self.num_slots / gib, self.page_bytes / gib
        return f"{self.num_streams} streams, {self.num_slots} slots in {slots:.2f} GiB, pages in {pages:.2f} GiB"


def plan_memory(model: SpeechModel, *, max_streams: int, num_positions: int, memory_bytes: int) -> MemoryPlan:
    """Share out what is free; ``memory_bytes`` is for the pages when it is not 0.

    Raises:
        ConfigError: not even one stream fits.

    """
    free_bytes = _free_bytes(model.lm.device)
    cache = model.lm.new_cache(1, 1)
    lm_bytes = cache.nbytes // 2 * (num_positions + 1)  # a cache of one position has two places
    slot_bytes = lm_bytes + FlowArena.of(model.flow, num_slots=1, num_pages=1).bytes_per_slot
    fitting = int(free_bytes * SLOT_SHARE) // slot_bytes
    wanted = max_streams + _spare_slots(max_streams)
    num_slots = min(wanted, fitting)
    if num_slots < 1:
        raise ConfigError(f"{free_bytes:,} bytes are free, and a stream needs {slot_bytes:,} besides its pages")
    num_streams = max_streams if num_slots == wanted else max(1, num_slots - _spare_slots(num_slots))
    page_bytes = memory_bytes or free_bytes - num_slots * slot_bytes
    return MemoryPlan(num_streams, num_slots, slot_bytes, page_bytes)


def _spare_slots(num_streams: int) -> int:
    """For streams whose next text chunk is drawn while the one before is still spoken."""
    return max(1, num_streams // 8)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return int(free_bytes * CUDA_SHARE)
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(CPU_MAX_BYTES, int(free_bytes * CPU_SHARE))
