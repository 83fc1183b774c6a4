"""The dispatcher: ``python -m cc_tts.ua.dispatcher --channel-fd N``, its settings as JSON on standard input.

With ``ua.processes`` above 1 it listens on ``sip.port``, UDP, and hands each new dialog to the UA process that has the most
free calls. It is a stateless proxy (RFC 3261 §16.11) that does not record its route: Contact names the UA process's own
port, so that the rest of a call does not come through here. What still comes to ``sip.port`` (a retransmission, CANCEL, the
ACK to a refusal, an INVITE with credentials) goes to the process that has the Call-ID.

It is a process of its own so that SIP is still answered, with 503, when the server hangs.
"""

import contextlib
import hashlib
import os
import selectors
import socket
import sys
from collections import OrderedDict
from typing import Final

import msgspec

from cc_tts import port_owner
from cc_tts.config.schema import SipConfig, UaConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.channel import PROTOCOL_VERSION, ChildChannel, Hello, Ping, Pong, Ready, Shutdown, StartFailed
from cc_tts.ua.messages import AssignCalls, SetFreeCalls
from cc_tts.ua.sip import forwarding
from cc_tts.ua.sip.forwarding import Address

DOWN: Final = -1
"""Stands for the number of free calls of a UA process that is not ready."""
MAX_CALL_IDS: Final = 100_000
"""The most INVITEs whose UA process is remembered; the Call-ID that is silent longest is forgotten first; unmeasured."""
MAX_DATAGRAMS: Final = 64
"""The most datagrams that are read before the server's messages are read again; unmeasured."""
RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
_MAX_DATAGRAM_BYTES: Final = 65_535  # the length in the header of UDP has 16 bits (Linux udp(7))


class DispatcherSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The sections of the configuration that the dispatcher needs."""

    sip: SipConfig
    ua: UaConfig
    log: LogConfig


class Dispatcher:
    """Decides where each datagram goes."""

    def __init__(self, settings: DispatcherSettings) -> None:
        self._host = settings.sip.local_address  # the address that we and the UA processes use for each other
        self._via = (self._host, settings.sip.port)
        self._own_ports = settings.ua.own_ports
        self._retry_after_s = settings.sip.retry_after_s
        self._free_calls = [DOWN] * settings.ua.processes
        self._process_of: OrderedDict[bytes, int] = OrderedDict()

    def set_free_calls(self, free_calls: tuple[int, ...]) -> None:
        """Set how many more calls each UA process takes; :data:`DOWN` if it is not ready."""
        self._free_calls = list(free_calls)

    def assign(self, process: int, sip_call_ids: tuple[str, ...]) -> None:
        """Note calls of a UA process that are older than this dispatcher."""
        for sip_call_id in sip_call_ids:
            self._process_of[_key(sip_call_id.encode())] = process

    def route(self, datagram: bytes, source: Address) -> tuple[bytes, Address] | None:
        """Return what is sent for ``datagram``, and to which address; ``None`` if nothing is sent, as for data that is not
        SIP.
        """
        method = forwarding.method_of(datagram)
        if not method:
            return self._route_response(datagram, source)
        call_id = forwarding.call_id_of(datagram)
        if not call_id:
            return None
        process = self._choose(call_id, method)
        if process is None:
            if method == b"ACK":  # nothing answers an ACK (RFC 3261 §17)
                return None
            return forwarding.refusal(datagram, source, retry_after_s=self._retry_after_s)
        forwarded = forwarding.forwarded(datagram, source, self._via)
        return (forwarded, (self._host, self._own_ports[process])) if forwarded else None

    def _route_response(self, datagram: bytes, source: Address) -> tuple[bytes, Address] | None:
        if not datagram.startswith(b"SIP/2.0 "):
            return None
        if source[0] == self._host and source[1] in self._own_ports:
            return forwarding.returned(datagram)
        # peers that send everything to one address, as SIPp does, send it the responses to a UA process as well
        port = forwarding.sender_port(datagram)
        return (datagram, (self._host, port)) if port in self._own_ports else None

    def _choose(self, call_id: bytes, method: bytes) -> int | None:
        """Return the UA process that has this Call-ID, or the one with the most free calls; ``None`` if none is ready."""
        key = _key(call_id)
        process = self._process_of.get(key)
        if process is None or self._free_calls[process] == DOWN:
            process = max(range(len(self._free_calls)), key=self._free_calls.__getitem__)
            if self._free_calls[process] == DOWN:
                return None
            if method != b"INVITE":  # no further request of this dialog will follow
                return process
            self._process_of[key] = process
            if self._free_calls[process]:
                self._free_calls[process] -= 1  # until the server reports the number that includes this call
            if len(self._process_of) > MAX_CALL_IDS:
                self._process_of.popitem(last=False)
        self._process_of.move_to_end(key)
        return process


def _key(call_id: bytes) -> bytes:
    return hashlib.blake2b(call_id, digest_size=16).digest()


def main() -> int:
    """Run until the server asks for the end or is gone; return the exit status."""
    channel, settings = child.begin("dispatcher", DispatcherSettings, (SetFreeCalls, AssignCalls))
    address = (settings.sip.host, settings.sip.port)
    with contextlib.suppress(ProcessFailed), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sip:
        try:
            sip.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sip.bind(address)
        except OSError as error:
            why = port_owner.reason("udp", address[1], str(error))
            channel.send(StartFailed(detail=f"cannot listen on {address[0]}:{address[1]}/udp: {why}"))
            return child.EXIT_NO_START
        sip.settimeout(0)
        channel.send(Hello(protocol=PROTOCOL_VERSION, process="dispatcher", pid=os.getpid(), build={}))
        channel.send(Ready())
        _work(channel, sip, Dispatcher(settings))
    return 0


def _work(channel: ChildChannel, sip: socket.socket, dispatcher: Dispatcher) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(sip, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sip:
                    _pass_on(sip, dispatcher)
                elif not _execute(channel, dispatcher):
                    return


def _execute(channel: ChildChannel, dispatcher: Dispatcher) -> bool:
    """Carry out the server's messages; return whether to continue."""
    records = channel.read()
    for message, _ in records:
        match message:
            case Shutdown():
                return False
            case Ping(serial=serial):
                channel.send(Pong(serial=serial))
            case SetFreeCalls(free_calls=free_calls):
                dispatcher.set_free_calls(free_calls)
            case AssignCalls(process=process, sip_call_ids=sip_call_ids):
                dispatcher.assign(process, sip_call_ids)
    return bool(records)


def _pass_on(sip: socket.socket, dispatcher: Dispatcher) -> None:
    for _ in range(MAX_DATAGRAMS):
        try:
            datagram, source = sip.recvfrom(_MAX_DATAGRAM_BYTES)
        except BlockingIOError:
            return
        except OSError:  # an ICMP error about what was sent before
            continue
        routed = dispatcher.route(datagram, source)
        if routed is not None:
            with contextlib.suppress(OSError):  # counts as a datagram that was lost on its way: SIP sends it again
                sip.sendto(*routed)


if __name__ == "__main__":
    sys.exit(main())
