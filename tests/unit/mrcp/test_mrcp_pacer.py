"""The media clock of the MRCP process: it runs as long as a line plays, and whenever one begins to."""

import asyncio
from typing import Any, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.mrcp.rtp.pacer import Pacer
from lab.waiting import until

pytestmark = pytest.mark.unit


class FakeLine:
    def __init__(self) -> None:
        self.left = 0
        self.num_ticks = 0

    @property
    def is_busy(self) -> bool:
        return self.left > 0

    def tick(self, _now_ns: int) -> None:
        self.left -= 1
        self.num_ticks += 1


async def test_a_line_that_begins_in_the_moment_in_which_the_clock_stops_is_ticked() -> None:
    line = FakeLine()
    pacer = Pacer(lambda: cast("Any", [line]), MonotonicClock())
    pacer.wake()  # nothing plays: the clock stops at its first look
    asyncio.get_running_loop().call_soon(begin, line, pacer)  # behind that look, and before what follows it
    await until(lambda: line.num_ticks, 2)


def begin(line: FakeLine, pacer: Pacer) -> None:
    line.left = 1
    pacer.wake()
