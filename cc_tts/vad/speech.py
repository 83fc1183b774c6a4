"""Finds the beginning and the end of speech in windows with or without the caller's voice.

::

    voice for min_speech_ms ─▸ SpeechStarted ─▸ voice up to confirm_ms ─▸ SpeechConfirmed
                                     └─▸ none for silence_ms ─▸ SpeechStopped
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from cc_tts.clock import NS_PER_MS, ms_between

MAX_GAP_MS: Final = 160
"""A plosive's closure lasts up to this long. Shorter gaps do not count against ``min_speech_ms``; after a longer one speech
that was too short is forgotten (unmeasured).
"""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for a leg. ``confirm_ms`` 0: no :class:`SpeechConfirmed` is wanted. Speech that begins before
    ``deaf_until_ns`` is ignored.
    """

    threshold: float = 0.5
    """The probability from which a window counts as speech."""
    min_speech_ms: int = 300
    confirm_ms: int = 0
    silence_ms: int = 550
    deaf_until_ns: int = 0


class _Edge(msgspec.Struct, frozen=True, tag=True):
    """``onset_ns``: when the speech began, on CLOCK_MONOTONIC."""

    onset_ns: int


class SpeechStarted(_Edge, frozen=True):
    """The caller has spoken for ``min_speech_ms``."""


class SpeechConfirmed(_Edge, frozen=True):
    """The caller has spoken for ``confirm_ms``."""


class SpeechStopped(_Edge, frozen=True):
    """The caller stopped at ``end_ns``."""

    end_ns: int


Edge = SpeechStarted | SpeechConfirmed | SpeechStopped


@dataclass(slots=True)
class SpeechTracker:
    listening: Listening
    onset_ns: int | None = None
    """The onset of the present speech, or of sound that may become speech."""
    has_started: bool = False
    has_confirmed: bool = False
    last_voice_ns: int = 0
    """The end of the last window with voice."""

    @property
    def is_idle(self) -> bool:
        return self.onset_ns is None

    def window(self, start_ns: int, end_ns: int, *, is_voice: bool) -> list[Edge]:
        """Take the next window; there may be a gap without voice before it."""
        edges = self._quiet_until(start_ns if is_voice else end_ns)
        if not is_voice:
            return edges
        if self.onset_ns is None:
            if start_ns < self.listening.deaf_until_ns:
                return edges
            self.onset_ns = start_ns
        self.last_voice_ns = end_ns
        # a length is known in windows, so it is rounded to the nearest one
        return edges + self._due(end_ns - self.onset_ns + (end_ns - start_ns) // 2)

    def _quiet_until(self, at_ns: int) -> list[Edge]:
        onset_ns, quiet_ms = self.onset_ns, ms_between(self.last_voice_ns, at_ns)
        if onset_ns is None:
            return []
        if self.has_started and quiet_ms >= self.listening.silence_ms:
            self.onset_ns, self.has_started, self.has_confirmed = None, False, False
            return [SpeechStopped(onset_ns, self.last_voice_ns)]
        if not self.has_started and quiet_ms > MAX_GAP_MS:
            self.onset_ns = None
        return []

    def _due(self, voiced_ns: int) -> list[Edge]:
        onset_ns, edges = self.onset_ns, list[Edge]()
        assert onset_ns is not None
        if not self.has_started and voiced_ns >= self.listening.min_speech_ms * NS_PER_MS:
            self.has_started = True
            edges.append(SpeechStarted(onset_ns))
        confirm_ns = self.listening.confirm_ms * NS_PER_MS
        if self.has_started and not self.has_confirmed and 0 < confirm_ns <= voiced_ns:
            self.has_confirmed = True
            edges.append(SpeechConfirmed(onset_ns))
        return edges
