"""Tones of a line from the sounds of its halves of windows, and what kind of tone each is.

::

    tonal halves of one pitch ─▸ the samples of the whole tone ─▸ one or two frequencies, to a few Hz ─▸ kind
"""

import itertools
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from cc_tts.vad.answering.spectrum import HIGHEST_HZ, LOWEST_HZ, Floats, Sound
from cc_tts.vad.silero import WINDOW_MS

MIN_PURITY: Final = 0.8
"""Vowels reach 0.8 now and then, for a half or two; a tone over noise of −15 dB has 0.95 (bench/answering_machines.py)."""
MIN_MEAN_PURITY: Final = 0.78  # measured, as MAX_SPEECH
MAX_SPEECH: Final = 0.6
"""The means over a whole tone. Of vowels that pass for tones most have a probability of speech of 0.7 to 1 and the others a
purity of 0.43 to 0.72; beeps had 0 to 0.5, and 0.83 to 1 (bench/answering_machines.py, the tuned half).
"""
HALF_MS: Final = WINDOW_MS / 2
SURE_MEAN_PURITY: Final = 0.985
"""The model takes the first 60 ms of some beeps for speech; vowels of recorded women seldom have more (measured)."""
OCTAVE: Final = 0.05
OCTAVE_MS: Final = 200.0
"""A short sound of two frequencies that are an octave apart is a voice with its first harmonic (measured on recordings)."""
SAME_PITCH_HZ: Final = 45.0
"""How far the pitch of a tone may seem to wander in windows of 32 ms: 440 + 480 Hz are one peak there, which swings."""
MAX_HOLE_MS: Final = 64.0
"""A lost packet of 20 ms spoils up to three windows (unmeasured)."""
MIN_TONE_MS: Final = 64.0  # unmeasured
MAX_KEPT_MS: Final = 2600.0
"""A longer tone is no beep; its frequencies are those of its begin (unmeasured)."""
SECOND_DB: Final = -10.0
"""The second frequency of a tone is softer than the first by this at most; twist on a line is up to 8 dB (ITU-T Q.24)."""
MAX_SWING_DB: Final = 6.0
"""A beep of one frequency is even; a note that is struck fades (unmeasured)."""

Kind = Literal["beep", "call_progress", "dtmf", "fax_calling", "fax_answering", "information", "other"]

BEEP_HZ: Final = (436.0, 1900.0)
CALL_PROGRESS_HZ: Final = (335.0, 500.0)
"""Dial, ringback and busy tones of nearly all countries (ITU-T E.180 supplement 2)."""
BUSY_SECOND_HZ: Final = 620.0
"""Busy and reorder in North America have it with 480 Hz (ITU-T E.180 supplement 2)."""
DTMF_ROWS_HZ: Final = (697, 770, 852, 941)
DTMF_COLUMNS_HZ: Final = (1209, 1336, 1477, 1633)
FAX_CALLING_HZ: Final = 1100.0
FAX_ANSWERING_HZ: Final = 2100.0
"""ITU-T T.30 §5.1 and V.25."""
INFORMATION_HZ: Final = ((900.0, 1000.0), (1350.0, 1450.0), (1740.0, 1840.0))
"""Special information tones: 950, 1400 and 1800 Hz ± 50 Hz (ITU-T E.180), which those of North America are within."""
TOLERANCE: Final = 0.015
"""ITU-T Q.24: a key within 1.5 % is one, beyond 3.5 % it is none."""


class Half(NamedTuple):
    """Half a window of what was received. ``probability``: of speech, in the whole window."""

    begin_ms: float
    end_ms: float
    sound: Sound
    probability: float
    samples: Floats


class Tone(NamedTuple):
    """A tone that is over. ``hz``: its one or two frequencies, ascending; ``level``: mean amplitude, of 32767."""

    begin_ms: float
    end_ms: float
    hz: tuple[float, ...]
    level: float
    is_even: bool
    kind: Kind = "other"

    @property
    def ms(self) -> float:
        return self.end_ms - self.begin_ms

    def is_like(self, other: "Tone") -> bool:
        return len(self.hz) == len(other.hz) and all(
            abs(mine - theirs) <= SAME_PITCH_HZ for mine, theirs in zip(self.hz, other.hz, strict=True)
        )


