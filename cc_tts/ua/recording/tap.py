"""The frames of a leg that is recorded, on their way from the media clock to the SIP thread.

One tick of the media clock gives one frame of each direction: what is sent comes first, and if nothing was received before
the next tick, that frame is silence. So the directions cannot drift apart. No lock: the clock appends, the SIP thread takes.
"""

from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.tones import tone

MAX_FRAMES: Final = 250
"""Frames that wait, 5 s; more are left out and counted (unmeasured)."""
BEEP_HZ: Final = 1400
BEEP_FRAMES: Final = 500 // PTIME_MS
BEEP_EVERY_FRAMES: Final = 15_000 // PTIME_MS
"""The usual tone that warns of a recording is half a second of 1,400 Hz every 15 s."""
_TICK_NS: Final = PTIME_MS * NS_PER_MS


class Taken(NamedTuple):
    """Frames of both directions, equally many, before ``num_lost`` that were left out."""

    received: bytes
    sent: bytes
    num_lost: int


class RecordingTap:
    """Between the port of a leg and the recorder."""

    def __init__(self, audio_format: AudioFormat, *, beeps: bool) -> None:
        self._silence = bytes(audio_format.frame_bytes)
        self._beep = _frames_of(tone(f"{BEEP_HZ}", audio_format.rate_hz, max_ms=500), self._silence) if beeps else ()
        self._tone_now = b""
        self._received: deque[bytes] = deque()
        self._sent: deque[bytes] = deque()
        self._num_received = self._num_sent = 0
        self._num_ticks = 0
        self._num_lost = 0
        self._last_ns = 0
        self._is_paused = self._skips = False
        self._num_still_silent = 0

    # --- the media clock ---------------------------------------------------------------------------------------------

    def sent(self, now_ns: int, frame: bytes) -> bytes:
        """A tick: ``frame`` is about to be sent. Returns what is sent in its place. REAL-TIME."""
        self._last_ns = now_ns
        if self._num_received < self._num_sent:
            self._keep_received(self._silence)
        if self._is_silent():
            self._tone_now = b""
            if not (self._is_paused and self._skips):
                self._keep(self._silence)
                self._keep_received(self._silence)
            return frame
        if self._beep:
            frame = self._with_beep(frame)
        self._keep(frame)
        return frame

    def received(self, frame: bytes) -> None:
        """A frame that was received in this tick. REAL-TIME."""
        if self._num_received < self._num_sent:
            self._keep_received(_sum(frame, self._tone_now) if self._tone_now else frame)

    def _is_silent(self) -> bool:
        if self._num_still_silent and not self._is_paused:
            self._num_still_silent -= 1
            return True
        return self._is_paused

    def _with_beep(self, frame: bytes) -> bytes:
        number, self._num_ticks = self._num_ticks % BEEP_EVERY_FRAMES, self._num_ticks + 1
        self._tone_now = self._beep[number] if number < len(self._beep) else b""
        return _sum(frame, self._tone_now) if self._tone_now else frame

    def _keep(self, frame: bytes) -> None:
        if len(self._sent) >= MAX_FRAMES:
            self._num_lost += 1
            return
        self._sent.append(frame)
        self._num_sent += 1

    def _keep_received(self, frame: bytes) -> None:
        if self._num_received < self._num_sent:
            self._received.append(frame)
            self._num_received += 1

    # --- the SIP thread ----------------------------------------------------------------------------------------------

    def keep_time(self, now_ns: int) -> None:
        """Stand in for the media clock while no stream does, once there was one: silence for each tick that has passed."""
        while self._last_ns and self._last_ns + _TICK_NS <= now_ns:
            self.sent(self._last_ns + _TICK_NS, self._silence)

    def set_paused(self, *, paused: bool, skips: bool, delay_ms: int = 0) -> None:
        """Keep silence, or nothing, from the next frame on; or go on after ``delay_ms``."""
        self._num_still_silent = 0 if paused else delay_ms // PTIME_MS
        self._skips, self._is_paused = skips, paused

    def take(self) -> Taken:
        """Take the frames that are complete."""
        lost, self._num_lost = self._num_lost, 0
        num = len(self._received)
        received = b"".join([self._received.popleft() for _ in range(num)])
        return Taken(received, b"".join([self._sent.popleft() for _ in range(num)]), lost)


def _frames_of(pcm: bytes, silence: bytes) -> tuple[bytes, ...]:
    return tuple(pcm[start : start + len(silence)] for start in range(0, len(pcm), len(silence)))


def _sum(frame: bytes, other: bytes) -> bytes:
    total = np.frombuffer(frame, "<i2").astype(np.int32) + np.frombuffer(other, "<i2")
    samples: npt.NDArray[np.int16] = np.clip(total, -32768, 32767).astype("<i2")
    return samples.tobytes()
