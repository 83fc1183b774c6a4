"""The hearing of the caller: the agent's packets on one timeline, and the speech in them.

::

    packets of the RTP thread ─▸ timeline, silence where nothing came ─▸ voice detector of cc_tts.vad ─▸ stretches of speech

The detector says that there is speech, up to a quarter of a second after a soft word began; a stretch begins with the sound
that led to it.

The timeline is that of a receiver without a jitter buffer's delay: audio follows audio as the sender numbered it, and begins
anew at its arrival where it comes so late that no jitter buffer would have held for it. What that delays is made up for in
the next silence, as a jitter buffer does. Runs on: one thread.
"""

from dataclasses import dataclass
from typing import Final, Literal

from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.media.levels import is_audible
from cc_tts.softphone.rtp.packets import RATE_HZ, SAMPLES_PER_PACKET
from cc_tts.softphone.rtp.receiver import Interval, Packet
from cc_tts.vad.detector import LegAudio, VoiceDetector
from cc_tts.vad.silero import WINDOW_MS
from cc_tts.vad.speech import Listening, SpeechStarted, SpeechStopped

PAUSE_MS: Final = 500
"""A longer pause ends a stretch of the agent's speech (as in Full-Duplex-Bench v1.5, whose code merges pauses of 0.5 s)."""
MIN_SPEECH_MS: Final = 100
"""Shorter sounds are no speech: clicks of a line (unmeasured)."""
LEAD_MS: Final = 320
"""Silence before the first packet, so that the detector is settled when speech begins with that packet (unmeasured)."""
MAX_LATE_MS: Final = 100
"""Audio counts as heard late if it arrives more than this after its place in the timeline (unmeasured)."""
MAX_AHEAD_MS: Final = 20
"""How far the timeline may be behind the arrival of packets: one packet. Beyond it silent packets are left
out (unmeasured).
"""
WAIT_MS: Final = 500
"""Silence is assumed once nothing has arrived for this long: the threads of this process may be late too (unmeasured)."""
MAX_ONSET_MS: Final = 400
"""The detector is never later than this (measured with hibari: 14 to 268 ms). Sound that has lasted longer is noise."""
QUIET_MS: Final = 80
"""A sound begins after silence of this length; closures inside of words are shorter (unmeasured)."""
STEP_MS: Final = 10
"""The resolution with which the begin of a sound is searched (unmeasured)."""
MAX_SKIP_TICKS: Final = 2 * RATE_HZ
"""A sender whose clock jumps further than this has begun a new timeline (as in the recording of the softphone); one whose
clock has run ahead of the arrivals by this is followed no further.
"""

_AGENT: Final = "agent"
_TS_MOD: Final = 1 << 32
_NS_PER_SAMPLE: Final = NS_PER_S // RATE_HZ


@dataclass(frozen=True, slots=True)
class TimelineGap:
    """Silence in the timeline that the sender did not intend, in samples: packets were lost, or came late."""

    begin: int
    length: int
    why: Literal["lost", "late"]


