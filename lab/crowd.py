"""The callers' ears as a process of their own: the other end of :mod:`lab.rtp_crowd`."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Self

from lab.lines import LineProcess


class Crowd(LineProcess):
    """The callers' ears; for the words that it takes see :mod:`lab.rtp_crowd`."""

    ports: Sequence[int] = ()

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, num_legs: int) -> AsyncIterator[Self]:
        """Start one with a socket for each leg; ended with the context."""
        crowd = await cls.start("lab.rtp_crowd", str(num_legs))
        try:
            crowd.ports = (await crowd.read())["ports"]
            yield crowd
        finally:
            await crowd.kill()
