"""Tones as PCM, for ``play {tone}``.

A tone is one of :data:`NAMED`, ``dtmf:`` and digits, or a cadence in the way Asterisk's ``indications.conf`` writes it:
``440+480/2000,0/4000`` is 440 and 480 Hz together for 2 s, then 4 s of silence, from the start again. A part marked
``!`` is played once and left out of the repetition; a part without a length lasts to the end, or :data:`OPEN_PART_MS`.
"""

import re
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import AudioFormat
from cc_tts.errors import Unprocessable

LEVEL_DBM0: Final = -13.0
"""Power of each frequency, dBm0 (ITU-T E.180 asks for −10 ± 5)."""
FULL_SCALE_DBM0: Final = 3.14
"""Power of a sine that just fits μ-law (ITU-T G.711, table 2a)."""

MAX_TONE_MS: Final = 120_000  # unmeasured
OPEN_PART_MS: Final = 1000
"""The length of a part without one, if the tone itself has no length (unmeasured)."""
_MAX_SPEC_CHARS: Final = 1000  # unmeasured
_MAX_FREQUENCIES: Final = 4  # unmeasured
_EDGE_MS: Final = 5.0  # unmeasured
_MIN_HZ: Final = 20  # unmeasured

NAMED: Final = {
    "beep": "!1000/200",
    "dial": "350+440",
    "busy": "480+620/500,0/500",
    "ringback": "440+480/2000,0/4000",
    "congestion": "480+620/250,0/250",
    "sit": "!950/330,!1400/330,!1800/330,!0/1000",
}
"""North American plan; ``sit`` are the three special information tones of ITU-T E.180."""

_DTMF_ROWS: Final = (697, 770, 852, 941)
_DTMF_COLUMNS: Final = (1209, 1336, 1477, 1633)
_DTMF: Final = {
    key: f"{_DTMF_ROWS[index // 4]}+{_DTMF_COLUMNS[index % 4]}" for index, key in enumerate("123A456B789C*0#D")
}
_DTMF_MS: Final = 100  # unmeasured
_PART: Final = re.compile(r"(?P<once>!?)(?P<frequencies>\d{1,6}(?:\+\d{1,6})*)(?:/(?P<ms>\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a cadence. ``ms`` is ``None`` if it lasts to the end; no frequency is silence."""

    frequencies_hz: tuple[int, ...]
    ms: int | None
    once: bool


def tone(name_or_spec: str, rate_hz: int, *, max_ms: int | None = None) -> bytes:
    """Return the PCM of a tone. It ends after ``max_ms``, or when the parts marked ``!`` were played and nothing repeats;
    without ``max_ms`` each part is played once. Raises ``Unprocessable`` for an unknown name, an invalid cadence, or values
    out of bounds.
    """
    schedule = _schedule(_parse(_spec(name_or_spec), rate_hz), max_ms)
    made = {(part, ms): _pcm(part, ms, rate_hz) for part, ms in set(schedule)}
    return b"".join(made[key] for key in schedule)


def _spec(name_or_spec: str) -> str:
    text = name_or_spec.strip()
    if len(text) > _MAX_SPEC_CHARS:
        raise Unprocessable(f"a tone has at most {_MAX_SPEC_CHARS} characters, got {len(text)}")
    kind, colon, digits = text.partition(":")
    if colon and kind.lower() == "dtmf":
        return _dtmf(digits.upper())
    if text.lower() in NAMED:
        return NAMED[text.lower()]
    if not text or text.lstrip("!")[:1].isalpha():
        raise Unprocessable(f"no tone is called {text[:40]!r}; known: {', '.join(NAMED)}, dtmf:DIGITS")
    return text


def _dtmf(keys: str) -> str:
    if wrong := "".join(sorted(set(keys) - _DTMF.keys())) if keys else "none":
        raise Unprocessable(f"dtmf takes the keys {''.join(_DTMF)}, got {wrong!r}")
    return ",".join(f"!{_DTMF[key]}/{_DTMF_MS},!0/{_DTMF_MS}" for key in keys)


def _parse(spec: str, rate_hz: int) -> list[_Part]:
    parts: list[_Part] = []
    for text in map(str.strip, spec.split(",")):
        match = _PART.fullmatch(text)
        if match is None:
            raise Unprocessable(f"{text[:40]!r} is not FREQ[+FREQ…][/MS]")
        if parts and parts[-1].ms is None:
            raise Unprocessable(f"the part before {text[:40]!r} has no length, so this one is never reached")
        ms = int(match["ms"]) if match["ms"] else None
        if ms is not None and not 0 < ms <= MAX_TONE_MS:
            raise Unprocessable(f"a part lasts 1 to {MAX_TONE_MS} ms, got {ms}")
        parts.append(_Part(_frequencies(match["frequencies"], rate_hz), ms, bool(match["once"])))
    return parts


def _frequencies(text: str, rate_hz: int) -> tuple[int, ...]:
    frequencies = tuple(hz for hz in map(int, text.split("+")) if hz)
    if len(frequencies) > _MAX_FREQUENCIES:
        raise Unprocessable(f"at most {_MAX_FREQUENCIES} frequencies together, got {len(frequencies)}")
    for hz in frequencies:
        if not _MIN_HZ <= hz < rate_hz / 2:
            raise Unprocessable(f"{hz} Hz is not between {_MIN_HZ} and {rate_hz // 2} Hz")
    return frequencies


def check(name_or_spec: str, rate_hz: int, *, max_ms: int | None = None) -> None:
    """Raise as :func:`tone` does, and make no audio."""
    _schedule(_parse(_spec(name_or_spec), rate_hz), max_ms)


def _schedule(parts: list[_Part], max_ms: int | None) -> list[tuple[_Part, int]]:
    """Return the parts with their lengths, ms, up to ``max_ms``; without it, each part once."""
    left_ms = sum(part.ms or OPEN_PART_MS for part in parts) if max_ms is None else max_ms
    if not 0 < left_ms <= MAX_TONE_MS:
        raise Unprocessable(f"a tone lasts 1 to {MAX_TONE_MS} ms, got {left_ms}")
    schedule: list[tuple[_Part, int]] = []
    for part in chain(parts, cycle(part for part in parts if not part.once)):
        if left_ms <= 0:
            break
        schedule.append((part, min(left_ms, part.ms or left_ms)))
        left_ms -= schedule[-1][1]
    return schedule


def _pcm(part: _Part, ms: int, rate_hz: int) -> bytes:
    num_samples = AudioFormat(rate_hz).samples_for_ms(ms)
    if not part.frequencies_hz:
        return bytes(2 * num_samples)
    instant_s: npt.NDArray[np.float64] = np.arange(min(num_samples, rate_hz)) / rate_hz
    amplitude = 32767 * 10 ** ((LEVEL_DBM0 - FULL_SCALE_DBM0) / 20)
    second = np.zeros(len(instant_s))
    for hz in part.frequencies_hz:
        second += amplitude * np.sin(2 * np.pi * hz * instant_s)
    wave = np.resize(second, num_samples)  # frequencies are whole numbers, so each second is like the first
    num_edge = min(AudioFormat(rate_hz).samples_for_ms(_EDGE_MS), num_samples // 2)
    edge = (1 - np.cos(np.pi * (np.arange(num_edge) + 0.5) / max(num_edge, 1))) / 2
    wave[:num_edge] *= edge
    wave[num_samples - num_edge :] *= edge[::-1]
    return np.rint(wave).astype(np.int16).tobytes()
