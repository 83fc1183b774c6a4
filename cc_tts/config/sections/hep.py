"""``sip.hep``: the capture server that gets copies of SIP messages."""

import re
from typing import Final

from cc_tts.errors import ConfigError

_ADDRESS: Final = re.compile(r"udp:(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")


def hep_address(text: str) -> tuple[str, int] | None:
    """Return host and port of ``udp:HOST:PORT``; ``None`` if it is empty.

    Raises:
        ConfigError: it is something else.
    """
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise ConfigError('sip.hep: write udp:HOST:PORT, as in hep = "udp:homer.example.com:9060"')
    return match[1].strip("[]"), int(match[2])
