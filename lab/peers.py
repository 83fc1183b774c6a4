"""Third parties: where they are, free ports for them, and SIPp."""

import re
import shutil
from pathlib import Path

from lab import needs
from lab.children import Child
from lab.ports import HOST, free_ports
from lab.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ROOT / "sip" / "scenarios"
PACKAGES = {"sipp": "sip-tester", "baresip": "baresip-core", "tshark": "tshark", "sox": "sox"}


def require(tool: str) -> str:
    """Path of a tool, see :mod:`lab.needs`."""
    path = shutil.which(tool)
    if path is None:
        needs.missing("peers", f"{tool} is not installed: apt-get install --no-install-recommends {PACKAGES[tool]}")
    return path


async def until_listening(port: int, *, tcp: bool, timeout_s: float = PATIENCE_S) -> None:
    """Wait until somebody listens on a port of the loopback interface."""
    table = Path("/proc/net/tcp" if tcp else "/proc/net/udp")
    wanted = f"0100007F:{port:04X}" + (" 00000000:0000 0A" if tcp else "")
    await until(lambda: wanted in table.read_text(), timeout_s)


class Sipp:
    def __init__(self, child: Child, folder: Path, name: str, port: int) -> None:
        self._child = child
        self._folder = folder
        self._name = name
        self.port = port

    @classmethod
    async def call(
        cls,
        scenario: str,
        *,
        folder: Path,
        target_port: int,
        service: str = "greet",
        pause_ms: int = 1000,
        tcp: bool = False,
        limit_s: int = 30,
        abort_on_unexpected: bool = True,
        credentials: tuple[str, str] | None = None,
    ) -> "Sipp":
        """Start a caller; ``credentials`` are user and password for ``[authentication]``."""
        behaviors = "all" if abort_on_unexpected else "all,-abortunexp"
        more = ["-default_behaviors", behaviors, "-m", "1"]
        if credentials is not None:
            more += ["-au", credentials[0], "-ap", credentials[1]]
        more += ["-s", service, "-d", str(pause_ms), "-t", "t1" if tcp else "u1", f"{HOST}:{target_port}"]
        return await cls._start(scenario, more, folder=folder, limit_s=limit_s)

    @classmethod
    async def answer(
        cls,
        scenario: str,
        *,
        folder: Path,
        audio: Path | None = None,
        payload_type: int = 0,
        calls: int = 1,
        pause_ms: int = 1000,
        tcp: bool = False,
        limit_s: int = 40,
    ) -> "Sipp":
        """Start a peer that waits for ``calls`` calls; returns when it listens."""
        more = ["-d", str(pause_ms), "-t", "t1" if tcp else "u1", "-key", "payload", str(payload_type)]
        more += ["-m", str(calls)]
        if audio is not None:
            more += ["-key", "rtpfile", f"{audio},1,{payload_type}"]
        sipp = await cls._start(scenario, more, folder=folder, limit_s=limit_s)
        await until_listening(sipp.port, tcp=tcp)
        return sipp

    @classmethod
    async def _start(cls, scenario: str, more: list[str], *, folder: Path, limit_s: int) -> "Sipp":
        port = free_ports()
        name = f"{scenario}-{port}"
        argv = [require("sipp"), "-sf", str(SCENARIOS / f"{scenario}.xml"), "-i", HOST, "-p", str(port)]
        argv += ["-mi", HOST, "-mp", str(free_ports(4)), "-nostdin", "-timeout", f"{limit_s}s", "-timeout_error"]
        argv += [
            "-trace_msg",
            "-message_file",
            f"{name}.messages",
            "-trace_err",
            "-error_file",
            f"{name}.errors",
            *more,
        ]
        child = await Child.start(argv, log_path=folder / f"{name}.log", cwd=folder)
        return cls(child, folder, name, port)

    @property
    def messages(self) -> str:
        """Every SIP message sent and received."""
        path = self._folder / f"{self._name}.messages"
        return path.read_text(errors="replace") if path.exists() else ""

    def received(self, start: str) -> list[str]:
        """Messages received whose first line begins so."""
        parts = re.split(r"^-{10,}.*$", self.messages, flags=re.MULTILINE)
        texts = [part.partition("\n\n")[2] for part in parts if "message received" in part.partition("\n\n")[0]]
        return [text for text in texts if text.startswith(start)]

    @property
    def errors(self) -> str:
        path = self._folder / f"{self._name}.errors"
        return path.read_text(errors="replace") if path.exists() else ""

    async def passed(self, timeout_s: float = 60.0) -> None:
        """Wait for the scenario and require that it went as written."""
        code = await self._child.wait(timeout_s)
        assert code == 0, f"sipp {self._name}: status {code}\n{self.errors[-3000:]}\n{self._child.log[-2000:]}"

    async def end(self) -> None:
        """Stop it, however far it came."""
        await self._child.end()
