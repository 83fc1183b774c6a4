"""Child processes of the end-to-end tests: own log file, bounded in time, ended by pid."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from lab.waiting import PATIENCE_S

END_TIMEOUT_S = 10.0


class Child:
    """A child process whose output goes to a file. What a test leaves running is ended by ``end_all``."""

    running: ClassVar[list["Child"]] = []

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self.log_path = log_path
        self.is_shared = False
        """It outlives the test that started it."""

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, log_path: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Self:
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
            )
        child = cls(process, log_path)
        cls.running.append(child)
        return child

    @classmethod
    async def end_all(cls) -> None:
        """End every child that has not ended, but for those that tests share."""
        ending = [child for child in cls.running if not child.is_shared]
        cls.running[:] = [child for child in cls.running if child.is_shared]
        for child in ending:
            await child.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    async def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Exit status; TimeoutError with the end of the log when it does not come."""
        try:
            return await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            raise TimeoutError(f"{self.log_path.name}: still running after {timeout_s} s\n{self.log[-4000:]}") from None

    async def end(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """SIGTERM, and SIGKILL if that does not help. Returns the exit status."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), timeout_s)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        assert self._process.returncode is not None
        return self._process.returncode
