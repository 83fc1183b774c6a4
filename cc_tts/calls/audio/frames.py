"""Converts the audio of a call for one client: its sample rate, frames of 20 ms, silence for missing frames, and two
directions as channels. It has no clock of its own.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.half_band import HalfBand
from cc_tts.ua.messages import AudioDirection, CallAudio

MAX_APART_NS: Final = 3 * PTIME_MS * NS_PER_MS // 2
"""Frames of the same tick arrive within this time. A frame whose counterpart is later is paired with silence."""
MAX_FILLED: Final = 50
"""The most missing frames that are replaced by silence. After a longer gap the stream skips ahead. Unmeasured."""


class FrameShaper:
    """Makes frames of 20 ms at the client's rate. If it ``interleaves``, the two directions are the channels of one stream,
    the caller first, and frames of the same tick are paired.
    """

    def __init__(
        self, directions: Sequence[AudioDirection], line_rate_hz: int, rate_hz: int, *, interleaves: bool
    ) -> None:
        self.num_channels = len(directions) if interleaves else 1
        self.begun_ns: int | None = None
        """When the first frame of the caller was handled."""
        self._line_frame_bytes = AudioFormat(line_rate_hz).frame_bytes
        self._silence = bytes(AudioFormat(rate_hz).frame_bytes)
        self._filters = {each: HalfBand(line_rate_hz, rate_hz) for each in directions}
        self._waiting: dict[AudioDirection, deque[tuple[int, bytes]]] = {"in": deque(), "out": deque()}
        """Frames whose counterpart has not arrived."""

    def frames(self, audio: CallAudio, pcm: bytes) -> Iterator[tuple[AudioDirection, bytes]]:
        """Return the frames that are now complete. Pairs of channels are returned under ``in``."""
        num_missing = min(audio.num_dropped, MAX_FILLED)
        at_ns = audio.at_ns - num_missing * PTIME_MS * NS_PER_MS
        if self.begun_ns is None and audio.direction == "in":
            self.begun_ns = at_ns
        pcm = self._filters[audio.direction].process(bytes(self._line_frame_bytes * num_missing) + pcm)
        for start in range(0, len(pcm), len(self._silence)):
            frame = pcm[start : start + len(self._silence)]
            if self.num_channels == 1:
                yield audio.direction, frame
            else:
                self._waiting[audio.direction].append((at_ns, frame))
                for pair in self._pairs():
                    yield "in", pair
            at_ns += PTIME_MS * NS_PER_MS

    def _pairs(self) -> Iterator[bytes]:
        heard, sent = self._waiting["in"], self._waiting["out"]
        while heard and sent:
            apart_ns = heard[0][0] - sent[0][0]
            left = self._silence if apart_ns > MAX_APART_NS else heard.popleft()[1]
            right = self._silence if apart_ns < -MAX_APART_NS else sent.popleft()[1]
            yield _interleaved(left, right)
        alone = heard or sent
        while alone and alone[-1][0] - alone[0][0] > 2 * MAX_APART_NS:  # the other direction has stopped
            frame = alone.popleft()[1]
            yield _interleaved(frame, self._silence) if alone is heard else _interleaved(self._silence, frame)


def _interleaved(left: bytes, right: bytes) -> bytes:
    return np.stack((np.frombuffer(left, "<i2"), np.frombuffer(right, "<i2")), axis=1).tobytes()
