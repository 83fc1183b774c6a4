"""The frames of a leg that is recorded, on their way from the media clock to the SIP thread.

One tick of the media clock gives one frame of each direction: what is sent comes first, and if nothing was received before
the next tick, that frame is silence. So the directions cannot drift apart. No lock: the clock appends, the SIP thread takes.
"""

from collections import deque
from typing import Final, NamedTuple

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.tones import tone
from cc_tts.ua.rtp.mixing import mixed

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
        self._ticks: deque[tuple[bytes, bytes]] = deque()
        self._pending: bytes | None = None
        """The frame that was sent in this tick, as long as none was received in it."""
        self._num_ticks = 0
        self._num_lost = 0
        self._last_ns = 0
        self._is_paused = self._skips = False
        self._num_still_silent = 0

    # --- the media clock ---------------------------------------------------------------------------------------------

    def sent(self, now_ns: int, frame: bytes) -> bytes:
        """A tick: ``frame`` is about to be sent. Returns what is sent in its place. REAL-TIME."""
        self._last_ns = now_ns
        ticks, pending = self._ticks, self._pending
        if pending is not None:
            ticks.append((self._silence, pending))
        if len(ticks) >= MAX_FRAMES:
            self._pending = None
            if not (self._is_paused and self._skips):
                self._num_lost += 1
            return frame
        if self._is_paused or self._num_still_silent or self._beep:
            return self._sent_otherwise(frame)
        self._pending = frame
        return frame

    def _sent_otherwise(self, frame: bytes) -> bytes:
        self._pending, self._tone_now = None, b""
        if self._is_silent():
            if not (self._is_paused and self._skips):
                self._ticks.append((self._silence, self._silence))
            return frame
        if self._beep:
            frame = self._with_beep(frame)
        self._pending = frame
        return frame

    def received(self, frame: bytes) -> None:
        """A frame that was received in this tick. REAL-TIME."""
        pending = self._pending
        if pending is not None:
            self._pending = None
            self._ticks.append((mixed(frame, self._tone_now) if self._tone_now else frame, pending))

    def _is_silent(self) -> bool:
        if self._is_paused:
            return True
        if self._num_still_silent:
            self._num_still_silent -= 1
            return True
        return False

    def _with_beep(self, frame: bytes) -> bytes:
        number, self._num_ticks = self._num_ticks % BEEP_EVERY_FRAMES, self._num_ticks + 1
        self._tone_now = self._beep[number] if number < len(self._beep) else b""
        return mixed(frame, self._tone_now) if self._tone_now else frame

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
        ticks = [self._ticks.popleft() for _ in range(len(self._ticks))]
        return Taken(b"".join([each[0] for each in ticks]), b"".join([each[1] for each in ticks]), lost)


def _frames_of(pcm: bytes, silence: bytes) -> tuple[bytes, ...]:
    return tuple(pcm[start : start + len(silence)] for start in range(0, len(pcm), len(silence)))
