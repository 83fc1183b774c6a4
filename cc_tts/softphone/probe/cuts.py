"""Cut words: speech of the agent that ends abruptly though nobody interrupted it, and holes in its speech.

A word that is spoken to its end dies away; one that is cut falls from the level of speech to silence from one moment to the
next. A cut inside a pause or a plosive's closure sounds like an end, and cannot be told from one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.media.levels import FULL_SCALE, active_level_dbfs
from cc_tts.softphone.probe.ear import TimelineGap
from cc_tts.softphone.rtp.packets import RATE_HZ

BLOCK_MS: Final = 5
"""The length of the pieces whose levels are compared: a pitch period of a low voice is 10 ms (unmeasured)."""
LAST_MS: Final = 20
"""The length of what is heard directly before the end: two periods of a low voice (unmeasured)."""
SILENT_DBFS: Final = -50.0
"""Softer blocks are silence, as for ``SPEECH_PEAK`` of :mod:`cc_tts.media.levels` (unmeasured)."""
BELOW_SPEECH_DB: Final = 2.0
"""An end is abrupt if its last 20 ms are no further below the active speech level (ITU-T P.56) than this. Measured:
sentences of espeak-ng end 5.6 to 26 dB below it, hibari's 20 to 29 dB, those that are cut in a vowel 2.4 to 7.2 dB above.
"""
SEARCH_MS: Final = 200
"""How far the detector's end of speech may be from the last sound (unmeasured)."""

_BLOCK: Final = BLOCK_MS * RATE_HZ // 1000
_NUM_LAST: Final = LAST_MS // BLOCK_MS
_NUM_SEARCH: Final = SEARCH_MS // BLOCK_MS

Levels = npt.NDArray[np.float64]


def levels_of(pcm: bytes) -> Levels:
    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / FULL_SCALE
    blocks = samples[: len(samples) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    levels: Levels = 10 * np.log10(np.maximum((blocks * blocks).mean(axis=1), 1e-10))
    return levels


def abrupt_end(pcm: bytes, levels: Levels, begin: int, end: int) -> int | None:
    """The sample at which speech from ``begin`` to about ``end`` ends abruptly; ``None`` if it dies away."""
    first, about = begin // _BLOCK, end // _BLOCK
    loud = np.flatnonzero(levels[first : about + _NUM_SEARCH] > SILENT_DBFS)
    active = active_level_dbfs(pcm[begin * BYTES_PER_SAMPLE : end * BYTES_PER_SAMPLE], RATE_HZ)
    if active is None or len(loud) <= _NUM_LAST:
        return None
    after = first + int(loud[-1]) + 1
    # the cut may fall within the last block, which is softer then
    last = 10 ** (levels[after - 1 - _NUM_LAST : after - 1] / 10)
    return after * _BLOCK if 10 * np.log10(last.mean()) >= active - BELOW_SPEECH_DB else None


def holes(levels: Levels, gaps: Sequence[TimelineGap]) -> Iterator[TimelineGap]:
    """Gaps with speech directly before and after them."""
    for gap in gaps:
        first, after = gap.begin // _BLOCK, -(-(gap.begin + gap.length) // _BLOCK)
        around = levels[max(0, first - _NUM_LAST) : first], levels[after : after + _NUM_LAST]
        if all(len(side) and side.max() > SILENT_DBFS for side in around):
            yield gap
