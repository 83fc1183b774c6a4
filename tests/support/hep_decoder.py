"""Reads HEPv3 packets as the specification of sipcapture.org has them. It shares nothing with the encoder."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NAMES: Final = {
    0x01: ("family", "int"),
    0x02: ("protocol", "int"),
    0x03: ("source", "ipv4"),
    0x04: ("target", "ipv4"),
    0x05: ("source", "ipv6"),
    0x06: ("target", "ipv6"),
    0x07: ("source_port", "int"),
    0x08: ("target_port", "int"),
    0x09: ("seconds", "int"),
    0x0A: ("microseconds", "int"),
    0x0B: ("kind", "int"),
    0x0C: ("capture_id", "int"),
    0x0F: ("payload", "bytes"),
    0x11: ("correlation_id", "text"),
    0x13: ("node", "text"),
    0x20: ("mos", "int"),
    0x23: ("jitter", "int"),
}
LENGTHS: Final = {0x01: 1, 0x02: 1, 0x03: 4, 0x04: 4, 0x05: 16, 0x06: 16, 0x07: 2, 0x08: 2} | {
    0x09: 4, 0x0A: 4, 0x0B: 1, 0x0C: 4, 0x20: 2, 0x23: 4,
}  # fmt: skip
"""Bytes of the values that have a fixed length."""


@dataclass(frozen=True)
class Packet:
    chunks: dict[str, int | str | bytes]

    def number(self, name: str) -> int:
        value = self.chunks[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        value = self.chunks[name]
        assert isinstance(value, str)
        return value

    @property
    def payload(self) -> bytes:
        value = self.chunks["payload"]
        assert isinstance(value, bytes)
        return value


def decode(datagram: bytes) -> Packet:
    """Decode one packet; raises ``ValueError`` for what is none."""
    if datagram[:4] != b"HEP3" or int.from_bytes(datagram[4:6], "big") != len(datagram):
        raise ValueError("no HEP3 packet of this length")
    chunks: dict[str, int | str | bytes] = {}
    for kind, value in _chunks(datagram[6:]):
        name, form = NAMES[kind]
        if name in chunks or len(value) != LENGTHS.get(kind, len(value)):
            raise ValueError(f"chunk {kind} comes twice, or has {len(value)} bytes")
        chunks[name] = _value(form, value)
    return Packet(chunks)


def _chunks(rest: bytes) -> Iterator[tuple[int, bytes]]:
    while rest:
        vendor, kind, length = (int.from_bytes(rest[at : at + 2], "big") for at in (0, 2, 4))
        if vendor or not 6 <= length <= len(rest):
            raise ValueError("a chunk of a vendor, or one that is cut off")
        yield kind, rest[6:length]
        rest = rest[length:]


def _value(form: str, value: bytes) -> int | str | bytes:
    match form:
        case "int":
            return int.from_bytes(value, "big")
        case "ipv4":
            return socket.inet_ntop(socket.AF_INET, value)
        case "ipv6":
            return socket.inet_ntop(socket.AF_INET6, value)
        case "text":
            return value.decode()
    return value
