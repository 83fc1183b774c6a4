"""``cc-tts drain``: have a running server drain, and wait until it has ended."""

import asyncio
from http import HTTPStatus

import aiohttp
from yarl import URL

from cc_tts.config.schema import Config
from cc_tts.errors import ConfigError
from cc_tts.operate.servers import REQUEST_TIMEOUT_S, addresses

POLL_INTERVAL_S = 1.0
"""Interval at which the server is asked whether it is still there, s (unmeasured)."""
MARGIN_S = 30.0
"""The time that a drain may take beyond ``calls.drain_timeout_s``: hanging up, and ending the processes (unmeasured)."""


async def drained(config: Config) -> str:
    """Begin the drain, and wait until nobody listens at the address of the control API. Return what went wrong.

    Raises ``ConfigError`` if there are tokens, and none may drain.
    """
    tokens = config.http.tokens
    token = next((each.token for each in tokens if "admin" in each.scopes), None)
    if tokens and token is None:
        raise ConfigError("http.tokens: none has the scope admin, which a drain needs")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    server = URL(addresses(config, [])[0])
    limit_s = config.calls.drain_timeout_s + MARGIN_S
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as client:
        try:
            async with client.post(server / "v1/admin/drain", json={}) as answer:
                if answer.status != HTTPStatus.ACCEPTED:
                    return f"{server} answers {answer.status} {answer.reason}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"no server answers at {server}: {error or 'time-out'}"
        print("draining: no new calls", flush=True)
        try:
            async with asyncio.timeout(limit_s):
                while await _is_up(client, server / "healthz"):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            return f"the server has not ended within {limit_s:g} s"
    return ""


async def _is_up(client: aiohttp.ClientSession, url: URL) -> bool:
    """Return whether somebody listens there, be it too busy to answer in time."""
    try:
        async with client.get(url):
            return True
    except aiohttp.ClientConnectorError:
        return False
    except (aiohttp.ClientError, TimeoutError):
        return True
