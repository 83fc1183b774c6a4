"""Speech without a call, streamed."""

import asyncio
import base64
import dataclasses
import io
import json
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import av
import pytest

from cc_tts.api.plugs import response as speech_response
from cc_tts.api.plugs import speech_context
from cc_tts.errors import EngineFailed, NothingToSay, UnknownVoice
from cc_tts.media.synthetic_label import COMMENT
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.waiting import until
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.fakes.served_call import refusal
from tests.support.captured_logs import capture_logs

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


def posted(body: bytes, version: str = "1.1") -> bytes:
    head = f"POST {PATH} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def no_stream_runs(api: RunningApi) -> bool:
    return b"cctts_speech_streams 0.0\n" in api.context.services.metrics.render()


@pytest.mark.parametrize(
    ("body", "content_type", "rate_hz", "bytes_per_sample"),
    [
        ({"response_format": "wav"}, "audio/wav", 24_000, 2),
        ({"response_format": "wav", "sample_rate_hz": 8000}, "audio/wav", 8000, 2),
        ({"response_format": "pcm"}, "audio/pcm;rate=24000", 24_000, 2),
        ({"response_format": "pcm", "sample_rate_hz": 16_000}, "audio/pcm;rate=16000", 16_000, 2),
        ({"response_format": "ulaw"}, "audio/basic", 8000, 1),
        ({"response_format": "alaw"}, "audio/PCMA;rate=8000", 8000, 1),
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
    silence = {"ulaw": {0xFF}, "alaw": {0xD5}}.get(str(body["response_format"]), {0, 1})
    assert set(audio) == silence


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"input": "one", "response_format": "wma"}, "/response_format: ", "response_format"),
        ({"input": "one", "response_format": "opus", "sample_rate_hz": 44100}, "48000 Hz", "sample_rate_hz"),
        ({}, "input", "input"),
    ],
)
async def test_a_refusal_has_the_message_that_clients_of_openai_print(
    api: RunningApi, body: dict[str, object], message: str, param: str
) -> None:
    problem = (await api.ask("POST", PATH, body)).json
    assert message in problem["error"]["message"]
    said = {"message": problem["detail"], "type": "invalid_request_error", "code": problem["code"], "param": param}
    assert problem["error"] == said
    assert "error" not in (await api.ask("POST", "/v1/calls", body)).json


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": "{name}"}, 422),
        ({"ssml": '<speak><say-as interpret-as="date">...</say-as></speak>'}, 422),
        ({"ssml": '<speak><mark name="m"/>One.</speak>'}, 200),
        ({"ssml": '<speak><break time="100ms"/></speak>'}, 200),
    ],
)
async def test_words_of_which_nothing_is_left_are_refused_before_the_first_byte(
    body: dict[str, object], status: int
) -> None:
    config = make_config()
    source = SpeechSource(cast("Any", FakeEngine()), Normalizer(), config.tts)
    async with running_api(config, speech_source=source) as api:
        answered = await api.ask("POST", PATH, body | {"response_format": "pcm"})
    assert answered.status == status
    assert status == 200 or answered.json["code"] == "nothing_to_say"


@pytest.mark.parametrize(
    ("response_format", "container", "content_type"),
    [
        (None, "mp3", "audio/mpeg"),
        ("mp3", "mp3", "audio/mpeg"),
        ("opus", "ogg", "audio/ogg"),
        ("aac", "aac", "audio/aac"),
        ("flac", "flac", "audio/flac"),
    ],
)
@pytest.mark.parametrize("sample_rate_hz", [None, 8000])
async def test_compressed_formats_hold_all_of_the_audio(
    api: RunningApi, response_format: str | None, container: str, content_type: str, sample_rate_hz: int | None
) -> None:
    body = {"input": "word " * 20, "response_format": response_format, "sample_rate_hz": sample_rate_hz}
    answered = await api.ask("POST", PATH, {name: value for name, value in body.items() if value is not None})
    assert (answered.status, answered.headers["Content-Type"]) == (200, content_type)
    with av.open(io.BytesIO(answered.raw), "r", format=container) as file:
        tags = {name.lower(): value for name, value in (file.metadata | file.streams.audio[0].metadata).items()}
        assert container == "aac" or (tags["comment"], '"Label":"1"' in tags["aigc"]) == (COMMENT, True)
        rate_hz, num_samples = 0, 0
        for frame in file.decode(audio=0):
            rate_hz, num_samples = frame.sample_rate, num_samples + frame.samples
    assert num_samples / rate_hz == pytest.approx(2.0, abs=0.2)  # MP3 and AAC add their delay


