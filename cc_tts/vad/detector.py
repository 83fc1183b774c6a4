"""Which of many callers speak: an energy gate for each leg, then the model for all legs that pass it.

::

    audio of a leg ─▸ windows of 32 ms ─▸ energy gate ─▸ model, batched ─▸ voice or not ─▸ edges of speech
                                             └─ closed: no voice, and no work

The model forgets what it heard of a leg where the gate opens, and after 2 s without speech: after half a minute of a steady
tone it would take in speech late.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np

from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.vad.energy import EnergyGate, dbfs
from cc_tts.vad.messages import SpeechEdge
from cc_tts.vad.silero import WINDOW_MS, Floats, Memory, SileroModel
from cc_tts.vad.speech import Edge, Listening, SpeechTracker

WINDOW_NS: Final = WINDOW_MS * NS_PER_MS
FULL_SCALE: Final = 32768.0
HYSTERESIS: Final = 0.15
"""A window counts as voice down to this far below the threshold once speech has begun."""
MAX_JUMP_NS: Final = 100 * NS_PER_MS
"""Audio that begins later than this after the previous audio follows a gap, in which nothing was said."""

_HOLD_WINDOWS: Final = 10
"""The gate closes this many windows after the last one above it."""
_LEAD_WINDOWS: Final = 3
"""The windows before the gate opened that the model also hears."""
_RESET_WINDOWS: Final = 2000 // WINDOW_MS
_CLEAR_WINDOWS: Final = 5
_CLEAR_PROBABILITY: Final = 0.1


class LegAudio(NamedTuple):
    """16-bit PCM of a leg, from ``at_ns`` on; ``is_sent``: what we send, not what was received."""

    leg: str
    is_sent: bool
    at_ns: int
    pcm: bytes


class VoiceDetector:
    """Listens to legs of one sample rate. Runs on: one thread."""

    def __init__(self, model: SileroModel, rate_hz: int) -> None:
        self._model = model
        self._rate_hz = rate_hz
        self._legs: dict[str, _Leg] = {}

    def listen(self, leg: str, listening: Listening) -> None:
        """Begin to listen to a leg, or change the settings."""
        if leg in self._legs:
            self._legs[leg].tracker.listening = listening
        else:
            self._legs[leg] = _Leg(self._rate_hz, listening)

    def ignore(self, leg: str) -> None:
        """Stop listening to a leg."""
        self._legs.pop(leg, None)

    def push(self, frames: Iterable[LegAudio]) -> list[SpeechEdge]:
        """Take audio, and return the edges of speech in it. Audio of other legs is ignored."""
        edges: list[SpeechEdge] = []
        waiting = take_in(frames, self._legs)
        while waiting:
            batch: list[tuple[str, _Leg, _Window]] = []
            for name, leg in tuple(waiting.items()):
                if (window := leg.next()) is None:
                    del waiting[name]
                elif window.needs_model:
                    batch.append((name, leg, window))
                else:
                    edges += (SpeechEdge(name, edge) for edge in leg.verify(window, 0.0))
            if batch:
                heard = self._model.probabilities([(leg.memory, window.samples) for _, leg, window in batch])
                for (name, leg, window), probability in zip(batch, heard, strict=True):
                    edges += (SpeechEdge(name, edge) for edge in leg.verify(window, probability))
        return edges


class _Window(NamedTuple):
    start_ns: int
    samples: Floats
    level_dbfs: float
    needed_dbfs: float
    needs_model: bool
    is_lead: bool = False
    """Whether the window is from before the gate opened. It only feeds the model's memory."""


