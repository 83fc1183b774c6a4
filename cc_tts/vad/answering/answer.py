"""Who answered one call, from its sounds and how likely each holds speech. The clock is that of the audio.

::

    before the answer: ringback, busy, information tones, announcement, music ─▸ EarlyMedia, each change
    after it:
      no word for initial_silence ─▸ silence
      short greeting, then after_greeting_silence ─▸ human
      long greeting ─┬─ LONG_SILENCE_MS of silence, no beep ─▸ human
                     ├─ as long as total_analysis, about ─▸ machine ─┐
                     └─ a beep ─▸ machine ──────────────────────────┴─▸ GreetingEnded: a beep, silence, or it took too long
      tones of a fax, of busy, of an announcement, a ring, music ─▸ fax, unavailable, ivr

A beep is a tone that is alone: no other tone before or behind it, silence behind it, and no word for a moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cc_tts.vad.answering import tones
from cc_tts.vad.answering.settings import (
    Amd,
    AmdCause,
    AmdResult,
    Answered,
    EarlyMedia,
    EarlySound,
    Finding,
    GreetingEnd,
    GreetingEnded,
)
from cc_tts.vad.answering.tones import Half, Tone, ToneTracker
from cc_tts.vad.answering.words import WordCounter

LONG_SILENCE_MS: Final = 1700.0
"""A person's long greeting has ended after this much silence; the beep of a machine comes sooner (unmeasured)."""
LONGEST_OF_TOTAL: Final = 0.92
"""A person's greeting takes at most this share of ``total_analysis_ms``: those in lab/answered_texts.py take up to 4.4 s."""
HELLO_MS: Final = 600.0
"""A greeting no longer than this has ended after ``after_greeting_silence_ms`` (unmeasured)."""
QUIET_MS: Final = 48.0
"""The silence that must follow a beep after a greeting, in addition to the time until the tone counts as over
(unmeasured).
"""
ALONE_MS: Final = 1200.0
"""The time without a word before an isolated tone; beats of a busy tone follow sooner (ITU-T E.180)."""
FAX_PAUSE_MS: Final = 3700.0
"""A fax repeats its call 3 s after the last one, ± 15 % (ITU-T T.30)."""
QUIETER: Final = 0.4
"""A sound after a beep is at least 8 dB softer (unmeasured)."""
MELODY_MS: Final = 1000.0
"""Two tones within this time are a melody (unmeasured)."""
VOWELS: Final = ("other", "call_progress")
"""The kinds of tones that vowels are mistaken for (bench/answering_machines.py)."""
MUSIC_MS: Final = 1500.0  # unmeasured
MUSIC_PURITY: Final = 0.4
"""Half the power of music lies in two peaks of its spectrum; of noise, 0.2."""
ANNOUNCEMENT_MS: Final = 1000.0  # unmeasured
KEPT_TONES: Final = 4
SURE_PURITY: Final = 0.99
"""Nearly all halves of tones over noise of −25 dB reach it, and 3 to 9 % of those of recorded women, of whom 18 to 44 % have
0.95 (measured).
"""
MAX_PENDING_MS: Final = 2600.0
"""A decision waits for the end of a tone up to this length."""


@dataclass(slots=True)
class _Candidate:
    """A tone that is a beep if nothing follows until ``until_ms``."""

    tone: Tone
    until_ms: float
    is_alone: bool


