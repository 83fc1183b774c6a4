"""The order of work on the device, and what the host waits for.

::

    host ─▸ upload ─▸ lane: work … ─▸ fetch ─▸ host, when it is there
            one pinned copy           one pinned copy and an event

A lane is a CUDA stream. The work of a lane is done in its order, and lanes go on beside each other, so no tensor that is
written belongs to two of them. What is allocated in a lane is used and freed there, and nobody else gets its memory. Work
for a CPU is done when it is asked for.

Runs on: the thread that owns the device.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cc_tts.clock import Clock, ms_between

POLL_S: Final = 0.0002  # how often an event is asked for that is waited for with a limit; unmeasured


def has_streams(device: torch.device) -> bool:
    return device.type == "cuda"


def pinned(values: Tensor) -> Tensor:
    """Return host memory of the same shape and type, to which a device copies while the host continues."""
    return torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)


def upload(values: Tensor, device: torch.device) -> Tensor:
    """``values`` of the host on the device; the host does not wait for it."""
    if not has_streams(device):
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


class Lane:
    """A stream of the device, which begins behind what the caller's stream was given before."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream() if has_streams(device) else None  # type: ignore[no-untyped-call]
        self.follow()

    def follow(self) -> None:
        """Go on behind what the caller's stream was given until now."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Do what is asked for within in this lane."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield


class LaneMark:
    """When the lane has come here; to be read when what was asked for about then has been fetched."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self.at_ns = clock.now_ns()
        self.event: torch.cuda.Event | None = None
        if has_streams(device):
            self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.event.record()

    def ms_since(self, earlier: "LaneMark") -> float:
        """The time of the lane between two marks."""
        if self.event is None or earlier.event is None:
            return ms_between(earlier.at_ns, self.at_ns)
        self.event.synchronize()  # it may be a moment behind what was fetched
        return float(earlier.event.elapsed_time(self.event))


class Fetched:
    """Numbers on their way to the host, in one copy behind what the lane was given before."""

    def __init__(self, values: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._values = values
        if has_streams(values.device):
            self._values = pinned(values)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self, limit_ms: float, clock: Clock) -> bool:
        """Wait until they are there, for ``limit_ms`` at most; return whether they are."""
        begin_ns = clock.now_ns()
        pause = threading.Event()  # nobody sets it
        while self._event is not None and not self._event.query():  # type: ignore[no-untyped-call]
            if ms_between(begin_ns, clock.now_ns()) >= limit_ms:
                return False
            pause.wait(POLL_S)
        return True

    def numbers(self) -> npt.NDArray[np.generic]:
        """The numbers; here the host waits for the device."""
        if self._event is not None:
            self._event.synchronize()
        return self._values.numpy()
