"""How the memory that is left goes to the state of streams: their slots, and pages for the flow.

Runs on: the thread that owns the device.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from cc_tts.engines.cosyvoice.engine.engine import TYPICAL_TOKENS
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from cc_tts.engines.cosyvoice.voice.text_front import MAX_SPEECH_TOKENS
from cc_tts.errors import ConfigError

MAX_STREAMS: Final = 256  # that are chosen where the setting leaves it to the memory; unmeasured
PAGES_PER_STREAM: Final = 2
"""The number of pages for which one slot is kept. A stream holds 4 pages on average in sentences of 8 s, so pages run
out first.
"""
MAX_PAGES_PER_SLOT: Final = 40  # 40 s of a sequence: memory beyond that would never be used
CUDA_SHARE: Final = 0.85
"""The share of a GPU's free memory that is used, graphs apart; the rest is for what the networks need while they run
(unmeasured).
"""
GRAPH_SHARE: Final = 0.4
"""The largest share of the free memory for CUDA graphs, which take some ten kilobytes a kernel outside PyTorch's own
count: a call of the flow has 9,000 kernels.
"""
CPU_SHARE: Final = 0.6  # of what is available; a page takes memory when it is first used, and none before; unmeasured
CPU_SEQUENCES: Final = 2  # that speak at a time, each as long as can be: a CPU keeps pace with no more
SLOT_SHARE: Final = 0.5  # of the memory at most for slots; unmeasured
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
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
    """Return how sparse the graphs must be to fit, and what they take then. ``ConfigError`` if not even the fewest fit."""
    totals = [shared_bytes + sum(num * each_bytes[stage] for stage, num in each.items()) for each in counts]
    for coarseness, total in enumerate(totals):
        if coarseness >= least and total <= GRAPH_SHARE * free_bytes:
            return coarseness, total
    raise ConfigError(
        f"CUDA graphs do not fit: the fewest take {totals[-1]:,} bytes and {free_bytes:,} are free; set graphs = false, "
        "or lower tts.max_streams"
    )


class TooLittleMemory(ConfigError):
    """The device is too small: not even one stream fits into what is left of the device."""


def plan_memory(
    model: SpeechModel,
    *,
    free_bytes: int,  # for the state of streams
    max_streams: int,  # 0: as many as the memory suits
    num_positions: int,
    memory_bytes: int,  # for the pages; 0: what is left
    prompt_tokens: int = 0,  # of the voice with the longest reference
) -> MemoryPlan:
    """Share out what is free. Raises ``TooLittleMemory`` if it does not hold a usual prompt of one stream."""
    device = model.lm.device
    cache = model.lm.new_cache(1, 1)
    lm_bytes = cache.nbytes // 2 * (num_positions + 1)  # a cache of one position has two places
    arena = FlowArena(model.flow, num_slots=1, num_pages=1)
    slot_bytes, each_bytes = lm_bytes + arena.bytes_per_slot, arena.bytes_per_page
    least_pages = pages_for(prompt_tokens, TYPICAL_TOKENS)
    least_bytes = 0 if memory_bytes else least_pages * each_bytes
    fitting = int(min(free_bytes * SLOT_SHARE, free_bytes - least_bytes)) // slot_bytes
    if fitting < 1 or memory_bytes // each_bytes < (least_pages if memory_bytes else 0):
        raise TooLittleMemory(_too_little(memory_bytes, max(0, free_bytes), slot_bytes, least_pages, each_bytes))
    max_streams = max_streams or _streams_of(free_bytes - least_bytes, slot_bytes, each_bytes)
    wanted = max_streams + spare_slots(max_streams)
    num_slots = min(wanted, fitting)
    num_streams = max_streams if num_slots == wanted else max(1, num_slots - spare_slots(num_slots))
    page_bytes = memory_bytes or free_bytes - num_slots * slot_bytes
    num_pages = min(page_bytes // each_bytes, MAX_PAGES_PER_SLOT * num_slots)
    if device.type == "cpu" and not memory_bytes:
        num_pages = min(num_pages, pages_for(prompt_tokens, CPU_SEQUENCES * min(MAX_SPEECH_TOKENS, num_positions)))
        page_bytes = num_pages * each_bytes
    return MemoryPlan(num_streams, num_slots, slot_bytes, num_pages, page_bytes)


def pages_for(prompt_tokens: int, num_tokens: int) -> int:
    """Return the pages of ``num_tokens`` of speech and of their voice's reference, and the one that is scratch."""
    return 1 - (-prompt_tokens // CHUNK_TOKENS) - (-num_tokens // CHUNK_TOKENS)


def _streams_of(free_bytes: int, slot_bytes: int, page_bytes: int) -> int:
    stream_bytes = slot_bytes * 9 // 8 + PAGES_PER_STREAM * page_bytes
    return max(1, min(MAX_STREAMS, free_bytes // stream_bytes))


def _too_little(memory_bytes: int, free_bytes: int, slot_bytes: int, least_pages: int, page_bytes: int) -> str:
    if memory_bytes:
        return (
            f"state_memory_bytes: {memory_bytes:,} hold {memory_bytes // page_bytes} pages of {page_bytes:,} bytes, a "
            f"second of speech each; at least {least_pages} are needed"
        )
    return (
        f"{free_bytes:,} bytes are free for the state of streams, and one stream needs {slot_bytes:,} and {least_pages} "
        f"pages of {page_bytes:,} bytes; use a larger device (tts.devices) or free its memory, set graphs = false on a "
        'GPU, or dtype = "bfloat16" on a CPU, which halves it'
    )


def spare_slots(num_streams: int) -> int:
    """Return the slots for streams whose next text chunk is drawn while the one before is still spoken."""
    return max(1, num_streams // 8)


def can_measure(device: torch.device) -> bool:
    """Return whether the device tells what is free of it alone."""
    return device.type == "cuda"


def device_free_bytes(device: torch.device) -> int:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)


def usable_bytes(device: torch.device) -> int:
    """Return how much of the free memory of a device may be used for graphs and the state of streams."""
    if device.type == "cuda":
        return int(device_free_bytes(device) * CUDA_SHARE)
    return int(_available_bytes() * CPU_SHARE)


def _available_bytes() -> int:
    """Return what the kernel could give, the files that it keeps in memory included."""
    try:
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
