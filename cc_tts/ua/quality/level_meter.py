"""The level of each direction of a leg, while somebody asks for it. Runs on: the thread of the loop."""

from typing import Final

import numpy as np

from cc_tts.clock import NS_PER_MS
from cc_tts.media import g711
from cc_tts.media.quality import SILENCE_DBOV, Levels, level_dbov

LOOK_MS: Final = 5000
"""A measurement ends after this time unless it is requested again (unmeasured)."""


class LevelMeter:
    """The highest levels since they were last taken."""

    def __init__(self) -> None:
        self._until_ns = 0
        self._received = self._sent = SILENCE_DBOV

    @property
    def is_on(self) -> bool:
        return bool(self._until_ns)

    def look(self, now_ns: int) -> None:
        self._until_ns = now_ns + LOOK_MS * NS_PER_MS

    def is_over(self, now_ns: int) -> bool:
        """Whether the measurement has just ended; true once."""
        is_over = self.is_on and now_ns >= self._until_ns
        if is_over:
            self._until_ns = 0
            self._received = self._sent = SILENCE_DBOV
        return is_over

    def note(self, *, received: float, sent: float) -> None:
        """Note the level of a frame of each direction: its mean amplitude."""
        self._received = max(self._received, level_dbov(received))
        self._sent = max(self._sent, level_dbov(sent))

    def take(self) -> Levels | None:
        """Return the levels and start again; ``None`` while nobody asks."""
        if not self.is_on:
            return None
        levels = Levels(received_dbov=self._received, sent_dbov=self._sent)
        self._received = self._sent = SILENCE_DBOV
        return levels


def mean_amplitude(pcm: bytes) -> float:
    return float(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)).mean()) if pcm else 0.0


def amplitude_of(pjmedia_level: int) -> int:
    """Return the mean amplitude of a frame, which PJMEDIA's bridge gives as the complement of a μ-law sample, 0 to 127."""
    return abs(int.from_bytes(g711.ulaw_decode(bytes((pjmedia_level ^ 0xFF,))), "little", signed=True))
