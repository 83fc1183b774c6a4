"""The last step in Python before the wire. REAL-TIME: PJMEDIA asks for a frame every 20 ms, for every leg.

Ports are lent to legs and taken back: PJMEDIA's clock may still hold a port for a moment after its call ended, so none is
destroyed while the library runs. They are made as they are needed, since the bridge visits each one every 20 ms.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import pjsua2 as pj

from cc_tts.audio import PTIME_MS, PTIME_NS, AudioFormat
from cc_tts.clock import Clock
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.ua.recording.tap import CAPTURE_FRAMES, RecordingTap, mixed
from cc_tts.ua.rtp.frame_queue import FrameQueue
from cc_tts.ua.rtp.lateness import TickLateness

LATE_AFTER_NS: Final = 2 * PTIME_NS
"""A frame counts as late if it is requested later than this after the previous one; unmeasured."""
MIN_FREE_PORTS: Final = 8
"""The number of ports that are idle before one is lent again, as long as more can be made; unmeasured."""

PassedFrame = deque[bytes]
"""The last frame that one leg received, at most one, until the other leg of its bridge sends it."""

P = TypeVar("P", bound="ReceivingPort")

_clock_thread = threading.local()


def _know_this_thread() -> None:
    """Make Python keep its state of this thread. Otherwise it is allocated and freed for each frame, which costs more than
    everything else.
    """
    ctypes.pythonapi.PyGILState_Ensure()
    _clock_thread.known = True


class ReceivingPort(pj.AudioMediaPort):  # type: ignore[misc]
    """A port that gets several frames of 20 ms at a time."""

    def __init__(self, name: str, audio_format: AudioFormat, num_frames: int) -> None:
        super().__init__()
        self._silent_bytes = bytes(num_frames * audio_format.frame_bytes)
        self._can_copy_out = hasattr(pj.ByteVector, "copy_to_bytearray")
        self._received_bytes = bytearray(self._silent_bytes)
        media_format = pj.MediaFormatAudio()
        media_format.init(pj.PJMEDIA_FORMAT_PCM, audio_format.rate_hz, 1, num_frames * PTIME_MS * 1000, 16)
        self.createPort(name, media_format)

    def _copied(self, vector: Any) -> bytes:
        if vector.size() != len(self._silent_bytes):  # copy_to_bytearray() does not check
            return self._silent_bytes
        if self._can_copy_out:
            vector.copy_to_bytearray(self._received_bytes)
            return bytes(self._received_bytes)
        return bytes(vector)  # before pjproject 2.16: byte by byte


class CapturePort(ReceivingPort):
    """Passes the received audio of a leg to the tap of its recording. Runs on: as :class:`AudioPort`."""

    def __init__(self, index: int, audio_format: AudioFormat) -> None:
        super().__init__(f"record{index}", audio_format, CAPTURE_FRAMES)
        self.tap: RecordingTap | None = None

    def onFrameReceived(self, frame: Any) -> None:
        """REAL-TIME. Called by PJMEDIA."""
        if (tap := self.tap) is not None and frame.type == pj.PJMEDIA_FRAME_TYPE_AUDIO:
            tap.received(self._copied(frame.buf))


class AudioPort(ReceivingPort):
    """Gives PJMEDIA the next frame of the leg it is lent to; silence when it is lent to none. Keeps what was received and
    sent while somebody listens.

    Runs on: the media clock's thread (:meth:`onFrameRequested`, :meth:`onFrameReceived`); the SIP thread (the rest).
    """

    def __init__(self, index: int, audio_format: AudioFormat, clock: Clock, lateness: TickLateness) -> None:
        super().__init__(f"leg{index}", audio_format, 1)
        self._clock = clock
        self._lateness = lateness
        self._silence = pj.ByteVector(self._silent_bytes)
        self._vector = pj.ByteVector(self._silent_bytes)
        self._copies = hasattr(pj.ByteVector, "assign_from_bytes")
        self._buffer: PlayoutBuffer | None = None
        self._received: FrameQueue | None = None
        self._sent: FrameQueue | None = None
        self._tap: RecordingTap | None = None
        self._hearing_tap: RecordingTap | None = None
        self._heard: PassedFrame | None = None
        self._said: PassedFrame | None = None
        self._last_ns = 0
        self.late_frames = 0

    def lend(self, buffer: PlayoutBuffer) -> None:
        """Play ``buffer`` from the next frame on."""
        self._last_ns = 0
        self.late_frames = 0
        self._buffer = buffer

    def take_back(self) -> None:
        """Play silence from the next frame on."""
        self._buffer = None
        self.listen(received=None, sent=None)
        self.record(None, hears=False)
        self.bridge(heard=None, said=None)

    def listen(self, *, received: FrameQueue | None, sent: FrameQueue | None) -> None:
        """Keep what is received and what is sent from the next frame on; ``None`` ends this."""
        self._received, self._sent = received, sent

    def record(self, tap: RecordingTap | None, *, hears: bool) -> None:
        """Record from the next frame on; ``None`` ends this. ``hears``: also received audio, which no other port gets."""
        self._tap, self._hearing_tap = tap, tap if hears else None

    def bridge(self, *, heard: PassedFrame | None, said: PassedFrame | None) -> None:
        """Mix in what another leg receives, and pass on what is received; ``None`` ends this."""
        self._heard, self._said = heard, said

    def keep_time(self, now_ns: int, frame: bytes) -> None:
        """Replace the media clock while no stream runs: ``frame`` would have been sent, and nothing was received."""
        if (tap := self._tap) is not None:
            tap.keep_time(now_ns)
        if (sent := self._sent) is not None:
            sent.add(now_ns, frame)
        if (received := self._received) is not None:
            received.add(now_ns, self._silent_bytes)

    def expect_a_pause(self) -> None:
        """A new stream begins, so the time since the last frame says nothing about the media clock."""
        self._last_ns = 0

    def onFrameRequested(self, frame: Any) -> None:
        """REAL-TIME. Called by PJMEDIA."""
        if not hasattr(_clock_thread, "known"):
            _know_this_thread()
        buffer = self._buffer
        frame.type = pj.PJMEDIA_FRAME_TYPE_AUDIO
        if buffer is None:
            frame.buf = self._silence
            return
        now_ns = self._clock.now_ns()
        if self._last_ns:
            gap_ns = now_ns - self._last_ns
            self._lateness.add(gap_ns)
            if gap_ns > LATE_AFTER_NS:
                self.late_frames += 1
        self._last_ns = now_ns
        data = buffer.read_frame(now_ns)
        if heard := self._heard:
            passed = heard.popleft()
            data = passed if data == self._silent_bytes else mixed(data, passed)
        if (tap := self._tap) is not None:
            data = tap.sent(now_ns, data)
        if (sent := self._sent) is not None:
            sent.add(now_ns, data)
        if data == self._silent_bytes:
            frame.buf = self._silence
        elif self._copies:
            self._vector.assign_from_bytes(data)
            frame.buf = self._vector
        else:  # before pjproject 2.16 a vector is filled byte by byte, which takes thirty times as long
            frame.buf = pj.ByteVector(data)

    def onFrameReceived(self, frame: Any) -> None:
        """REAL-TIME. Called by PJMEDIA with the caller's audio while the call is connected to this port. Lost packets,
        telephone events and a sender that pauses are silence in it.
        """
        received, tap, said = self._received, self._hearing_tap, self._said
        if (received is None and tap is None and said is None) or frame.type != pj.PJMEDIA_FRAME_TYPE_AUDIO:
            return
        if not hasattr(_clock_thread, "known"):
            _know_this_thread()
        data = self._copied(frame.buf)
        if said is not None:
            said.append(data)
        if tap is not None:
            tap.received(data)
        if received is not None:
            received.add(self._clock.now_ns(), data)


class PortPool(Generic[P]):
    """Ports that are lent and taken back; ``make`` makes one, with this number. Runs on: the SIP thread."""

    def __init__(self, make: Callable[[int], P], *, max_ports: int) -> None:
        self._make = make
        self._max_ports = max_ports
        self._all: list[P] = []
        self._free: deque[P] = deque()

    def lend(self) -> P:
        """Lend a port to one leg until it is taken back.

        Raises:
            IndexError: all are lent.
            pjsua2.Error: the bridge has no room for another.
        """
        if len(self._free) > MIN_FREE_PORTS or len(self._all) == self._max_ports:
            return self._free.popleft()
        port = self._make(len(self._all))
        self._all.append(port)
        return port

    def take_back(self, port: P) -> None:
        """Take a port back. It is lent again last."""
        self._free.append(port)
