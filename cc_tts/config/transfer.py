"""The settings of transfers."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig:
    """``[transfer]``: to whom calls may be transferred."""

    allowed: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)], ...], msgspec.Meta(max_length=1000)  # unmeasured
    ] = ()
    music: Annotated[str, msgspec.Meta(max_length=1000)] = ""  # unmeasured
    """A caller hears this while an agent is called: ``prompt:ID`` or a tone."""
    refer_timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 10.0