class Windows:
    """Cuts the audio of one direction into windows."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._size = rate_hz * WINDOW_MS // 1000
        self._rest: Floats = np.zeros(0, np.float32)
        self._next_ns = 0
        self.waiting: deque[tuple[int, Floats]] = deque()

    def append(self, at_ns: int, pcm: bytes) -> None:
        """Add the audio that follows."""
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / FULL_SCALE
        rest_ns = len(self._rest) * NS_PER_S // self._rate_hz
        if not len(self._rest) or abs(at_ns - self._next_ns - rest_ns) > MAX_JUMP_NS:
            self._rest, self._next_ns = samples, at_ns
        else:
            self._rest = np.concatenate((self._rest, samples))
        while len(self._rest) >= self._size:
            self.waiting.append((self._next_ns, self._rest[: self._size]))
            self._rest = self._rest[self._size :]
            self._next_ns += WINDOW_NS


class HeardLeg:
    """The audio of a leg in windows, its energy gate, and the model's memory of it."""

    def __init__(self, rate_hz: int) -> None:
        self.received, self.sent = Windows(rate_hz), Windows(rate_hz)
        self.memory = Memory(rate_hz)
        self.gate = EnergyGate()

    def note_sent(self) -> None:
        """Tell the gate what was sent, which may echo."""
        while self.sent.waiting:
            at_ns, samples = self.sent.waiting.popleft()
            self.gate.sent(at_ns, level_dbfs(samples))


Leg = TypeVar("Leg", bound=HeardLeg)


def take_in(frames: Iterable[LegAudio], legs: Mapping[str, Leg]) -> dict[str, Leg]:
    """Give each leg its audio, and return those that got some. Audio of other legs is ignored."""
    given: dict[str, Leg] = {}
    for frame in frames:
        if (leg := legs.get(frame.leg)) is not None:
            (leg.sent if frame.is_sent else leg.received).append(frame.at_ns, frame.pcm)
            given[frame.leg] = leg
    return given


class _Leg(HeardLeg):
    def __init__(self, rate_hz: int, listening: Listening) -> None:
        super().__init__(rate_hz)
        self.tracker = SpeechTracker(listening)
        self._lead: deque[Floats] = deque(maxlen=_LEAD_WINDOWS)
        self._replayed: deque[Floats] = deque()
        self._num_below = _HOLD_WINDOWS
        """The number of windows since the last one above the gate."""
        self._num_clear = self._num_without_speech = 0

    def next(self) -> _Window | None:
        self.note_sent()
        if self._replayed:
            return _Window(0, self._replayed.popleft(), 0.0, 0.0, needs_model=True, is_lead=True)
        if not self.received.waiting:
            return None
        start_ns, samples = self.received.waiting[0]
        level = level_dbfs(samples)
        needed = self.gate.threshold_dbfs(start_ns, is_speaking=self.tracker.has_started)
        was_open = self._is_open
        self._num_below = 0 if level >= needed else self._num_below + 1
        if self._is_open and not was_open:
            self.memory.forget()
            self._num_clear = self._num_without_speech = 0
            self._replayed.extend(self._lead)
            self._lead.clear()
            if self._replayed:
                return _Window(0, self._replayed.popleft(), 0.0, 0.0, needs_model=True, is_lead=True)
        self.received.waiting.popleft()
        if not self._is_open:
            self._lead.append(samples)
        return _Window(start_ns, samples, level, needed, needs_model=self._is_open)

    @property
    def _is_open(self) -> bool:
        return self._num_below < _HOLD_WINDOWS

    def verify(self, window: _Window, probability: float) -> list[Edge]:
        if window.is_lead:
            return []
        tracker = self.tracker
        threshold = tracker.listening.threshold - HYSTERESIS * tracker.has_started
        is_voice = probability >= threshold and window.level_dbfs >= window.needed_dbfs
        edges = tracker.window(window.start_ns, window.start_ns + WINDOW_NS, is_voice=is_voice)
        self.gate.heard(window.start_ns, window.level_dbfs, is_caller=not tracker.is_idle)
        if window.needs_model:
            self._reset_if_clear(probability)
        return edges

    def _reset_if_clear(self, probability: float) -> None:
        self._num_clear = self._num_clear + 1 if probability < _CLEAR_PROBABILITY else 0
        self._num_without_speech = self._num_without_speech + 1 if self.tracker.is_idle else 0
        if self._num_clear >= _CLEAR_WINDOWS and self._num_without_speech >= _RESET_WINDOWS:
            self.memory.forget()
            self._num_clear = self._num_without_speech = 0


def level_dbfs(samples: Floats) -> float:
    return dbfs(float(np.dot(samples, samples)) / len(samples))