async def test_a_compressed_format_is_sent_while_it_is_made(api: RunningApi) -> None:
    source = api.registry.source
    async with api.session.post(PATH, json={"input": "word " * 20}) as response:
        source.gate.clear()
        assert await response.content.readany()
        source.gate.set()
        await response.content.read()


async def test_events_carry_the_audio(api: RunningApi) -> None:
    body = {"input": "one two", "response_format": "pcm", "stream_format": "sse"}
    answered = await api.ask("POST", PATH, body)
    assert answered.headers["Content-Type"] == "text/event-stream"
    *parts, last = answered.raw.decode().split("\n\n")
    *deltas, done = (json.loads(part.removeprefix("data: ")) for part in parts)
    assert last == ""
    assert {each["type"] for each in deltas} == {"speech.audio.delta"}
    assert sum(len(base64.b64decode(each["audio"])) for each in deltas) == 2 * 4800
    assert done == {"type": "speech.audio.done", "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}}


async def test_the_request_of_a_client_package_is_taken_whole(api: RunningApi) -> None:
    body = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "one", "instructions": "Be kind.", "user": "u1"}
    answered = await api.ask("POST", PATH, {**body, "speed": 4.0})
    assert (answered.status, answered.headers["X-Speed"]) == (200, "2.0")
    assert answered.headers["X-Voice"] == "en-us"
    assert api.registry.source.opened == [TextContent("one", None, None, 2.0, instructions="Be kind.")]


@pytest.mark.parametrize(("voice", "named"), [("de", "de"), ({"id": "de"}, "de"), ("nova", None)])
async def test_voices(api: RunningApi, voice: object, named: str | None) -> None:
    await api.ask("POST", PATH, {"input": "one", "voice": voice})
    assert api.registry.source.opened == [TextContent("one", named)]


async def test_other_names_of_voices_are_listed_first() -> None:
    config = make_config()
    tts = dataclasses.replace(config.tts, voice_aliases={"nova": "de"})
    async with running_api(dataclasses.replace(config, tts=tts)) as api:
        voices = (await api.ask("GET", "/v1/audio/voices")).json["voices"]
        assert voices[0] == {"id": "nova", "name": "nova (de)"}
        assert {"id": "de", "name": "de"} in voices


async def test_models_are_listed_for_clients_that_look_for_theirs(api: RunningApi) -> None:
    models = (await api.ask("GET", "/v1/models")).json
    assert models["object"] == "list"
    assert {"cc-tts", "tts-1"} <= {each["id"] for each in models["data"]}
    assert (await api.ask("GET", "/v1/models/tts-1")).json["object"] == "model"
    unknown = await api.ask("GET", "/v1/models/gpt-9")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")


