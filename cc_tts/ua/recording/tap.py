"""The frames of a leg that is recorded, on their way from the media clock to the SIP thread.

One tick of the media clock gives a frame of each direction. What is received comes several frames at a time, which end with
the tick in which they come; ticks that they do not reach back to are silence. So the directions cannot drift apart. No lock:
the clock appends, the SIP thread takes.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from cc_tts.audio import PTIME_MS, PTIME_NS, AudioFormat
from cc_tts.media.tones import tone

MAX_FRAMES: Final = 300
"""The most frames that wait: two seconds until their turn, and four in which the SIP thread is late (unmeasured). Further
ones are dropped and counted.
"""
CAPTURE_FRAMES: Final = 10
"""Received frames are delivered together, since a call into Python costs more than everything else (bench/sip_load.py). With
more of them, more of the caller's audio would be lost when the line changes or ends.
"""
BEEP_HZ: Final = 1400
BEEP_FRAMES: Final = 500 // PTIME_MS
BEEP_EVERY_FRAMES: Final = 15_000 // PTIME_MS
"""The usual tone that warns of a recording is half a second of 1,400 Hz every 15 s."""
_SILENT: Final = True
_SKIPPED: Final = False

Tick = bytes | tuple[bytes, bytes] | bool | None
"""A tick as it is stored: the sent frame; the sent frame and the tone in it; ``_SILENT`` or ``_SKIPPED`` in a pause;
``None`` if too many waited.
"""


Taken = tuple[bytes, bytes, int]
"""Received and sent frames, equally many, and the number of dropped ones that follow them."""


class RecordingTap:
    """Collects the frames of a leg for the recorder."""

    def __init__(self, audio_format: AudioFormat, *, beeps: bool) -> None:
        self._frame_bytes = audio_format.frame_bytes
        self._silence = bytes(self._frame_bytes)
        self._beep = _frames_of(tone(f"{BEEP_HZ}", audio_format.rate_hz, max_ms=500), self._silence) if beeps else ()
        self._ticks: deque[Tick] = deque()
        self._received: deque[tuple[int, bytes]] = deque()
        """The received frames, with the number of the tick that follows them."""
        self._num_ticks = 0
        self._num_taken = 0
        self._num_beep_ticks = 0
        self._last_ns = 0
        self._is_paused = self._skips = False
        self._num_still_silent = 0
        self._may_differ = beeps
        """Whether the sent or stored frame may differ from the original. Only the SIP thread sets it."""

    @property
    def changes_sound(self) -> bool:
        """Whether the far side hears a recording tone."""
        return bool(self._beep)

    # --- the media clock ---------------------------------------------------------------------------------------------

    def sent(self, now_ns: int, frame: bytes) -> bytes:
        """Record a tick in which ``frame`` is about to be sent; return the frame to send instead. REAL-TIME."""
        self._last_ns = now_ns
        self._num_ticks += 1
        ticks = self._ticks
        if self._may_differ:
            frame, tick = self._changed(frame)
            ticks.append(tick if len(ticks) < MAX_FRAMES or tick is _SKIPPED else None)
        else:
            ticks.append(frame if len(ticks) < MAX_FRAMES else None)
        return frame

    def received(self, frames: bytes) -> None:
        """Record received frames, the last of which belongs to this tick. REAL-TIME."""
        if len(self._received) < MAX_FRAMES:
            self._received.append((self._num_ticks, frames))

    def _changed(self, frame: bytes) -> tuple[bytes, Tick]:
        """Return the frame to send, and what is stored for it."""
        if self._is_paused:
            return frame, _SKIPPED if self._skips else _SILENT
        if self._num_still_silent:
            self._num_still_silent -= 1
            return frame, _SILENT
        number, self._num_beep_ticks = self._num_beep_ticks % BEEP_EVERY_FRAMES, self._num_beep_ticks + 1
        if number >= len(self._beep):  # also true without a beep
            return frame, frame
        frame = mixed(frame, self._beep[number])
        return frame, (frame, self._beep[number])

    # --- the SIP thread ----------------------------------------------------------------------------------------------

    def keep_time(self, now_ns: int) -> None:
        """Replace the media clock while no stream runs, once there was one: silence for each tick that has passed."""
        while self._last_ns and self._last_ns + PTIME_NS <= now_ns:
            self.sent(self._last_ns + PTIME_NS, self._silence)

    def set_paused(self, *, paused: bool, skips: bool, delay_ms: int = 0) -> None:
        """Record silence, or nothing, from the next frame on; or resume after ``delay_ms``."""
        self._num_still_silent = 0 if paused else delay_ms // PTIME_MS
        self._skips, self._is_paused = skips, paused
        self._may_differ = True

    def take(self, *, is_last: bool = False) -> Sequence[Taken]:
        """Return the complete frames: those that received audio can no longer change, or all."""
        heard = [self._received.popleft() for _ in range(len(self._received))]
        num = len(self._ticks)  # after that: the clock adds the tick first
        if not is_last:
            num = min(num, max(num - CAPTURE_FRAMES, heard[-1][0] - self._num_taken if heard else 0))
        if num <= 0:
            return ()
        received = self._in_place(heard, num)
        self._num_taken += num
        ticks = [self._ticks.popleft() for _ in range(num)]
        try:
            return ((received, b"".join(cast("list[bytes]", ticks)), 0),)
        except TypeError:  # some ticks have no audio
            return self._pieces(ticks, received)

    def _in_place(self, heard: Sequence[tuple[int, bytes]], num: int) -> bytes:
        """Arrange the received audio of this many ticks, with silence where there was none."""
        size, parts, at = self._frame_bytes, [], self._num_taken
        whole = b"".join([frames for _, frames in heard])
        if len(whole) == num * size and heard[-1][0] == at + num and heard[0][0] * size == at * size + len(heard[0][1]):
            return whole
        for end, frames in heard:
            begin = end - len(frames) // size
            if begin > at:
                parts.append(bytes((begin - at) * size))
            parts.append(frames[max(0, at - begin) * size :])
            at = max(at, end)
        parts.append(bytes(max(0, self._num_taken + num - at) * size))
        return b"".join(parts)

    def _pieces(self, ticks: Sequence[Tick], received: bytes) -> Sequence[Taken]:
        pieces: list[Taken] = []
        both: list[tuple[bytes, bytes]] = []
        num_lost = 0
        for number, tick in enumerate(ticks):
            if tick is None:
                num_lost += 1
            elif tick is not _SKIPPED:
                if num_lost:
                    pieces.append(_piece(both, num_lost))
                    both, num_lost = [], 0
                both.append(self._both(tick, received[number * self._frame_bytes : (number + 1) * self._frame_bytes]))
        pieces.append(_piece(both, num_lost))
        return pieces

    def _both(self, tick: Tick, received: bytes) -> tuple[bytes, bytes]:
        if isinstance(tick, bytes):
            return received, tick
        return (mixed(received, tick[1]), tick[0]) if isinstance(tick, tuple) else (self._silence, self._silence)


def mixed(frame: bytes, other: bytes) -> bytes:
    """Return the sum of two equally long frames of 16-bit samples, clipped."""
    total = np.frombuffer(frame, "<i2").astype(np.int32) + np.frombuffer(other, "<i2")
    samples: npt.NDArray[np.int16] = np.clip(total, -32768, 32767).astype("<i2")
    return samples.tobytes()


def _piece(both: Sequence[tuple[bytes, bytes]], num_lost: int) -> Taken:
    return b"".join([each[0] for each in both]), b"".join([each[1] for each in both]), num_lost


def _frames_of(pcm: bytes, silence: bytes) -> tuple[bytes, ...]:
    return tuple(pcm[start : start + len(silence)] for start in range(0, len(pcm), len(silence)))
