"""How much memory the tensors of a work take at most, of any device, the meta device among them."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = self.most_bytes = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and id(storage) not in self._alive:
                self._alive.add(id(storage))
                self.num_bytes += storage.nbytes()
                weakref.finalize(storage, self._free, id(storage), storage.nbytes())
        self.most_bytes = max(self.most_bytes, self.num_bytes)
        return result

    def _free(self, place: int, num_bytes: int) -> None:
        self._alive.discard(place)
        self.num_bytes -= num_bytes


def most_bytes(work: Callable[[], object]) -> int:
    """The most that there is at a time of what ``work`` makes."""
    with torch.inference_mode(), _Counted() as counted:
        work()
    return int(counted.most_bytes)