async def test_what_is_asked_for_reaches_the_source(api: RunningApi) -> None:
    await api.ask("POST", PATH, {"input": "Hallo", "voice": "de", "language": "de", "speed": 0.5})
    assert api.registry.source.opened == [TextContent("Hallo", "de", "de", 0.5)]
    assert api.registry.source.streams[0].num_cancels  # freed


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
        writer.write(posted(body, "1.0"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        assert b"chunked" not in head
        assert len(await reader.read()) == 4800


async def test_more_streams_than_allowed_are_503(api: RunningApi) -> None:
    source = api.registry.source
    source.gate.clear()
    running = [asyncio.create_task(api.ask("POST", PATH, {"input": "hi"})) for _ in range(2)]
    await until(lambda: len(source.streams) == 2)
    answered = await api.ask("POST", PATH, {"input": "hi"})
    answered.check_problem(503, "capacity_exceeded")
    assert answered.headers["Retry-After"] == "1"
    source.gate.set()
    assert [done.status for done in await asyncio.gather(*running)] == [200, 200]
    assert (await api.ask("POST", PATH, {"input": "hi"})).status == 200
    assert no_stream_runs(api)


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_client_that_leaves_early_is_no_failure_of_ours(api: RunningApi, has_begun: bool) -> None:
    source = api.registry.source
    if not has_begun:
        source.gate.clear()
    body = b'{"input": "' + b"word " * (10_000 if has_begun else 1) + b'", "response_format": "pcm"}'
    with capture_logs() as lines:
        async with api.connect() as (reader, writer):
            writer.write(posted(body))
            await until(lambda: source.streams)
            if has_begun:
                await reader.readuntil(b"\r\n\r\n")
        await until(lambda: source.streams[0].num_cancels)
        await until(lambda: no_stream_runs(api))
        await until(lambda: [line for line in lines if line["event"] == "http_request"])
    assert [line for line in lines if line["log_level"] not in ("debug", "info")] == []
    metrics = (await api.ask("GET", "/metrics")).raw.decode()
    assert 'status="500"' not in metrics
    assert f'route="{PATH}",status="{200 if has_begun else 499}"' in metrics


async def test_a_reader_that_stops_is_cut_off(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_response, "WRITE_TIMEOUT_S", 0.3)
    body = b'{"input": "' + b"word " * 10_000 + b'", "response_format": "pcm"}'  # 48 MB of audio
    async with api.connect() as (_reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(posted(body))
        await until(lambda: api.registry.source.streams and api.registry.source.streams[0].num_cancels)
        await until(lambda: no_stream_runs(api))
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
    await until(lambda: source.streams)
    source.streams[0].num_cancels = 1
    source.gate.set()
    (await asking).check_problem(500, "no_audio")


@pytest.mark.parametrize("error", [EngineFailed(), RuntimeError()])
async def test_a_failure_in_the_middle_breaks_the_connection_off(api: RunningApi, error: Exception) -> None:
    api.registry.source.fail_at, api.registry.source.error = 1, error
    body = b'{"input": "one two", "response_format": "pcm"}'
    async with api.connect() as (reader, writer):
        writer.write(posted(body))
        received = b""
        with suppress(ConnectionResetError):
            received = await reader.read()
        assert not received.endswith(b"0\r\n\r\n")
    assert no_stream_runs(api)


async def test_an_engine_that_hangs_is_given_up(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_context, "CHUNK_TIMEOUT_S", 0.2)
    api.registry.source.gate.clear()
    (await api.ask("POST", PATH, {"input": "hi"})).check_problem(500, "engine_failed")
    assert api.registry.source.streams[0].num_cancels


async def test_time_to_first_pcm_is_measured(api: RunningApi) -> None:
    await api.ask("POST", PATH, {"input": "hi"})
    text = api.context.services.metrics.render().decode()
    assert 'cctts_time_to_first_pcm_seconds_count{engine="fake"} 1.0' in text
    assert "cctts_speech_streams 0.0" in text


@pytest.mark.parametrize("path", ["/v1/speak", "/v1/jambonz/stream", "/v1/text-to-speech/anna/stream-input"])
async def test_a_draining_server_takes_no_connection_of_a_plug(api: RunningApi, path: str) -> None:
    api.registry.start_drain()
    assert await refusal(api.session.ws_connect(path)) == 503