class Ear:
    """The caller's hearing of the agent."""

    def __init__(self, detector: VoiceDetector) -> None:
        self._detector = detector
        detector.listen(_AGENT, Listening(min_speech_ms=MIN_SPEECH_MS, silence_ms=PAUSE_MS))
        self._before: Packet | None = None
        self._end = 0
        """The sample after the last packet."""
        self.pcm = bytearray()
        self.origin_ns = 0
        """The instant of the first sample; 0 before there is one."""
        self.speech: list[Interval] = []
        self.gaps: list[TimelineGap] = []

    @property
    def is_speaking(self) -> bool:
        """Whether the agent speaks, or has not yet been silent long enough to count as silent."""
        return bool(self.speech) and self.speech[-1].end_ns is None

    @property
    def begun_ns(self) -> int:
        """When the agent last began to speak; 0 if it has not spoken."""
        return self.speech[-1].begin_ns if self.speech else 0

    def at_ns(self, sample: int) -> int:
        return self.origin_ns + sample * _NS_PER_SAMPLE

    def hear(self, packet: Packet) -> None:
        """Add the next packet; a packet whose place has passed is not heard."""
        if not self.origin_ns:
            self.origin_ns = packet.arrival_ns - LEAD_MS * NS_PER_MS
            self._silence(LEAD_MS * RATE_HZ // 1000)
            self._end = self._num_samples
        before = self._before
        is_next = before is not None and before.ssrc == packet.ssrc
        missing = packet.sequence - before.sequence - 1 if before is not None and is_next else 0
        if missing < 0:
            return
        skipped = 0
        if before is not None and is_next:
            due = before.timestamp + len(before.pcm) // BYTES_PER_SAMPLE
            ahead = (packet.timestamp - due + _TS_MOD // 2) % _TS_MOD - _TS_MOD // 2
            is_bounded = self._end + ahead <= self.sample_at(packet.arrival_ns) + MAX_SKIP_TICKS
            skipped = ahead if 0 < ahead <= MAX_SKIP_TICKS and is_bounded else 0
        ahead_ms = (self._num_samples - self.sample_at(packet.arrival_ns)) * 1000 / RATE_HZ
        if ahead_ms > MAX_AHEAD_MS and not missing and not is_audible(packet.pcm):
            self._before = packet
            return
        begin = self._place(packet.arrival_ns, skipped)
        is_late = self.sample_at(packet.arrival_ns) - self._end - skipped > MAX_LATE_MS * RATE_HZ // 1000
        if begin - self._end >= SAMPLES_PER_PACKET and (missing or (is_late and not skipped)):
            self.gaps.append(TimelineGap(self._end, begin - self._end, "lost" if missing else "late"))
        self._push(packet.pcm)
        self._before, self._end = packet, self._num_samples

    def pass_time(self, now_ns: int) -> None:
        """Note that nothing else has arrived until now."""
        if self.origin_ns:
            self._silence(self.sample_at(now_ns - WAIT_MS * NS_PER_MS) - self._num_samples)

    def finish(self) -> None:
        num_samples = self._num_samples
        self._silence(2 * PAUSE_MS * RATE_HZ // 1000)
        del self.pcm[num_samples * BYTES_PER_SAMPLE :]

    @property
    def _num_samples(self) -> int:
        return len(self.pcm) // BYTES_PER_SAMPLE

    def sample_at(self, at_ns: int) -> int:
        return (at_ns - self.origin_ns) // _NS_PER_SAMPLE

    def _place(self, arrival_ns: int, skipped: int) -> int:
        """Fill the timeline up to the place of a packet, and return that place."""
        begin, arrived = max(self._end + skipped, self._num_samples), self.sample_at(arrival_ns)
        if arrived - begin > MAX_LATE_MS * RATE_HZ // 1000:
            begin = arrived
        self._silence(begin - self._num_samples)
        return begin

    def _silence(self, num_samples: int) -> None:
        if num_samples > 0:
            self._push(bytes(num_samples * BYTES_PER_SAMPLE))

    def _push(self, pcm: bytes) -> None:
        at_ns = self.at_ns(self._num_samples)
        self.pcm += pcm
        for found in self._detector.push([LegAudio(_AGENT, is_sent=False, at_ns=at_ns, pcm=pcm)]):
            match found.edge:
                case SpeechStarted(onset_ns=onset_ns):
                    self.speech.append(Interval(self._sound_before(onset_ns)))
                case SpeechStopped(end_ns=end_ns):
                    self.speech[-1].end_ns = end_ns

    def _sound_before(self, onset_ns: int) -> int:
        """Return the begin of the sound in which the detector found speech from ``onset_ns`` on; ``onset_ns`` itself if
        there is noise.
        """
        onset, step = self.sample_at(onset_ns), STEP_MS * RATE_HZ // 1000
        first, quiet_ms = onset, 0
        for begin in range(onset + WINDOW_MS * RATE_HZ // 1000 - step, onset - MAX_ONSET_MS * RATE_HZ // 1000, -step):
            if is_audible(bytes(self.pcm[max(0, begin) * BYTES_PER_SAMPLE : max(0, begin + step) * BYTES_PER_SAMPLE])):
                first, quiet_ms = begin, 0
            else:
                quiet_ms += STEP_MS * (begin < onset)
            if quiet_ms >= QUIET_MS:
                return self.at_ns(first)
        return onset_ns
