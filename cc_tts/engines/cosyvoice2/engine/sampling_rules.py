"""What may be drawn for a sequence, as numbers that a device can keep (§3.3, §3.5). No torch here.

The rules of a sequence hold from one feeding to the next. A special id can never be fed, so whichever is drawn ends the
drawing until more is fed.
"""

from dataclasses import dataclass
from typing import Final

from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import ForbiddenIds, LengthLimits

UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """How ids are drawn after a feeding. Counts are of all ids the sequence has drawn since it began, FILL among them."""

    forbidden: ForbiddenIds
    """Special ids that are never drawn."""
    min_drawn: int = 0
    """The end of speech is forbidden, too, before so many ids were drawn."""
    max_drawn: int = UNLIMITED
    """When so many were drawn, the drawing is over."""
    forced_fill_at: int | None = None
    """After so many ids FILL is taken, and the sampler is not asked."""
    reports_special: bool = False
    """Whether a special id that ends the drawing is reported as the last of the ids; otherwise it only ends it."""

    @classmethod
    def of_request(cls, limits: LengthLimits, *, compat: bool = False) -> "SamplingRules":
        """The rules of a text that is there as a whole, see :func:`tests.parity.generation.speak`.

        With ``compat`` the ids that mean nothing here can be drawn and end the speech (§3.3).
        """
        return cls(
            forbidden=ForbiddenIds(end=False, unused=not compat, fill=not compat),
            min_drawn=limits.min_len,
            max_drawn=limits.max_len,
        )
