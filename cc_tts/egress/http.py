"""An HTTP client that reaches allowed hosts alone: a name is resolved once, and the connection goes to a checked address.

TLS checks the certificate against the name in the URL. The client takes no cookies, decompresses nothing and uses no proxy.
Its requests follow no redirects. Runs on: the event loop; names are looked up by a thread.
"""

import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import aiohttp
from aiohttp.abc import ResolveResult
from yarl import URL

from cc_tts import __version__
from cc_tts.egress.hosts import AllowedHosts

KEEPALIVE_S: Final = 30.0
"""An idle connection is closed after this time, before most servers and proxies do it (unmeasured)."""


class NotAllowed(OSError):
    """The host of a URL is not allowed, or none of its addresses is."""


class GuardedClient:
    """``allowed`` returns the hosts of the configuration key ``key`` for each request; ``None``: any host, since the
    operator chose the URL.
    """

    def __init__(
        self,
        key: str,
        allowed: Callable[[], AllowedHosts] | None,
        *,
        socket_class: type[aiohttp.ClientWebSocketResponse] = aiohttp.ClientWebSocketResponse,
    ) -> None:
        self._socket_class = socket_class
        self._key = key
        self._allowed = allowed
        self._open: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    def request(
        self, method: str, url: URL, *, headers: Mapping[str, str] = MappingProxyType({}), data: Any = None
    ) -> Any:
        """Begin a request, as a context manager of its response. The time that it may take is the caller's to bound.

        Raises:
            NotAllowed: the host is not allowed, or has no address that is.
            aiohttp.ClientError, OSError: it failed.
        """
        self._check(url)
        return self._client().request(method, url, data=data, headers=headers, allow_redirects=False)

    async def connect(self, url: URL, *, headers: Mapping[str, str], **options: Any) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; ``options`` are those of aiohttp's ``ws_connect``. Raises as :meth:`request`."""
        self._check(url)
        socket: aiohttp.ClientWebSocketResponse = await self._client().ws_connect(url, headers=headers, **options)
        return socket

    def _check(self, url: URL) -> None:
        if self._allowed is not None and not self._allowed().has(url.raw_host or ""):
            raise NotAllowed(f"{self._key} does not have this host")  # an address in the URL is not resolved

    def _client(self) -> aiohttp.ClientSession:
        if self._open is None:
            resolver = aiohttp.ThreadedResolver() if self._allowed is None else _Resolver(self._key, self._allowed)
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(_refuse_redirect)  # a WebSocket would follow it
            connector = aiohttp.TCPConnector(resolver=resolver, limit=0, keepalive_timeout=KEEPALIVE_S)
            self._open = aiohttp.ClientSession(
                connector=connector,
                trace_configs=[tracing],
                ws_response_class=self._socket_class,
                headers={"User-Agent": f"cc-tts/{__version__}"},
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._open


class _Redirected(aiohttp.ClientError):
    """A WebSocket request was answered with a redirect."""


async def _refuse_redirect(*_: Any) -> None:
    raise _Redirected


class _Resolver(aiohttp.ThreadedResolver):
    """Finds only addresses that are allowed."""

    def __init__(self, key: str, allowed: Callable[[], AllowedHosts]) -> None:
        super().__init__()
        self._key = key
        self._allowed = allowed

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Look a name up; raises ``NotAllowed`` if none of its addresses is allowed."""
        allowed = self._allowed()
        found = [each for each in await super().resolve(host, port, family) if allowed.may_reach(each["host"])]
        if not found:
            raise NotAllowed(f"{self._key} has none of its addresses, which are not public")
        return found


def is_not_allowed(error: Exception) -> bool:
    """Whether a request failed because its host, or all of its addresses, are not allowed."""
    return isinstance(error, NotAllowed) or isinstance(getattr(error, "os_error", None), NotAllowed)


async def read_at_most(content: aiohttp.StreamReader, limit: int) -> bytes:
    """Return the rest of a body, of a longer one this many bytes. A single ``read`` returns only what has arrived."""
    found = bytearray()
    while len(found) < limit and (part := await content.read(limit - len(found))):
        found += part
    return bytes(found)


_WORDS: Final[Mapping[type[Exception], str]] = {
    aiohttp.WSServerHandshakeError: "status {0.status}",
    aiohttp.ClientConnectorCertificateError: "its certificate is not valid for this name, or of no CA that is known here",
    aiohttp.ClientConnectorSSLError: "TLS cannot be spoken with it",
    aiohttp.ServerDisconnectedError: "it closed the connection without a response",
    aiohttp.ClientPayloadError: "it broke off its response",
    aiohttp.ClientResponseError: "its response cannot be read as HTTP",
    _Redirected: "it redirects, which is not followed",
}
"""The first matching class gives the text of a failure. aiohttp's own texts lack the cause, or contain the URL."""


def failure(error: Exception) -> str:
    """Describe a failure without the URL, which may hold a secret."""
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words.format(error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, NotAllowed):
        return str(cause)
    if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror) and cause.errno:
        return os.strerror(cause.errno).lower()  # the text of an address that refused has the address in it
    if isinstance(error, aiohttp.ClientConnectorError):
        return getattr(cause, "strerror", None) or "it closed the connection"
    return type(error).__name__
