"""Trims the silence at both ends of speech in a stream. Runs on: any one thread per instance."""

from typing import Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import AudioFormat

SILENCE_PEAK: Final = 33
"""A louder sample is sound: −60 dBFS, 10 dB below what counts as speech."""

KEEP_LEAD_MS: Final = 5.0
"""The silence that is kept before speech (unmeasured)."""
MAX_TAIL_MS: Final = 100.0
"""The silence that is kept after speech at once; the rest of a pause comes before what follows, or never (unmeasured)."""
RAMP_MS: Final = 2.0
"""The length of the ramp at a cut, ms. A shorter ramp clicks, a longer one dulls a plosive (unmeasured)."""

SENTENCE_END: Final = ".!?。！？…\u0964\u061f"
CLAUSE_END: Final = ",;:，、；：\u060c"
_CLOSING: Final = "\"')]}»”’」』）】 "
_SENTENCE_PAUSE_MS: Final = 300.0  # unmeasured
_CLAUSE_PAUSE_MS: Final = 150.0  # unmeasured
_OTHER_PAUSE_MS: Final = 30.0  # unmeasured


def pause_after_ms(text: str) -> float:
    """Pause between ``text`` and what follows, at natural speed, ms."""
    stripped = text.rstrip(_CLOSING)
    if stripped.endswith(tuple(SENTENCE_END)):
        return _SENTENCE_PAUSE_MS
    return _CLAUSE_PAUSE_MS if stripped.endswith(tuple(CLAUSE_END)) else _OTHER_PAUSE_MS


def split_pause_after(text: str, speed: float) -> tuple[float, float]:
    """Split the pause after ``text``, at a factor on the natural speed: return the part that ends its segment, and the part
    before the next one, ms.
    """
    pause_ms = pause_after_ms(text) / speed
    tail_ms = min(pause_ms, MAX_TAIL_MS)
    return tail_ms, pause_ms - tail_ms


class SilenceTrimmer:
    """One stretch of speech. Silence before it is cut to :data:`KEEP_LEAD_MS`; silence inside it passes.

    Silence after speech is held back until more speech follows or :meth:`finish` is called, but for its first ``tail_ms``.
    """

    def __init__(self, audio_format: AudioFormat, *, tail_ms: float = 0.0) -> None:
        self._format = audio_format
        self._keep_lead = audio_format.samples_for_ms(KEEP_LEAD_MS)
        self._num_ramp = audio_format.samples_for_ms(RAMP_MS)
        self._tail_left = self._tail = audio_format.samples_for_ms(tail_ms)
        """The samples of silence that are not held back: after any speech, and from here on."""
        self._held: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.heard = False
        """Whether there was any sound."""
        self.trimmed_lead_samples = 0
        """The samples that were cut off the front; final once :meth:`process` has returned something."""

    def process(self, pcm: bytes) -> bytes:
        """Take the next chunk; return the part that is certain to be kept, perhaps nothing."""
        self._held = np.concatenate((self._held, np.frombuffer(pcm, np.int16)))
        loud = np.flatnonzero(np.abs(self._held.astype(np.int32)) > SILENCE_PEAK)
        if not self.heard:
            self.heard = bool(loud.size)
            num_cut = max(0, int(loud[0] if loud.size else self._held.size) - self._keep_lead)
            self._held, loud = self._held[num_cut:], loud - num_cut
            self.trimmed_lead_samples += num_cut
            if not self.heard:
                return b""
            if self.trimmed_lead_samples:
                num = min(self._num_ramp, self._keep_lead)
                self._held[:num] = self._held[:num] * (np.arange(num) / max(num, 1))
        end = 0
        if loud.size:
            end, self._tail_left = int(loud[-1]) + 1, self._tail
        given = min(self._held.size, end + self._tail_left)
        self._tail_left -= given - end
        kept, self._held = self._held[:given], self._held[given:]
        return kept.tobytes()

    def finish(self, trail_ms: float) -> bytes:
        """End the stretch with exactly ``trail_ms`` of silence, its own first; nothing if there was no sound."""
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
