"""The last step in Python before the wire. REAL-TIME: PJMEDIA asks for a frame every 20 ms, for every leg.

Ports are made once, as many as there can be calls, and lent to legs: PJMEDIA's clock may still hold a port for a moment
after its call ended, so none is ever destroyed while the library runs.
"""

from collections import deque
from typing import Any, Final

import pjsua2 as pj

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.ua.sip_thread import SipThread

LATE_AFTER_NS: Final = 2 * PTIME_MS * NS_PER_MS
"""A frame asked for later than this after the one before counts as late."""


class AudioPort(pj.AudioMediaPort):  # type: ignore[misc]
    """Gives PJMEDIA the next frame of the leg it is lent to; silence when it is lent to none.

    Runs on: the media clock's thread (:meth:`onFrameRequested`); the SIP thread (the rest).
    """

    def __init__(self, index: int, audio_format: AudioFormat, clock: Clock) -> None:
        SipThread.check()
        super().__init__()
        self._clock = clock
        self._silence = pj.ByteVector(bytes(audio_format.frame_bytes))
        self._buffer: PlayoutBuffer | None = None
        self._last_ns = 0
        self.late_frames = 0
        media_format = pj.MediaFormatAudio()
        media_format.init(pj.PJMEDIA_FORMAT_PCM, audio_format.rate_hz, 1, PTIME_MS * 1000, 16)
        self.createPort(f"leg{index}", media_format)

    def lend(self, buffer: PlayoutBuffer) -> None:
        """Play ``buffer`` from the next frame on."""
        self._last_ns = 0
        self.late_frames = 0
        self._buffer = buffer

    def take_back(self) -> None:
        """Play silence from the next frame on."""
        self._buffer = None

    def onFrameRequested(self, frame: Any) -> None:
        """REAL-TIME. Called by PJMEDIA."""
        buffer = self._buffer
        frame.type = pj.PJMEDIA_FRAME_TYPE_AUDIO
        if buffer is None:
            frame.buf = self._silence
            return
        now_ns = self._clock.now_ns()
        if self._last_ns and now_ns - self._last_ns > LATE_AFTER_NS:
            self.late_frames += 1
        self._last_ns = now_ns
        data = buffer.read_frame(now_ns)
        frame.buf = pj.ByteVector(data) if any(data) else self._silence

    def onFrameReceived(self, frame: Any) -> None:
        """REAL-TIME. Called by PJMEDIA with what the caller says; nobody listens yet."""


class AudioPorts:
    """The ports, lent and taken back. Runs on: the SIP thread."""

    def __init__(self, num_ports: int, audio_format: AudioFormat, clock: Clock) -> None:
        self._all = [AudioPort(index, audio_format, clock) for index in range(num_ports)]
        self._free: deque[AudioPort] = deque(self._all)

    @property
    def num_free(self) -> int:
        """Ports not lent."""
        return len(self._free)

    def lend(self, buffer: PlayoutBuffer) -> AudioPort:
        """Lend a port.

        Raises:
            IndexError: all are lent.
        """
        SipThread.check()
        port = self._free.popleft()
        port.lend(buffer)
        return port

    def take_back(self, port: AudioPort) -> None:
        """Take a port back; it goes to the end of the line, so that it rests longest before it is lent again."""
        SipThread.check()
        port.take_back()
        self._free.append(port)
