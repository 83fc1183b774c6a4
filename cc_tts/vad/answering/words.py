"""The words of a greeting: what is loud enough and, by the model, speech. Runs on: one thread."""

from typing import Final

from cc_tts.vad.answering.settings import Amd

SPEECH: Final = 0.5
STILL_SPEECH: Final = 0.35
"""Probabilities of speech from which a sound is voice: at first, and within a word."""
OF_LOUDEST: Final = 0.25
STILL_OF_LOUDEST: Final = 0.1
"""Shares of the loudest voice so far that a sound must have to be a voice: at first, and within a word. Softer is babble
behind a person (measured with babble of −22 dB, bench/answering_machines.py).
"""
SMOOTHING: Final = 0.2
"""The loudest voice is that of about 80 ms, not of one vowel's peak (unmeasured)."""
MOSTLY: Final = 0.35
"""A machine in the middle of its greeting speaks for at least this share of the time, also with pauses of a second. A
person who has said a greeting and waits does not, though babble behind the person may pass for words (measured,
bench/answering_machines.py).
"""
ABOVE_FLOOR: Final = 2.5
"""A sound is 8 dB louder than the softest of late; less is noise (unmeasured)."""
FLOOR_RISE: Final = 1.006
"""The noise is taken to rise by 3 dB/s at most (unmeasured)."""
PAUSE_MS: Final = 700.0
"""A person who is not answered says hello again behind such a pause (unmeasured)."""
AGAIN_MS: Final = 2000.0
"""Such a hello is shorter (unmeasured)."""
LEAD_MS: Final = 96.0
"""The model takes up to three windows to be sure of speech; the loud sound before belongs to the word (unmeasured)."""


class WordCounter:
    """Counts the words of one leg."""

    def __init__(self, settings: Amd) -> None:
        self._settings = settings
        self._loudest = self._smoothed = 0.0
        self._loudest_over = 0.0
        """The loudest voice of the words that are over."""
        self._loud_since_ms: float | None = None
        self._word_since_ms: float | None = None
        self._voice_until_ms = 0.0
        self._num_over = 0
        self._voiced_ms = self._quiet_ms = 0.0
        self._floor = 32768.0
        self.begin_ms: float | None = None
        """When the first word began."""
        self.end_ms = 0.0
        """When the last one ended, or was last heard."""
        self._pause_ms = self._after_pause_ms = 0.0
        """Where the last pause began and ended."""

    @property
    def count(self) -> int:
        """Words so far, with one that continues."""
        return self._num_over + self._is_word

    @property
    def length_ms(self) -> float:
        """The time from the begin of the first word to the end of the last."""
        return 0.0 if self.begin_ms is None else self.end_ms - self.begin_ms

    @property
    def without_hello_ms(self) -> float:
        """The same without a last few words behind a pause."""
        is_hello = self.end_ms - self._after_pause_ms < AGAIN_MS and self._pause_ms > 0
        return self.length_ms if self.begin_ms is None or not is_hello else max(0.0, self._pause_ms - self.begin_ms)

    @property
    def word_ms(self) -> float:
        """The length so far of a word that continues."""
        return self._voice_until_ms - self._word_since_ms if self._word_since_ms is not None else 0.0

    def silence_ms(self, at_ms: float) -> float:
        """The silence since the last word. Sounds that the model does not take for speech count half: they may be speech."""
        return max(self._quiet_ms, (at_ms - self.end_ms) / 2)

    def is_mostly_voice(self, at_ms: float) -> bool:
        """Whether most of the time from the first word on is voice."""
        return self.begin_ms is not None and self._voiced_ms >= MOSTLY * (at_ms - self.begin_ms)

    def is_loud(self, level: float) -> bool:
        """Whether a level is more than silence."""
        return level >= max(self._settings.silence_threshold, self._loudest * STILL_OF_LOUDEST)

    def is_beginning(self, at_ms: float) -> bool:
        """Whether a loud sound has begun of which the model may not be sure yet."""
        return self._loud_since_ms is not None and at_ms - self._loud_since_ms <= LEAD_MS

    def push(self, begin_ms: float, end_ms: float, level: float, probability: float) -> None:
        """The next half of a window."""
        self._floor = min(level, max(1.0, self._floor) * FLOOR_RISE)
        if not self.is_loud(level) or level < self._floor * ABOVE_FLOOR:
            self._quiet_ms += end_ms - begin_ms
        if not self.is_loud(level):
            self._loud_since_ms = None
        elif self._loud_since_ms is None:
            self._loud_since_ms = begin_ms
        within = self._word_since_ms is not None
        is_enough = within or level >= self._loudest * OF_LOUDEST
        if self._loud_since_ms is not None and is_enough and probability >= (STILL_SPEECH if within else SPEECH):
            self._voice(end_ms, level)
            self._voiced_ms += end_ms - begin_ms
        elif self._word_since_ms is not None and end_ms - self._voice_until_ms >= self._between_ms:
            self._end_word()

    @property
    def _between_ms(self) -> int:
        return self._settings.between_words_silence_ms

    @property
    def _is_word(self) -> bool:
        return self.word_ms >= self._settings.min_word_length_ms

    def _voice(self, end_ms: float, level: float) -> None:
        assert self._loud_since_ms is not None
        if self._word_since_ms is None:
            self._word_since_ms = max(self._loud_since_ms, end_ms - LEAD_MS, self._voice_until_ms)
        self._voice_until_ms = end_ms
        self._quiet_ms = 0.0
        self._smoothed += SMOOTHING * (level - self._smoothed)
        self._loudest = max(self._loudest, self._smoothed)
        if self._loudest_over < self._loudest * OF_LOUDEST:
            self._forget_background()
        if self._is_word:
            if self.begin_ms is None:
                self.begin_ms = self._after_pause_ms = self._word_since_ms
            elif self._word_since_ms - self.end_ms >= PAUSE_MS:
                self._pause_ms, self._after_pause_ms = self.end_ms, self._word_since_ms
            self.end_ms = end_ms

    def _forget_background(self) -> None:
        """Drop the words so far: they were background babble before the present speaker."""
        self._num_over, self.begin_ms, self._voiced_ms = 0, None, 0.0

    def _end_word(self) -> None:
        self._num_over += self._is_word
        self._loudest_over = self._loudest
        self._word_since_ms = None