@dataclass(slots=True)
class AnswerDetection:
    """The detection on one call. :attr:`is_over`: there is nothing more to find."""

    settings: Amd
    rate_hz: int
    is_answered: bool = True
    is_over: bool = False
    _words: WordCounter = field(init=False)
    _tracker: ToneTracker = field(init=False)
    _tones: list[Tone] = field(default_factory=list)
    _candidate: _Candidate | None = None
    _early: EarlySound | None = None
    _decided_ms: float | None = None
    _music_ms: float = 0.0
    _music_since_ms: float = 0.0
    """The start of music since the last word."""
    _has_rung: bool = False

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._words = WordCounter(self.settings)
        self._tracker = ToneTracker(self.rate_hz)
        self._tones, self._candidate = [], None
        self._music_ms = self._music_since_ms = 0.0

    def answered(self) -> None:
        """The call is answered: what was heard before does not count."""
        self.is_answered = True
        self._begin()

    def push(self, half: Half) -> Iterator[Finding]:
        """Take the next half of a window; there may be a gap of silence before it."""
        is_loud = self._words.is_loud(half.sound.level)
        tone = self._tracker.push(half, is_loud=is_loud)
        probability = 0.0 if half.sound.purity >= SURE_PURITY else half.probability
        self._words.push(half.begin_ms, half.end_ms, half.sound.level, probability)
        self._hear_music(half, is_loud=is_loud)
        if not self.is_answered:
            yield from self._before_the_answer(tone)
        elif self._decided_ms is None:
            yield from self._after_the_answer(half, tone)
        else:
            yield from self._until_greeting_ends(half, tone)

    # --- before the answer -----------------------------------------------------------------------------------------

    def _before_the_answer(self, tone: Tone | None) -> Iterator[Finding]:
        sound = self._early_sound(tone)
        if sound is not None and sound != self._early:
            self._early = sound
            yield EarlyMedia(0.0, sound=sound)

    def _early_sound(self, tone: Tone | None) -> EarlySound | None:
        if tone is not None:
            self._keep(tone)
            if tones.is_information(self._tones):
                return "information_tone"
            if tones.is_busy(self._tones):
                return "busy"
            if tones.is_ringback(tone):
                return "ringback"
        if self._words.length_ms >= ANNOUNCEMENT_MS:
            return "announcement"
        return "music" if self._music_ms >= MUSIC_MS else None

    # --- after the answer ------------------------------------------------------------------------------------------

    def _after_the_answer(self, half: Half, tone: Tone | None) -> Iterator[Finding]:
        at_ms = half.end_ms
        if tone is not None:
            self._keep(tone)
            if (found := self._by_tone(tone)) is not None:
                yield self._decide(at_ms, *found)
                return
            self._consider(tone, at_ms)
        if self._beep(half):
            yield self._decide(at_ms, "machine", "beep")
            yield self._end(at_ms, "beep")
        elif not self._is_waiting(at_ms) and (found := self._by_time(at_ms)) is not None:
            yield self._decide(at_ms, *found)

    def _by_tone(self, tone: Tone) -> tuple[AmdResult, AmdCause] | None:
        if tone.kind == "fax_answering":
            return "fax", "fax_tone"
        if tone.kind == "fax_calling" and any(each.kind == "fax_calling" for each in self._tones[:-1]):
            return "fax", "fax_tone"
        if tones.is_information(self._tones):
            return "unavailable", "information_tone"
        if tones.is_busy(self._tones) and not self._words.count:
            return "unavailable", "busy"
        self._has_rung = self._has_rung or tones.is_ringback(tone)
        return None

    def _by_time(self, at_ms: float) -> tuple[AmdResult, AmdCause] | None:
        begin_ms = self._words.begin_ms
        if begin_ms is None:
            return self._without_words(at_ms)
        greeting_ms, since_word_ms = at_ms - begin_ms, at_ms - self._words.end_ms
        if self._music_since_ms > since_word_ms / 2 and greeting_ms < self.settings.total_analysis_ms:
            return None
        silence_ms = self._words.silence_ms(at_ms)
        long = self._long_because()
        if self._music_ms >= MUSIC_MS:
            return "ivr", "music"
        if long is None:
            return ("human", "short_greeting") if silence_ms >= self._silence_behind() else None
        if self._words.word_ms >= self.settings.maximum_word_length_ms:
            return "machine", "long_word"
        if self.settings.long_greeting == "machine":
            return "machine", long
        if silence_ms >= max(LONG_SILENCE_MS, self.settings.after_greeting_silence_ms):
            return "human", "greeting_ended"
        return ("machine", long) if self._goes_on(at_ms, greeting_ms) else None

    def _silence_behind(self) -> float:
        """Return the silence that ends a short greeting. The longer the greeting is, the more likely it was only the first
        sentence.
        """
        short_ms = self.settings.after_greeting_silence_ms
        if self.settings.long_greeting == "machine":
            return short_ms
        greeting_ms = (HELLO_MS, max(self.settings.greeting_ms, HELLO_MS + 1))
        return float(np.interp(self._words.length_ms, greeting_ms, (short_ms, max(short_ms, LONG_SILENCE_MS))))

    def _goes_on(self, at_ms: float, greeting_ms: float) -> bool:
        """Whether a greeting has lasted so long that it must be a machine's."""
        total_ms = self.settings.total_analysis_ms
        is_long = self._words.without_hello_ms >= LONGEST_OF_TOTAL * total_ms or self._words.length_ms >= 1.5 * total_ms
        return (is_long and self._words.is_mostly_voice(at_ms)) or greeting_ms >= 2 * total_ms

    def _long_because(self) -> AmdCause | None:
        if self._words.length_ms > self.settings.greeting_ms:
            return "long_greeting"
        return "many_words" if self._words.count > self.settings.maximum_number_of_words else None

    def _without_words(self, at_ms: float) -> tuple[AmdResult, AmdCause] | None:
        has_sound = self._has_rung or self._music_ms > 0
        if at_ms < (self.settings.total_analysis_ms if has_sound else self.settings.initial_silence_ms):
            return None
        if self._has_rung:
            return "ivr", "ringback"
        if has_sound:
            return ("ivr", "music") if self._music_ms >= MUSIC_MS else ("unknown", "total_analysis")
        return "silence", "initial_silence"

    def _is_waiting(self, at_ms: float) -> bool:
        """Whether the decision depends on the end of a tone, or on what follows it."""
        if self._candidate is not None or self._words.is_beginning(at_ms):
            return True
        return self._tracker.is_open and self._tracker.open_ms(at_ms) < MAX_PENDING_MS

    def _decide(self, at_ms: float, result: AmdResult, cause: AmdCause) -> Answered:
        self._decided_ms = at_ms
        self.is_over = result != "machine"
        return Answered(
            at_ms, result=result, cause=cause, words=self._words.count, greeting_ms=round(self._words.length_ms, 1)
        )

    # --- the end of a machine's greeting -----------------------------------------------------------------------------

    def _until_greeting_ends(self, half: Half, tone: Tone | None) -> Iterator[Finding]:
        at_ms = half.end_ms
        assert self._decided_ms is not None
        if tone is not None:
            self._keep(tone)
            self._consider(tone, at_ms)
        if self._beep(half):
            yield self._end(at_ms, "beep")
        elif self._is_waiting(at_ms):
            return
        elif at_ms - self._words.end_ms >= self.settings.greeting_end_silence_ms:
            yield self._end(at_ms, "silence")
        elif at_ms - self._decided_ms >= self.settings.greeting_timeout_ms:
            yield self._end(at_ms, "timeout")

    def _end(self, at_ms: float, by: GreetingEnd) -> GreetingEnded:
        self.is_over = True
        return GreetingEnded(at_ms, by=by)

    # --- beeps -----------------------------------------------------------------------------------------------------

    def _keep(self, tone: Tone) -> None:
        self._tones = [*self._tones[1 - KEPT_TONES :], tone]

    def _consider(self, tone: Tone, at_ms: float) -> None:
        """Treat a tone as a beep until something else follows."""
        before = self._tones[-2] if len(self._tones) > 1 else None
        is_melody = before is not None and before.kind not in VOWELS and tone.begin_ms - before.end_ms < MELODY_MS
        self._candidate = None
        if is_melody and tone.kind in ("beep", "other"):
            self._note_music(tone.ms)
        if is_melody or tone.kind not in ("beep", "fax_calling"):
            return
        if self._words.begin_ms is not None:
            self._candidate = _Candidate(tone, at_ms + QUIET_MS, is_alone=False)
        else:
            pause_ms = FAX_PAUSE_MS if tone.kind == "fax_calling" else ALONE_MS
            self._candidate = _Candidate(tone, tone.end_ms + pause_ms, is_alone=True)

    def _beep(self, half: Half) -> bool:
        candidate = self._candidate
        if candidate is None:
            return False
        is_voice = self._words.end_ms > candidate.tone.end_ms + MAX_VOICE_AFTER_MS
        is_sound = half.sound.level > candidate.tone.level * QUIETER and not candidate.is_alone
        if is_voice or is_sound:
            self._candidate = None
            return False
        return half.end_ms >= candidate.until_ms and not self._tracker.is_open

    def _hear_music(self, half: Half, *, is_loud: bool) -> None:
        if self._words.end_ms == half.end_ms:
            self._music_since_ms = 0.0
        is_musical = is_loud and half.sound.purity >= MUSIC_PURITY and half.probability < MUSIC_PROBABILITY
        if is_musical and not self._tracker.is_open:
            self._note_music(half.end_ms - half.begin_ms)

    def _note_music(self, ms: float) -> None:
        self._music_ms += ms
        self._music_since_ms += ms


MUSIC_PROBABILITY: Final = 0.3
MAX_VOICE_AFTER_MS: Final = 32.0
"""The model may take the end of a tone for speech (unmeasured)."""
