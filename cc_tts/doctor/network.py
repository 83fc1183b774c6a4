"""Addresses, ports and socket buffers."""

import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import Final

from cc_tts.config.sip_uri import MAX_PORT
from cc_tts.doctor.finding import Finding, Subject, fail, ok, warn
from cc_tts.port_owner import Kind
from cc_tts.startup import listeners

WANTED_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""The receive buffer that the server build asks for on the SIP socket (``sip/pjproject/config_site.h``)."""
MANY_CALLS: Final = 50
"""The number of calls from which a burst of signalling overruns the kernel's usual 208 KiB."""
_ANY: Final = "0.0.0.0"
_OWN_PROCESSES: Final = ("cc_tts.ua", "cc_tts.mrcp", "cc-tts serve", "cc_tts.cli", "cc_tts.engines.worker")
"""The words that stand in the command line of each of our processes."""


def check_addresses(subject: Subject) -> Iterator[Finding]:
    """``sip.host``, ``sip.public_address``, the machine's own name."""
    yield _sip_host(subject)
    name = socket.gethostname()
    if subject.probes.resolves(name):
        yield ok("host name", f"{name} has an address")
    else:
        yield warn("host name", f"{name} has no address", "add it to /etc/hosts: look-ups of it wait for a timeout")


def _sip_host(subject: Subject) -> Finding:
    sip = subject.config.sip
    if ipaddress.ip_address(sip.host).is_loopback:
        advice = 'for a PBX elsewhere: the address it reaches; "0.0.0.0" with the server build of pjsua2'
        return warn("sip.host", f"{sip.host}: only this machine can call", advice)
    address = sip.public_address or (subject.probes.local_address() if sip.host == _ANY else sip.host)
    if not address:
        return warn("sip.host", "no route leaves this machine", "set sip.host to the address peers can reach")
    if not sip.public_address and ipaddress.ip_address(address).is_private:
        advice = "fine within that network; set sip.public_address if a PBX reaches this machine through NAT"
        return warn("sip.host", f"the address reported to peers: {address}, a private address", advice)
    return ok("sip.host", f"the address reported to peers: {address}")


def check_ports(subject: Subject) -> Iterator[Finding]:
    """Yield whether the ports of SIP and HTTP are free, or who holds them. ``check-config`` finds addresses that are
    not ours.
    """
    for key, kind, host, port in listeners(subject.config):
        yield _port(subject, key, kind, "127.0.0.1" if host == "localhost" else host, port)


def _port(subject: Subject, key: str, kind: Kind, host: str, port: int) -> Finding:
    where = f"{host}:{port}/{kind}"
    error = subject.probes.bind_error(kind, host, port)
    if error is None:
        return ok(key, f"{where} is free")
    if error.errno == errno.EADDRINUSE:
        holder = subject.probes.holder(kind, port)
        if is_ours(holder):
            return ok(key, f"{where} is held by a running cc-tts")
        who = f"is taken by: {holder[:80]}" if holder else "is taken, by whom is not to be seen (try as root)"
        return fail(key, f"{where} {who}", f"stop that program, or set {key} to a free port")
    return fail(key, f"{where}: {error.strerror}", f"correct {key}")


def is_ours(command_line: str) -> bool:
    return any(words in command_line for words in _OWN_PROCESSES)


def check_rtp(subject: Subject) -> Iterator[Finding]:
    """Yield whether the media ports suffice, are free, and are the server's own."""
    rtp, wanted = subject.config.rtp, subject.num_calls
    detail = f"{rtp.port_min} to {rtp.port_max}: {rtp.num_pairs} calls, {wanted} wanted"
    if rtp.num_pairs >= wanted:
        yield ok("rtp ports", detail)
    else:
        last = min(MAX_PORT, rtp.port_min + 2 * wanted - 1)
        advice = f"set rtp.port_max = {last}, or sip.max_calls = {rtp.num_pairs}"
        yield (fail if subject.config.sip.max_calls else warn)("rtp ports", detail, advice)
    yield _rtp_ports_in_use(subject)
    first, _, end = subject.probes.text("proc/sys/net/ipv4/ip_local_port_range").partition("\t")
    reserved = subject.probes.text("proc/sys/net/ipv4/ip_local_reserved_ports")
    if end and not reserved and rtp.port_max >= int(first) and rtp.port_min <= int(end):
        advice = f"sysctl -w net.ipv4.ip_local_reserved_ports={rtp.port_min}-{rtp.port_max}"
        yield warn("rtp ports", f"they overlap the kernel's own, {first} to {end}", advice)


def _rtp_ports_in_use(subject: Subject) -> Finding:
    rtp, probes = subject.config.rtp, subject.probes
    ports = range(rtp.port_min, rtp.port_max + 1)
    errors = [(port, probes.bind_error("udp", subject.config.sip.host, port)) for port in ports]
    in_use = [port for port, error in errors if error is not None and error.errno == errno.EADDRINUSE]
    others = [port for port in in_use[:MANY_CALLS] if not is_ours(probes.holder("udp", port))]
    if others:
        detail = f"{len(others)} are taken by others, {others[0]} for one"
        return warn("rtp ports", detail, "move rtp.port_min and rtp.port_max")
    return ok("rtp ports", f"{len(in_use)} are in use by calls" if in_use else "all are free")


def check_udp_buffers(subject: Subject) -> Iterator[Finding]:
    """Yield how much the kernel lets a socket buffer."""
    for name in ("rmem_max", "wmem_max"):
        text = subject.probes.text(f"proc/sys/net/core/{name}")
        if not text.isdigit():
            yield ok(f"udp {name}", "not to be seen here (a container's network?)")
        elif int(text) < WANTED_BUFFER_BYTES and subject.num_calls >= MANY_CALLS:
            detail = f"{int(text):,} bytes: bursts of SIP are dropped by the kernel"
            yield warn(f"udp {name}", detail, f"sysctl -w net.core.{name}={WANTED_BUFFER_BYTES}")
        else:
            yield ok(f"udp {name}", f"{int(text):,} bytes for {subject.num_calls} calls")