@dataclass(slots=True)
class _Open:
    """A tone that continues, or may be over."""

    begin_ms: float
    pitch_hz: float
    second_hz: float
    end_ms: float = 0.0
    levels: list[float] = field(default_factory=list)
    heard: list[tuple[float, float]] = field(default_factory=list)
    """Purity and probability of speech of each half, also of those in a hole."""
    samples: list[Floats] = field(default_factory=list)

    def is_like(self, sound: Sound) -> bool:
        """Whether it continues in a sound: of a tone of two frequencies now one is louder, now the other."""
        pairs = ((sound.hz, self.pitch_hz), (sound.hz, self.second_hz), (sound.second_hz, self.pitch_hz))
        return any(abs(hz - known) <= SAME_PITCH_HZ for hz, known in pairs)


class ToneTracker:
    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._open: _Open | None = None

    @property
    def is_open(self) -> bool:
        """Whether a tone of some length continues, or may be over."""
        return self._open is not None and self._open.end_ms - self._open.begin_ms >= MIN_TONE_MS

    def open_ms(self, at_ms: float) -> float:
        """The length so far of a tone that continues."""
        return 0.0 if self._open is None or self._open.end_ms < at_ms else at_ms - self._open.begin_ms

    def push(self, half: Half, *, is_loud: bool) -> Tone | None:
        """The next half of a window; returns a tone that is over."""
        begin_ms, end_ms, sound = half.begin_ms, half.end_ms, half.sound
        is_tonal = is_loud and sound.purity >= MIN_PURITY
        open_, over = self._open, None
        is_same = open_ is not None and open_.is_like(sound)
        if open_ is not None and ((is_tonal and not is_same) or end_ms - open_.end_ms > MAX_HOLE_MS):
            self._open, over = None, self._finished(open_)
            open_ = None
        if is_tonal and open_ is None:
            # the window of the first half lies half before the tone
            self._open = open_ = _Open(begin_ms, sound.hz, sound.second_hz)
        if open_ is not None:
            if end_ms - open_.begin_ms <= MAX_KEPT_MS:
                open_.samples.append(half.samples)
            open_.heard.append((sound.purity, half.probability))
            if is_tonal:
                open_.end_ms = end_ms
                open_.levels.append(sound.level)
                if len(open_.levels) == 3:  # noqa: PLR2004 - by then the window is full
                    open_.pitch_hz, open_.second_hz = sound.hz, sound.second_hz
        return over

    def _finished(self, open_: _Open) -> Tone | None:
        if open_.end_ms - open_.begin_ms < MIN_TONE_MS:
            return None
        num = round(min(open_.end_ms - open_.begin_ms, MAX_KEPT_MS) * self._rate_hz / 1000)
        hz = frequencies(np.concatenate(open_.samples)[:num], self._rate_hz)
        inner = np.array(open_.levels[1:-1] or open_.levels)
        swing_db = 20 * np.log10(max(np.percentile(inner, 90), 1.0) / max(np.percentile(inner, 10), 1.0))
        tone = Tone(open_.begin_ms, open_.end_ms, hz, float(np.median(inner)), bool(swing_db <= MAX_SWING_DB))
        num_halves = round((open_.end_ms - open_.begin_ms) / HALF_MS)
        purity, probability = np.mean(open_.heard[:num_halves], axis=0)
        is_voice = purity < (MIN_MEAN_PURITY if probability <= MAX_SPEECH else SURE_MEAN_PURITY)
        return tone._replace(kind="other" if is_voice else kind_of(tone))


def frequencies(samples: Floats, rate_hz: int) -> tuple[float, ...]:
    """The one or two frequencies of a tone, ascending; none if much of it is something else."""
    size = 1 << max(13, len(samples).bit_length() + 1)
    power = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), size)) ** 2
    hz = np.fft.rfftfreq(size, 1 / rate_hz)
    power[(hz < LOWEST_HZ) | (hz > HIGHEST_HZ)] = 0
    width_hz = max(2.2 * rate_hz / len(samples), 12.0)  # to the first zero of a Hann window, 2 / T
    found, strongest, kept, total = list[float](), 0.0, 0.0, float(power.sum())
    for _ in range(2):
        at = int(power.argmax())
        here = np.abs(hz - hz[at]) <= width_hz
        mass = float(power[here].sum())
        if strongest and mass < strongest * 10 ** (SECOND_DB / 10):
            break
        strongest = strongest or mass
        kept += mass
        found.append(float((power[here] * hz[here]).sum() / max(mass, 1e-12)))
        power[here] = 0
    return tuple(sorted(found)) if kept >= total * (MIN_PURITY - 0.1) else ()


