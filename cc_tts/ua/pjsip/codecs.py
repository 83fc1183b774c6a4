"""The codecs that the user agent offers and takes, in the order of ``rtp.codecs``. Runs on: the SIP thread."""

from collections.abc import Iterable
from typing import Any, Final

from cc_tts.ua.rtp import l16

SDP_NAMES: Final = {"PCMU": "PCMU/8000", "PCMA": "PCMA/8000", "G722": "G722/8000", l16.NAME: l16.SDP_NAME}
"""The name of each codec in an SDP. G.722's clock rate is 8000 there (RFC 3551 §4.5.2)."""
_CODEC_IDS: Final = {"PCMU": "PCMU/8000/1", "PCMA": "PCMA/8000/1", "G722": "G722/16000/1"}
"""PJMEDIA's names of the codecs that are always there; for L16 see :mod:`cc_tts.ua.rtp.l16`."""
_TOP_PRIORITY: Final = 255
"""This is ``PJMEDIA_CODEC_PRIO_HIGHEST`` (pjmedia/codec.h)."""


def set_codecs(endpoint: Any, names: Iterable[str]) -> None:
    """Switch on the codecs of these names, in this order, and no other."""
    for codec in endpoint.codecEnum2():
        endpoint.codecSetPriority(codec.codecId, 0)
    for rank, name in enumerate(names):
        if name in _CODEC_IDS:
            endpoint.codecSetPriority(_CODEC_IDS[name], _TOP_PRIORITY - rank)
