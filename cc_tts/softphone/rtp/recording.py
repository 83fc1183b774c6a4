"""A recording of what was heard, placed on the RTP timeline: sample n of the file is RTP tick n after the first packet.

Holes in the timestamps are filled with silence, so timing in the file is timing on the wire as the sender meant it. No
jitter buffer, no concealment.
"""

from typing import Final

from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.clock import NS_PER_S
from cc_tts.softphone.rtp.packets import RATE_HZ, SAMPLES_PER_PACKET

_TS_MOD: Final = 1 << 32
_PACKET_NS: Final = SAMPLES_PER_PACKET * NS_PER_S // RATE_HZ
_LATE_TICKS: Final = RATE_HZ // 5
"""A packet 200 ms behind the newest is too late for any jitter buffer: it is dropped."""
_JUMP_TICKS: Final = 2 * RATE_HZ
"""Timestamp and arrival may disagree by this much; beyond it the sender has begun a new timeline."""
MAX_SECONDS: Final = 3600
"""The longest recording that is kept in memory; the rest is left out and reported (unmeasured)."""


class RtpRecording:
    """16-bit PCM at 8 kHz on the sender's timeline. One SSRC after the other."""

    def __init__(self) -> None:
        self.pcm = bytearray()
        """The samples that were heard so far."""
        self._ssrc: int | None = None
        self._timestamp = 0
        self._arrival_ns = 0
        self._offset = 0  # sample in the file of the packet with _timestamp
        self.late = 0
        self.filled_samples = 0
        self.is_truncated = False
        self.starts_at_ns = 0

    @property
    def num_samples(self) -> int:
        return len(self.pcm) // BYTES_PER_SAMPLE

    def add(self, *, ssrc: int, timestamp: int, pcm: bytes, arrival_ns: int) -> None:
        """Place the audio of one packet. The caller leaves out duplicates; packets may be out of order."""
        if self._ssrc is None:
            self.starts_at_ns = arrival_ns
        ahead = (timestamp - self._timestamp + _TS_MOD // 2) % _TS_MOD - _TS_MOD // 2
        elapsed = (arrival_ns - self._arrival_ns) * RATE_HZ // NS_PER_S
        if self._ssrc != ssrc or abs(ahead - elapsed) > _JUMP_TICKS:
            offset = self._begin_timeline(arrival_ns)
        else:
            offset = self._offset + ahead
            if ahead < -_LATE_TICKS or offset < 0:
                self.late += 1
                return
        self._place(offset, pcm)
        if self._ssrc != ssrc or offset >= self._offset:
            self._ssrc, self._timestamp, self._arrival_ns, self._offset = ssrc, timestamp, arrival_ns, offset

    def _begin_timeline(self, arrival_ns: int) -> int:
        """Return the sample at which a new SSRC, or the same one after a jump of its clock, continues, from its arrival
        time.
        """
        if self._ssrc is None:
            return 0
        pause_ns = max(0, arrival_ns - self._arrival_ns - _PACKET_NS)
        return self.num_samples + pause_ns * RATE_HZ // NS_PER_S

    def _place(self, offset: int, pcm: bytes) -> None:
        start = offset * BYTES_PER_SAMPLE
        end = start + len(pcm)
        if end > MAX_SECONDS * RATE_HZ * BYTES_PER_SAMPLE:
            self.is_truncated = True
            return
        if start > len(self.pcm):
            self.filled_samples += (start - len(self.pcm)) // BYTES_PER_SAMPLE
            self.pcm.extend(bytes(start - len(self.pcm)))
        elif end <= len(self.pcm):  # a reordered packet goes into the silence that was left for it
            self.filled_samples -= len(pcm) // BYTES_PER_SAMPLE
        self.pcm[start:end] = pcm
