"""Audio files at URLs: what is fetched, shared, kept, asked for again, and what is told where that fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from cc_tts.audio import AudioFormat
from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.errors import AudioUnreadable, FetchFailed, UrlNotAllowed
from cc_tts.speech.cache.prompt_files import CachedChunk, CachedPrompt
from cc_tts.speech.prompt import UrlContent
from cc_tts.speech.staged import urls
from cc_tts.speech.staged.urls import MAX_AT_A_HOST, FetchedFile, UrlAudio, downloaded
from tests.fakes.fake_line import FakeClock
from tests.support.virtual_time import virtual_time

pytestmark = pytest.mark.unit

URL_A = "https://a.example.com/a.wav"


class Web:
    """A server that answers as it is told, and the files of it as they are heard."""

    def __init__(self, *, fetch_timeout_s: float = 5.0, max_fetched_s: float = 60.0) -> None:
        config = PromptsConfig(
            allowed_hosts=("*.example.com",),
            fetch_timeout_s=fetch_timeout_s,
            max_fetched_s=max_fetched_s,
            max_age_s=100.0,
        )
        self.clock = FakeClock()
        self.outcomes: list[str] = []
        self.audio = UrlAudio(
            config, audio_format=AudioFormat(8000), clock=self.clock, read=self.read, on_fetch=self.outcomes.append
        )
        self.audio.fetch = self.fetch
        self.requests: list[tuple[str, str, str]] = []
        self.responses: list[FetchedFile | Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed_hosts: set[str | None] = set()

    async def fetch(self, url: URL, *, etag: str = "", last_modified: str = "") -> FetchedFile:
        self.requests.append((str(url), etag, last_modified))
        await self.gate.wait()
        if url.host in self.closed_hosts:
            await asyncio.Event().wait()
        response = self.responses.pop(0) if self.responses else FetchedFile(data=b"abcd")
        if isinstance(response, Exception):
            raise response
        return response

    async def read(self, data: bytes) -> CachedPrompt:
        if data == b"text":
            raise AudioUnreadable
        return CachedPrompt((CachedChunk(data),))

    async def play(self, url: str = URL_A, gain_db: float = 0.0) -> bytes:
        content = self.audio.resolved(UrlContent(url, gain_db))
        assert content.download is not None
        return b"".join([chunk.data async for chunk in downloaded(content.download, content.gain_db)])


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    yield web
    await web.audio.stop()


@pytest.mark.parametrize(
    "url", ["https://example.com/x", "https://127.0.0.1/x", "ftp://a.example.com/x", "https://u:p@a.example.com/x"]
)
async def test_only_files_of_allowed_hosts_are_fetched(web: Web, url: str) -> None:
    with pytest.raises(UrlNotAllowed):
        await web.play(url)
    assert not web.requests


async def test_many_calls_share_one_download(web: Web) -> None:
    web.gate.clear()
    playing = [asyncio.create_task(web.play()) for _ in range(100)]
    await asyncio.sleep(0)
    web.gate.set()
    assert set(await asyncio.gather(*playing)) == {b"abcd"}
    assert len(web.requests) == 1


async def test_a_call_that_ends_leaves_the_download_to_the_others(web: Web) -> None:
    web.gate.clear()
    first, second = asyncio.create_task(web.play()), asyncio.create_task(web.play())
    await asyncio.sleep(0)
    first.cancel()
    web.gate.set()
    assert await second == b"abcd"


async def test_a_fresh_copy_is_played_without_a_request_and_no_longer_than_allowed(web: Web) -> None:
    web.responses = [FetchedFile(data=b"abcd", fresh_s=10_000.0)]
    await web.play()
    web.clock.advance(99_000)
    assert await web.play() == b"abcd"
    web.clock.advance(2_000)
    await web.play()
    assert len(web.requests) == 2


async def test_a_stale_copy_is_asked_about_and_played_again(web: Web) -> None:
    web.responses = [
        FetchedFile(data=b"abcd", etag='"1"', last_modified="then"),
        FetchedFile(data=None, fresh_s=50.0),
    ]
    assert [await web.play() for _ in range(3)] == [b"abcd"] * 3
    assert web.requests == [(URL_A, "", ""), (URL_A, '"1"', "then")]
    assert web.outcomes == ["fetched", "not_modified"]


async def test_a_changed_file_takes_the_place_of_the_copy(web: Web) -> None:
    web.responses = [FetchedFile(data=b"abcd", etag='"1"'), FetchedFile(data=b"efgh", etag='"2"', fresh_s=50.0)]
    assert [await web.play() for _ in range(3)] == [b"abcd", b"efgh", b"efgh"]


async def test_what_may_not_be_kept_is_fetched_each_time(web: Web) -> None:
    web.responses = [FetchedFile(data=b"abcd", etag='"1"', fresh_s=50.0, is_private=True)] * 2
    await web.play()
    await web.play()
    assert web.requests == [(URL_A, "", "")] * 2


async def test_copies_make_room_for_later_ones(web: Web) -> None:
    small = Web(max_fetched_s=1.0)
    small.responses = [FetchedFile(data=bytes(9600), fresh_s=50.0)] * 3
    for url in (URL_A, "https://b.example.com/", URL_A):
        await small.play(url)
    assert len(small.requests) == 3


async def test_so_many_files_are_kept_however_short_they_are(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "MAX_COPIES", 1)
    web.responses = [FetchedFile(data=b"abcd", fresh_s=50.0)] * 3
    for url in (URL_A, "https://a.example.com/b.wav", URL_A):
        await web.play(url)
    assert len(web.requests) == 3


@pytest.mark.parametrize("error", [FetchFailed("status 404"), UrlNotAllowed("private")])
async def test_a_failure_is_told_to_every_call_and_not_kept(web: Web, error: Exception) -> None:
    web.responses = [error]
    both = await asyncio.gather(web.play(), web.play(), return_exceptions=True)
    assert list(both) == [error, error]
    assert await web.play() == b"abcd"
    assert web.outcomes == ["failed", "fetched"]


async def test_a_file_that_is_no_audio_fails(web: Web) -> None:
    web.responses = [FetchedFile(data=b"text", fresh_s=50.0)]
    with pytest.raises(AudioUnreadable):
        await web.play()


async def test_an_answer_about_a_copy_that_nobody_has_fails(web: Web) -> None:
    web.responses = [FetchedFile(data=None)]
    with pytest.raises(FetchFailed):
        await web.play()


async def test_a_fault_of_ours_is_no_secret_of_the_caller(web: Web) -> None:
    web.responses = [RuntimeError("secret")]
    with pytest.raises(FetchFailed) as caught:
        await web.play()
    assert "secret" not in caught.value.detail


@virtual_time
async def test_a_slow_host_delays_its_own_files_alone() -> None:
    web = Web(fetch_timeout_s=0.2)
    web.closed_hosts = {"slow.example.com"}
    slow = [asyncio.create_task(web.play(f"https://slow.example.com/{n}")) for n in range(3 * MAX_AT_A_HOST)]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(0.1):
        assert await web.play() == b"abcd"
    ends = await asyncio.gather(*slow, return_exceptions=True)
    assert {str(each) for each in ends} == {"slow.example.com: not done within 0.2 s"}
    assert len(web.requests) == MAX_AT_A_HOST + 1


async def test_the_gain_is_that_of_the_prompt(web: Web) -> None:
    web.responses = [FetchedFile(data=b"\x10\x00" * 4)]
    assert await web.play(gain_db=6.0206) == b"\x20\x00" * 4


def test_a_url_is_not_shown() -> None:
    assert "secret" not in repr(UrlContent("https://a.example.com/?secret"))
