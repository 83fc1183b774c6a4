"""Cut the silence off both ends of a segment of speech while it streams by.

Runs on: any one thread per instance.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import AudioFormat

SILENCE_PEAK: Final = 33
"""A sample louder than this is sound: −60 dBFS, 10 dB under what counts as speech."""

KEEP_LEAD_MS: Final = 5.0
"""Silence that is kept before speech."""
MAX_TAIL_MS: Final = 100.0
"""Silence that is kept after it at once; the rest of a pause comes before what follows, or never."""

SENTENCE_END: Final = ".!?。！？…\u0964\u061f"
CLAUSE_END: Final = ",;:，、；：\u060c"
_CLOSING: Final = "\"')]}»”’」』）】 "
_SENTENCE_PAUSE_MS: Final = 300.0
_CLAUSE_PAUSE_MS: Final = 150.0
_OTHER_PAUSE_MS: Final = 30.0

RAMP_MS: Final = 2.0
"""Length of the ramp put where something was cut off, ms; shorter clicks, longer dulls a plosive."""


def pause_after_ms(text: str) -> float:
    """Pause between ``text`` and what follows, at natural speed, ms."""
    stripped = text.rstrip(_CLOSING)
    if stripped.endswith(tuple(SENTENCE_END)):
        return _SENTENCE_PAUSE_MS
    return _CLAUSE_PAUSE_MS if stripped.endswith(tuple(CLAUSE_END)) else _OTHER_PAUSE_MS


def split_pause_after(text: str, speed: float) -> tuple[float, float]:
    """Of the pause after ``text``, at a factor on the natural speed: what ends its segment, and what comes before the next
    one, ms.
    """
    pause_ms = pause_after_ms(text) / speed
    tail_ms = min(pause_ms, MAX_TAIL_MS)
    return tail_ms, pause_ms - tail_ms


class SilenceTrimmer:
    """One segment. Silence inside it passes; silence before and after it is cut to what is to be kept.

    Silence at the end of what :meth:`process` got is held back until more sound follows or :meth:`finish` is called.
    """

    def __init__(self, audio_format: AudioFormat, *, keep_lead_ms: float) -> None:
        self._format = audio_format
        self._keep_lead = audio_format.samples_for_ms(keep_lead_ms)
        self._num_ramp = audio_format.samples_for_ms(RAMP_MS)
        self._held: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.heard = False
        """Whether any sound came."""
        self.trimmed_lead_samples = 0
        """Samples cut off the front; final once :meth:`process` has returned something."""

    def process(self, pcm: bytes) -> bytes:
        """Take the next chunk, return what of it is certain to be kept (perhaps nothing)."""
        samples = np.concatenate((self._held, np.frombuffer(pcm, np.int16)))
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > SILENCE_PEAK)
        if not loud.size:
            if self.heard:
                self._held = samples
            else:
                self._cut_lead(samples, max(0, samples.size - self._keep_lead))
            return b""
        if not self.heard:
            self.heard = True
            self._cut_lead(samples, max(0, int(loud[0]) - self._keep_lead))
            loud -= samples.size - self._held.size
            samples = self._held.copy()
            if self.trimmed_lead_samples:
                num = min(self._num_ramp, self._keep_lead, samples.size)
                samples[:num] = samples[:num] * (np.arange(num) / max(num, 1))
        end = int(loud[-1]) + 1
        self._held = samples[end:]
        return samples[:end].tobytes()

    def _cut_lead(self, samples: npt.NDArray[np.int16], num_cut: int) -> None:
        self.trimmed_lead_samples += num_cut
        self._held = samples[num_cut:]

    def finish(self, trail_ms: float) -> bytes:
        """End the segment with exactly ``trail_ms`` of silence, its own first; nothing if no sound came."""
        if not self.heard:
            return b""
        wanted = self._format.samples_for_ms(trail_ms)
        trail = np.zeros(wanted, np.int16)
        own = self._held[:wanted]
        trail[: own.size] = own
        if self._held.size > wanted:
            num = min(self._num_ramp, own.size)
            trail[own.size - num : own.size] = own[own.size - num :] * (np.arange(num, 0, -1) / max(num, 1))
        self._held = self._held[:0]
        return trail.tobytes()


class EdgeTrimmer:
    """A whole prompt: of the silence before it 5 ms stay, and of that after it 100 ms. Silence inside it passes; of a
    pause the first 100 ms at once and the rest with the sound that follows.
    """

    def __init__(self, audio_format: AudioFormat) -> None:
        self._keep_lead = 2 * audio_format.samples_for_ms(KEEP_LEAD_MS)
        self._keep_tail = 2 * audio_format.samples_for_ms(MAX_TAIL_MS)
        self._held = b""
        self._has_begun = False
        self._num_silent = 0
        """Bytes of silence that were given out since the last sound."""

    def process(self, pcm: bytes) -> bytes:
        """Take the next chunk, return what of it is certain to be kept."""
        joined = self._held + pcm
        loud = np.flatnonzero(np.abs(np.frombuffer(joined, np.int16).astype(np.int32)) > SILENCE_PEAK)
        if not self._has_begun:
            start = 2 * int(loud[0]) if loud.size else len(joined)
            joined = joined[max(0, start - self._keep_lead) :]
            if not loud.size:
                self._held = joined
                return b""
            loud -= (start - min(start, self._keep_lead)) // 2
            self._has_begun = True
        if loud.size:
            self._num_silent = 0
        end = 2 * (int(loud[-1]) + 1) if loud.size else 0
        given = min(len(joined), end + self._keep_tail - self._num_silent)
        self._num_silent += given - end
        self._held = joined[given:]
        return joined[:given]
