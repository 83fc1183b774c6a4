"""Speech workers on other machines: the addresses of ``tts.workers``, and the files of ``[remote]``.

::

    grpcs://HOST:PORT    TLS, checked against remote.ca_file
    grpc://HOST:PORT     not encrypted: loopback and private addresses only
    dns:NAME:PORT        every address that NAME has; TLS where remote.ca_file is set
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from cc_tts.errors import ConfigError

if TYPE_CHECKING:
    from cc_tts.config.schema import Config, RemoteConfig

MAX_PORT: Final = 65_535
_ADDRESS: Final = re.compile(
    r"(?:(?P<scheme>grpcs?)://|(?P<dns>dns):)(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}):(?P<port>\d{1,5})"
)
_HOW: Final = "write grpcs://HOST:PORT, grpc://HOST:PORT or dns:NAME:PORT"


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """One entry of ``tts.workers``."""

    scheme: Literal["grpc", "grpcs", "dns"]
    host: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether ``host`` is an IP address and no name."""
        return _ip(self.host) is not None

    def __str__(self) -> str:
        return f"{self.scheme}:{'' if self.scheme == 'dns' else '//'}{host_port(self.host, self.port)}"


def parse(text: str) -> WorkerAddress:
    """Read one entry of ``tts.workers``; raises ``ConfigError``, which says how it is written."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= MAX_PORT:
        raise ConfigError(f"tts.workers: {text[:255]!r} is not the address of a worker; {_HOW}")
    host = match["host"].strip("[]")
    if match["dns"] is not None:
        if _ip(host) is not None:
            raise ConfigError(f"tts.workers: {text!r} names an address; dns: takes a name, grpc:// an address")
        return WorkerAddress("dns", host, int(match["port"]))
    return WorkerAddress("grpcs" if match["scheme"] == "grpcs" else "grpc", host, int(match["port"]))


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of ``--listen``; raises ``ConfigError`` for anything but an IP address with a port."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if _ip(host) is None or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ConfigError(f"--listen {text[:255]}: write an address of this machine and a port, such as 10.0.0.5:7400")
    return host, int(port)


def host_port(host: str, port: int) -> str:
    """The two as one word; an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_private(address: str) -> bool:
    """Whether an IP address is loopback or private, so that what is sent there stays on networks of one's own."""
    found = _ip(address)
    return found is not None and (found.is_loopback or found.is_private) and not found.is_unspecified


def must_be_private(address: str, what: str) -> None:
    """Raise ``ConfigError`` for an address to which nothing may be sent in the clear. ``what``: the key or entry."""
    if not is_private(address):
        raise ConfigError(
            f"{what}: without TLS only loopback and private addresses are allowed, and {address} is none; "
            "use TLS ([remote]), or a private address"
        )


def faults(config: "Config") -> Iterator[str]:
    """What contradicts itself in ``tts.workers`` and ``[remote]``, a sentence each."""
    remote, tts = config.remote, config.tts
    if bool(remote.certificate_file) != bool(remote.private_key_file):
        yield "remote.certificate_file and remote.private_key_file are set together or not at all"
    if tts.workers and tts.engine == "espeak":
        yield 'tts.workers is set, but tts.engine is "espeak", which speaks inside the server; name that of the workers'
    if len(set(tts.workers)) < len(tts.workers):
        yield "tts.workers names a worker twice"
    for text in tts.workers:
        try:
            address = parse(text)
            if address.scheme == "grpc" and address.is_address:
                must_be_private(address.host, f"tts.workers: {text}")
        except ConfigError as error:
            yield error.detail
            continue
        if address.scheme == "grpcs" and not remote.ca_file:
            yield f"tts.workers: {text} is checked against remote.ca_file, which is empty; name the CA of the workers there"


def read_file(key: str, path: str) -> bytes | None:
    """What a file of ``[remote]`` holds, ``None`` if none is named; raises ``ConfigError`` if it cannot be read."""
    if not path:
        return None
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"remote.{key}: {path}: {error.strerror}") from None


def check_listener(remote: "RemoteConfig", host: str) -> None:
    """Whether a worker may listen at ``host``; raises ``ConfigError`` if whoever reaches it there could use it."""
    if not remote.certificate_file:
        must_be_private(host, f"--listen {host}")
        if not remote.token and not ipaddress.ip_address(host).is_loopback:
            raise ConfigError(
                f"--listen {host}: anybody there could use the worker; set remote.token, the same as at the servers"
            )
    elif not remote.token and not remote.ca_file:
        raise ConfigError(
            "remote.certificate_file is set, but neither remote.token nor remote.ca_file: anybody could use the worker; "
            "set one of them"
        )


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
