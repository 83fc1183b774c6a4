"""RTP as bytes and as values: the only place of the softphone where the two meet. No sockets, no clocks.

RFC 3550 (header, sequence numbers, jitter), RFC 3551 (static payload types, marker bit), RFC 4733 (telephone-event).
"""

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from cc_tts.audio import PTIME_MS

RATE_HZ: Final = 8000
"""RTP clock of PCMU, PCMA and of the telephone-event that goes with them (RFC 3551 §4.5.14, RFC 4733 §2.1)."""
SAMPLES_PER_PACKET: Final = RATE_HZ * PTIME_MS // 1000
PAYLOAD_TYPES: Final = {"pcmu": 0, "pcma": 8}
"""RFC 3551 §6, table 4."""
EVENT_PAYLOAD_TYPE: Final = 101
"""The dynamic number we offer for telephone-event; everybody's habit."""
SILENCE: Final = {0: b"\xff" * SAMPLES_PER_PACKET, 8: b"\xd5" * SAMPLES_PER_PACKET}
"""One packet of digital silence a payload type (ITU-T G.711: the codes of the smallest positive value)."""
DTMF_DIGITS: Final = "0123456789*#ABCD"
"""Index = event code (RFC 4733 §3.2, table 3)."""
END_PACKETS: Final = 3
"""RFC 4733 §2.5.1.4: the final packet of an event is sent three times."""
MAX_EVENT_MS: Final = 0xFFFF * 1000 // RATE_HZ
"""A longer event would need a second segment (RFC 4733 §2.5.1.3)."""

_HEADER: Final = struct.Struct("!BBHII")
_EVENT: Final = struct.Struct("!BBH")
_VERSION: Final = 2
_SEQ_MOD: Final = 1 << 16
_TS_MOD: Final = 1 << 32


class RtpError(ValueError):
    """The bytes are no RTP packet, or no telephone-event."""


