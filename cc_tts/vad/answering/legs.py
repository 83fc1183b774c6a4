"""Machine detection for many calls: their windows go through the spectrum and the model together. Runs on: one thread.

::

    received audio ─▸ windows of 32 ms ─┬─▸ two spectra, all legs in one batch ─┬─▸ Answer of each leg ─▸ findings
    sent audio ─▸ what may echo ────────┴─▸ model, all loud windows in one batch┘
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from cc_tts.clock import ms_between
from cc_tts.vad.answering.answer import AnswerDetection
from cc_tts.vad.answering.settings import Amd
from cc_tts.vad.answering.spectrum import Floats, Sound, sounds
from cc_tts.vad.answering.tones import HALF_MS, Half
from cc_tts.vad.detector import WINDOW_NS, HeardLeg, LegAudio, level_dbfs, take_in
from cc_tts.vad.messages import AnswerFound
from cc_tts.vad.silero import WINDOW_MS, SileroModel

MIN_MODEL_DBFS: Final = -55.0
"""Softer windows are not given to the model: Asterisk's ``silence_threshold`` is −42 dBFS."""
SILENT: Final = Sound(0.0, 0.0, 0.0, 0.0)


class _Leg(HeardLeg):
    def __init__(self, settings: Amd, rate_hz: int, origin_ns: int, *, is_answered: bool) -> None:
        super().__init__(rate_hz)
        self.answer = AnswerDetection(settings, rate_hz, is_answered=is_answered)
        self.origin_ns = origin_ns
        self._before: Floats = np.zeros(rate_hz * WINDOW_MS // 2000, np.float32)

    def next(self) -> "_Window | None":
        """Return the next window, if it is complete."""
        self.note_sent()
        while self.received.waiting:
            start_ns, samples = self.received.waiting.popleft()
            if start_ns + WINDOW_NS // 2 < self.origin_ns:  # before the answer, or before it was known
                continue
            level = level_dbfs(samples)
            window = _Window(
                self, start_ns, samples, self._before, level, is_echo=level < self.gate.echo_dbfs(start_ns)
            )
            self._before = samples[-len(self._before) :]
            return window
        return None


class _Window(NamedTuple):
    leg: _Leg
    start_ns: int
    samples: Floats
    before: Floats
    level_dbfs: float
    is_echo: bool

    @property
    def needs_model(self) -> bool:
        return not self.is_echo and self.level_dbfs >= MIN_MODEL_DBFS

    def halves(self, heard: list[Sound], probability: float) -> Iterable[Half]:
        size = len(self.samples) // 2
        start_ms = ms_between(self.leg.origin_ns, self.start_ns)
        for number, sound in enumerate(heard):
            begin_ms = start_ms + number * HALF_MS
            samples = self.samples[number * size : (number + 1) * size]
            yield Half(begin_ms, begin_ms + HALF_MS, SILENT if self.is_echo else sound, probability, samples)


class AnsweringLegs:
    """Listens to legs of one sample rate until it has decided who answered them."""

    def __init__(self, model: SileroModel, rate_hz: int) -> None:
        self._model = model
        self._rate_hz = rate_hz
        self._legs: dict[str, _Leg] = {}

    def classify(self, leg: str, settings: Amd, origin_ns: int, *, is_answered: bool) -> None:
        """Begin with a leg, or note that it was answered at ``origin_ns``; earlier audio is ignored."""
        known = self._legs.get(leg)
        if known is None or known.answer.is_answered:
            self._legs[leg] = _Leg(settings, self._rate_hz, origin_ns, is_answered=is_answered)
        elif is_answered:
            known.origin_ns = origin_ns
            known.memory.forget()
            known.answer.answered()

    def ignore(self, leg: str) -> None:
        """Stop listening to a leg."""
        self._legs.pop(leg, None)

    def push(self, frames: Iterable[LegAudio]) -> list[AnswerFound]:
        """Take audio, and return the findings. Audio of other legs is ignored."""
        found: list[AnswerFound] = []
        waiting = take_in(frames, self._legs)
        while batch := {name: window for name, leg in waiting.items() if (window := leg.next()) is not None}:
            waiting = {name: waiting[name] for name in batch}
            for name, halves in zip(batch, self._heard(list(batch.values())), strict=True):
                found += self._answer(name, halves)
                if name not in self._legs:
                    del waiting[name]
        return found

    def _heard(self, windows: list[_Window]) -> list[Iterable[Half]]:
        size = len(windows[0].samples)
        joined = np.stack([np.concatenate((window.before, window.samples)) for window in windows])
        heard = sounds(np.concatenate((joined[:, :size], joined[:, -size:])), self._rate_hz)
        asked = [window for window in windows if window.needs_model]
        told = iter(self._model.probabilities([(each.leg.memory, each.samples) for each in asked]) if asked else ())
        return [
            window.halves([heard[number], heard[number + len(windows)]], next(told) if window.needs_model else 0.0)
            for number, window in enumerate(windows)
        ]

    def _answer(self, name: str, halves: Iterable[Half]) -> list[AnswerFound]:
        answer, found = self._legs[name].answer, list[AnswerFound]()
        for half in halves:
            found += (AnswerFound(name, finding) for finding in answer.push(half))
            if answer.is_over:
                del self._legs[name]
                break
        return found
