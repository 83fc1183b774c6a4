"""Authentication by bearer tokens (RFC 6750) with scopes, and the check of origins for a server without tokens.

Without tokens the server binds loopback only, but a web page in a browser on the same machine could still reach it: by
a cross-origin request that needs no preflight, by a WebSocket (which knows no same-origin rule), or by DNS rebinding.
So every request must then name ``localhost`` or a loopback address in ``Host``, and must not come from a page of another
origin, as ``Origin`` (RFC 6454 §7) and ``Sec-Fetch-Site`` (W3C Fetch Metadata) state.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from cc_tts.config.schema import ALL_SCOPES, Scope, TokenConfig
from cc_tts.errors import Forbidden, Unauthorized

REALM: Final = "cc-tts"

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::([0-9]{1,5}))?")
_SCHEMES: Final = ("bearer", "token")
"""``Token`` is the scheme of Deepgram's clients."""
ELEVENLABS_HEADER: Final = "xi-api-key"
_KEY_HEADERS: Final = (ELEVENLABS_HEADER, "X-API-Key", "x-vapi-secret")
"""The headers in which clients of ElevenLabs, of Cartesia, and Vapi send their key."""
_HTTP_PORT: Final = "80"
"""Browsers leave this port out of ``Host`` and ``Origin`` (RFC 6454 §6.1)."""
_SAME_ORIGIN_FETCHES: Final = frozenset({"same-origin", "none"})
"""``Sec-Fetch-Site`` of a page of the same origin, and of an address that the user has typed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The sender of a request. ``key`` is the digest of its token, so that holders can be compared without the token.
    ``tenant``: the tenant whose calls it sees; empty for the operator, who sees all.
    """

    key: str
    scopes: frozenset[Scope]
    tenant: str = ""

    @property
    def shown(self) -> str:
        """The name of the holder in the log: the first digits of the SHA-256 of its token, by which an operator finds the
        token.
        """
        return self.key[:12] or "anybody"

    @property
    def owner(self) -> str:
        """The owner of the share that the request uses: the tenant, or else the token."""
        return self.tenant or self.key

    def own(self, name: str) -> str:
        """Return a name that is valid only for requests with the same token; empty stays empty."""
        return f"{self.key}/{name}" if name else ""


ANYBODY: Final = Holder("", frozenset(ALL_SCOPES))
NOBODY: Final = Holder("", frozenset())
"""The holder of a connection whose token has not arrived yet."""


class TokenAuthenticator:
    """Checks ``Authorization``, or a header that stands for it, against the configured tokens, in constant time.

    Digests are compared, so that neither the length nor the first differing character of a token shows in the time, and
    all tokens are compared, so that their order does not show either.
    """

    def __init__(self, tokens: Sequence[TokenConfig]) -> None:
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Sequence[TokenConfig]) -> None:
        """Replace the tokens. A holder's key is the digest of its token and does not depend on the order of the list."""
        self._holders = tuple(Holder(_digest(token.token), frozenset(token.scopes), token.tenant) for token in tokens)

    def authenticate(self, request: web.Request, scope: Scope) -> Holder:
        """Return the holder of the request's token; ``ANYBODY`` if no tokens are configured.

        Raises:
            Unauthorized: no token or an unknown one.
            Forbidden: the token lacks ``scope``.
        """
        return self.holder_of(_token_of(request), scope)

    def lacks_token(self, request: web.Request) -> bool:
        return bool(self._holders) and not _token_of(request)

    def holder_of(self, token: str, scope: Scope) -> Holder:
        """Return the holder of a token; as :meth:`authenticate`."""
        if not self._holders:
            return ANYBODY
        if not token:
            raise Unauthorized("send Authorization: Bearer TOKEN")
        digest = _digest(token)
        found = [each for each in self._holders if hmac.compare_digest(each.key, digest)]
        if not found:
            raise Unauthorized("this token is not known")
        if scope not in found[-1].scopes:
            raise Forbidden(f"the token lacks the scope {scope}")
        return found[-1]

    def check_origin(self, request: web.Request) -> None:
        """Refuse requests of web pages while there are no tokens. Called for every route, with or without a scope.

        Raises:
            Forbidden: ``Host`` is not this machine's loopback, or a page of another origin asks.
        """
        if not self._holders:
            _check_same_origin(request)


AUTHENTICATOR: Final = web.AppKey("authenticator", TokenAuthenticator)
HOLDER: Final[ContextVar[Holder]] = ContextVar("holder")
"""The holder of the current request's token. aiohttp runs each request in a task of its own."""


def current_tenant() -> str:
    """Return the tenant of the current request's token; empty for the operator."""
    return HOLDER.get().tenant


def challenge(request: web.Request, status: int) -> str | None:
    """Return ``WWW-Authenticate`` of a response (RFC 6750 §3); ``None`` for statuses other than 401 and 403."""
    match status:
        case 401 if "Authorization" in request.headers:
            return f'Bearer realm="{REALM}", error="invalid_token"'
        case 401:
            return f'Bearer realm="{REALM}"'
        case 403 if "Authorization" in request.headers:
            return f'Bearer realm="{REALM}", error="insufficient_scope"'
    return None


def _token_of(request: web.Request) -> str:
    """Return the token of a request; empty if it has none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES and token.strip():
        return token.strip()
    return next((request.headers[name].strip() for name in _KEY_HEADERS if name in request.headers), "")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _check_same_origin(request: web.Request) -> None:
    hosts = [_authority(host) for host in request.headers.getall("Host", ())]
    if hosts and (len(hosts) > 1 or not _is_loopback(hosts[0])):
        raise Forbidden("without http.tokens this server is reached as localhost or by a loopback address")
    for origin in request.headers.getall("Origin", ()):
        scheme, _, authority = origin.partition("://")
        if scheme.lower() != "http" or not hosts or _authority(authority) != hosts[0]:
            raise Forbidden("without http.tokens no web page of another origin may ask")
    if not _SAME_ORIGIN_FETCHES.issuperset(request.headers.getall("Sec-Fetch-Site", ())):
        raise Forbidden("without http.tokens no web page of another origin may ask")


def _authority(text: str) -> tuple[str, str]:
    """Return host and port as browsers compare them; two empty strings if ``text`` is not an authority."""
    match = _HOST.fullmatch(text.lower())
    return (match[1], match[2] or _HTTP_PORT) if match else ("", "")


def _is_loopback(authority: tuple[str, str]) -> bool:
    """Whether it is ``localhost`` or a loopback address. Names below ``localhost`` and names that need DNS
    are not accepted.
    """
    host = authority[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
