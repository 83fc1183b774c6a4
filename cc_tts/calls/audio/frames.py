"""From blocks of the hub to what a client gets: its rate, frames of 20 ms, silence where frames are missing, two directions
side by side. No clock of its own.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.calls.audio.hub import AudioBlock
from cc_tts.clock import NS_PER_MS
from cc_tts.media.half_band import HalfBand
from cc_tts.ua.messages import AudioDirection

MAX_APART_NS: Final = 3 * PTIME_MS * NS_PER_MS // 2
"""Frames of one tick are handled within this time. A frame whose counterpart is further off goes with silence."""
MAX_FILLED: Final = 50
"""Frames of silence for those that are missing; after a longer gap the stream goes on where the call is."""


class FrameShaper:
    """One direction: frames of 20 ms at the client's rate."""

    def __init__(self, line_rate_hz: int, rate_hz: int) -> None:
        self._line_frame_bytes = AudioFormat(line_rate_hz).frame_bytes
        self._frame_bytes = AudioFormat(rate_hz).frame_bytes
        self._filter = HalfBand(line_rate_hz, rate_hz)

    def frames(self, block: AudioBlock) -> Iterator[tuple[int, bytes]]:
        """The frames of a block, with the instant of each, ns."""
        num_missing = min(block.num_dropped, MAX_FILLED)
        pcm = self._filter.process(bytes(self._line_frame_bytes * num_missing) + block.pcm)
        for index, start in enumerate(range(0, len(pcm), self._frame_bytes)):
            yield block.at_ns + (index - num_missing) * PTIME_MS * NS_PER_MS, pcm[start : start + self._frame_bytes]


class Interleaver:
    """Two directions as the two channels of one stream, the caller first. The frames of one tick go together."""

    def __init__(self, rate_hz: int) -> None:
        self._silence = bytes(AudioFormat(rate_hz).frame_bytes)
        self._waiting: dict[AudioDirection, deque[tuple[int, bytes]]] = {"in": deque(), "out": deque()}

    def add(self, direction: AudioDirection, at_ns: int, frame: bytes) -> Iterator[bytes]:
        """Take a frame; returns the pairs that are complete with it."""
        heard, sent = self._waiting["in"], self._waiting["out"]
        self._waiting[direction].append((at_ns, frame))
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
