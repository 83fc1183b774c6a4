"""Speech without a call, streamed."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import structlog

from cc_tts.api import audio_speech
from cc_tts.errors import EngineFailed, NothingToSay, UnknownVoice
from cc_tts.media.synthetic_label import COMMENT
from cc_tts.speech.prompt import TextContent
from tests.fakes.running_api import RunningApi, eventually, make_config, running_api

pytestmark = pytest.mark.integration

PATH = "/v1/audio/speech"


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(make_config(max_speech_streams=2, max_text_chars=1_000_000, max_body_bytes=1_000_000)) as it:
        yield it


def riff_header(file: bytes) -> tuple[bytes, bytes]:
    """What is before the samples, and the samples, of a file whose length was not known."""
    start = file.index(b"data" + b"\xff" * 4) + 8
    return file[:start], file[start:]


def no_stream_runs(api: RunningApi) -> bool:
    return b"cctts_speech_streams 0.0\n" in api.context.metrics.render()


@pytest.mark.parametrize(
    ("body", "content_type", "rate_hz", "bytes_per_sample"),
    [
        ({}, "audio/wav", 24_000, 2),
        ({"response_format": "wav", "sample_rate_hz": 8000}, "audio/wav", 8000, 2),
        ({"response_format": "pcm"}, "audio/pcm;rate=24000", 24_000, 2),
        ({"response_format": "pcm", "sample_rate_hz": 16_000}, "audio/pcm;rate=16000", 16_000, 2),
        ({"response_format": "ulaw"}, "audio/basic", 8000, 1),
        ({"response_format": "ulaw", "sample_rate_hz": 8000, "stream_format": "audio"}, "audio/basic", 8000, 1),
    ],
)
async def test_formats(
    api: RunningApi, body: dict[str, object], content_type: str, rate_hz: int, bytes_per_sample: int
) -> None:
    answered = await api.ask("POST", PATH, {"input": "one two three", "model": "tts-1", **body})
    assert answered.status == 200
    assert answered.headers["Content-Type"] == content_type
    assert answered.headers["Transfer-Encoding"] == "chunked"
    assert answered.headers["X-Request-Id"]
    assert answered.headers["AI-Disclosure"] == "mode=machine-generated"
    audio = answered.raw
    if content_type == "audio/wav":
        header, audio = riff_header(audio)
        assert header[:4] == b"RIFF"
        assert header[8:16] == b"WAVEfmt "
        assert struct.unpack("<IHHIIHH", header[16:36]) == (16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
        assert COMMENT.encode() in header
        assert b'"Label":"1"' in header
    assert len(audio) == 3 * rate_hz // 10 * bytes_per_sample
    assert set(audio) == ({0xFF} if bytes_per_sample == 1 else {0, 1})


@pytest.mark.parametrize(
    ("body", "message", "kind"),
    [
        ({"input": "one", "response_format": "mp3"}, "/response_format: ", "invalid_request_error"),
        ({}, "input", "invalid_request_error"),
    ],
)
async def test_a_refusal_has_the_message_that_clients_of_openai_print(
    api: RunningApi, body: dict[str, object], message: str, kind: str
) -> None:
    problem = (await api.ask("POST", PATH, body)).json
    assert message in problem["error"]["message"]
    assert problem["error"] == {"message": problem["detail"], "type": kind, "code": problem["code"]}
    assert "error" not in (await api.ask("POST", "/v1/calls", body)).json


async def test_what_is_asked_for_reaches_the_source(api: RunningApi) -> None:
    await api.ask("POST", PATH, {"input": "Hallo", "voice": "de", "language": "de", "speed": 0.5})
    assert api.registry.source.contents == [TextContent("Hallo", "de", "de", 0.5)]
    assert api.registry.source.streams[0].is_cancelled  # freed


async def test_audio_comes_while_it_is_made(api: RunningApi) -> None:
    source = api.registry.source
    async with api.session.post(PATH, json={"input": "one two", "response_format": "pcm"}) as response:
        source.gate.clear()
        first = await response.content.readexactly(4800)
        assert len(first) == 4800
        source.gate.set()
        assert len(await response.content.read()) == 4800


async def test_a_client_of_http_1_0_is_served(api: RunningApi) -> None:
    body = b'{"input": "one", "response_format": "pcm"}'
    async with api.connect() as (reader, writer):
        writer.write(
            f"POST {PATH} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        assert b"chunked" not in head
        assert len(await reader.read()) == 4800


async def test_more_streams_than_allowed_are_503(api: RunningApi) -> None:
    source = api.registry.source
    source.gate.clear()
    running = [asyncio.create_task(api.ask("POST", PATH, {"input": "hi"})) for _ in range(2)]
    await eventually(lambda: len(source.streams) == 2)
    answered = await api.ask("POST", PATH, {"input": "hi"})
    answered.check_problem(503, "capacity_exceeded")
    assert answered.headers["Retry-After"] == "1"
    source.gate.set()
    assert [done.status for done in await asyncio.gather(*running)] == [200, 200]
    assert (await api.ask("POST", PATH, {"input": "hi"})).status == 200
    assert no_stream_runs(api)


async def test_a_client_that_hangs_up_cancels_the_stream_though_the_engine_is_silent(api: RunningApi) -> None:
    source = api.registry.source
    source.gate.clear()
    asking = asyncio.create_task(api.ask("POST", PATH, {"input": "hi"}))
    await eventually(lambda: source.streams)
    asking.cancel()
    await eventually(lambda: source.streams[0].is_cancelled)
    await eventually(lambda: no_stream_runs(api))


async def test_a_client_that_hangs_up_in_the_middle_cancels_the_stream(api: RunningApi) -> None:
    source = api.registry.source
    async with api.session.post(PATH, json={"input": "word " * 10_000}) as response:
        await response.content.readexactly(1000)
        assert response.connection is not None
        assert response.connection.transport is not None
        response.connection.transport.abort()
    await eventually(lambda: source.streams[0].is_cancelled)
    await eventually(lambda: no_stream_runs(api))


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_client_that_leaves_early_is_no_failure_of_ours(api: RunningApi, has_begun: bool) -> None:
    source = api.registry.source
    if not has_begun:
        source.gate.clear()
    body = b'{"input": "' + b"word " * (10_000 if has_begun else 1) + b'"}'
    with structlog.testing.capture_logs() as lines:
        async with api.connect() as (reader, writer):
            writer.write(
                f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await eventually(lambda: source.streams)
            if has_begun:
                await reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: no_stream_runs(api))
        await eventually(lambda: [line for line in lines if line["event"] == "http_request"])
    assert [line for line in lines if line["log_level"] not in ("debug", "info")] == []
    metrics = (await api.ask("GET", "/metrics")).raw.decode()
    assert 'status="500"' not in metrics
    assert f'route="{PATH}",status="{200 if has_begun else 499}"' in metrics


async def test_a_reader_that_stops_is_cut_off(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_speech, "WRITE_TIMEOUT_S", 0.3)
    body = b'{"input": "' + b"word " * 10_000 + b'"}'  # 48 MB of audio
    async with api.connect() as (_reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await eventually(lambda: api.registry.source.streams and api.registry.source.streams[0].is_cancelled)
        await eventually(lambda: no_stream_runs(api))
    assert (await api.ask("POST", PATH, {"input": "hi"})).status == 200


@pytest.mark.parametrize("error", [EngineFailed("secret words"), RuntimeError("secret words")])
async def test_a_failure_before_the_first_audio_is_a_problem(api: RunningApi, error: Exception) -> None:
    api.registry.source.fail_at, api.registry.source.error = 0, error
    answered = await api.ask("POST", PATH, {"input": "one two"})
    answered.check_problem(500, "engine_failed" if isinstance(error, EngineFailed) else "internal")
    assert no_stream_runs(api)


@pytest.mark.parametrize(("error", "pointer"), [(NothingToSay(), "/input"), (UnknownVoice("gone"), "/voice")])
async def test_a_refusal_by_the_stream_names_the_field(api: RunningApi, error: Exception, pointer: str) -> None:
    api.registry.source.fail_at, api.registry.source.error = 0, error
    answered = await api.ask("POST", PATH, {"input": "one two"})
    assert (answered.status, answered.pointers) == (422, [pointer])


async def test_a_stream_without_audio_is_an_error(api: RunningApi) -> None:
    source = api.registry.source
    source.gate.clear()
    asking = asyncio.create_task(api.ask("POST", PATH, {"input": "hi"}))
    await eventually(lambda: source.streams)
    source.streams[0].is_cancelled = True
    source.gate.set()
    (await asking).check_problem(500, "no_audio")


@pytest.mark.parametrize("error", [EngineFailed(), RuntimeError()])
async def test_a_failure_in_the_middle_breaks_the_connection_off(api: RunningApi, error: Exception) -> None:
    api.registry.source.fail_at, api.registry.source.error = 1, error
    body = b'{"input": "one two", "response_format": "pcm"}'
    async with api.connect() as (reader, writer):
        writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        received = b""
        with suppress(ConnectionResetError):
            received = await reader.read()
        assert not received.endswith(b"0\r\n\r\n")
    assert no_stream_runs(api)


async def test_an_engine_that_hangs_is_given_up(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_speech, "CHUNK_TIMEOUT_S", 0.2)
    api.registry.source.gate.clear()
    (await api.ask("POST", PATH, {"input": "hi"})).check_problem(500, "engine_failed")
    assert api.registry.source.streams[0].is_cancelled


async def test_time_to_first_pcm_is_measured(api: RunningApi) -> None:
    await api.ask("POST", PATH, {"input": "hi"})
    text = api.context.metrics.render().decode()
    assert 'cctts_time_to_first_pcm_seconds_count{engine="fake"} 1.0' in text
    assert "cctts_speech_streams 0.0" in text
