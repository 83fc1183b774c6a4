"""Audio files at URLs: fetched when a call accepts them, shared by all calls that play them, and kept as HTTP allows.

::

    UrlContent ─▸ UrlAudio.resolved ─▸ a fresh copy ─────────────────────────────────────────┐
                        └▸ one download for all ─▸ fetch ─▸ audio_file.read ─▸ copy ─────────┴─▸ chunks of each call

A copy is played without a request while it is fresh (``Cache-Control: max-age``, at most ``prompts.max_age_s``). Then the
server is asked whether it has changed (``ETag``, ``Last-Modified``). A download that is slow or fails delays or fails the
prompts that play it, and nothing else.

Runs on: the event loop; a file is read by a process of its own.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, Protocol
from weakref import WeakValueDictionary

from yarl import URL

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.sections.prompts import PromptsConfig, fault_of_url
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import CcTtsError, FetchFailed, UrlNotAllowed
from cc_tts.processes.tasks import cancel_all
from cc_tts.speech.cache.prompt_cache import ready
from cc_tts.speech.cache.prompt_files import CachedPrompt
from cc_tts.speech.prompt import Download, UrlContent

MAX_AT_ONCE: Final = 16
"""The most downloads at the same time (unmeasured). Each holds a file of at most ``prompts.max_upload_bytes``."""
MAX_COPIES: Final = 10_000
"""The most files that are kept (unmeasured)."""
MAX_AT_A_HOST: Final = 4
"""The most downloads from one host at the same time (unmeasured), so that a slow one leaves room for others."""

log = logs.get(__name__)

Outcome = Literal["fetched", "not_modified", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFile:
    """A response. ``data`` ``None``: the copy with the request's validators is still valid. It may be used without another
    request for ``fresh_s``, and kept longer for revalidation unless it ``is_private``.
    """

    data: bytes | None
    etag: str = ""
    last_modified: str = ""
    fresh_s: float = 0.0
    is_private: bool = False


class Fetch(Protocol):
    """Makes one request, without a time limit."""

    async def __call__(self, url: URL, *, etag: str = "", last_modified: str = "") -> FetchedFile:
        """Get a file, or find that the copy with these validators is still valid; raises ``FetchFailed``, and
        ``UrlNotAllowed`` for a host whose addresses are not allowed.
        """
        ...


class UrlAudio:
    """The copies and the downloads. ``read`` converts a file to samples of the line; ``on_fetch`` gets the result of each
    download.
    """

    def __init__(
        self,
        config: PromptsConfig,
        *,
        audio_format: AudioFormat,
        clock: Clock,
        read: Callable[[bytes], Awaitable[CachedPrompt]],
        on_fetch: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._allowed = AllowedHosts(config.allowed_hosts)
        self._format = audio_format
        self._clock = clock
        self._read = read
        self._on_fetch = on_fetch
        self._copies: OrderedDict[str, tuple[CachedPrompt, FetchedFile, int]] = OrderedDict()
        """The audio of each URL, its response, and until when it is fresh, ns. The most recently used come last."""
        self._running: dict[str, asyncio.Task[CachedPrompt]] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._slots_of_hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self.fetch: Fetch = _nothing_fetched

    def resolved(self, content: UrlContent) -> UrlContent:
        """Return the content with its download. It starts now, unless there is a fresh copy or it runs already.

        Raises:
            UrlNotAllowed: its host is none of ``prompts.allowed_hosts``.
        """
        if fault := fault_of_url(content.url, self._allowed):
            raise UrlNotAllowed(f"the URL {fault}")
        return replace(content, download=self._download(content.url))

    async def stop(self) -> None:
        """Cancel the running downloads."""
        tasks = tuple(self._running.values())
        await cancel_all(*tasks)

    def _download(self, url: str) -> Download:
        audio, _, fresh_until_ns = self._copies.get(url, (None, None, 0))
        if audio is not None and fresh_until_ns > self._clock.now_ns():
            self._copies.move_to_end(url)
            return partial(_there, audio)
        task = self._running.get(url)
        if task is None:
            task = self._running[url] = asyncio.create_task(self._bounded(url), name="fetch a prompt")
            task.add_done_callback(partial(self._ended, url))
        return partial(asyncio.shield, task)

    def _ended(self, url: str, task: asyncio.Task[CachedPrompt]) -> None:
        del self._running[url]
        if not task.cancelled() and task.exception() is not None:
            self._on_fetch("failed")

    async def _bounded(self, text: str) -> CachedPrompt:
        url = URL(text, encoded=True)
        host = url.raw_host or ""
        slots = self._slots_of_hosts.setdefault(host, asyncio.Semaphore(MAX_AT_A_HOST))
        try:
            async with asyncio.timeout(self._config.fetch_timeout_s), slots, self._slots:
                return await self._fetched(text, url)
        except TimeoutError:
            raise FetchFailed(f"{host}: not done within {self._config.fetch_timeout_s:g} s") from None
        except CcTtsError:
            raise
        except Exception:
            log.exception("prompt_not_fetched")
            raise FetchFailed(f"{host}: it cannot be fetched") from None

    async def _fetched(self, text: str, url: URL) -> CachedPrompt:
        audio, copy, _ = self._copies.get(text, (None, FetchedFile(data=None), 0))
        fetched = await self.fetch(url, etag=copy.etag, last_modified=copy.last_modified)
        if fetched.data is not None:
            audio = await self._read(fetched.data)
            self._on_fetch("fetched")
        elif audio is not None:
            fetched = replace(
                fetched, etag=fetched.etag or copy.etag, last_modified=fetched.last_modified or copy.last_modified
            )
            self._on_fetch("not_modified")
        else:
            raise FetchFailed(f"{url.raw_host}: it answers that a copy is right which nobody has")
        self._keep(text, audio, fetched)
        return audio

    def _keep(self, url: str, audio: CachedPrompt, fetched: FetchedFile) -> None:
        self._copies.pop(url, None)
        if fetched.is_private or not (fetched.fresh_s or fetched.etag or fetched.last_modified):
            return
        fresh_s = min(fetched.fresh_s, self._config.max_age_s)
        fresh_until_ns = self._clock.now_ns() + round(fresh_s * NS_PER_S)
        self._copies[url] = audio, replace(fetched, data=None), fresh_until_ns
        limit = self._format.bytes_for_ms(self._config.max_fetched_s * 1000)
        kept = sum(each.pcm_bytes for each, _, _ in self._copies.values())
        while kept > limit or len(self._copies) > MAX_COPIES:
            kept -= self._copies.popitem(last=False)[1][0].pcm_bytes


async def downloaded(download: Download, gain_db: float) -> AsyncIterator[SpeechChunk]:
    """Wait for a file and yield its chunks, ``gain_db`` louder. If the reader leaves, the download continues for others."""
    async for chunk in ready(await download(), "", gain_db):
        yield chunk


async def _there(audio: CachedPrompt) -> CachedPrompt:
    return audio


async def _nothing_fetched(url: URL, *, etag: str = "", last_modified: str = "") -> FetchedFile:  # noqa: ARG001 - as Fetch
    raise FetchFailed("nothing is fetched here")
