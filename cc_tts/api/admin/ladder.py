"""The SIP messages of a call as a ladder of text, and as a capture file for Wireshark. No I/O."""

import ipaddress
import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from cc_tts.clock import NS_PER_S
from cc_tts.ua.messages import TracedMessage

WIDTH: Final = 64
"""The columns between the two lines of a ladder; unmeasured."""
LINK_RAW: Final = 101
"""``LINKTYPE_RAW``: a packet begins with its IP header (tcpdump.org)."""
DATAGRAM_BYTES: Final = 65_507
"""The most that a UDP datagram takes."""
_UDP: Final = 17
_TTL: Final = 64
"""The time to live of the packets; nobody looks at it."""
_NOT_PRINTABLE: Final = re.compile(
    "[^\\x20-\\x7e\u00a1-\u200d\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\ue000-\U0010ffff]"
)


def ladder(call_id: str, sip_call_id: str, messages: Sequence[TracedMessage], *, is_full: bool = False) -> str:
    """Return one line for each message between us and the far side. ``is_full``: the messages follow."""
    remotes = list(dict.fromkeys(_shown(each.remote) for each in messages))
    far = remotes[0] if len(remotes) == 1 else "far side"
    lines = [f"{call_id}  Call-ID {_plain(sip_call_id)}", "", f"{'':28}cc-tts{far:>{WIDTH - 4}}"]
    before_ns = messages[0].at_ns if messages else 0
    for number, each in enumerate(messages, 1):
        lines.append(_rung(number, each, (each.at_ns - before_ns) / NS_PER_S, is_far_known=len(remotes) == 1))
        before_ns = each.at_ns
    if is_full:
        for number, each in enumerate(messages, 1):
            way = "to" if each.is_sent else "from"
            lines += ["", f"--- {number}: {_clock(each.at_ns)} {each.transport} {way} {_shown(each.remote)}"]
            lines += [_plain(line) for line in each.text.decode("utf-8", "replace").rstrip().splitlines()]
    return "\n".join(lines) + "\n"


def _rung(number: int, message: TracedMessage, after_s: float, *, is_far_known: bool) -> str:
    text = message.text.decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    what = _plain(first.strip().removeprefix("SIP/2.0 ").removesuffix(" SIP/2.0"))
    if re.search(r"^(?:content-type|c)\s*:\s*application/sdp", rest, re.IGNORECASE | re.MULTILINE):
        what += " (SDP)"
    what = what if len(what) <= WIDTH - 8 else what[: WIDTH - 9] + "…"
    arrow = f" {what} ".center(WIDTH - 3, "─")
    arrow = f"│─{arrow}▸│" if message.is_sent else f"│◂{arrow}─│"
    far = "" if is_far_known else f" {_shown(message.remote)}"
    return f"{number:3} {_clock(message.at_ns)} {f'+{after_s:.3f}':>8}  {arrow} {message.transport}{far}"


def _clock(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / NS_PER_S, UTC):%H:%M:%S.%f}"[:-3]


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _plain(text: str) -> str:
    """Return the text without characters that could move the cursor of a terminal."""
    return _NOT_PRINTABLE.sub("\ufffd", text.replace("\t", " "))


def pcap(messages: Sequence[TracedMessage]) -> bytes:
    """Return a capture file (tcpdump.org, savefile format). TCP and TLS are shown as UDP datagrams as well."""
    packets = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, LINK_RAW)]
    for each in messages:
        source, target = (each.local, each.remote) if each.is_sent else (each.remote, each.local)
        packet = _datagram(source, target, each.text[:DATAGRAM_BYTES])
        seconds, rest_ns = divmod(each.at_ns, NS_PER_S)
        packets.append(struct.pack("<IIII", seconds & 0xFFFFFFFF, rest_ns // 1000, len(packet), len(packet)) + packet)
    return b"".join(packets)


def _datagram(source: tuple[str, int], target: tuple[str, int], payload: bytes) -> bytes:
    """Return an IPv4 packet with a UDP datagram, without the optional checksum."""
    udp = struct.pack("!HHHH", source[1], target[1], 8 + len(payload), 0) + payload
    hosts = _packed(source[0]) + _packed(target[0])
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, _TTL, _UDP, 0) + hosts
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + udp


def _packed(host: str) -> bytes:
    try:
        return ipaddress.IPv4Address(host).packed
    except ValueError:  # SIP is spoken over IPv4; what is here is a mapped address at most
        return bytes(4)


def _checksum(head: bytes) -> int:
    total: int = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
