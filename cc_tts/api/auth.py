"""Who may do what: bearer tokens (RFC 6750) with scopes, and the guard of a server that has none.

Without tokens the server binds loopback only, but a web page in a browser on the same machine could still reach it: by
a cross-origin request that needs no preflight, by a WebSocket (which knows no same-origin rule), or by DNS rebinding.
So ``Host`` and, where it is sent, ``Origin`` must then be ``localhost`` or an address.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from yarl import URL

from cc_tts.config import ALL_SCOPES, Scope, TokenConfig
from cc_tts.errors import Forbidden, Unauthorized

REALM: Final = "cc-tts"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who sent a request. ``key`` tells holders apart without being the token."""

    key: str
    scopes: frozenset[Scope]


ANYBODY: Final = Holder("", frozenset(ALL_SCOPES))


class Doorkeeper:
    """Checks ``Authorization`` against the configured tokens, in constant time.

    Digests are compared, so that neither the length nor the first differing character of a token shows in the time, and
    all tokens are compared, so that their order does not show either.
    """

    def __init__(self, tokens: Sequence[TokenConfig]) -> None:
        self._holders = tuple(
            (_digest(token.token), Holder(f"token-{number}", frozenset(token.scopes)))
            for number, token in enumerate(tokens, 1)
        )

    def admit(self, request: web.Request, scope: Scope) -> Holder:
        """Whose request this is.

        Raises:
            Unauthorized: no token or an unknown one.
            Forbidden: the token lacks ``scope``; or there are no tokens and the request comes from a web page.
        """
        if not self._holders:
            _check_local(request)
            return ANYBODY
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("send Authorization: Bearer TOKEN")
        holder = self._holder(token.strip())
        if holder is None:
            raise Unauthorized("this token is not known")
        if scope not in holder.scopes:
            raise Forbidden(f"the token lacks the scope {scope}")
        return holder

    def _holder(self, token: str) -> Holder | None:
        digest = _digest(token)
        found: Holder | None = None
        for known, holder in self._holders:
            if hmac.compare_digest(known, digest):
                found = holder
        return found


def challenge(request: web.Request, status: int) -> str | None:
    """``WWW-Authenticate`` of an answer (RFC 6750 §3); ``None`` where none belongs."""
    match status:
        case 401 if "Authorization" in request.headers:
            return f'Bearer realm="{REALM}", error="invalid_token"'
        case 401:
            return f'Bearer realm="{REALM}"'
        case 403 if "Authorization" in request.headers:
            return f'Bearer realm="{REALM}", error="insufficient_scope"'
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _check_local(request: web.Request) -> None:
    host = request.headers.get("Host")
    if host is not None and not _names_this_machine(f"http://{host}"):
        raise Forbidden("without http.tokens this server is reached as localhost or by an address, not by a name")
    origin = request.headers.get("Origin")
    if origin is not None and not _names_this_machine(origin):
        raise Forbidden("without http.tokens no web page of another origin may ask")


def _names_this_machine(url: str) -> bool:
    """Whether the URL's host is ``localhost`` or an IP address: what no DNS record can be made to point to."""
    try:
        host = URL(url).host
    except ValueError:
        return False
    if not host:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
