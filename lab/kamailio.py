"""Kamailio with the configuration of sip/peers/kamailio, nodes for it, and callers that come through it."""

import asyncio
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab import needs
from lab.children import Child
from lab.configured import ua_pid
from lab.peers import ROOT, until_listening
from lab.ports import HOST, free_ports
from lab.raw_sip import Answer, RawCaller, RtpEar
from lab.server_under_test import Ports, Server
from lab.waiting import PATIENCE_S, until

SHIPPED = ROOT / "sip" / "peers" / "kamailio"
MISSING = "Kamailio is not here: sip/peers/kamailio/fetch.sh (9 MB, no root)"
PROBE_S = 2.0
SILENCE_S = 2.0
TRYING_S = 5.0
LOOK_S = 30.0
MARKED_WITHIN_S = PROBE_S + SILENCE_S + 2.0
"""From a change of a node to the probe that tells of it: an interval, no answer, Kamailio's timers of 1 s."""
FINAL_WITHIN_S = TRYING_S + SILENCE_S + 1.0
"""The longest an INVITE may wait for its final answer: one node dies after its 100, the other is dead too."""
ENDED_WITHIN_S = LOOK_S + SILENCE_S + 10.0 + 3.0
"""From the death of a node to the BYE of its calls: the look, its timeout, Kamailio's 10 s after it, timers."""


@dataclass(frozen=True)
class Installed:
    folder: Path

    @property
    def program(self) -> str:
        return str(self.folder / "usr/sbin/kamailio")

    @property
    def control(self) -> str:
        return str(self.folder / "usr/sbin/kamcmd")

    @property
    def libraries(self) -> str:
        (found,) = self.folder.glob("usr/lib/*-linux-gnu*/kamailio")
        return str(found)


def find_kamailio() -> Installed | None:
    """Kamailio of fetch.sh or of the machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cc-tts" / "kamailio"
    found = [folder for folder in (cache, Path("/")) if shutil.which(str(folder / "usr/sbin/kamailio"))]
    return Installed(found[0]) if found else None


def require_kamailio() -> Installed:
    found = find_kamailio()
    if found is None:
        needs.missing("kamailio", MISSING)
    return found


class Kamailio:
    """A running Kamailio: the shipped kamailio.cfg byte for byte, its two lists with other addresses."""

    def __init__(self, child: Child, installed: Installed, folder: Path, host: str, port: int) -> None:
        self._child = child
        self._installed = installed
        self._folder = folder
        self.host = host
        self.port = port

    @classmethod
    async def start(cls, folder: Path, nodes: list[int], *, host: str = HOST, callers: str = "127.0.0.0/8") -> Self:
        """Start it in front of nodes at these ports; returns when it listens."""
        installed = require_kamailio()
        run, port = folder / "kamailio", free_ports()
        run.mkdir()
        cls._write_nodes(run, nodes)
        cls._write_callers(run, callers)
        argv = [installed.program, "-DD", "-E", "-f", str(SHIPPED / "kamailio.cfg"), "-m", "64", "-M", "8"]
        argv += ["-L", f"{installed.libraries}/modules", "-Y", str(run), "-w", str(run)]
        argv += ["-A", f"LISTEN_UDP=udp:{host}:{port}", "-A", f"LISTEN_TCP=tcp:{host}:{port}"]
        argv += ["-A", f'NODES_FILE="{run}/dispatcher.list"', "-A", f'CALLERS_FILE="{run}/address.list"']
        environment = {"LD_LIBRARY_PATH": installed.libraries}
        child = await Child.start(argv, log_path=run / "kamailio.log", cwd=run, env=environment)
        proxy = cls(child, installed, run, host, port)
        try:
            await until((run / "kamailio_ctl").exists)
            if host == HOST:
                await until_listening(port, tcp=False)
                await until_listening(port, tcp=True)
        except TimeoutError:
            raise TimeoutError(f"kamailio did not come up:\n{child.log[-4000:]}") from None
        return proxy

    @staticmethod
    def _write_nodes(run: Path, nodes: list[int]) -> None:
        shipped = (SHIPPED / "dispatcher.list").read_text().splitlines()
        lines = [line for line in shipped if not re.fullmatch(r"1 +sip:10\.0\.0\.\d+:5060", line)]
        assert len(lines) == len(shipped) - 2
        lines += [f"1 sip:{HOST}:{port}" for port in nodes]
        (run / "dispatcher.list").write_text("\n".join(lines) + "\n")

    @staticmethod
    def _write_callers(run: Path, callers: str) -> None:
        shipped = (SHIPPED / "address.list").read_text()
        address, _, bits = callers.partition("/")
        text, count = re.subn(r"^1 +10\.0\.0\.2 +32$", f"1 {address} {bits}", shipped, flags=re.MULTILINE)
        assert count == 1
        (run / "address.list").write_text(text)

    def uri(self, user: str) -> str:
        """SIP URI of a user, through the proxy."""
        return f"sip:{user}@{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return self._child.log

    def share(self) -> None:
        """Several tests use it, one after another."""
        self._child.is_shared = True

    async def end(self) -> int:
        """SIGTERM; returns the exit status."""
        return await self._child.end()

    async def command(self, *words: str) -> str:
        argv = [self._installed.control, "-s", f"unix:{self._folder}/kamailio_ctl", *words]
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def states(self) -> dict[int, str]:
        """Port of each node and its flags: A active, I inactive, T trying, D disabled; P probed, X not."""
        listed = await self.command("dispatcher.list")
        found = re.findall(r"URI: sip:[\d.]+:(\d+)\S*\s+FLAGS: (\w+)", listed)
        return {int(port): flags for port, flags in found}

    async def until_state(self, node: Server, flags: str, timeout_s: float = MARKED_WITHIN_S) -> None:
        states: dict[int, str] = {}
        try:
            async with asyncio.timeout(timeout_s):
                while (states := await self.states()).get(node.sip_port) != flags:  # noqa: ASYNC110 - nobody tells of it
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise TimeoutError(f"{node.sip_port} is not {flags} within {timeout_s} s: {states}\n{self.log}") from None

    async def set_state(self, node: Server, state: str) -> None:
        """Override what the probes found."""
        await self.command("dispatcher.set_state", state, "1", f"sip:{HOST}:{node.sip_port}")

    async def dispatch_to(self, *nodes: Server) -> None:
        """Change the list of nodes, while it runs; Kamailio takes a change at most every 5 s."""
        self._write_nodes(self._folder, [node.sip_port for node in nodes])
        await self.command("dispatcher.reload")

    async def admit(self, callers: str) -> None:
        """Change who may call, while it runs."""
        self._write_callers(self._folder, callers)
        await self.command("permissions.addressReload")

    def refusals(self, node: Server) -> int:
        """How often a call was moved on because this node said 503."""
        return self.log.count(f"refused by sip:{HOST}:{node.sip_port}")

    def silences(self, node: Server) -> int:
        """How often a call was moved on because this node said nothing."""
        return self.log.count(f"no answer from sip:{HOST}:{node.sip_port}")


async def start_node(folder: Path, ports: Ports, **settings: str) -> Server:
    """A server at these ports, ready; settings as in ``server_with``."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - before anything runs
    return await Server.start(folder, settings, ports=ports)


