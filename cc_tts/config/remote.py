"""Speech workers on other machines: the addresses of ``tts.workers``, and the files of ``[remote]``; where the pool is.

::

    grpcs://HOST:PORT    TLS, checked against remote.ca_file
    grpc://HOST:PORT     not encrypted: loopback and private addresses only
    dns:NAME:PORT        every address that NAME has; TLS where remote.ca_file is set
    pool:HOST:PORT       those that `cc-tts pool` names, which listens there; TLS where remote.ca_file is set
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from cc_tts.config.schema import Config, RemoteConfig
from cc_tts.config.sip_uri import MAX_PORT
from cc_tts.egress.hosts import usable_url
from cc_tts.errors import ConfigError

GENERATION: Final = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,31}"
"""The form of ``--generation``, which becomes a label of metrics."""
MAX_GENERATIONS: Final = 8  # unmeasured
_ADDRESS: Final = re.compile(
    r"(?:(?P<scheme>grpcs?)://|(?P<word>dns|pool):)(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}):(?P<port>\d{1,5})"
)
_ROUNDING: Final = 1e-9
Scheme = Literal["grpc", "grpcs", "dns", "pool"]
_MAX_SHOWN_CHARS: Final = 255  # unmeasured
_HOW: Final = "write grpcs://HOST:PORT, grpc://HOST:PORT, dns:NAME:PORT or pool:HOST:PORT"


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """One entry of ``tts.workers``."""

    scheme: Scheme
    host: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether ``host`` is an IP address and no name."""
        return _ip(self.host) is not None

    def __str__(self) -> str:
        return f"{self.scheme}:{'//' if self.scheme in ('grpc', 'grpcs') else ''}{host_port(self.host, self.port)}"


