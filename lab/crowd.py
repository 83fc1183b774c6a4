"""The callers' ears as a process of their own: the other end of :mod:`lab.rtp_crowd`."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Self

from lab.server_under_test import Json


class Crowd:
    """The caller's ears, as a process (``lab.rtp_crowd``)."""

    def __init__(self, process: asyncio.subprocess.Process, ports: Sequence[int]) -> None:
        self._process = process
        self.ports = ports

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, num_legs: int) -> AsyncIterator[Self]:
        """Start one with a socket for each leg; ended with the context."""
        pipe = asyncio.subprocess.PIPE
        argv = [sys.executable, "-m", "lab.rtp_crowd", str(num_legs)]
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        try:
            assert process.stdout is not None
            yield cls(process, json.loads(await process.stdout.readline())["ports"])
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def say(self, word: str) -> None:
        """One word; see ``lab.rtp_crowd``."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def ask(self, word: str) -> Json:
        """One word that is answered."""
        assert self._process.stdout is not None
        self.say(word)
        answer: Json = json.loads(await self._process.stdout.readline())
        return answer
