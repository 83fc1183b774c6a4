"""RTP packets as bytes and as values; no other module of the softphone converts between them. No sockets, no clocks.

RFC 3550 (header, sequence numbers, jitter), RFC 3551 (static payload types, marker bit), RFC 4733 (telephone-event).
"""

import bisect
import struct
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from cc_tts.audio import PTIME_MS
from cc_tts.clock import NS_PER_S

RATE_HZ: Final = 8000
"""RTP clock of PCMU, PCMA and of the telephone-event that goes with them (RFC 3551 §4.5.14, RFC 4733 §2.1)."""
SAMPLES_PER_PACKET: Final = RATE_HZ * PTIME_MS // 1000
PAYLOAD_TYPES: Final = {"pcmu": 0, "pcma": 8}
"""RFC 3551 §6, table 4."""
EVENT_PAYLOAD_TYPE: Final = 101
"""The dynamic number that we offer for telephone-event; nearly everybody uses it."""
SILENCE: Final = {0: b"\xff" * SAMPLES_PER_PACKET, 8: b"\xd5" * SAMPLES_PER_PACKET}
"""One packet of digital silence a payload type (ITU-T G.711: the codes of the smallest positive value)."""
DTMF_DIGITS: Final = "0123456789*#ABCD"
"""Index = event code (RFC 4733 §3.2, table 3)."""
END_PACKETS: Final = 3
"""RFC 4733 §2.5.1.4: the final packet of an event is sent three times."""

_HEADER: Final = struct.Struct("!BBHII")
_EVENT: Final = struct.Struct("!BBH")
_VERSION: Final = 2
_VOLUME: Final = 10
_SEQ_MOD: Final = 1 << 16
_TS_MOD: Final = 1 << 32


class RtpError(ValueError):
    """The bytes are not an RTP packet, or not a telephone-event."""


