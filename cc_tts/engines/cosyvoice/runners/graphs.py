"""Work of fixed shapes for the device: recorded once as a CUDA graph, then started as a whole (engine-performance §5.1).

Shapes are made few by rounding sizes up to buckets. Where there are no graphs the same functions are simply called.

Runs on: the thread that owns the device.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import torch
from torch import Tensor

from cc_tts import logs
from cc_tts.engines.cosyvoice.model.networks.compiling import UNCOMPILED, is_compilers

log = logs.get(__name__)
Work = Callable[..., tuple[Tensor, ...]]
_SHOWN: Final = 500  # characters of an error of the compiler
_Item = TypeVar("_Item")


def bucket_of(number: int, buckets: Sequence[int]) -> int:
    """Return the smallest of the rising ``buckets`` that is at least ``number``; beyond them, a multiple of the largest."""
    for bucket in buckets:
        if bucket >= number:
            return bucket
    return -(-number // buckets[-1]) * buckets[-1]


def buckets_up_to(number: int, buckets: Sequence[int]) -> list[int]:
    """Return the results of :func:`bucket_of` for 0 to ``number``, the largest first: graphs recorded in this order share
    memory.
    """
    most = bucket_of(number, buckets)
    beyond = range(2 * buckets[-1], most + 1, buckets[-1])
    return [*reversed(beyond), *(bucket for bucket in reversed(buckets) if bucket <= most)]


def thinned(buckets: Sequence[int], step: int) -> list[int]:
    """Every ``step``-th of the buckets from the greatest down, which is always among them."""
    return sorted(buckets, reverse=True)[::step]


def batches(
    items: Iterable[_Item],
    size_of: Callable[[_Item], int],
    buckets: Sequence[int],
    max_rows_of: Callable[[int], int],  # of a bucket
) -> Iterator[tuple[int, list[_Item]]]:
    """Group items whose sizes fall into one of the ``buckets``, and yield them with that bucket; at most this many at a
    time.
    """
    by_bucket: dict[int, list[_Item]] = {}
    for item in items:
        by_bucket.setdefault(bucket_of(size_of(item), buckets), []).append(item)
    for bucket, alike in by_bucket.items():
        max_rows = max_rows_of(bucket)
        for first in range(0, len(alike), max_rows):
            yield bucket, alike[first : first + max_rows]


def can_record(device: torch.device) -> bool:
    return device.type == "cuda"


def claim(device: torch.device) -> None:
    """Make ``device`` the one that this thread's streams and graphs are of.

    Attention is not cuDNN's there, which PyTorch prefers on Hopper: it makes a plan for each new shape, and there are many.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # it takes no device without a number
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]  # where a replay reads
    outputs: tuple[Tensor, ...]  # where a replay writes


class GraphedCall:
    """Calls of a function, replayed from one CUDA graph for each key.

    The key is the numbers of the host that decide about shapes, and the function gets them: ``fn(*key, **tensors)``. All
    tensors of a key have the same shapes each time. The function may change tensors of its own in place; it does so once a
    call, for its first run is the warm-up and gives the result. It must not ask a tensor for its value. If not ``enabled``,
    which needs CUDA, every call is a plain one. All calls are made in one lane: a replay reads its inputs, and the graphs
    share their memory, until the next call of the lane.

    ``in_few_kernels`` does the same by compiled code, which is what is recorded then. Plain calls never compile anything.
    """

    def __init__(self, fn: Work, *, enabled: bool, in_few_kernels: Work | None = None) -> None:
        self._fn = fn
        self._recorded_fn = in_few_kernels or fn
        self._records = enabled
        self._recorded: dict[tuple[int, ...], _Recorded] = {}
        self._fits: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._stream = torch.cuda.Stream() if enabled else None  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle() if enabled else None

    def __len__(self) -> int:
        """Return how many graphs are recorded."""
        return len(self._recorded)

    def fit(self, key: tuple[int, ...]) -> tuple[int, ...]:
        """Return the smallest recorded key with no number less than that of ``key``; ``key`` itself if there is none.

        So a work is filled up to what was recorded, whichever sizes these are.
        """
        if key in self._recorded or not self._recorded:
            return key
        if key not in self._fits:
            able = [each for each in self._recorded if all(map(operator.ge, each, key))]
            self._fits[key] = min(able, key=lambda each: math.prod(number + 1 for number in each), default=key)
        return self._fits[key]

    def freeze(self) -> None:
        """Record no more, since that takes long: keys that are new from now on run without a graph."""
        self._records = False

    def call(self, key: tuple[int, ...], **tensors: Tensor) -> tuple[Tensor, ...]:
        """The function's result. The tensors are the caller's to keep: no later call writes to them."""
        recorded = self._recorded.get(key)
        if recorded is None:
            return self._record(key, tensors) if self._records else self._fn(*key, **tensors)
        for name, tensor in tensors.items():
            recorded.inputs[name].copy_(tensor, non_blocking=True)
        recorded.graph.replay()
        # All graphs share their memory, so the outputs last until the next replay only.
        return tuple(output.clone() for output in recorded.outputs)

    def _record(self, key: tuple[int, ...], tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
        inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        current = torch.cuda.current_stream()
        assert self._stream is not None
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._first(key, inputs)
        current.wait_stream(self._stream)
        for tensor in result:
            tensor.record_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            outputs = self._recorded_fn(*key, **inputs)  # recorded, not run
        self._recorded[key] = _Recorded(graph, inputs, outputs)
        return result

    def _first(self, key: tuple[int, ...], inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """The first run of a key. The compiler fails before it changes a tensor; without it there are more kernels."""
        try:
            return self._recorded_fn(*key, **inputs)
        except Exception as error:
            if self._recorded_fn is self._fn or not is_compilers(error):
                raise
            log.warning("not_compiled", detail=f"{type(error).__name__}: {str(error)[:_SHOWN]}", remedy=UNCOMPILED)
        self._recorded_fn = self._fn
        return self._fn(*key, **inputs)
