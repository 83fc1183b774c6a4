"""One received RTP stream: statistics, talkspurts, DTMF and the recording. No sockets, no clocks."""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.media import g711
from cc_tts.media.levels import is_audible
from cc_tts.softphone.rtp.packets import (
    EVENT_PAYLOAD_TYPE,
    RATE_HZ,
    RtpError,
    RtpPacket,
    RtpSource,
    TelephoneEvent,
    is_rtcp,
)
from cc_tts.softphone.rtp.recording import RtpRecording

PAUSE_MS: Final = 300
"""A talkspurt ends when no speech packet has come for this long: pauses at commas do not end it (unmeasured)."""

_DECODERS: Final[dict[int, Callable[[bytes], bytes]]] = {0: g711.ulaw_decode, 8: g711.alaw_decode}
_TS_MOD: Final = 1 << 32


ReportEvent = Callable[..., None]
"""Reports an event of the call, on any thread: its name, its instant on CLOCK_MONOTONIC in ns, and values by name."""


class Packet(NamedTuple):
    """A packet with audio for a listener; ``sequence`` is extended beyond 16 bits."""

    ssrc: int
    sequence: int
    timestamp: int
    arrival_ns: int
    pcm: bytes


@dataclass(slots=True)
class Interval:
    """Speech or other audio from one instant to another; ``end_ns`` is ``None`` while it lasts."""

    begin_ns: int
    end_ns: int | None = None


@dataclass(slots=True)
class Talkspurt:
    """Speech without a pause, from the arrival of its first packet to the end of its last; the report fills in the ms."""

    start_at_ns: int
    end_at_ns: int
    start_ms: float = 0.0
    end_ms: float = 0.0


class TalkspurtDetector:
    """Groups speech packets into talkspurts and reports ``speech_start`` and ``speech_end`` when they are known."""

    def __init__(self, report_event: ReportEvent) -> None:
        self._report_event = report_event
        self._is_open = False
        self.talkspurts: list[Talkspurt] = []

    def speech(self, arrival_ns: int, length_ns: int) -> None:
        self.poll(arrival_ns)
        end_ns = arrival_ns + length_ns
        if self._is_open:
            self.talkspurts[-1].end_at_ns = max(self.talkspurts[-1].end_at_ns, end_ns)
            return
        self.talkspurts.append(Talkspurt(arrival_ns, end_ns))
        self._is_open = True
        self._report_event("speech_start", arrival_ns)

    def poll(self, now_ns: int) -> None:
        if self._is_open and now_ns - self.talkspurts[-1].end_at_ns >= PAUSE_MS * NS_PER_MS:
            self.finish()

    def finish(self) -> None:
        if self._is_open:
            self._is_open = False
            self._report_event("speech_end", self.talkspurts[-1].end_at_ns)


@dataclass(slots=True)
class KeyRecord:
    """A sent or received key: the instant of its first packet (the report fills in ``at_ms``), and its duration."""

    digit: str
    at_ns: int
    duration_ms: float
    at_ms: float = 0.0


class RtpReceiver:
    """Receives every datagram of one call with its arrival time on CLOCK_MONOTONIC.

    Inter-arrival gaps are taken between audio packets that follow each other in sequence number and in RTP time, so a
    lost packet, a key press or a sender that keeps silent on purpose does not count as a late packet.
    """

    def __init__(self, report_event: ReportEvent) -> None:
        self.recording = RtpRecording()
        self.detector = TalkspurtDetector(report_event)
        self.sources: list[RtpSource] = []
        """The sources in order of appearance."""
        self.addresses: list[str] = []
        """The source addresses of packets, ``address:port``."""
        self.payload_types: Counter[int] = Counter()
        self.keys: list[KeyRecord] = []
        self.gaps_ns = array("q")
        self.first_packet_ns: int | None = None
        self.invalid = 0
        self.rtcp_on_rtp_port = 0
        self.listener: Callable[[Packet], object] | None = None
        """Gets the packets with audio as they arrive."""
        self._report_event = report_event
        self._key_timestamp: int | None = None
        self._next: tuple[int, int] | None = None  # extended sequence number and timestamp
        self._last_ns = 0

    def datagram(self, data: bytes, arrival_ns: int, address: str) -> None:
        """Process one datagram. Nothing is raised, whatever its content."""
        if is_rtcp(data):
            self.rtcp_on_rtp_port += 1
            return
        try:
            packet = RtpPacket.from_bytes(data)
            source = self._source_of(packet, arrival_ns, address)
            extended = source.update(packet.sequence)
            if extended is None:
                return
            if packet.payload_type == EVENT_PAYLOAD_TYPE:
                self._event(TelephoneEvent.from_bytes(packet.payload), packet.timestamp, arrival_ns)
            elif packet.payload_type in _DECODERS:
                self._audio(packet, source, extended, arrival_ns)
        except RtpError:
            self.invalid += 1

    def _source_of(self, packet: RtpPacket, arrival_ns: int, address: str) -> RtpSource:
        if self.first_packet_ns is None:
            self.first_packet_ns = arrival_ns
        if not self.sources or self.sources[-1].ssrc != packet.ssrc:
            self.sources.append(RtpSource(packet.ssrc))
            self._next = None
        if not self.addresses or self.addresses[-1] != address:
            self.addresses.append(address)
        self.payload_types[packet.payload_type] += 1
        return self.sources[-1]

    def _audio(self, packet: RtpPacket, source: RtpSource, extended: int, arrival_ns: int) -> None:
        pcm = _DECODERS[packet.payload_type](packet.payload)
        ticks = len(packet.payload)
        source.update_jitter(packet.timestamp, arrival_ns)
        if self._next == (extended, packet.timestamp):
            self.gaps_ns.append(arrival_ns - self._last_ns)
        self._next = extended + 1, (packet.timestamp + ticks) % _TS_MOD
        self._last_ns = arrival_ns
        self.recording.add(ssrc=packet.ssrc, timestamp=packet.timestamp, pcm=pcm, arrival_ns=arrival_ns)
        if self.listener is not None:
            self.listener(Packet(packet.ssrc, extended, packet.timestamp, arrival_ns, pcm))
        if is_audible(pcm):
            self.detector.speech(arrival_ns, ticks * NS_PER_S // RATE_HZ)

    def _event(self, event: TelephoneEvent, timestamp: int, arrival_ns: int) -> None:
        duration_ms = event.duration * 1000 / RATE_HZ
        if timestamp == self._key_timestamp:
            self.keys[-1].duration_ms = max(self.keys[-1].duration_ms, duration_ms)
            return
        self._key_timestamp = timestamp
        self.keys.append(KeyRecord(event.digit, arrival_ns, duration_ms))
        self._report_event("dtmf_received", arrival_ns, digit=event.digit)
