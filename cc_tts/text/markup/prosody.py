"""How fast and how loud, as SSML and MRCP write it."""

import math
import re
from typing import Final

RATES: Final = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.35, "x-fast": 1.75}
VOLUMES_DB: Final = {
    "silent": -math.inf, "x-soft": -12.0, "soft": -6.0, "medium": 0.0, "default": 0.0, "loud": 6.0, "x-loud": 12.0,
}  # fmt: skip
_PERCENT: Final = re.compile(r"([+-]?)(\d{1,4}(?:\.\d{1,4})?)%")
_FACTOR: Final = re.compile(r"\d{1,2}(?:\.\d{1,4})?|\.\d{1,4}")
_VOLUME: Final = re.compile(r"\d{1,3}(?:\.\d{1,4})?")
_DECIBELS: Final = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{1,4})?|\.\d{1,4})dB", re.IGNORECASE)


def _changed_by(percentage: str) -> float | None:
    """The factor that ``120%``, ``+20%`` or ``-20%`` stands for; ``None`` for what is no percentage."""
    if (match := _PERCENT.fullmatch(percentage)) is None:
        return None
    share = float(match[2]) / 100
    return max({"": share, "+": 1 + share, "-": 1 - share}[match[1]], 0.0)


def rate_of(written: str) -> float | None:
    """The factor on the speed: a word, a factor or a percentage; ``None`` for anything else."""
    if written in RATES:
        return RATES[written]
    return float(written) if _FACTOR.fullmatch(written) else _changed_by(written)


def gain_db_of(written: str) -> float | None:
    """Gain of ``volume``: dB as in SSML 1.1, 0 to 100 as in SSML 1.0, or a percentage of change."""
    if written in VOLUMES_DB:
        return VOLUMES_DB[written]
    if _DECIBELS.fullmatch(written):
        return float(written[:-2])
    factor = min(float(written) / 100, 1.0) if _VOLUME.fullmatch(written) else _changed_by(written)
    if factor is None:
        return None
    return 20 * math.log10(factor) if factor else -math.inf
