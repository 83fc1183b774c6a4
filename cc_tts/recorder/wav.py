"""The WAV file of a recording: its header, and its samples, 16-bit PCM or µ-law."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cc_tts import wav_file
from cc_tts.audio import BYTES_PER_SAMPLE, PTIME_MS, AudioFormat
from cc_tts.config.record import Encoding, Tracks
from cc_tts.media import g711
from cc_tts.recorder.info import RecordingInfo

Samples = npt.NDArray[np.int16] | npt.NDArray[np.uint8]
"""Samples as PCM, or µ-law that arrived encoded."""


@dataclass(frozen=True, slots=True)
class WavFormat:
    """The format of the samples in a file."""

    encoding: Encoding
    num_channels: int
    rate_hz: int

    @classmethod
    def of(cls, info: RecordingInfo) -> Self:
        return cls(info.encoding, 2 if info.channels == "dual" else 1, info.rate_hz)

    @property
    def sample_bytes(self) -> int:
        return 1 if self.encoding == "ulaw" else BYTES_PER_SAMPLE

    @property
    def frame_bytes(self) -> int:
        """The bytes of a 20 ms frame of all channels."""
        return AudioFormat(self.rate_hz).samples_for_ms(PTIME_MS) * self.num_channels * self.sample_bytes

    def header(self, num_bytes: int) -> bytes:
        """Return the header of a file with this many bytes of samples. Its length is always the same."""
        return wav_file.header(
            rate_hz=self.rate_hz,
            num_bytes=num_bytes,
            num_channels=self.num_channels,
            is_ulaw=self.encoding == "ulaw",
        )

    def encode(self, samples: Samples) -> bytes:
        data = samples.tobytes()
        return g711.ulaw_encode(data) if self.encoding == "ulaw" and samples.dtype == np.int16 else data


def mixed(received: bytes, sent: bytes, *, num_channels: int, tracks: Tracks, is_encoded: bool = False) -> Samples:
    """Return the samples of a recording from equally long samples of both directions: the caller left, we right.
    ``is_encoded``: they are µ-law, and are not added.
    """
    kind: Any = np.uint8 if is_encoded else "<i2"
    caller: Samples = np.frombuffer(received, kind)
    agent: Samples = np.frombuffer(sent, kind)
    if num_channels > 1 and is_encoded:
        pairs: Samples = (caller.astype("<u2") | agent.astype("<u2") << 8).view(np.uint8)
        return pairs
    if num_channels > 1:
        samples = np.empty(2 * len(caller), np.int16)
        samples[0::2], samples[1::2] = caller, agent
        return samples
    if tracks != "both":
        return caller if tracks == "caller" else agent
    total: Samples = np.clip(caller.astype(np.int32) + agent, -32768, 32767).astype(np.int16)
    return total
