"""Resamples from the engine's rate to the leg's clock rate, by one stateful soxr stream for each stream of speech.

Why HQ, measured from 22,050 and 24,000 to 8,000 Hz: LQ is 8 dB down at 3.4 kHz; MQ has the passband of HQ (0.0 dB at
3.4 kHz, −82 dB from 4.2 kHz, the floor of 16 bits), holds back as much and costs as much (6 µs per 20 ms); VHQ holds
back twice as much for nothing that 16 bits could carry. soxr works on float32 here, because its 16-bit mode adds dither
that makes the output depend on how the input was cut.

soxr takes its input in blocks: with HQ to 8 kHz the first output comes with the first 81 ms of input, and later between
12 and 80 ms are held back. Feed it the engine's chunks as they are (200 ms), not frames. The output is not shifted: its
first sample is the input's first instant.
"""

from typing import Any

import numpy as np
import soxr

from cc_tts.media.levels import as_pcm


class StreamResampler:
    """The state of one stream. Equal rates pass through. The output does not depend, to the bit, on how the input is cut;
    its length is the nearest whole number of samples.
    """

    def __init__(self, source_rate_hz: int, target_rate_hz: int) -> None:
        self._stream: Any = None
        if source_rate_hz != target_rate_hz:
            self._stream = soxr.ResampleStream(source_rate_hz, target_rate_hz, 1, dtype="float32", quality="HQ")

    def process(self, pcm: bytes, last: bool = False) -> bytes:  # noqa: FBT001, FBT002 reads as soxr's own call
        """Take the next chunk and return the finished samples. ``last`` flushes; nothing may follow it."""
        if self._stream is None:
            return pcm
        resampled = self._stream.resample_chunk(np.frombuffer(pcm, np.int16).astype(np.float32), last=last)
        return as_pcm(resampled)
