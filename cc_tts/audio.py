"""Linear PCM on its way to the line: the only place where milliseconds, samples and bytes are converted.

All PCM in this program is signed 16-bit little-endian, one channel.
"""

from dataclasses import dataclass

BYTES_PER_SAMPLE = 2
PTIME_MS = 20
"""Length of one frame and of one RTP packet, ms (RFC 3551 §4.2: the default packetisation of audio)."""
PTIME_NS = PTIME_MS * 1_000_000


Pace = tuple[int, float, bool]
"""Characters of a text, one after the other, how long they take to say, s, and whether they are heard as a whole only."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Sample rate of a mono 16-bit stream."""

    rate_hz: int

    def __post_init__(self) -> None:
        if self.rate_hz <= 0:
            raise ValueError(f"sample rate must be positive, got {self.rate_hz} Hz")

    @property
    def frame_bytes(self) -> int:
        """Bytes of one 20 ms frame."""
        return self.bytes_for_ms(PTIME_MS)

    def samples_for_ms(self, ms: float) -> int:
        """Whole samples nearest to ``ms`` milliseconds."""
        return round(self.rate_hz * ms / 1000)

    def bytes_for_ms(self, ms: float) -> int:
        """Bytes of the whole samples nearest to ``ms`` milliseconds."""
        return self.samples_for_ms(ms) * BYTES_PER_SAMPLE

    def ms_for_bytes(self, num_bytes: int) -> float:
        """Duration of ``num_bytes`` bytes, ms."""
        return num_bytes * 1000 / (self.rate_hz * BYTES_PER_SAMPLE)

    def ms_for_samples(self, num_samples: int) -> float:
        """Duration of ``num_samples`` samples, ms."""
        return num_samples * 1000 / self.rate_hz


@dataclass(frozen=True, slots=True)
class WordMark:
    """A word: its first character in the text chunk's spoken text, and when it begins in that chunk's audio."""

    position: int
    offset_ms: float
