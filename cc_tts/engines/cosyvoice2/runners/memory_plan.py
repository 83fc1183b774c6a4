"""How the memory that is left goes to the state of streams: first their slots, then pages for the flow.

Runs on: the thread that owns the device.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from cc_tts.engines.cosyvoice2.model.loader import SpeechModel
from cc_tts.engines.cosyvoice2.runners.kv_cache import FlowArena
from cc_tts.errors import ConfigError

MIN_PAGES: Final = 32
MAX_PAGES_PER_SLOT: Final = 40  # 40 s of a sequence: memory beyond that would never be used
CUDA_SHARE: Final = 0.85
"""Of the free memory of a GPU, graphs apart; the rest is for what the networks need while they run."""
GRAPH_SHARE: Final = 0.4
"""Of the free memory at most for CUDA graphs, which take some ten kilobytes a kernel outside PyTorch's own count: a call of
the flow has 9,000 kernels.
"""
CPU_SHARE: Final = 0.4
CPU_MAX_BYTES: Final = 4 * 2**30  # a CPU keeps pace with few streams; memory for more would only be touched in vain
SLOT_SHARE: Final = 0.5  # of that at most for slots


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What is allocated."""

    num_streams: int
    num_slots: int
    slot_bytes: int
    num_pages: int
    page_bytes: int  # that may be used for pages, which is more than they take where they are as many as can be of use

    def __str__(self) -> str:
        gib = 2**30
        slots, pages = self.slot_bytes * self.num_slots / gib, self.page_bytes / gib
        return f"{self.num_streams} streams, {self.num_slots} slots in {slots:.2f} GiB, pages in {pages:.2f} GiB"


def choose_coarseness(
    counts: Sequence[Mapping[str, int]],  # graphs of each stage, by coarseness
    each_bytes: Mapping[str, int],  # what one of each stage takes, as measured
    shared_bytes: int,  # what all of them share
    free_bytes: int,  # of the device
    least: int = 0,  # the coarseness to begin with
) -> tuple[int, int]:
    """How sparse the graphs must be to fit, and what they take then. ``ConfigError`` if not even the fewest fit."""
    totals = [shared_bytes + sum(num * each_bytes[stage] for stage, num in each.items()) for each in counts]
    for coarseness, total in enumerate(totals):
        if coarseness >= least and total <= GRAPH_SHARE * free_bytes:
            return coarseness, total
    raise ConfigError(
        f"CUDA graphs do not fit: the fewest take {totals[-1]:,} bytes and {free_bytes:,} are free; set tts.graphs = false, "
        "or lower tts.max_streams"
    )


def plan_memory(
    model: SpeechModel, *, max_streams: int, num_positions: int, memory_bytes: int, graph_bytes: int = 0
) -> MemoryPlan:
    """Share out what is free; ``memory_bytes`` is for the pages when it is not 0, ``graph_bytes`` for graphs. Raises
    ``ConfigError`` if not even one stream fits, or too few pages.
    """
    free_bytes = _free_bytes(model.lm.device) - graph_bytes
    cache = model.lm.new_cache(1, 1)
    lm_bytes = cache.nbytes // 2 * (num_positions + 1)  # a cache of one position has two places
    arena = FlowArena(model.flow, num_slots=1, num_pages=1)
    slot_bytes = lm_bytes + arena.bytes_per_slot
    fitting = int(free_bytes * SLOT_SHARE) // slot_bytes
    wanted = max_streams + spare_slots(max_streams)
    num_slots = min(wanted, fitting)
    if num_slots < 1:
        raise ConfigError(
            f"{max(0, free_bytes):,} bytes are free, and a stream needs {slot_bytes:,} besides its pages; use a larger "
            "device, or set tts.graphs = false"
        )
    num_streams = max_streams if num_slots == wanted else max(1, num_slots - spare_slots(num_slots))
    page_bytes = memory_bytes or free_bytes - num_slots * slot_bytes
    num_pages = page_bytes // arena.bytes_per_page
    if num_pages < MIN_PAGES:
        raise ConfigError(
            f"tts.state_memory_bytes: {page_bytes:,} hold {num_pages} pages of {arena.bytes_per_page:,} bytes, a second of "
            f"speech each; at least {MIN_PAGES} are needed"
        )
    num_pages = min(num_pages, MAX_PAGES_PER_SLOT * num_slots)
    return MemoryPlan(num_streams, num_slots, slot_bytes, num_pages, page_bytes)


def spare_slots(num_streams: int) -> int:
    """For streams whose next text chunk is drawn while the one before is still spoken."""
    return max(1, num_streams // 8)


def can_measure(device: torch.device) -> bool:
    """Whether the device tells what is free of it alone."""
    return device.type == "cuda"


def device_free_bytes(device: torch.device) -> int:
    """What the driver says is free."""
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(device_free_bytes(device) * CUDA_SHARE)
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(CPU_MAX_BYTES, int(free_bytes * CPU_SHARE))
