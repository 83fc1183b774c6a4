"""Child processes that are told what to do by lines on standard input, and say what happened by JSON lines."""

import asyncio
import contextlib
import json
import os
import select
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, Self

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A report of many calls is one line. Unmeasured: far more than the longest seen."""
READ_BYTES: Final = 65_536

Json = dict[str, Any]


class LineProcess:
    """The end of whoever started the child, which runs a module of Python."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str, *arguments: str, log_path: Path | None = None) -> Self:
        """Start it. Its standard error goes to ``log_path``, or where that of this process goes."""
        pipe = asyncio.subprocess.PIPE
        argv = [sys.executable, "-m", module, *arguments]
        with log_path.open("wb") if log_path is not None else contextlib.nullcontext() as log:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=log, limit=MAX_LINE_BYTES
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._process.returncode

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(await self._process.stdout.readline())

    async def lines(self) -> AsyncIterator[Any]:
        """What it says until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield json.loads(line)

    async def ask(self, line: str) -> Json:
        self.tell(line)
        answer: Json = await self.read()
        return answer

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def ended(self, timeout_s: float) -> int:
        """Its exit status, once it has ended by itself; TimeoutError if it does not."""
        return await asyncio.wait_for(self._process.wait(), timeout_s)


class CommandLines:
    """The child's end: whole lines of standard input as they come, without a thread that waits for them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unread = b""

    def take(self, timeout_ms: int = 0) -> list[str] | None:
        """Lines that came within this time; ``None`` after the end of the input."""
        if not select.select([self._fd], [], [], timeout_ms / 1000)[0]:
            return []
        data = os.read(self._fd, READ_BYTES)
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [line.decode() for line in lines if line.strip()]
