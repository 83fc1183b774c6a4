"""Describes a call without SIP in the terms of an INVITE, so that it is routed in the same way. This module has no state.

Channel variables ``TTS_TEXT``, ``TTS_VOICE`` … stand for the headers ``X-TTS-Text``, ``X-TTS-Voice`` …, those that begin
with ``X_`` for the application's own headers.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from cc_tts.ua import messages

MAX_VARIABLES: Final = 64
"""The most headers of a call; unmeasured."""
MAX_PARAMETERS: Final = 16
"""The most parameters of the address that the application sees; unmeasured."""
MAX_PARAMETER_CHARS: Final = 128
"""The most characters of each; unmeasured."""
_NAME: Final = re.compile(r"(?:TTS|X)_[A-Z0-9_]{1,60}")
_PARAMETER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ENCODED: Final = frozenset({"X-TTS-Text", "X-TTS-SSML", "X-TTS-Instructions"})
"""The headers that are percent-encoded, since SIP headers are ASCII here."""
_OWN: Final = frozenset({"TTS_ROUTE", "TTS_CALLER", "TTS_CALLEE"})
_UPPER: Final = {"Tts": "TTS", "Ssml": "SSML"}


def variables_of(given: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that are meant for us. Asterisk sends inherited ones with their underscores: ``__TTS_TEXT``."""
    found: dict[str, str] = {}
    for name, value in given.items():
        bare = name.lstrip("_").upper()
        if isinstance(value, str) and value and _NAME.fullmatch(bare) and len(found) < MAX_VARIABLES:
            found.setdefault(bare, value)
    return found


def incoming_call(
    call_id: str,
    *,
    channel_id: str,
    source: str,
    transport: str,
    default_route: str,
    variables: Mapping[str, str],
    parameters: Mapping[str, str],
) -> messages.IncomingCall:
    """Return the report of the call for the server. ``parameters`` are those of the address that Asterisk connected to."""
    route = variables.get("TTS_ROUTE") or default_route
    host = f"[{source}]" if ":" in source else source
    caller, callee = (_user(variables.get(name, "")) for name in ("TTS_CALLER", "TTS_CALLEE"))
    return messages.IncomingCall(
        call_id=call_id,
        sip_call_id=channel_id,
        caller=f"<sip:{caller or 'asterisk'}@{host}>",
        callee=f"<sip:{callee or _user(route)}@{host}>",
        request_uri=f"sip:{_user(route)}@{host}{_uri_parameters(parameters)}",
        source=source,
        headers={_header(name): _value(name, value) for name, value in variables.items() if name not in _OWN},
        transport=transport,
        is_trusted=True,
    )


def _user(text: str) -> str:
    return quote(text[:64], safe="+*.")


def _uri_parameters(given: Mapping[str, str]) -> str:
    usable = [(name, value) for name, value in given.items() if _PARAMETER.fullmatch(name)][:MAX_PARAMETERS]
    return "".join(f";{name}={quote(value[:MAX_PARAMETER_CHARS], safe='')}" for name, value in usable)


def _header(name: str) -> str:
    words = [word.capitalize() for word in name.split("_")]
    prefix = ["X"] if words[0] == "Tts" else []
    return "-".join(prefix + [_UPPER.get(word, word) for word in words if word])


def _value(name: str, value: str) -> str:
    return quote(value, safe="") if _header(name) in _ENCODED else value
