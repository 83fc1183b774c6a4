"""Where the flow keeps keys and values of many sequences: pages of one chunk each, from one arena (§4.9, §9).

A page holds what encoder and estimator (at every Euler step, with and without condition) remember of one chunk of 25
tokens. The pages of a voice's prompt are the same for all its sequences and are held by count. What a convolution needs
of the past lies in the slot of its sequence. Page 0 and slot 0 are scratch: padding is written there.

Runs on: the thread that owns the device.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cc_tts.engines.cosyvoice.engine.device import PagesExhausted

if TYPE_CHECKING:
    from torch import Tensor

    from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow

SCRATCH: Final = 0


class PagePool:
    """Which pages are free, and by how many each of the others is held. Page 0 is scratch, counted and never given out."""

    def __init__(self, num_pages: int) -> None:
        self._free = list(range(1, num_pages))
        self._holders: Counter[int] = Counter()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, num_pages: int) -> list[int]:
        """Take the lowest free pages, held once. Raises ``PagesExhausted`` before any is taken if there are too few."""
        if num_pages > len(self._free):
            raise PagesExhausted(f"{num_pages} pages are needed and {len(self._free)} are free")
        pages = [heapq.heappop(self._free) for _ in range(num_pages)]
        self._holders.update(pages)
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Hold ``pages`` once more; ``ValueError`` if one of them is free."""
        wanted = Counter(pages)
        self._check(wanted, dict.fromkeys(wanted, 1))
        self._holders.update(wanted)

    def release(self, pages: Iterable[int]) -> None:
        """Hold ``pages`` once less; pages without a holder become free; ``ValueError`` if one is already free."""
        given = Counter(pages)
        self._check(given, given)
        self._holders -= given  # drops those that reach zero
        for page in given:
            if page not in self._holders:
                heapq.heappush(self._free, page)

    def _check(self, pages: Iterable[int], least: dict[int, int]) -> None:
        for page in pages:
            if self._holders[page] < least[page]:
                raise ValueError(f"page {page} is held {self._holders[page]} times, not {least[page]}")


class FlowArena:
    """The tensors behind the pages and the slots, allocated once and written in place, in the dtype of the weights but for
    pages of 8 bits.

    Slots and pages are counted with those of scratch, so sequence i of the engine has slot i + 1.
    """

    def __init__(self, flow: "Flow", *, num_slots: int, num_pages: int) -> None:
        self.encoder, self.estimator = flow.new_pages(num_slots, num_pages)
        self.num_pages = num_pages
        self.num_slots = num_slots

    @property
    def bytes_per_page(self) -> int:
        """Memory of one page, both halves of it in the estimator."""
        paged = (*self.encoder.paged, self.estimator.attention)
        return sum(tensor.nbytes for pages in paged for tensor in pages.tensors) // self.num_pages

    @property
    def bytes_per_slot(self) -> int:
        contexts = (*self.encoder.contexts, self.estimator.contexts)
        return sum(tensor.nbytes for tensor in contexts) // self.num_slots

    def contexts(self, slot: int) -> "tuple[Tensor, ...]":
        """The contexts of a slot, as views; the slots of the estimator are two rows each."""
        ours = self.estimator.contexts[:, 2 * slot : 2 * slot + 2]
        return *(context[slot] for context in self.encoder.contexts), ours

    def wipe(self, pages: Iterable[int], slot: int) -> None:
        """Write zeros to ``pages`` and to the contexts of ``slot``.

        What is masked in attention is multiplied by zero, which does not help against what is not finite.
        """
        for page in pages:
            for tensor in (tensor for pages in self.encoder.paged for tensor in pages.tensors):
                tensor[:, page].zero_()
            for tensor in self.estimator.attention.tensors:
                tensor[:, :, 2 * page : 2 * page + 2].zero_()
        for context in self.contexts(slot):
            context.zero_()
