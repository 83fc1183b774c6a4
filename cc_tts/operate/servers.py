"""The servers that a command asks: their addresses, the token, and their refusals in words for the user."""

import os
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from cc_tts.config.cluster import base_url
from cc_tts.config.remote import host_port, local_address
from cc_tts.config.schema import Config, Scope, TokenConfig
from cc_tts.egress.http import read_at_most
from cc_tts.errors import ClientError, ConfigError, ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKEN_VARIABLE: Final = "CC_TTS_TOKEN"  # noqa: S105 - a name, not a token
REQUEST_TIMEOUT_S: Final = 10.0
"""Time limit of one request, s (unmeasured)."""
RELOAD_TIMEOUT_S: Final = 30.0
"""Time limit of a reload, which looks for new voices, s (unmeasured)."""
MAX_ANSWER_BYTES: Final = 64 << 20
"""The bound of an answer: some thousand calls are 5 MB (unmeasured)."""
_WHAT_NEXT: Final[Mapping[str, str]] = {
    "unauthorized": f"name the configuration that has its http.tokens with --config, or put one into {TOKEN_VARIABLE}",
    "forbidden": f"use another token of its http.tokens: put it into {TOKEN_VARIABLE}",
    "call_not_found": "`cc-tts calls --all` lists those that are kept",
    "trace_not_found": "sip.hep sends copies to a server that keeps them",
    "wrong_state": "`cc-tts show CALL` says how it is",
    "not_ready": "`cc-tts status` says why",
    "engine_overloaded": "`cc-tts workers` says how busy they are",
    "config": "`cc-tts check-config --config FILE` on its machine says more",
    "not_found": "this server is of another version than this command",
}


class NoServer(ServerError, title="No answer"):
    """The server does not answer, or not in time."""


class NotDone(ClientError, title="Refused"):
    """The server has refused the request."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    client: aiohttp.ClientSession
    tokens: tuple[TokenConfig, ...]

    async def ask(self, method: str, path: str, *, scope: Scope, body: Any = None, **query: str) -> Any:
        """Return the JSON of the answer; raises as :meth:`read`."""
        found = await self.read(method, path, scope=scope, body=body, **query)
        try:
            return msgspec.json.decode(found)
        except (msgspec.DecodeError, UnicodeError):
            raise NotDone(f"{self.url} does not answer in JSON; it is no control API of cc-tts") from None

    async def read(self, method: str, path: str, *, scope: Scope, body: Any = None, **query: str) -> bytes:
        """Return the body of the answer.

        Raises:
            NoServer: nobody answers.
            NotDone: it is refused; the detail says what to do next. Or the answer is too long.
            ConfigError: no token has the scope.
        """
        headers = {**self._authorization(scope), "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self.client.request(
                method, self.url + path, data=data, params=query, headers=headers, allow_redirects=False
            ) as answer:
                found = await self._body(answer)
                if answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    return found
                raise NotDone(self._refusal(answer, found))
        except TimeoutError:
            raise NoServer(f"{self.url} does not answer in time; `cc-tts health` on its machine says more") from None
        except (aiohttp.ClientError, UnicodeError) as error:  # a host may be no name
            why = error.strerror if isinstance(error, aiohttp.ClientConnectorError) else error
            raise NoServer(
                f"nobody answers at {self.url} ({why}); `cc-tts serve` starts a server there, "
                "--config or --server name another one"
            ) from None

    async def is_up(self) -> bool:
        """Whether something listens there, even if it is too busy to answer in time."""
        try:
            async with self.client.get(f"{self.url}/healthz"):
                return True
        except aiohttp.ClientConnectorError:
            return False
        except (aiohttp.ClientError, TimeoutError):
            return True

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        found = await read_at_most(answer.content, MAX_ANSWER_BYTES + 1)
        if len(found) > MAX_ANSWER_BYTES:
            raise NotDone(f"{self.url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB")
        return found

    def _authorization(self, scope: Scope) -> dict[str, str]:
        if not self.tokens:
            return {}
        able = sorted((each for each in self.tokens if scope in each.scopes), key=lambda each: each.tenant != "")
        if not able:
            raise ConfigError(f"http.tokens: none has the scope {scope}, which this command needs")
        return {"Authorization": f"Bearer {able[0].token}"}

    def _refusal(self, answer: aiohttp.ClientResponse, body: bytes) -> str:
        try:
            problem = msgspec.json.decode(body)
            code, detail = str(problem["code"]), str(problem["detail"])
        except (msgspec.MsgspecError, UnicodeError, KeyError, TypeError):
            return f"{self.url} answers {answer.status} {answer.reason}; it is no control API of cc-tts"
        if code == "other_node":
            return f"{self.url}: {detail}; name that node with --server"
        what_next = _WHAT_NEXT.get(code, "")
        return f"{self.url}: {detail}" + (f"; {what_next}" if what_next else "")


def addresses(config: Config, given: list[str]) -> tuple[str, ...]:
    """Return the base URLs of the servers: those that were given, or that of the configuration.

    Raises:
        ConfigError: one is no address of an API.
    """
    if not given:
        if not config.http.port:
            raise ConfigError("http.port 0 is any free one: name the server with --server")
        return (f"http://{host_port(local_address(config.http.host), config.http.port)}",)
    found = {text: base_url(text if "://" in text else f"http://{text}") for text in given}
    if unusable := [text for text, url in found.items() if url is None]:
        raise ConfigError(f"--server {unusable[0][:80]}: write HOST:PORT, http://HOST:PORT or https://HOST")
    return tuple(dict.fromkeys(filter(None, found.values())))


def tokens(config: Config) -> tuple[TokenConfig, ...]:
    """Return the tokens to ask with: that of the environment, or those of the configuration; empty: none is needed.

    Raises:
        ConfigError: what the environment has is no token.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        return config.http.tokens
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN_VARIABLE} is no token: a token has no blanks and no control characters")
    return (TokenConfig(token),)


@asynccontextmanager
async def opened(
    config: Config, given: list[str], *, timeout_s: float = REQUEST_TIMEOUT_S
) -> "AsyncIterator[tuple[RunningServer, ...]]":
    """Open a client for the servers that were given, or for that of the configuration; raises ``ConfigError``."""
    urls, known = addresses(config, given), tokens(config)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        yield tuple(RunningServer(url, client, known) for url in urls)