def is_rtcp(data: bytes) -> bool:
    """Return whether a datagram on the RTP port is RTCP (RFC 5761 §4: packet types 192 to 223 in the second byte)."""
    return len(data) > 1 and 192 <= data[1] <= 223  # noqa: PLR2004 - the range is the RFC's


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One RTP data packet (RFC 3550 §5.1). CSRCs, header extensions and padding are skipped when read."""

    payload_type: int
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes
    marker: bool = False

    def to_bytes(self) -> bytes:
        second = self.marker << 7 | self.payload_type
        return _HEADER.pack(_VERSION << 6, second, self.sequence, self.timestamp, self.ssrc) + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> "RtpPacket":
        """Read a packet; each stated length is checked against the number of bytes (RFC 3550 §A.1)."""
        if len(data) < _HEADER.size:
            raise RtpError(f"{len(data)} bytes are too short for an RTP header of {_HEADER.size}")
        first, second, sequence, timestamp, ssrc = _HEADER.unpack_from(data)
        if first >> 6 != _VERSION:
            raise RtpError(f"RTP version must be {_VERSION}, got {first >> 6}")
        start = _HEADER.size + 4 * (first & 0x0F)
        if len(data) < start:
            raise RtpError(f"{first & 0x0F} CSRCs do not fit into {len(data)} bytes")
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
        return cls(second & 0x7F, sequence, timestamp, ssrc, data[start:end], bool(second & 0x80))


@dataclass(frozen=True, slots=True)
class TelephoneEvent:
    """Payload of one telephone-event packet (RFC 4733 §2.3). ``duration`` counts RTP clock ticks."""

    event: int
    end: bool
    duration: int

    def to_bytes(self) -> bytes:
        """Return the payload as sent, at -10 dBm0."""
        return _EVENT.pack(self.event, self.end << 7 | _VOLUME, self.duration)

    @classmethod
    def from_bytes(cls, data: bytes) -> "TelephoneEvent":
        """Read the first event block of a payload."""
        if len(data) < _EVENT.size:
            raise RtpError(f"{len(data)} bytes are too short for a telephone-event of {_EVENT.size}")
        event, flags, duration = _EVENT.unpack_from(data)
        return cls(event, bool(flags & 0x80), duration)

    @property
    def digit(self) -> str:
        """The key of the event; the number in brackets for events that are not DTMF."""
        return DTMF_DIGITS[self.event] if self.event < len(DTMF_DIGITS) else f"[{self.event}]"


def event_code(digit: str) -> int:
    """Event code of a DTMF key (RFC 4733 §3.2)."""
    code = DTMF_DIGITS.find(digit.upper()) if len(digit) == 1 else -1
    if code < 0:
        raise ValueError(f"{digit!r} is no DTMF digit; right are {' '.join(DTMF_DIGITS)}")
    return code


@dataclass(slots=True)
class RtpSource:
    """Reception from one SSRC: lost, reordered and duplicate packets (RFC 3550 §A.1, §A.3) and jitter (§A.8)."""

    MAX_DROPOUT: ClassVar = 3000
    MAX_MISORDER: ClassVar = 100

    ssrc: int
    packets: int = 0
    duplicates: int = 0
    reordered: int = 0
    wild: int = 0
    highest: int = 0
    """Highest sequence number, extended beyond 16 bits."""
    jitter_ticks: float = 0.0
    _base: int = 0
    _expected_before: int = 0
    """Packets expected before the sender restarted its numbering."""
    _restart_at: int = -1
    _window: int = 0
    """Bit n: whether the packet n before the highest has come."""
    _transit: float | None = None
    _reported: tuple[int, int] = (0, 0)
    """Expected and received packets at the last report."""

    def update(self, sequence: int) -> int | None:
        """Add a sequence number; returns it extended beyond 16 bits, or ``None`` for a duplicate and for an implausible one,
        which counts only if its successor follows (§A.1).
        """
        ahead = (sequence - self.highest + self.MAX_MISORDER) % _SEQ_MOD - self.MAX_MISORDER
        extended = self.highest + ahead
        if not self.packets:
            extended = self._begin(sequence)
        elif 0 < ahead < self.MAX_DROPOUT:
            self.highest = extended
            self._window = (self._window << ahead | 1) & ((1 << self.MAX_MISORDER + 1) - 1)
        elif ahead <= 0:
            if self._window >> -ahead & 1:
                self.duplicates += 1
                return None
            self._window |= 1 << -ahead
            self._base = min(self._base, extended)
            self.reordered += 1
        elif sequence == self._restart_at:
            self._expected_before = self.expected
            extended = self._begin(sequence)
        else:
            self._restart_at = (sequence + 1) % _SEQ_MOD
            self.wild += 1
            return None
        self.packets += 1
        return extended

    def _begin(self, sequence: int) -> int:
        self._base = self.highest = sequence
        self._window, self._restart_at = 1, -1
        return sequence

    def update_jitter(self, timestamp: int, arrival_ns: int) -> None:
        transit = arrival_ns * RATE_HZ / NS_PER_S - timestamp
        if self._transit is not None:
            difference = abs(transit - self._transit)
            # the timestamp wraps, the clock does not: a step of half the range is the wrap, not a delay
            difference = min(difference, abs(_TS_MOD - difference))
            self.jitter_ticks += (difference - self.jitter_ticks) / 16
        self._transit = transit

    @property
    def expected(self) -> int:
        """The number of packets that should have come by now (RFC 3550 §A.3)."""
        return self._expected_before + (self.highest - self._base + 1 if self.packets else 0)

    @property
    def lost(self) -> int:
        return self.expected - self.packets

    def fraction_lost(self) -> int:
        """Return the loss since the last call of this method in 1/256 (RFC 3550 §6.4.1); 0 if duplicates outweigh it."""
        expected, received = self.expected - self._reported[0], self.packets - self._reported[1]
        self._reported = self.expected, self.packets
        return 256 * (expected - received) // expected if expected > received else 0


@dataclass(frozen=True, slots=True)
class Keypress:
    """A key to press: its event code, how long, and the earliest instant on CLOCK_MONOTONIC."""

    event: int
    duration_ms: int = 100
    not_before_ns: int = 0

    @property
    def digit(self) -> str:
        return DTMF_DIGITS[self.event]

    def payloads(self) -> list[bytes]:
        """Telephone-events of the key (RFC 4733 §2.5.1): a growing duration, the end three times."""
        full = self.duration_ms * RATE_HZ // 1000
        durations = [*range(SAMPLES_PER_PACKET, full, SAMPLES_PER_PACKET), *[full] * END_PACKETS]
        return [TelephoneEvent(self.event, ticks == full, ticks).to_bytes() for ticks in durations]


class Ticked(NamedTuple):
    """The packet of one ptime. ``key``: this packet is the first of a key; ``begins_to_say``: it is the first of an
    utterance.
    """

    packet: RtpPacket
    key: Keypress | None
    begins_to_say: bool


class OutgoingStream:
    """The stream that the softphone sends: digital silence, one packet a ptime, interrupted by utterances and
    telephone-events.

    Silence is sent, not suppressed, so audio packets never carry the marker (RFC 3551 §4.1: "applications without
    silence suppression MUST set the marker bit to zero"); the first packet of an event does (RFC 4733 §2.5.1.2).
    """

    PAUSE_TICKS = 5
    """The least silence between two keys, 100 ms (ITU-T Q.24 asks for 40 to 70 ms)."""

    def __init__(self, payload_type: int, *, ssrc: int, sequence: int, timestamp: int) -> None:
        self.ssrc = ssrc
        self.timestamp = timestamp
        self._payload_type = payload_type
        self._sequence = sequence
        self._keys: list[Keypress] = []
        self._event_payloads: list[bytes] = []
        self._event_timestamp = 0
        self._pause = 0
        self._unsaid = b""
        self._say_after_ticks = 0
        self._is_saying = False

    def say(self, octets: bytes, *, after_ms: float = 0.0) -> None:
        """Send this audio, in the codec's own bytes, after the audio that is still to be sent, and not before ``after_ms``
        are over. It is padded with silence.
        """
        silence = SILENCE[self._payload_type]
        self._say_after_ticks = round(after_ms / PTIME_MS)
        self._unsaid += octets + silence[: -len(octets) % SAMPLES_PER_PACKET]

    @property
    def is_saying(self) -> bool:
        """Whether the last packet belonged to an utterance."""
        return self._is_saying

    def press(self, key: Keypress) -> None:
        """Queue a key. Keys are sent in order of their instants, then of arrival."""
        bisect.insort(self._keys, key, key=lambda each: each.not_before_ns)

    def skip(self, ticks: int = 1) -> None:
        """Let time pass without sending; the RTP clock continues (RFC 3550 §5.1)."""
        self.timestamp = (self.timestamp + ticks * SAMPLES_PER_PACKET) % _TS_MOD

    def tick(self, now_ns: int, *, event_payload_type: int | None) -> Ticked:
        """Return the packet of this ptime. Keys are not sent without a payload type for them."""
        started: Keypress | None = None
        if event_payload_type is not None and not self._event_payloads and not self._pause:
            started = self._start_key(now_ns)
        kind, timestamp, payload = self._payload_type, self.timestamp, SILENCE[self._payload_type]
        was_saying, self._is_saying = self._is_saying, bool(self._unsaid) and not self._say_after_ticks
        self._say_after_ticks = max(0, self._say_after_ticks - 1)
        if self._is_saying:
            payload, self._unsaid = self._unsaid[:SAMPLES_PER_PACKET], self._unsaid[SAMPLES_PER_PACKET:]
        if event_payload_type is not None and self._event_payloads:
            kind, timestamp, payload = event_payload_type, self._event_timestamp, self._event_payloads.pop(0)
            self._pause = 0 if self._event_payloads else self.PAUSE_TICKS
        else:
            self._pause = max(0, self._pause - 1)
        packet = RtpPacket(kind, self._sequence, timestamp, self.ssrc, payload, marker=started is not None)
        self._sequence = (self._sequence + 1) % _SEQ_MOD
        self.skip()
        return Ticked(packet, started, self._is_saying and not was_saying)

    def _start_key(self, now_ns: int) -> Keypress | None:
        if not self._keys or self._keys[0].not_before_ns > now_ns:
            return None
        key = self._keys.pop(0)
        self._event_payloads, self._event_timestamp = key.payloads(), self.timestamp
        return key
