"""Asterisk with the files that are shipped: ``sip/peers/asterisk/run.sh`` starts it, AMI drives and watches it.

AMI, the Asterisk Manager Interface, carries blocks of ``Name: value`` lines over TCP, each ended by an empty line.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from pathlib import Path
from typing import Self

from lab import needs
from lab.audio_match import Samples, read_wav
from lab.children import Child
from lab.peers import ROOT
from lab.ports import free_ports
from lab.server_under_test import Server
from lab.waiting import PATIENCE_S, exactly

PEER = ROOT / "sip" / "peers" / "asterisk"
ADDRESS = "127.0.0.10"
NODES = ("127.0.0.11", "127.0.0.12")
RTP_PORTS = 60
MAX_LINE_BYTES = 1024 * 1024

Block = dict[str, str]


def require_asterisk() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    tree = Path(os.environ.get("ASTERISK_TREE") or f"{cache}/cc-tts/asterisk")
    if not (tree / "usr/sbin/asterisk").exists():
        needs.missing("asterisk", "Asterisk is not here: sip/peers/asterisk/fetch.sh (80 MB, no root)")
    return tree


class Asterisk:
    """A running Asterisk that knows two nodes."""

    def __init__(self, child: Child, folder: Path, sip_port: int, tls_port: int) -> None:
        self._child = child
        self._folder = folder
        self._sip_port = sip_port
        self._tls_port = tls_port
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self.blocks: list[Block] = []

    @classmethod
    async def start(
        cls,
        folder: Path,
        first: Server,
        second: Server | None = None,
        *,
        tls_keys: Path | None = None,
        tls_port: int = 0,
        direct_media: bool = False,
        lines: tuple[str, str] | None = None,
    ) -> Self:
        """Start it and wait until it says that it is up. Without a ``second`` node nobody is at its address.

        With a folder of ``tls_keys``, it speaks TLS and SRTP to ``tls_port`` of the first. ``lines``: where that takes calls
        by WebSocket and by AudioSocket.
        """
        tree = require_asterisk()
        sip_port, ami_port, rtp_port = free_ports(), free_ports(), free_ports(RTP_PORTS)
        env = {
            "ASTERISK_TREE": str(tree),
            "ASTERISK": f"{ADDRESS}:{sip_port}",
            "TTS_1": f"{NODES[0]}:{tls_port or first.sip_port}",
            "TTS_2": f"{NODES[1]}:{second.sip_port if second is not None else free_ports()}",
            "AMI_PORT": str(ami_port),
            "RTP_FIRST": str(rtp_port),
            "RTP_LAST": str(rtp_port + RTP_PORTS - 1),
            "DIRECT_MEDIA": "yes" if direct_media else "no",
        }
        if lines is not None:
            env |= {"TTS_WS": lines[0], "TTS_AUDIOSOCKET": lines[1]}
        own_tls_port = free_ports() if tls_keys is not None else 0
        if tls_keys is not None:
            env |= {"TLS_KEYS": str(tls_keys), "TLS_PORT": str(own_tls_port)}
        run = folder / "asterisk"
        child = await Child.start([str(PEER / "run.sh"), str(run)], log_path=folder / "asterisk.log", env=env)
        asterisk = cls(child, run, sip_port, own_tls_port)
        try:
            await asterisk._log_in(ami_port)
        except BaseException:
            await asterisk.end()
            raise
        return asterisk

    def share(self) -> None:
        """Several tests use it, one after another."""
        self._child.is_shared = True

    async def begin(self) -> None:
        """A test begins: what other tests did is over, and neither in the events nor in the recordings."""
        async with asyncio.timeout(PATIENCE_S):
            while "0 active channels" not in await self.command("core show channels count"):  # noqa: ASYNC110 - it is asked until it says so
                await asyncio.sleep(0.05)
        self.blocks.clear()
        for path in (self._folder / "spool" / "recordings").glob("*.wav"):
            path.unlink()

    async def _log_in(self, ami_port: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._writer is None:
                if self._child.returncode is not None:
                    raise RuntimeError(f"Asterisk ended with {self._child.returncode}:\n{self.log[-4000:]}")
                with contextlib.suppress(OSError):
                    reader, self._writer = await asyncio.open_connection(ADDRESS, ami_port, limit=MAX_LINE_BYTES)
                    break
                await asyncio.sleep(0.05)
        self._reading = asyncio.create_task(self._read(reader))
        answer = await self.action("Login", Username="lab", Secret="lab")
        assert answer["Response"] == "Success", answer
        await self.event("FullyBooted")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        await reader.readline()  # the banner
        block: Block = {}
        while line := await reader.readline():
            text = line.decode(errors="replace").rstrip("\r\n")
            if text:
                name, _, value = text.partition(": ")
                block[name] = f"{block[name]}\n{value}" if name in block else value
            elif block:
                self.blocks.append(block)
                block = {}
                self._changed.set()

    async def _until(self, wanted: Block, timeout_s: float) -> Block:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for block in self.blocks:
                        if wanted.items() <= block.items():
                            return block
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"no {wanted} within {timeout_s} s\n{self.log[-4000:]}") from None

    async def action(self, name: str, **headers: str) -> Block:
        """Send an action and wait for its response."""
        assert self._writer is not None
        number = str(next(self._numbers))
        lines = {"Action": name, "ActionID": number, **headers}
        self._writer.write("".join(f"{key}: {value}\r\n" for key, value in lines.items()).encode() + b"\r\n")
        await self._writer.drain()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for block in self.blocks:
                    if block.get("ActionID") == number and "Response" in block:
                        return block
                self._changed.clear()
                await self._changed.wait()

    async def event(self, name: str, *, timeout_s: float = PATIENCE_S, **fields: str) -> Block:
        return await self._until({"Event": name, **fields}, timeout_s)

    def events(self, name: str, **fields: str) -> list[Block]:
        wanted = {"Event": name, **fields}
        return [block for block in self.blocks if wanted.items() <= block.items()]

    async def several(self, name: str, count: int, *, timeout_s: float = PATIENCE_S, **fields: str) -> list[Block]:
        """Wait for this number of such events; there must not be more by then."""
        return await exactly(
            count, lambda: self.events(name, **fields), self._changed, what=f"{name} {fields}", timeout_s=timeout_s
        )

    async def command(self, line: str) -> str:
        return (await self.action("Command", Command=line)).get("Output", "")

    async def contact_status(self, node: int) -> str:
        """Avail, Unavail or NonQual: what Asterisk thinks of node 1 or 2."""
        for line in (await self.command("pjsip show contacts")).splitlines():
            words = line.split()
            if len(words) > 3 and words[1].startswith(f"tts-{node}/"):
                return words[3]
        raise LookupError(f"tts-{node}")

    async def until_contact(self, node: int, status: str, timeout_s: float = PATIENCE_S) -> None:
        """Ask the node by OPTIONS until Asterisk thinks this of it."""
        async with asyncio.timeout(timeout_s):
            while await self.contact_status(node) != status:
                await self.command(f"pjsip qualify tts-{node}")
                await asyncio.sleep(0.2)

    def uri(self, number: str) -> str:
        return f"sip:{number}@{ADDRESS}:{self._sip_port}"

    def secure_uri(self, number: str) -> str:
        return f"sip:{number}@{ADDRESS}:{self._tls_port};transport=tls"

    def recordings(self, name: str) -> list[Samples]:
        """What Asterisk heard on the legs of this name, ``NUMBER-NODE``, that are over; oldest first."""
        paths = sorted((self._folder / "spool" / "recordings").glob(f"{name}-*heard.wav"), key=lambda path: path.name)
        recorded = [read_wav(path) for path in paths]
        assert {rate_hz for _, rate_hz in recorded} == {8000}, f"no recording of {name}"
        return [samples for samples, _ in recorded]

    @property
    def log(self) -> str:
        return self._child.log

    async def kill(self) -> None:
        """SIGKILL, as when its machine dies with it."""
        os.kill(self._child.pid, signal.SIGKILL)
        await self.end()

    async def end(self) -> int:
        """SIGTERM; returns the exit status."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        return await self._child.end()
