"""The MRCP process: ``python -m cc_tts.mrcp --channel-fd N``, its settings as JSON on standard input.

It is a process because its media clock would suffer from the server's event loop, and the server from what strangers send.
Everything runs on one event loop, the channel to the server too.
"""

import asyncio
import os
import socket
import ssl
import sys
from contextlib import suppress
from typing import Final

from cc_tts import logs
from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import TlsConfig
from cc_tts.config.tls import ca_file
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.mrcp.control.connections import Control
from cc_tts.mrcp.messages import TO_MRCP, AboutOne, Accept, MrcpSettings, Renew
from cc_tts.mrcp.mrcp_calls import CHECK_S, MrcpCalls, Tell
from cc_tts.mrcp.sip.flows import Flow, SipListener
from cc_tts.mrcp.sip.server import SipServer
from cc_tts.processes import child
from cc_tts.processes.channel import PROTOCOL_VERSION, Hello, Message, Ping, Pong, Ready, Shutdown, StartFailed
from cc_tts.processes.supervisor import LoopChannel
from cc_tts.ua.guard.limits import PeerList

BYE_TIMEOUT_S: Final = 1.0
"""How long the process waits at the end for answers to its BYEs (unmeasured)."""

LOG_REFUSED_INTERVAL_S: Final = 10.0
"""The log names one stranger in this time, however many come (unmeasured)."""

log = logs.get("cc_tts.mrcp")


class MrcpServer:
    """All parts of the process. ``tell`` sends a message to the server."""

    def __init__(self, settings: MrcpSettings, tell: Tell) -> None:
        self._settings = settings
        self._peers = PeerList(settings.mrcp.allowed_peers)
        self._ports: dict[str, int] = {}
        self._tls: ssl.SSLContext | None = None
        self._log_refused_from_s = 0.0
        self.control = Control(self._may_connect, idle_timeout_s=settings.mrcp.idle_timeout_s)
        self.calls = MrcpCalls(settings, self.control, MonotonicClock(), tell)
        self.sip = SipServer(
            settings.sip, begin=self.calls.begin, capabilities=self.calls.capabilities, contact=self._contact
        )
        self._listener = SipListener(self.sip.receive, self._may_connect)

    def _may_connect(self, host: str) -> bool:
        """Return whether this address may connect. The log names one that may not, since it gets no answer."""
        if host in self._peers:
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._log_refused_from_s:
            self._log_refused_from_s = now_s + LOG_REFUSED_INTERVAL_S
            log.warning("mrcp_peer_refused", source=host, setting="mrcp.allowed_peers")
        return False

    def _contact(self, flow: Flow) -> str:
        host = self._settings.sip.public_address or flow.local_host
        kind = flow.transport.lower()
        return f"<sip:{host}:{self._ports.get(kind, 0)}{'' if kind == 'udp' else f';transport={kind}'}>"

    async def start(self) -> dict[str, str]:
        """Listen; returns the ports. Raises ``ProcessFailed`` or ``ConfigError`` if it cannot."""
        config, host = self._settings.mrcp, self._settings.sip.host
        plain = tls_port = 0
        if "udp" in config.transports:
            self._ports["udp"] = await self._listener.listen_udp(host, config.sip_port)
        if "tcp" in config.transports:
            port = config.sip_port or self._ports.get("udp", 0)
            self._ports["tcp"] = await self._listener.listen(host, port)
        if {"udp", "tcp"} & set(config.transports):
            plain = await self.control.listen(host, config.control_port)
        if "tls" in config.transports:
            context = self._tls = tls_context(self._settings.tls)
            self._ports["tls"] = await self._listener.listen(host, config.sip_tls_port, tls=context)
            tls_port = await self.control.listen(host, config.control_tls_port, tls=context)
        self.calls.control_ports = {False: plain, True: tls_port}
        named = {f"sip_{kind}": port for kind, port in self._ports.items()} | {
            "control": plain,
            "control_tls": tls_port,
        }
        return {name: str(port) for name, port in named.items() if port}

    def take(self, message: Message, payload: bytes) -> None:
        match message:
            case AboutOne():
                self.calls.take(message, payload)
            case Accept(accepting=accepting):
                self.calls.is_accepting = accepting
            case Renew():
                self._renew(message)

    def _renew(self, renewed: Renew) -> None:
        """Apply the settings that were read again; open connections stay open. The server has checked the certificate."""
        self._peers = PeerList(renewed.allowed_peers)
        if self._tls is None:
            return
        try:
            load_tls(self._tls, renewed.tls)
        except (OSError, ValueError) as error:
            log.error("tls_not_renewed", detail=str(error), consequence="the certificate of before is used")

    async def watch(self) -> None:
        """Close unused sessions and connections, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            now_s = asyncio.get_running_loop().time()
            self.calls.look(now_s)
            self.control.close_unused(now_s)
            self._listener.close_unused(now_s)

    async def stop(self) -> None:
        """Stop listening first, so that no session begins meanwhile, and end the sessions by BYE."""
        self.calls.is_accepting = False
        await self.sip.close(BYE_TIMEOUT_S)
        self.control.close()
        self._listener.close()


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context of ``[tls]``; the server checked the files before it started."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_tls(context, tls)
    return context


def load_tls(context: ssl.SSLContext, tls: TlsConfig) -> None:
    """Read the files of ``[tls]``, for new connections."""
    context.load_cert_chain(tls.certificate_file, tls.private_key_file, password=lambda: tls.private_key_password)
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify_client else ssl.CERT_NONE
    if tls.verify_client:
        context.load_verify_locations(cafile=ca_file(tls))


def main() -> int:
    """Run until a shutdown is requested or the server is gone; return the exit status."""
    sock, settings = child.connect("mrcp", MrcpSettings)
    return asyncio.run(_serve(sock, settings))


async def _serve(sock: socket.socket, settings: MrcpSettings) -> int:
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(status: int) -> None:
        if not over.done():
            over.set_result(status)

    def take(message: Message, payload: bytes) -> None:
        match message:
            case Ping(serial=serial):
                tell(Pong(serial=serial))
            case Shutdown():
                end(0)
            case _:
                server.take(message, payload)

    def gone(reason: str) -> None:
        log.info("server_gone", detail=reason, consequence="sessions end")
        end(child.EXIT_SERVER_GONE)

    def tell(message: Message, payload: bytes = b"") -> None:
        with suppress(ProcessFailed):
            channel.send(message, payload)

    server, channel = MrcpServer(settings, tell), LoopChannel(TO_MRCP, on_record=take, on_closed=gone)
    await channel.open(sock)
    try:
        ports = await server.start()
    except (CcTtsError, OSError) as error:
        detail = error.detail if isinstance(error, CcTtsError) else str(error)
        log.error("cannot_start", detail=detail)
        tell(StartFailed(detail[: child.MAX_REASON_CHARS]))
        return child.EXIT_NO_START
    tell(Hello(protocol=PROTOCOL_VERSION, process="mrcp", pid=os.getpid(), build=ports))
    tell(Ready())
    watching = asyncio.create_task(server.watch(), name="watch")
    try:
        return await over
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await server.stop()


if __name__ == "__main__":
    sys.exit(main())