def is_rtcp(data: bytes) -> bool:
    """Whether a datagram on the RTP port is RTCP (RFC 5761 §4: packet types 192 to 223 in the second byte)."""
    return len(data) > 1 and 192 <= data[1] <= 223  # noqa: PLR2004 - the range is the RFC's


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One RTP data packet (RFC 3550 §5.1). Header extensions and padding are skipped when read."""

    payload_type: int
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes
    marker: bool = False
    csrcs: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """Packet as it goes on the wire."""
        first = _VERSION << 6 | len(self.csrcs)
        second = self.marker << 7 | self.payload_type
        head = _HEADER.pack(first, second, self.sequence, self.timestamp, self.ssrc)
        return head + b"".join(csrc.to_bytes(4, "big") for csrc in self.csrcs) + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> "RtpPacket":
        """Read a packet; every length it states is checked against the bytes that are there (RFC 3550 §A.1)."""
        if len(data) < _HEADER.size:
            raise RtpError(f"{len(data)} bytes are too short for an RTP header of {_HEADER.size}")
        first, second, sequence, timestamp, ssrc = _HEADER.unpack_from(data)
        if first >> 6 != _VERSION:
            raise RtpError(f"RTP version must be {_VERSION}, got {first >> 6}")
        start = _HEADER.size + 4 * (first & 0x0F)
        if len(data) < start:
            raise RtpError(f"{first & 0x0F} CSRCs do not fit into {len(data)} bytes")
        csrcs = struct.unpack_from(f"!{first & 0x0F}I", data, _HEADER.size)
        if first & 0x10:  # header extension, RFC 3550 §5.3.1
            if len(data) < start + 4:
                raise RtpError("header extension is cut off")
            start += 4 + 4 * int.from_bytes(data[start + 2 : start + 4], "big")
            if len(data) < start:
                raise RtpError("header extension is longer than the packet")
        end = len(data)
        if first & 0x20:  # padding, RFC 3550 §5.1: the last byte counts itself
            padding = data[-1]
            if padding == 0 or start + padding > end:
                raise RtpError(f"padding of {padding} bytes does not fit")
            end -= padding
        return cls(second & 0x7F, sequence, timestamp, ssrc, data[start:end], bool(second & 0x80), csrcs)


@dataclass(frozen=True, slots=True)
class TelephoneEvent:
    """Payload of one telephone-event packet (RFC 4733 §2.3). ``duration`` counts RTP clock ticks."""

    event: int
    end: bool
    duration: int
    volume: int = 10

    def to_bytes(self) -> bytes:
        """Payload as it goes on the wire."""
        return _EVENT.pack(self.event, self.end << 7 | self.volume, self.duration)

    @classmethod
    def from_bytes(cls, data: bytes) -> "TelephoneEvent":
        """Read the first event block of a payload."""
        if len(data) < _EVENT.size:
            raise RtpError(f"{len(data)} bytes are too short for a telephone-event of {_EVENT.size}")
        event, flags, duration = _EVENT.unpack_from(data)
        return cls(event, bool(flags & 0x80), duration, flags & 0x3F)

    @property
    def digit(self) -> str:
        """Key of the event; the number in brackets for events that are no DTMF."""
        return DTMF_DIGITS[self.event] if self.event < len(DTMF_DIGITS) else f"[{self.event}]"


def event_code(digit: str) -> int:
    """Event code of a DTMF key (RFC 4733 §3.2)."""
    code = DTMF_DIGITS.find(digit.upper()) if len(digit) == 1 else -1
    if code < 0:
        raise ValueError(f"{digit!r} is no DTMF digit; right are {' '.join(DTMF_DIGITS)}")
    return code


@dataclass(slots=True)
class Jitter:
    """Interarrival jitter of RFC 3550 §6.4.1, computed as in §A.8; in RTP clock ticks."""

    ticks: float = 0.0
    _transit: float | None = None

    def update(self, timestamp: int, arrival_ns: int) -> None:
        """Take one packet in."""
        transit = arrival_ns * RATE_HZ / 1e9 - timestamp
        if self._transit is not None:
            difference = abs(transit - self._transit)
            # the timestamp wraps, the clock does not: a step of half the range is the wrap, not a delay
            difference = min(difference, abs(_TS_MOD - difference))
            self.ticks += (difference - self.ticks) / 16
        self._transit = transit

    @property
    def ms(self) -> float:
        """Jitter in ms."""
        return self.ticks * 1000 / RATE_HZ


@dataclass(slots=True)
class SequenceCheck:
    """What became of one packet: its number extended beyond 16 bits, and whether it is new."""

    extended: int
    is_duplicate: bool = False
    is_reordered: bool = False
    is_restart: bool = False


@dataclass(slots=True)
class SequenceCounter:
    """Lost, reordered and duplicate packets of one SSRC, with wrap-around (RFC 3550 §A.1 and §A.3)."""

    MAX_DROPOUT = 3000
    MAX_MISORDER = 100

    packets: int = 0
    duplicates: int = 0
    reordered: int = 0
    restarts: int = 0
    _base: int = 0
    _highest: int = -1
    _expected_before: int = 0
    _restart_at: int = -1
    _recent: set[int] = field(default_factory=set)
    _order: deque[int] = field(default_factory=deque)

    def update(self, sequence: int) -> SequenceCheck | None:
        """Take one sequence number in; None for a wild one, which counts only if its successor follows (§A.1)."""
        if self._highest < 0:
            self._begin(sequence)
            return self._accept(sequence)
        ahead = (sequence - self._highest) % _SEQ_MOD
        if 0 < ahead < self.MAX_DROPOUT:
            return self._accept(self._highest + ahead)
        behind = (self._highest - sequence) % _SEQ_MOD
        if behind <= self.MAX_MISORDER:
            extended = self._highest - behind
            if extended in self._recent:
                self.duplicates += 1
                return SequenceCheck(extended, is_duplicate=True)
            self._base = min(self._base, extended)
            self.reordered += 1
            return self._accept(extended, is_reordered=True)
        if sequence == self._restart_at:
            self.restarts += 1
            self._expected_before += self._highest - self._base + 1
            self._begin(sequence)
            check = self._accept(sequence)
            check.is_restart = True
            return check
        self._restart_at = (sequence + 1) % _SEQ_MOD
        return None

    def _begin(self, sequence: int) -> None:
        self._base = sequence
        self._highest = sequence
        self._restart_at = -1
        self._recent.clear()
        self._order.clear()

    def _accept(self, extended: int, *, is_reordered: bool = False) -> SequenceCheck:
        self.packets += 1
        self._highest = max(self._highest, extended)
        self._recent.add(extended)
        self._order.append(extended)
        if len(self._order) > 2 * self.MAX_MISORDER:
            self._recent.discard(self._order.popleft())
        return SequenceCheck(extended, is_reordered=is_reordered)

    @property
    def expected(self) -> int:
        """Packets that should have come by now (RFC 3550 §A.3)."""
        return self._expected_before + (self._highest - self._base + 1 if self._highest >= 0 else 0)

    @property
    def highest(self) -> int:
        """Highest sequence number, extended beyond 16 bits."""
        return max(0, self._highest)

    @property
    def lost(self) -> int:
        """Packets that have not come."""
        return self.expected - self.packets


@dataclass(frozen=True, slots=True)
class Keypress:
    """A key to press: its event code, how long, and the earliest instant on CLOCK_MONOTONIC."""

    event: int
    duration_ms: int
    not_before_ns: int = 0

    @property
    def digit(self) -> str:
        """The key."""
        return DTMF_DIGITS[self.event]


@dataclass(slots=True)
class _RunningEvent:
    key: Keypress
    timestamp: int
    duration: int = 0
    ends_sent: int = 0


class SilenceStream:
    """What the softphone sends: digital silence, one packet a ptime, interrupted by telephone-events.

    Silence is sent, not suppressed, so audio packets never carry the marker (RFC 3551 §4.1: "applications without
    silence suppression MUST set the marker bit to zero"); the first packet of an event does (RFC 4733 §2.5.1.2).
    """

    PAUSE_TICKS = 5
    """At least 100 ms of silence between two keys (ITU-T Q.24 asks for 40 to 70 ms)."""

    def __init__(self, *, ssrc: int, sequence: int, timestamp: int) -> None:
        self._ssrc = ssrc
        self._sequence = sequence % _SEQ_MOD
        self._timestamp = timestamp % _TS_MOD
        self._keys: list[Keypress] = []
        self._running: _RunningEvent | None = None
        self._pause = 0

    def press(self, key: Keypress) -> None:
        """Queue a key. Keys leave in order of their instants, then of arrival."""
        if not 0 < key.duration_ms <= MAX_EVENT_MS:
            raise ValueError(f"a key is pressed for 1 to {MAX_EVENT_MS} ms, got {key.duration_ms}")
        self._keys.append(key)
        self._keys.sort(key=lambda each: each.not_before_ns)

    @property
    def timestamp(self) -> int:
        """Of the next packet."""
        return self._timestamp

    @property
    def keys_waiting(self) -> int:
        """Keys that have not begun."""
        return len(self._keys)

    def skip(self, ticks: int = 1) -> None:
        """Let time pass without sending; the RTP clock goes on (RFC 3550 §5.1)."""
        self._timestamp = (self._timestamp + ticks * SAMPLES_PER_PACKET) % _TS_MOD

    def tick(
        self, now_ns: int, *, payload_type: int, event_payload_type: int | None
    ) -> tuple[RtpPacket, Keypress | None]:
        """Packet of this ptime, and the key when this packet is its first."""
        started: Keypress | None = None
        if self._running is None and self._pause == 0 and event_payload_type is not None and self._due(now_ns):
            self._running = _RunningEvent(self._keys.pop(0), self._timestamp)
            started = self._running.key
        if self._running is not None and event_payload_type is not None:
            packet = self._event_packet(self._running, event_payload_type, first=started is not None)
        else:
            self._pause = max(0, self._pause - 1)
            packet = RtpPacket(payload_type, self._sequence, self._timestamp, self._ssrc, SILENCE[payload_type])
        self._sequence = (self._sequence + 1) % _SEQ_MOD
        self.skip()
        return packet, started

    def _due(self, now_ns: int) -> bool:
        return bool(self._keys) and self._keys[0].not_before_ns <= now_ns

    def _event_packet(self, running: _RunningEvent, payload_type: int, *, first: bool) -> RtpPacket:
        """RFC 4733 §2.5.1: one timestamp for the whole event, a growing duration, the end three times."""
        full = running.key.duration_ms * RATE_HZ // 1000
        if running.ends_sent == 0:
            running.duration = min(full, running.duration + SAMPLES_PER_PACKET)
        is_end = running.duration >= full
        payload = TelephoneEvent(running.key.event, is_end, running.duration).to_bytes()
        if is_end:
            running.ends_sent += 1
            if running.ends_sent == END_PACKETS:
                self._running = None
                self._pause = self.PAUSE_TICKS
        return RtpPacket(payload_type, self._sequence, running.timestamp, self._ssrc, payload, marker=first)
