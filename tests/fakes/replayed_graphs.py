"""CUDA graphs where there is no CUDA: operators on the CPU are recorded one by one, and a replay runs just these again.

What a graph forgives as little as CUDA does, so that a work which passes here can be recorded there:

- what is recorded does not run: a tensor that was there before is as it was, and a new one holds nothing;
- a replay runs operators only, on the very tensors of the recording; what Python computed meanwhile stays as it was then;
- the graphs of a pool share memory: a replay spoils what the others have answered;
- no value may be asked for, no data may come from the host, and inputs keep their shapes.

Where a tensor is cannot be seen here, since all are on the CPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cc_tts.engines.cosyvoice import batched
from cc_tts.engines.cosyvoice.runners import flow as flow_runner
from cc_tts.engines.cosyvoice.runners import graphs
from cc_tts.engines.cosyvoice.runners import runner as model_runner
from cc_tts.engines.cosyvoice.runners import vocoder as vocoder_runner
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall
from tests.support.small_engine import stage_of

ASKS_FOR_A_VALUE: Final = (
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::item",
    "aten::masked_select",
    "aten::nonzero",
    "aten::_unique2",
    "aten::repeat_interleave.Tensor",
    "aten::bincount",
)
BY_MASK: Final = ("aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
FROM_THE_HOST: Final = ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift", "aten::_pin_memory")


class CannotBeRecorded(Exception):
    """CUDA would have ended the recording with an error."""


@dataclass(frozen=True)
class Operator:
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answers: tuple[Tensor, ...]
    """Tensors of their own that it fills; none if it writes to what it is given."""

    def run(self) -> None:
        made = tensors_of(self.function(*self.args, **self.kwargs))
        for old, new in zip(self.answers, made if self.answers else (), strict=True):
            assert (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
            old.untyped_storage().copy_(new.untyped_storage())


class Recording(TorchDispatchMode):
    """Writes down what runs while it is entered, and undoes it at the end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Operator] = []
        self._made: dict[int, Tensor] = {}  # by the place of the memory
        self._before: dict[int, tuple[Tensor, torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        _refuse(func, args)
        given = [*tensors_of(args), *tensors_of(list(kwargs.values()))]
        for tensor in written_by(func, args, kwargs):
            self._save(tensor)
        answer = func(*args, **kwargs)
        made = tensors_of(answer)
        places = {place_of(tensor) for tensor in given}
        are_new = [place_of(tensor) not in places for tensor in made]
        if all(are_new) and made:
            self._made |= {place_of(tensor): tensor for tensor in made}
            self.operators.append(Operator(func, args, kwargs, tuple(made)))
        elif schema_of(func).is_mutable:
            self.operators.append(Operator(func, args, kwargs, ()))
        else:
            assert not any(are_new), f"{func} answers with views and with tensors of its own"
        return answer

    def _save(self, tensor: Tensor) -> None:
        if place_of(tensor) not in self._made:
            self._before.setdefault(place_of(tensor), (tensor, tensor.untyped_storage().clone()))  # type: ignore[no-untyped-call]

    def undo(self) -> None:
        for tensor, before in self._before.values():
            tensor.untyped_storage().copy_(before)
        self._before.clear()
        self.spoil()

    def spoil(self) -> None:
        """Somebody else has used the memory: floats are no numbers now, indices are -1."""
        for tensor in self._made.values():
            tensor.untyped_storage().fill_(0xFF)  # type: ignore[attr-defined]


@dataclass
class Pool:
    last: "Graph | None" = None
    """Which of them was replayed last."""


class Graph:
    """Instead of ``torch.cuda.CUDAGraph``."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.pool = Pool()
        self.num_replays = 0
        self.stage = ""

    def replay(self) -> None:
        if self.pool.last is not None:
            self.pool.last.recording.spoil()
        self.pool.last = self
        for operator in self.recording.operators:
            operator.run()
        self.num_replays += 1


class Stream:
    """Instead of ``torch.cuda.Stream``: everything happens at once."""

    def wait_stream(self, other: object) -> None:
        pass


class ReplayedGraphs:
    """Makes work for the CPU be recorded, wherever the engine records it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.graphs: list[Graph] = []
        for name, value in {
            "Stream": Stream,
            "current_stream": Stream,
            "CUDAGraph": Graph,
            "graph": self._record,
            "stream": lambda _: nullcontext(),
            "graph_pool_handle": Pool,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(Tensor, "record_stream", lambda *_: None)
        monkeypatch.setattr(GraphedCall, "call", self._strictly(GraphedCall.call))
        for module in (graphs, flow_runner, vocoder_runner, model_runner, batched):
            monkeypatch.setattr(module, "can_record", lambda _: True)

    @property
    def num_replays(self) -> int:
        return sum(graph.num_replays for graph in self.graphs)

    def _strictly(self, call: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        """As without it, but that an input of another shape or type is not made to fit."""
        recorded: dict[tuple[GraphedCall, tuple[int, ...]], object] = {}

        def strict(graphed: GraphedCall, key: tuple[int, ...], **tensors: Tensor) -> tuple[Tensor, ...]:
            kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
            assert recorded.get((graphed, key), kinds) == kinds, f"{key}: not the inputs of the recording"
            num_graphs = len(graphed)
            answer = call(graphed, key, **tensors)
            if len(graphed) > num_graphs:
                recorded[graphed, key] = kinds
                self.graphs[-1].stage = stage_of(tensors)
            return answer

        return strict

    @contextmanager
    def _record(self, graph: Graph, *, pool: Pool, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        with graph.recording:
            yield
        graph.recording.undo()
        graph.pool = pool
        self.graphs.append(graph)


def _refuse(func: Any, args: tuple[Any, ...]) -> None:
    name = func.name()
    if name in ASKS_FOR_A_VALUE:
        raise CannotBeRecorded(f"{name}: the host asks for a value")
    if name in FROM_THE_HOST:
        raise CannotBeRecorded(f"{name}: data of the host")
    if name in BY_MASK and any(index is not None and index.dtype == torch.bool for index in args[1]):
        raise CannotBeRecorded(f"{name}: as many as a mask has, which the host would ask for")


def schema_of(func: Any) -> Any:
    return func._schema  # noqa: SLF001 - PyTorch has no public name for it


def written_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    schema = schema_of(func)
    if not schema.is_mutable:
        return
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_of(args[index] if index < len(args) else kwargs.get(argument.name))


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for each in value for tensor in tensors_of(each)] if isinstance(value, list | tuple) else []


def place_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
