"""HTTP to `cc-tts pool` from the other machines of a cluster, with the token and the certificates of ``[remote]``."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from cc_tts import __version__
from cc_tts.cluster.messages import MAX_MESSAGE_BYTES, Worker, Workers
from cc_tts.config.remote import must_be_private
from cc_tts.config.schema import RemoteConfig
from cc_tts.egress.http import read_at_most
from cc_tts.errors import UNREADABLE, CcTtsError, ConfigError, ProcessFailed

ASK_TIMEOUT_S: Final = 3.0  # unmeasured


class _Problem(msgspec.Struct):
    detail: str


_WORKERS: Final = msgspec.json.Decoder(Workers)
_PROBLEM: Final = msgspec.json.Decoder(_Problem)


@asynccontextmanager
async def opened(url: str, remote: RemoteConfig) -> AsyncIterator[tuple[aiohttp.ClientSession, URL]]:
    """Return a client for the pool at ``url``, and the URL to use. Without TLS the URL has the address instead of the name,
    which is looked up once and must be private. Raises ``ConfigError`` if it is not, or for an unreadable file; ``OSError``
    for a name without an address.
    """
    pool, context = URL(url), None
    if pool.scheme == "https":
        context = await asyncio.to_thread(_tls, remote)
    else:
        found = await asyncio.get_running_loop().getaddrinfo(pool.host, pool.port, type=socket.SOCK_STREAM)
        address = str(found[0][4][0])
        must_be_private(address, f"the pool at {url}")
        pool = pool.with_host(address)
    headers = {"User-Agent": f"cc-tts/{__version__}"}
    if remote.token:
        headers["Authorization"] = f"Bearer {remote.token}"
    connector = aiohttp.TCPConnector(ssl=context if context is not None else True)
    async with aiohttp.ClientSession(headers=headers, connector=connector, auto_decompress=False) as client:
        yield client, pool.origin()


async def ask_workers(url: str, remote: RemoteConfig) -> tuple[Worker, ...]:
    """Return the workers that the pool has now; raises ``ProcessFailed`` with the reason if it cannot be asked."""
    async with _asked(url, remote, "v1/workers") as (status, body):
        if status == HTTPStatus.OK:
            return _WORKERS.decode(body).workers
    raise ProcessFailed(f"the pool at {url} answers {status}")


async def why_not_ready(url: str, remote: RemoteConfig) -> str | None:
    """Return why no worker of the pool would speak now, ``None`` if one would; raises ``ProcessFailed`` as
    :func:`ask_workers`.
    """
    async with _asked(url, remote, "readyz") as (status, body):
        if status == HTTPStatus.OK:
            return None
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return _PROBLEM.decode(body).detail
    raise ProcessFailed(f"the pool at {url} answers {status}")


@asynccontextmanager
async def _asked(url: str, remote: RemoteConfig, path: str) -> AsyncIterator[tuple[int, bytes]]:
    try:
        async with (
            asyncio.timeout(ASK_TIMEOUT_S),
            opened(url, remote) as (client, pool),
            client.get(pool / path, allow_redirects=False) as response,
        ):
            yield response.status, await read_at_most(response.content, MAX_MESSAGE_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError, ConfigError, *UNREADABLE) as error:
        raise ProcessFailed(f"the pool at {url} cannot be asked: {why(error)}") from None


def why(error: BaseException) -> str:
    match error:
        case CcTtsError():
            return error.detail
        case aiohttp.WSServerHandshakeError(status=401):
            return "it asks for the token of [remote]: set remote.token alike at both ends"
        case aiohttp.WSServerHandshakeError():
            return f"it answers {error.status}"
        case TimeoutError():
            return "no answer in time"
        case msgspec.MsgspecError() | UnicodeError() | RecursionError():
            return "what it says cannot be read: is it another version, or no pool?"
        case aiohttp.ClientConnectorError():
            return os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
        case OSError(strerror=str(reason)):
            return reason
    return f"{type(error).__name__}: {error}"


def _tls(remote: RemoteConfig) -> ssl.SSLContext:
    """Runs on: a thread."""
    try:
        context = ssl.create_default_context(cafile=str(Path(remote.ca_file).expanduser()))
        if remote.certificate_file:
            certificate, key = Path(remote.certificate_file), Path(remote.private_key_file)
            context.load_cert_chain(certificate.expanduser(), key.expanduser())
    except OSError as error:  # ssl.SSLError too
        raise ConfigError(f"the files of [remote] cannot be used: {error.strerror or error}") from None
    return context