def kind_of(tone: Tone) -> Kind:
    """The kind of a tone by its frequencies and length alone."""
    match tone.hz:
        case (hz,):
            return _kind_of_one(tone, hz)
        case (low, high):
            return _kind_of_two(tone, low, high)
    return "other"


def _kind_of_one(tone: Tone, hz: float) -> Kind:
    if abs(hz - FAX_ANSWERING_HZ) <= 30 and tone.ms >= 1000:  # noqa: PLR2004 - V.25: ± 15 Hz, 2.6 to 4 s
        return "fax_answering"
    if CALL_PROGRESS_HZ[0] <= hz < BEEP_HZ[0]:
        return "call_progress"
    if abs(hz - FAX_CALLING_HZ) <= 40 and 350 <= tone.ms <= 600:  # noqa: PLR2004 - T.30: ± 38 Hz, 0.5 s ± 15 %, the first may be cut
        return "fax_calling"
    return "beep" if _may_be_beep(tone) and tone.is_even else "other"


def _kind_of_two(tone: Tone, low: float, high: float) -> Kind:
    if _is_near(low, DTMF_ROWS_HZ) and _is_near(high, DTMF_COLUMNS_HZ):
        return "dtmf"
    if CALL_PROGRESS_HZ[0] <= low <= CALL_PROGRESS_HZ[1] and (
        high <= CALL_PROGRESS_HZ[1] or abs(high - BUSY_SECOND_HZ) <= 15  # noqa: PLR2004 - measured to a few Hz
    ):
        return "call_progress"
    is_voice = tone.ms < OCTAVE_MS and abs(high - 2 * low) <= OCTAVE * high
    return "beep" if _may_be_beep(tone) and not is_voice else "other"


def _may_be_beep(tone: Tone) -> bool:
    return all(BEEP_HZ[0] <= hz <= BEEP_HZ[1] for hz in tone.hz) and tone.ms <= MAX_BEEP_MS


def _is_near(hz: float, those: tuple[int, ...]) -> bool:
    return any(abs(hz - each) <= TOLERANCE * each for each in those)


MAX_BEEP_MS: Final = 2200.0  # unmeasured


def is_information(tones: list[Tone]) -> bool:
    """Whether the last three tones are those that come before an announcement of the network."""
    last = tones[-3:]
    return (
        len(last) == len(INFORMATION_HZ)
        and all(tone.hz and low <= tone.hz[0] <= high for tone, (low, high) in zip(last, INFORMATION_HZ, strict=True))
        and all(after.begin_ms - before.end_ms <= 150 for before, after in itertools.pairwise(last))  # noqa: PLR2004 - E.180: 30 ms
    )


def is_busy(tones: list[Tone]) -> bool:
    """Whether the last three tones are beats of busy or congestion: as long as the pauses between them, about."""
    last = tones[-3:]
    return len(last) == 3 and all(_are_beats(before, after) for before, after in itertools.pairwise(last))  # noqa: PLR2004


def _are_beats(before: Tone, last: Tone) -> bool:
    gap_ms = last.begin_ms - before.end_ms
    return (
        before.is_like(last)
        and not is_ringback(last)
        and all(CALL_PROGRESS_HZ[0] <= hz <= BUSY_SECOND_HZ + SAME_PITCH_HZ for hz in last.hz)
        and 100 <= before.ms <= 800  # noqa: PLR2004 - E.180: 0.1 to 0.66 s
        and abs(before.ms - last.ms) <= 0.25 * before.ms + 32
        and 0.5 * before.ms <= gap_ms <= 2.5 * before.ms
    )


def is_ringback(tone: Tone) -> bool:
    """Whether a tone is one ring: long, or Britain's 400 + 450 Hz."""
    is_british = len(tone.hz) == 2 and tone.hz[1] <= CALL_PROGRESS_HZ[1] and tone.hz[1] - tone.hz[0] > 45  # noqa: PLR2004
    return tone.kind == "call_progress" and (tone.ms >= 700 or is_british)  # noqa: PLR2004 - beats of busy are shorter
