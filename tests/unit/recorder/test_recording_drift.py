"""Ten minutes of a call on their way from the media clock to the file: the channels stay together, whatever is missing."""

import random
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.audio import AudioFormat
from cc_tts.recorder.info import RecordingInfo, RecordingPlan
from cc_tts.recorder.writer import RecordingFile
from cc_tts.ua.recording.tap import MAX_FRAMES, RecordingTap

pytestmark = pytest.mark.unit

TICK_NS = 20_000_000
TEN_MINUTES = 30_000
"""Frames."""
WINDOW = 16_000
"""Samples that are compared, two seconds."""

Samples = npt.NDArray[np.float64]


class Line:
    """A call whose caller says what he hears, at once."""

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self._tap = RecordingTap(AudioFormat(8000), beeps=False)
        self._source = np.random.default_rng(1)
        self._jitter = random.Random(1)
        self._now_ns = 0
        self._num_frames = 0

    def run(self, num_frames: int, *, lost: float = 0.0) -> None:
        """Ticks with a frame of either direction, but for a share of those that the caller sent; those come in twos."""
        heard = b""
        for number in range(num_frames):
            frame = self._source.integers(-8000, 8000, 160).astype("<i2").tobytes()
            self._tick()
            self._tap.sent(self._now_ns, frame)
            heard += frame
            if number % 2:
                if self._jitter.random() >= lost:
                    self._tap.received(heard)
                heard = b""

    def hold(self, num_frames: int) -> None:
        for _ in range(num_frames):
            self._tick()
            self._tap.keep_time(self._now_ns)

    def leave_out(self, num_frames: int) -> None:
        self._tap.set_paused(paused=True, skips=True)
        self.run(num_frames)
        self._tap.set_paused(paused=False, skips=False)

    def stall(self, num_frames: int) -> None:
        self._num_frames = -num_frames
        self.run(num_frames)

    def _tick(self) -> None:
        self._now_ns += TICK_NS
        self._num_frames += 1
        if self._num_frames > 0 and self._jitter.random() < 0.1:
            self.show()

    def show(self, *, is_last: bool = False) -> None:
        for received, sent, num_lost in self._tap.take(is_last=is_last):
            self._file.take(received + sent, 0)
            self._file.take(b"", num_lost)


def lag(left: Samples, right: Samples) -> int:
    """How many samples the left channel is behind the right one, where they are most alike."""
    size = 2 * len(left)
    product = np.fft.irfft(np.fft.rfft(left, size) * np.conj(np.fft.rfft(right, size)))
    best = int(product.argmax())
    return best if best < len(left) else best - size


def test_nothing_that_is_missing_shifts_a_channel(tmp_path: Path) -> None:
    info = RecordingInfo(recording_id="r1", call_id="c1", channels="dual", encoding="pcm16")
    file = RecordingFile(RecordingPlan(info=info, folder=str(tmp_path), max_duration_ms=700_000))
    line = Line(file)
    line.run(50, lost=1.0)  # the caller's first packets are late
    line.run(1000)
    line.run(5000, lost=0.05)
    line.hold(3000)
    line.run(3000, lost=1.0)  # silence suppression
    line.leave_out(777)
    line.run(2000, lost=0.5)
    line.stall(MAX_FRAMES + 123)
    line.hold(1)
    line.run(TEN_MINUTES - 14_174 - MAX_FRAMES)
    line.show(is_last=True)
    done = file.finish("stopped")
    with wave.open(str(tmp_path / "r1.wav")) as wav:
        samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").astype(float)
    left, right = samples[0::2], samples[1::2]
    assert len(left) == 160 * TEN_MINUTES
    assert done.duration_ms == 20 * TEN_MINUTES
    assert done.lost_ms > 0
    for begin in (8000, len(left) // 3, len(left) - WINDOW):
        assert lag(left[begin : begin + WINDOW], right[begin : begin + WINDOW]) == 0
