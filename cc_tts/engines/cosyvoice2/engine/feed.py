"""What the language model is fed, and what may be sampled then, as numbers that a device can keep (§3.3, §3.5)."""

from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Final

from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import ForbiddenIds, LengthLimits, LmInput

UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """How ids are sampled until the next feed. Counts are of all ids the sequence has sampled since it began, FILL included.

    A special id can never be fed, so whichever is sampled ends the sampling until more is fed.
    """

    forbidden: ForbiddenIds
    """Special ids that are never sampled."""
    min_sampled: int = 0
    """The end of speech is forbidden, too, before so many ids."""
    max_sampled: int = UNLIMITED
    """Sampling ends after so many ids."""
    forced_fill_at: int | None = None
    """After so many ids FILL is taken, and the sampler is not asked."""
    reports_special: bool = False
    """Whether a special id that ends the sampling is reported as the last of the ids."""

    @classmethod
    def of_request(cls, limits: LengthLimits) -> "SamplingRules":
        """The rules of a text that is there as a whole (§3.3)."""
        forbidden = ForbiddenIds(end=False, unused=True, fill=True)
        return cls(forbidden=forbidden, min_sampled=limits.min_len, max_sampled=limits.max_len)


@dataclass(frozen=True, slots=True)
class Feed:
    """What the language model is fed next, and how it samples then."""

    inputs: Row[LmInput]
    rules: SamplingRules
    goes_on: bool = False
    """It extends a sequence that has begun."""