def parse(text: str) -> WorkerAddress:
    """Read one entry of ``tts.workers``; raises ``ConfigError`` with the correct form."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= MAX_PORT:
        raise ConfigError(f"tts.workers: {shown(text)} is not the address of a worker; {_HOW}")
    scheme = cast("Scheme", match["scheme"] or match["word"])
    address = WorkerAddress(scheme, match["host"].strip("[]"), int(match["port"]))
    if address.scheme == "dns" and address.is_address:
        raise ConfigError(f"tts.workers: {text!r} names an address; dns: takes a name, grpc:// an address")
    return address


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of ``--listen``; raises ``ConfigError`` for anything but an IP address with a port."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if _ip(host) is None or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ConfigError(f"--listen {text[:255]}: write an address of this machine and a port, such as 10.0.0.5:7400")
    return host, int(port)


def shown(url: str) -> str:
    """Return an address for an error message, without a possible password."""
    return "what it holds" if "@" in url or "?" in url else repr(url[:_MAX_SHOWN_CHARS])


def local_address(host: str) -> str:
    """Return the address at which processes of this machine reach a listener at ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def host_port(host: str, port: int) -> str:
    """Return host and port as one text; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_private(address: str) -> bool:
    """Whether an IP address is loopback or private, so that the traffic stays on private networks."""
    found = _ip(address)
    return found is not None and (found.is_loopback or found.is_private) and not found.is_unspecified


def must_be_private(address: str, what: str) -> None:
    """Raise ``ConfigError`` for an address to which nothing may be sent unencrypted. ``what``: the key or entry."""
    if not is_private(address):
        raise ConfigError(
            f"{what}: without TLS only loopback and private addresses are allowed, and {address} is none; "
            "use TLS ([remote]), or a private address"
        )


def pool_url(config: "Config") -> str:
    """Return the URL of the pool: ``cluster.pool_url``, else the ``pool:`` entry of ``tts.workers``; empty if
    there is none.
    """
    if config.cluster.pool_url:
        return config.cluster.pool_url
    scheme = "https" if config.remote.ca_file else "http"
    pools = (address for address in map(parse, config.tts.workers) if address.scheme == "pool")
    return next((f"{scheme}://{host_port(address.host, address.port)}" for address in pools), "")


def _pool_faults(config: "Config") -> Iterator[str]:
    url, remote = config.cluster.pool_url, config.remote
    pools = [text for text in config.tts.workers if text.startswith("pool:")]
    if len(pools) > 1:
        yield f"tts.workers names {len(pools)} pools; a server has one"
    if not url:
        return
    found = usable_url(url, "http", "https")
    if found is None or found.raw_path != "/" or found.raw_query_string:
        yield f"cluster.pool_url: {shown(url)} is not the address of a pool; write it as in http://10.0.0.9:8090"
        return
    if found.scheme == "https" and not remote.ca_file:
        yield f"cluster.pool_url: {url} is checked against remote.ca_file, which is empty; name the CA of the pool there"
    host = str(found.host)
    if found.scheme == "http" and _ip(host) is not None and not is_private(host):
        yield (
            f"cluster.pool_url: without TLS only loopback and private addresses are allowed, and {host} is none; "
            "use https://, or a private address"
        )
    for text in pools:
        try:
            address = parse(text)
        except ConfigError:
            return
        if (address.host, address.port) != (host, found.port):
            yield f"tts.workers has {text}, and cluster.pool_url is {url}: they are two pools; a server has one"


def check_generation(label: str, what: str) -> None:
    """Raise ``ConfigError`` for an invalid generation. ``what``: the key or option."""
    if not re.fullmatch(GENERATION, label):
        raise ConfigError(
            f"{what}: {label[:80]!r} is no name of a generation; it is 1 to 32 of A-Z a-z 0-9 . _ + -, and begins with a "
            "letter or digit"
        )


def _generation_faults(config: "Config") -> Iterator[str]:
    weights = config.tts.generations
    if weights and not config.tts.workers:
        yield "tts.generations is set, but tts.workers names no worker"
    if len(weights) > MAX_GENERATIONS:
        yield f"tts.generations names {len(weights)} generations; {MAX_GENERATIONS} are possible"
        return
    for label in weights:
        try:
            check_generation(label, "tts.generations")
        except ConfigError as error:
            yield error.detail
    if (total := sum(weights.values())) > 1 + _ROUNDING:
        yield f"tts.generations: the shares add up to {total:g}; all of the calls are 1"


def faults(config: "Config") -> Iterator[str]:
    """Yield a sentence for each contradiction in ``tts.workers``, ``[remote]`` and ``cluster.pool_url``."""
    yield from _pool_faults(config)
    remote, tts = config.remote, config.tts
    if bool(remote.certificate_file) != bool(remote.private_key_file):
        yield "remote.certificate_file and remote.private_key_file are set together or not at all"
    yield from _generation_faults(config)
    if len(set(tts.workers)) < len(tts.workers):
        yield "tts.workers names a worker twice"
    for text in tts.workers:
        try:
            address = parse(text)
            if address.is_address and (address.scheme == "grpc" or (address.scheme == "pool" and not remote.ca_file)):
                must_be_private(address.host, f"tts.workers: {text}")
        except ConfigError as error:
            yield error.detail
            continue
        if address.scheme == "grpcs" and not remote.ca_file:
            yield f"tts.workers: {text} is checked against remote.ca_file, which is empty; name the CA of the workers there"


def read_file(key: str, path: str) -> bytes | None:
    """Return the contents of a file of ``[remote]``, ``None`` if none is named; raises ``ConfigError`` if it
    cannot be read.
    """
    if not path:
        return None
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"remote.{key}: {path}: {error.strerror}") from None


def check_listener(remote: "RemoteConfig", host: str, *, who: str = "worker") -> None:
    """Raise ``ConfigError`` if a worker or the pool may not listen at ``host``, since anybody who reaches it
    could use it.
    """
    if not remote.certificate_file:
        must_be_private(host, f"--listen {host}")
        if not remote.token and not ipaddress.ip_address(host).is_loopback:
            raise ConfigError(
                f"--listen {host}: anybody there could use the {who}; set remote.token, the same as at the servers"
            )
    elif not remote.token and not remote.ca_file:
        raise ConfigError(
            f"remote.certificate_file is set, but neither remote.token nor remote.ca_file: anybody could use the {who}; "
            "set one of them"
        )


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
