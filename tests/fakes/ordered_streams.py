"""CUDA streams where there is no CUDA: everything is done at once on the CPU, and what the streams left open is looked for.

Each operator is work of the current stream, with the storages that it reads and writes. What comes before what is kept as
vector clocks: a stream does its work in its order, waits for another stream or an event, and begins nothing before the host
asked for it; the host knows of a stream what it waited for. A :class:`Race` is raised for

- two streams at one storage, one of them writing, with nothing that says which is first;
- memory that goes back to the stream it was allocated in while another one may still use it (``record_stream``).

What is copied to memory of the host arrives when an event behind the copy has been waited for; before, rubbish is there.
Events that are asked whether they are over say no now and then.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from cc_tts.engines.cosyvoice import batched
from cc_tts.engines.cosyvoice.runners import lanes
from tests.fakes.replayed_graphs import place_of, tensors_of, written_by

Clock = dict[int, int]
LOOK_EVERY: Final = 1000  # operators: for memory that is gone


class Race(BaseException):
    """On a card the result would depend on chance. No error that ends a stream and lets the others go on."""


def joined(*clocks: Clock) -> Clock:
    return {each: max(clock.get(each, 0) for clock in clocks) for each in set().union(*clocks)}


@dataclass
class Used:
    """What was done with a storage since it was written last."""

    alive: StorageWeakRef
    home: int | None
    """The stream that it was allocated in; None: before any of them."""
    written: tuple[int, int] | None = None
    read: Clock = field(default_factory=dict)
    last: Clock = field(default_factory=dict)
    """The last use by each stream that did not allocate it and was not recorded for it."""


class Stream:
    """Instead of ``torch.cuda.Stream``."""

    def __init__(self, streams: "OrderedStreams", number: int) -> None:
        self._streams = streams
        self.number = number
        self.clock: Clock = {}
        self.knows: Clock | None = None
        """What the host knew when it began something last; never changed in place."""

    def wait_stream(self, other: "Stream") -> None:
        self.clock = joined(self.clock, other.clock, self._streams.host)

    def wait_event(self, event: "Event") -> None:
        self.clock = joined(self.clock, event.clock, self._streams.host)


class Event:
    """Instead of ``torch.cuda.Event``."""

    def __init__(self, streams: "OrderedStreams", *, enable_timing: bool = False) -> None:
        self._streams = streams
        self.is_timed = enable_timing
        self.clock: Clock = {}
        self.is_recorded = False

    def record(self) -> None:
        stream = self._streams.current
        stream.clock = joined(stream.clock, self._streams.host)
        stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1  # it is over after those before
        self.clock, self.is_recorded = dict(stream.clock), True

    def query(self) -> bool:
        is_over = all(self._streams.host.get(each, 0) >= count for each, count in self.clock.items())
        if is_over or self._streams.draw.random() < 0.3:
            self.synchronize()
            return True
        return False

    def synchronize(self) -> None:
        assert self.is_recorded
        self._streams.host = joined(self._streams.host, self.clock)
        self._streams.deliver()

    def elapsed_time(self, later: "Event") -> float:
        for event in (self, later):
            assert event.is_timed
            is_over = all(self._streams.host.get(each, 0) >= count for each, count in event.clock.items())
            assert is_over, "the time of an event that may not be over"
        return 1.0


class OrderedStreams(TorchDispatchMode):
    """Makes the engine use streams on the CPU; to be entered. Apply it after ``ReplayedGraphs``, if both are wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draw = random.Random(seed)
        self.host: Clock = {}
        self.streams: list[Stream] = []
        self.current = self._new()
        self.num_beside = 0
        """How often a stream went on, after the host had waited, beside work of another that might not be over."""
        self._used: dict[int, Used] = {}
        self._on_the_way: list[tuple[int, int, Tensor, Tensor]] = []
        self.pinned: dict[int, Tensor] = {}
        """Where copies for the host go to, by the place of the memory."""
        self._num_seen = 0

        def record_stream(tensor: Tensor, stream: Stream) -> None:
            if place_of(tensor) in self._used:
                self._used[place_of(tensor)].last.pop(stream.number, None)

        for name, value in {
            "Stream": lambda *_: self._new(),
            "current_stream": lambda *_: self.current,
            "stream": self._entered,
            "Event": lambda **options: Event(self, **options),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(Tensor, "record_stream", record_stream)
        monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
        monkeypatch.setattr(lanes, "pinned", self._new_pinned)
        for module in (lanes, batched):
            monkeypatch.setattr(module, "has_streams", lambda _: True)

    def _new(self) -> Stream:
        self.streams.append(Stream(self, len(self.streams)))
        return self.streams[-1]

    @contextmanager
    def _entered(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def _new_pinned(self, values: Tensor) -> Tensor:
        host = torch.full_like(values, 113)
        self.pinned[place_of(host)] = host
        return host

    def deliver(self) -> None:
        arrived = [each for each in self._on_the_way if self.host.get(each[0], 0) >= each[1]]
        self._on_the_way = [each for each in self._on_the_way if self.host.get(each[0], 0) < each[1]]
        for _, _, host, values in arrived:
            host.numpy()[...] = values.numpy()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        stream = self.current
        if func.name() == "aten::copy_" and place_of(args[0]) in self.pinned:
            return self._copy_to_host(stream, *args[:2])
        answer = func(*args, **kwargs)
        given = {place_of(tensor): tensor for tensor in tensors_of([*args, *kwargs.values()])}
        given.pop(0, None)  # of no elements
        written = {place_of(tensor) for tensor in written_by(func, args, kwargs)}
        made = {place_of(tensor): tensor for tensor in tensors_of(answer) if place_of(tensor) not in (0, *given)}
        if not made and not written:
            return answer  # views
        self._begin(stream)
        for key, tensor in given.items():
            self._use(stream, key, tensor, writes=key in written)
        now = stream.clock[stream.number]
        for key, tensor in made.items():
            self._check_gone(self._used.get(key))
            self._used[key] = Used(StorageWeakRef(tensor.untyped_storage()), stream.number, (stream.number, now))  # type: ignore[no-untyped-call]
        return answer

    def _begin(self, stream: Stream) -> None:
        if stream.knows is not self.host:
            stream.clock, stream.knows = joined(stream.clock, self.host), self.host
            others = (each for each in self.streams if each is not stream)
            self.num_beside += any(self.host.get(each.number, 0) < each.clock.get(each.number, 0) for each in others)
        stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
        self._num_seen += 1
        if self._num_seen % LOOK_EVERY == 0:
            self.look_for_memory_that_is_gone()

    def _use(self, stream: Stream, key: int, tensor: Tensor, *, writes: bool) -> None:
        used = self._used.get(key)
        if used is None or used.alive.expired():  # type: ignore[no-untyped-call]
            self._check_gone(used)
            used = self._used[key] = Used(StorageWeakRef(tensor.untyped_storage()), None)  # type: ignore[no-untyped-call]
        before = dict([used.written] if used.written is not None else [])
        if writes:
            before = joined(before, used.read)
        for other, count in before.items():
            if other != stream.number and stream.clock.get(other, 0) < count:
                kind = f"{tuple(tensor.shape)} {tensor.dtype}"
                raise Race(f"stream {stream.number} {'writes' if writes else 'reads'} {kind} beside stream {other}")
        now = stream.clock[stream.number]
        if writes:
            used.written, used.read = (stream.number, now), {}
        else:
            used.read[stream.number] = now
        if used.home is not None and used.home != stream.number:
            used.last[stream.number] = now

    def _copy_to_host(self, stream: Stream, host: Tensor, values: Tensor) -> Tensor:
        self._begin(stream)
        self._use(stream, place_of(values), values, writes=False)
        self._on_the_way.append((stream.number, stream.clock[stream.number], host, values.clone()))
        return host

    def look_for_memory_that_is_gone(self) -> None:
        """Of what was freed, another stream's uses must be over as far as the stream knows that gets it back."""
        for key in [key for key, used in self._used.items() if used.alive.expired()]:  # type: ignore[no-untyped-call]
            self._check_gone(self._used.pop(key))

    def _check_gone(self, used: Used | None) -> None:
        if used is None:
            return
        known = self.host if used.home is None else joined(self.host, self.streams[used.home].clock)
        for other, count in used.last.items():
            if known.get(other, 0) < count:
                raise Race(f"memory of stream {used.home} is free while stream {other} uses it")