async def kill_node(node: Server) -> None:
    """Kill -9 of all that it consists of: nobody says goodbye."""
    for pid in (ua_pid(node), node.pid):
        os.kill(pid, signal.SIGKILL)
    await node.ended(10.0)
    await node.end()


class ProxiedCaller(RawCaller):
    """A caller that keeps to the route of its dialog (RFC 3261 §12.2), with an ear for the media."""

    def __init__(self, user: str, port: int) -> None:
        super().__init__(user, port)
        self.ear = RtpEar()
        self.final_after_s = 0.0
        self.rtp_port = 0
        """Where the answer says that media is sent from and taken."""
        self.status = 0

    async def __aenter__(self) -> Self:
        await self.ear.__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        await self.ear.__aexit__(*exception)

    async def dial(
        self, *, headers: bytes = b"", timeout_s: float = FINAL_WITHIN_S + 5.0, ear_port: int | None = None
    ) -> int:
        """INVITE, wait for the final answer, ACK. Returns its status; how long it took is in ``final_after_s``.

        ``ear_port``: where somebody else hears the media.
        """
        started = asyncio.get_running_loop().time()
        self.invite(headers=headers, rtp_port=ear_port or self.ear.port)
        answer = await self.final(timeout_s)
        self.final_after_s = asyncio.get_running_loop().time() - started
        self.status = answer.status
        if answer.status == 200:
            self.follow(answer)
        self.ack(same_branch=answer.status != 200)
        return answer.status

    def follow(self, answer: Answer) -> None:
        """From now on requests go the way that this answer recorded."""
        media = re.search(r"^m=audio (\d+) ", answer.text, re.MULTILINE)
        self.rtp_port = int(media[1]) if media else 0
        contact = answer.header("Contact")
        assert contact is not None
        routes = re.findall(r"^Record-Route\s*:\s*(.*?)\r$", answer.text, re.MULTILINE | re.IGNORECASE)
        assert routes, answer.text
        self.uri = contact.partition("<")[2].partition(">")[0]
        self._route = "".join(f"Route: {route}\r\n" for route in reversed(routes)).encode()

    def ack(self, *, body: str = "", same_branch: bool = False) -> None:
        """Acknowledge; a refusal with the branch of its INVITE and no body (§17.1.1.3)."""
        if not same_branch:
            super().ack(body=body)
            return
        text = (
            f"ACK {self.uri} SIP/2.0\r\nVia: SIP/2.0/UDP {self.own};rport;branch={self._branch}\r\n"
            f'From: "raw" <sip:raw@{HOST}>;tag={self._tag}\r\nTo: {self.to}\r\nCall-ID: {self.call_id}\r\n'
            f"CSeq: {self.cseq} ACK\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
        )
        self.transmit(text.encode())

    async def until_heard(self, count: int = 6) -> None:
        """Wait for so many RTP packets."""
        wanted = len(self.ear.packets) + count
        await until(lambda: len(self.ear.packets) >= wanted)

    async def hears(self, during_s: float = 0.3) -> int:
        """RTP packets that come within this time."""
        before = len(self.ear.packets)
        await asyncio.sleep(during_s)
        return len(self.ear.packets) - before
