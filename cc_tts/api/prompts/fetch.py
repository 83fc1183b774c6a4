"""Fetches audio files from URLs that clients name, at the hosts of ``prompts.allowed_hosts``.

No redirect is followed, nothing is decompressed, and no more is read than a prompt may have. Runs on: the event loop.
"""

import re
from typing import Final

import aiohttp
from yarl import URL

from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.egress.http import GuardedClient, failure, is_not_allowed, read_at_most
from cc_tts.errors import FetchFailed, UrlNotAllowed
from cc_tts.speech.staged.urls import FetchedFile

MAX_VALIDATOR_CHARS: Final = 1024
"""A longer ``ETag`` or ``Last-Modified`` is not sent back (unmeasured)."""
_OK: Final = 200
_NOT_MODIFIED: Final = 304
_HEADERS: Final = {"Accept": "audio/*, */*;q=0.5", "Accept-Encoding": "identity"}


class HttpFetch:
    """Fetches as :class:`cc_tts.speech.staged.urls.Fetch` says."""

    def __init__(self, config: PromptsConfig) -> None:
        allowed = AllowedHosts(config.allowed_hosts)
        self._max_bytes = config.max_upload_bytes
        self._client = GuardedClient("prompts.allowed_hosts", lambda: allowed)

    async def close(self) -> None:
        await self._client.close()

    async def __call__(self, url: URL, *, etag: str = "", last_modified: str = "") -> FetchedFile:
        headers = dict(_HEADERS)
        if etag:
            headers["If-None-Match"] = etag
        elif last_modified:
            headers["If-Modified-Since"] = last_modified
        try:
            async with self._client.request("GET", url, headers=headers) as response:
                return await self._taken(response, is_conditional=bool(etag or last_modified))
        except FetchFailed as error:
            raise FetchFailed(f"{url.raw_host}: {error.detail}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if is_not_allowed(error):
                raise UrlNotAllowed(failure(error)) from None
            raise FetchFailed(f"{url.raw_host}: {failure(error)}") from None

    async def _taken(self, response: aiohttp.ClientResponse, *, is_conditional: bool) -> FetchedFile:
        status, headers = response.status, response.headers
        is_same = status == _NOT_MODIFIED and is_conditional
        if status != _OK and not is_same:
            hint = "; redirects are not followed" if "Location" in headers else ""
            raise FetchFailed(f"it answers with status {status}{hint}")
        if not is_same and headers.get("Content-Encoding", "identity").lower() != "identity":
            raise FetchFailed("it sends the file compressed, though asked not to")
        directives = _directives(headers.get("Cache-Control", ""))
        return FetchedFile(
            data=None if is_same else await self._body(response),
            etag=_validator(headers.get("ETag", "")),
            last_modified=_validator(headers.get("Last-Modified", "")),
            fresh_s=0.0 if "no-cache" in directives else _fresh_s(directives, headers.get("Age", "")),
            is_private="no-store" in directives,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        too_long = FetchFailed(f"the file has more bytes than prompts.max_upload_bytes ({self._max_bytes})")
        if (response.content_length or 0) > self._max_bytes:
            raise too_long
        data = await read_at_most(response.content, self._max_bytes + 1)
        if len(data) > self._max_bytes:
            raise too_long
        return data


def _directives(text: str) -> dict[str, str]:
    """Return the directives of Cache-Control (RFC 9111 §5.2.2)."""
    pairs = (each.strip().partition("=") for each in text.split(","))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def _fresh_s(directives: dict[str, str], age: str) -> float:
    """Return how long the response stays fresh; 0 without max-age."""
    return max(0.0, float(_seconds(directives.get("max-age", ""))) - _seconds(age.strip()))


def _seconds(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else 0


def _validator(text: str) -> str:
    return text if len(text) <= MAX_VALIDATOR_CHARS and text.isascii() and text.isprintable() else ""
