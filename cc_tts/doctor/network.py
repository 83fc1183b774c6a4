"""Addresses, ports and socket buffers."""

import errno
import ipaddress
from collections.abc import Iterator
from typing import Final

from cc_tts.clock import MonotonicClock
from cc_tts.config import tls as tls_files
from cc_tts.doctor.finding import Finding, Subject
from cc_tts.doctor.probes import Probes
from cc_tts.errors import ConfigError
from cc_tts.port_owner import Kind
from cc_tts.ua.pjsua2_build import VARIABLE, WHEEL_MAX_CALLS

PORTS_A_CALL: Final = 2
"""RTP and RTCP."""
WANTED_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""What the server build asks for on the SIP socket (``sip/pjproject/config_site.h``)."""
MANY_CALLS: Final = 50
"""From so many calls on, a burst of signalling overruns the kernel's usual 208 KiB."""
_ANY: Final = "0.0.0.0"
_PRIVILEGED: Final = 1024


def check_addresses(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """``sip.host``, ``sip.public_address``, the machine's own name."""
    sip = subject.config.sip
    host = ipaddress.ip_address(sip.host)
    if host.is_loopback:
        yield Finding(
            "warn",
            "sip.host",
            f"{host}: only this machine can call",
            'for a PBX elsewhere: the address it reaches; "0.0.0.0" with the server build of pjsua2',
        )
    else:
        yield _public_address(sip.public_address, probes.local_address() if sip.host == _ANY else sip.host)
    name = probes.host_name()
    if probes.resolves(name):
        yield Finding("ok", "host name", f"{name} has an address")
    else:
        yield Finding(
            "warn", "host name", f"{name} has no address", "add it to /etc/hosts: look-ups of it wait for a timeout"
        )


def _public_address(public: str, local: str) -> Finding:
    if public:
        return Finding("ok", "sip.host", f"the address reported to peers: {public}")
    if not local:
        return Finding(
            "warn", "sip.host", "no route leaves this machine", "set sip.host to the address peers can reach"
        )
    if ipaddress.ip_address(local).is_private:
        return Finding(
            "warn",
            "sip.host",
            f"the address reported to peers: {local}, a private address",
            "fine within that network; set sip.public_address if a PBX reaches this machine through NAT",
        )
    return Finding("ok", "sip.host", f"the address reported to peers: {local}")


def check_ports(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Whether SIP and HTTP can be bound, and who is in the way."""
    sip, http = subject.config.sip, subject.config.http
    for name in sip.transports:
        if name == "tls":
            yield _port(probes, "tcp", sip.host, sip.tls_port, key="sip.tls_port")
        else:
            yield _port(probes, name, sip.host, sip.port, key="sip.port")
    http_host = "127.0.0.1" if http.host == "localhost" else http.host
    yield _port(probes, "tcp", http_host, http.port, key="http.port")


def check_tls(subject: Subject, _probes: Probes) -> Iterator[Finding]:
    """The certificate of SIP over TLS, and whether this build of pjsua2 may be used for it."""
    tls = subject.config.tls
    max_calls = subject.build_max_calls
    if "tls" in subject.config.sip.transports and max_calls is not None and max_calls <= WHEEL_MAX_CALLS:
        detail, advice = "the try-out wheel of pjsua2 is not for TLS", f"make pjsua2, then start with {VARIABLE}=server"
        yield Finding("fail", "tls", detail, advice)
    if not (tls.certificate_file or tls.ca_file):
        return
    try:
        warnings = tls_files.check(tls, now_s=MonotonicClock().wall_s())
    except ConfigError as error:
        yield Finding("fail", "tls", error.detail, "SIP over TLS does not start like this")
        return
    for warning in warnings:
        yield Finding("warn", "tls", *warning.split("; ", 1))
    if not warnings:
        yield Finding("ok", "tls", f"{tls.certificate_file or tls.ca_file} can be used")


def _port(probes: Probes, kind: Kind, host: str, port: int, *, key: str) -> Finding:
    where = f"{host}:{port}/{kind}"
    error = probes.bind_error(kind, host, port)
    if error is None:
        return Finding("ok", key, f"{where} is free")
    if error.errno == errno.EADDRINUSE:
        holder = probes.holder(kind, port)
        if is_ours(holder):
            return Finding("ok", key, f"{where} is held by a running cc-tts")
        who = f"is taken by: {holder[:80]}" if holder else "is taken, by whom is not to be seen (try as root)"
        return Finding("fail", key, f"{where} {who}", f"stop that program, or set {key} to a free port")
    if error.errno == errno.EADDRNOTAVAIL:
        return Finding("fail", key, f"{host} is no address of this machine", f"correct {key.replace('port', 'host')}")
    if error.errno == errno.EACCES and port < _PRIVILEGED:
        return Finding("fail", key, f"{where} needs privileges", f"set {key} above 1023, or grant CAP_NET_BIND_SERVICE")
    return Finding("fail", key, f"{where}: {error.strerror}", f"correct {key}")


def is_ours(command_line: str) -> bool:
    """Whether a command line is one of our processes."""
    return any(word in command_line for word in ("cc_tts.ua", "cc-tts serve", "cc_tts.cli", "cc_tts.engines.worker"))


def check_rtp(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Whether the media ports suffice, are free, and are the server's own."""
    rtp, sip = subject.config.rtp, subject.config.sip
    room = (rtp.port_max - rtp.port_min + 1) // PORTS_A_CALL
    wanted = subject.num_calls
    shown = f"{rtp.port_min} to {rtp.port_max}: {room} calls"
    if room >= wanted:
        yield Finding("ok", "rtp ports", f"{shown}, {wanted} wanted")
    else:
        last = min(65535, rtp.port_min + PORTS_A_CALL * wanted - 1)
        yield Finding(
            "fail" if sip.max_calls else "warn",
            "rtp ports",
            f"{shown}, {wanted} wanted",
            f"set rtp.port_max = {last}, or sip.max_calls = {room}",
        )
    yield _taken(subject, probes)
    ephemeral = (probes.read_text("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    reserved = probes.read_text("/proc/sys/net/ipv4/ip_local_reserved_ports") or ""
    if len(ephemeral) == 2 and rtp.port_max >= int(ephemeral[0]) and rtp.port_min <= int(ephemeral[1]) and not reserved:  # noqa: PLR2004
        yield Finding(
            "warn",
            "rtp ports",
            f"they overlap the kernel's own, {ephemeral[0]} to {ephemeral[1]}",
            f"sysctl -w net.ipv4.ip_local_reserved_ports={rtp.port_min}-{rtp.port_max}",
        )


def _taken(subject: Subject, probes: Probes) -> Finding:
    rtp = subject.config.rtp
    host = subject.config.sip.host
    ports = range(rtp.port_min, rtp.port_max + 1)
    taken = [
        port for port in ports if (error := probes.bind_error("udp", host, port)) and error.errno == errno.EADDRINUSE
    ]
    strangers = [port for port in taken[:MANY_CALLS] if not is_ours(probes.holder("udp", port))]
    if not taken:
        return Finding("ok", "rtp ports", "all are free")
    if not strangers:
        return Finding("ok", "rtp ports", f"{len(taken)} are in use by calls")
    return Finding(
        "warn",
        "rtp ports",
        f"{len(strangers)} are taken by others, {strangers[0]} for one",
        "move rtp.port_min and rtp.port_max",
    )


def check_udp_buffers(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """How much the kernel lets a socket buffer."""
    for name in ("rmem_max", "wmem_max"):
        text = probes.read_text(f"/proc/sys/net/core/{name}")
        if text is None or not text.isdigit():
            yield Finding("ok", f"udp {name}", "not to be seen here (a container's network?)")
        elif int(text) < WANTED_BUFFER_BYTES and subject.num_calls >= MANY_CALLS:
            yield Finding(
                "warn",
                f"udp {name}",
                f"{int(text):,} bytes: bursts of SIP are dropped by the kernel",
                f"sysctl -w net.core.{name}={WANTED_BUFFER_BYTES}",
            )
        else:
            yield Finding("ok", f"udp {name}", f"{int(text):,} bytes for {subject.num_calls} calls")
