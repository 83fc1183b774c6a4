"""What arrives: statistics, talkspurts, DTMF and the recording of one received RTP stream. No sockets, no clocks."""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from cc_tts.clock import NS_PER_MS
from cc_tts.media import g711
from cc_tts.media.speech_activity import is_audible
from cc_tts.softphone.rtp.packets import (
    EVENT_PAYLOAD_TYPE,
    Jitter,
    RtpError,
    RtpPacket,
    SequenceCounter,
    TelephoneEvent,
    is_rtcp,
)
from cc_tts.softphone.rtp.recording import RtpRecording

PAUSE_MS: Final = 300
"""A talkspurt ends when no speech packet has come for this long: pauses at commas do not end it."""

_DECODERS: Final[dict[int, Callable[[bytes], bytes]]] = {0: g711.ulaw_decode, 8: g711.alaw_decode}
_TS_MOD: Final = 1 << 32

SpeechEdge = Literal["speech_start", "speech_end"]


@dataclass(slots=True)
class Talkspurt:
    """Speech without a pause: arrival of its first packet, and the end of what its last packet holds."""

    start_ns: int
    end_ns: int


class TalkspurtDetector:
    """Groups speech packets into talkspurts and reports their edges when they are known."""

    def __init__(self, *, pause_ms: int = PAUSE_MS, on_edge: Callable[[SpeechEdge, int], None] | None = None) -> None:
        self._pause_ns = pause_ms * NS_PER_MS
        self._on_edge = on_edge
        self._is_open = False
        self.talkspurts: list[Talkspurt] = []

    def speech(self, arrival_ns: int, length_ns: int) -> None:
        """A speech packet arrived."""
        self.poll(arrival_ns)
        if self._is_open:
            self.talkspurts[-1].end_ns = max(self.talkspurts[-1].end_ns, arrival_ns + length_ns)
            return
        self.talkspurts.append(Talkspurt(arrival_ns, arrival_ns + length_ns))
        self._is_open = True
        self._report_edge("speech_start", arrival_ns)

    def poll(self, now_ns: int) -> None:
        """Close the talkspurt if the pause is over."""
        if self._is_open and now_ns - self.talkspurts[-1].end_ns >= self._pause_ns:
            self.finish()

    def finish(self) -> None:
        """Close the talkspurt: the call is over."""
        if self._is_open:
            self._is_open = False
            self._report_edge("speech_end", self.talkspurts[-1].end_ns)

    def _report_edge(self, edge: SpeechEdge, at_ns: int) -> None:
        if self._on_edge is not None:
            self._on_edge(edge, at_ns)


@dataclass(slots=True)
class ReceivedKey:
    """A telephone-event that was received: instants of its first and last packet, and the duration it stated."""

    digit: str
    start_ns: int
    end_ns: int
    duration_ticks: int
    timestamp: int


@dataclass(slots=True)
class StreamFigures:
    """Counts over all SSRCs of the call."""

    first_packet_ns: int = 0
    ssrcs: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    payload_types: Counter[int] = field(default_factory=Counter)
    invalid: int = 0
    rtcp_on_rtp_port: int = 0
    wild: int = 0


class RtpReceiver:
    """Takes every datagram of one call with its arrival on CLOCK_MONOTONIC.

    Inter-arrival gaps are taken between audio packets that follow each other in sequence number and in RTP time, so a
    lost packet, a key press or a sender that keeps silent on purpose does not count as a late packet.
    """

    def __init__(
        self,
        *,
        on_edge: Callable[[SpeechEdge, int], None] | None = None,
        on_key: Callable[[ReceivedKey], None] | None = None,
        pause_ms: int = PAUSE_MS,
    ) -> None:
        self.figures = StreamFigures()
        self.recording = RtpRecording()
        self.detector = TalkspurtDetector(pause_ms=pause_ms, on_edge=on_edge)
        self.keys: list[ReceivedKey] = []
        self.gaps_ns = array("q")
        self._on_key = on_key
        self._sequences: list[SequenceCounter] = []
        self._jitters: list[Jitter] = []
        self._previous: tuple[int, int, int, int] | None = None  # extended, timestamp, ticks, arrival

    @property
    def sequences(self) -> tuple[SequenceCounter, ...]:
        """One counter an SSRC, in order of appearance."""
        return tuple(self._sequences)

    @property
    def jitter_ms(self) -> float:
        """RFC 3550 §A.8 jitter of the latest SSRC at its last packet, ms."""
        return self._jitters[-1].ms if self._jitters else 0.0

    def datagram(self, data: bytes, arrival_ns: int, source: str) -> None:
        """Take one datagram in. Whatever it holds, nothing is raised."""
        if is_rtcp(data):
            self.figures.rtcp_on_rtp_port += 1
            return
        try:
            packet = RtpPacket.from_bytes(data)
        except RtpError:
            self.figures.invalid += 1
            return
        self._note_source(packet, arrival_ns, source)
        check = self._sequences[-1].update(packet.sequence)
        if check is None:
            self.figures.wild += 1
            return
        if check.is_duplicate:
            return
        if packet.payload_type == EVENT_PAYLOAD_TYPE:
            self._event(packet, arrival_ns)
            return
        decode = _DECODERS.get(packet.payload_type)
        if decode is None:
            return
        pcm = decode(packet.payload)
        ticks = len(packet.payload)
        self._jitters[-1].update(packet.timestamp, arrival_ns)
        self._gap(check.extended, packet.timestamp, ticks, arrival_ns)
        self.recording.add(ssrc=packet.ssrc, timestamp=packet.timestamp, pcm=pcm, arrival_ns=arrival_ns)
        if is_audible(pcm):
            self.detector.speech(arrival_ns, ticks * 125_000)

    def _note_source(self, packet: RtpPacket, arrival_ns: int, source: str) -> None:
        figures = self.figures
        if not figures.first_packet_ns:
            figures.first_packet_ns = arrival_ns
        if not figures.ssrcs or figures.ssrcs[-1] != packet.ssrc:
            figures.ssrcs.append(packet.ssrc)
            self._sequences.append(SequenceCounter())
            self._jitters.append(Jitter())
            self._previous = None
        if not figures.sources or figures.sources[-1] != source:
            figures.sources.append(source)
        figures.payload_types[packet.payload_type] += 1

    def _gap(self, extended: int, timestamp: int, ticks: int, arrival_ns: int) -> None:
        if self._previous is not None:
            last_extended, last_timestamp, last_ticks, last_ns = self._previous
            if extended == last_extended + 1 and timestamp == (last_timestamp + last_ticks) % _TS_MOD:
                self.gaps_ns.append(arrival_ns - last_ns)
        self._previous = (extended, timestamp, ticks, arrival_ns)

    def _event(self, packet: RtpPacket, arrival_ns: int) -> None:
        try:
            event = TelephoneEvent.from_bytes(packet.payload)
        except RtpError:
            self.figures.invalid += 1
            return
        if self.keys and self.keys[-1].timestamp == packet.timestamp:
            self.keys[-1].end_ns = arrival_ns
            self.keys[-1].duration_ticks = max(self.keys[-1].duration_ticks, event.duration)
            return
        key = ReceivedKey(event.digit, arrival_ns, arrival_ns, event.duration, packet.timestamp)
        self.keys.append(key)
        if self._on_key is not None:
            self._on_key(key)
