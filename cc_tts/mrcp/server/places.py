"""Positions in the audio of a text, as CONTROL names them (RFC 6787 §8.4.1)."""

import re
from collections.abc import Sequence
from typing import Final

from cc_tts.mrcp.messages import Unit
from cc_tts.speech.timing.spans import ROUNDING_MS, SpokenSpan, words_of

_SENTENCE_ENDS: Final = re.compile(r"[.!?。！？…][\"'”’)\]]*\s*$")


def place_of(spans: Sequence[SpokenSpan], played_ms: float, count: int, unit: Unit) -> tuple[float, bool]:
    """Return the position ``count`` units from ``played_ms``, in ms, and whether it was limited to the beginning. A position
    beyond the synthesised audio becomes the end of that audio: the units after it are unknown yet.
    """
    if unit == "second":
        wanted_ms = played_ms + count * 1000
        return max(0.0, wanted_ms), wanted_ms < 0
    begins = _begins_ms(spans, unit)
    current = max((place for place, at_ms in enumerate(begins) if at_ms <= played_ms + ROUNDING_MS), default=0)
    wanted = current + count
    if wanted < 0:
        return 0.0, True
    if wanted >= len(begins):
        return _end_ms(spans), False
    return begins[wanted], False


def _begins_ms(spans: Sequence[SpokenSpan], unit: Unit) -> list[float]:
    words = [word for span in spans for word in words_of(span, 0)]
    if unit == "word":
        return [float(word.start_ms) for word in words]
    begins: list[float] = []
    is_new = True
    for word in words:
        if is_new:
            begins.append(float(word.start_ms))
        is_new = unit == "sentence" and _SENTENCE_ENDS.search(word.text) is not None
    return begins


def _end_ms(spans: Sequence[SpokenSpan]) -> float:
    last = spans[-1] if spans else None
    if last is None:
        return 0.0
    return last.end_ms if last.end_ms is not None else last.start_ms
