"""How clients of other services find their routes, and where their keys are."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from cc_tts.api.plugs.elevenlabs import socket as elevenlabs
from cc_tts.config.schema import TenantConfig, TokenConfig
from cc_tts.tenants.accounting import AccountingLog, UtteranceLine
from lab.waiting import PATIENCE_S, until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.fakes.served_call import refusal

pytestmark = pytest.mark.integration

KEY, READER = "k" * 32, "r" * 32
TEXT = "one two three"


@pytest.fixture
async def locked() -> AsyncIterator[RunningApi]:
    tokens = (TokenConfig(KEY, ("call", "read"), tenant="acme"), TokenConfig(READER, ("read",)))
    async with running_api(make_config(tokens=tokens)) as it:
        yield it


# --- a base URL with a path


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/openai/v1/audio/speech", {"input": TEXT}),
        ("/elevenlabs/v1/text-to-speech/en-us/stream?output_format=pcm_8000", {"text": TEXT}),
        ("/deepgram/v1/speak?model=en-us", {"text": TEXT}),
        (
            "/cartesia/tts/bytes",
            {
                "transcript": TEXT,
                "voice": {"mode": "id", "id": "en-us"},
                "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 8000},
            },
        ),
    ],
)
async def test_a_base_url_with_the_name_of_the_service(api: RunningApi, path: str, body: dict[str, Any]) -> None:
    async with api.session.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        assert len(await response.read()) > 1000


async def test_what_both_services_list_has_the_shape_of_the_one_that_is_asked(api: RunningApi) -> None:
    assert (await api.ask("GET", "/openai/v1/models")).json["object"] == "list"
    assert (await api.ask("GET", "/elevenlabs/v1/models")).json[0]["model_id"] == "cc-tts"
    assert (await api.ask("GET", "/deepgram/v1/models")).json["tts"][0]["canonical_name"] == "en-us"
    assert (await api.ask("GET", "/elevenlabs/v1/voices")).json["voices"][0]["voice_id"] == "en-us"
    assert (await api.ask("GET", "/elevenlabs/v1/calls")).status == 404


@pytest.mark.parametrize(
    ("speed", "status"), [("0.25", 200), ("4", 200), ("4.1", 422), ("0", 422), ("-3", 422), ("1e308", 422)]
)
async def test_a_speed_is_that_of_openai_or_refused(api: RunningApi, speed: str, status: int) -> None:
    settings = {"speed": float(speed)}
    by_cartesia = {"transcript": TEXT, "voice": {"id": "en-us"}, "generation_config": settings}
    for path, body in (
        ("/v1/audio/speech", {"input": TEXT, **settings}),
        ("/v1/text-to-speech/en-us", {"text": TEXT, "voice_settings": settings}),
        (f"/v1/speak?model=en-us&speed={speed}", {"text": TEXT}),
        ("/tts/bytes", by_cartesia),
    ):
        assert (await api.ask("POST", path, body)).status == status, path


@pytest.mark.parametrize(
    ("path", "body", "shape"),
    [
        ("/openai/v1/audio/speech", {"input": "..."}, "error"),
        ("/elevenlabs/v1/text-to-speech/nobody", {"text": TEXT}, "detail"),
        ("/deepgram/v2/speak?model=nobody", {"text": TEXT}, "err_code"),
        ("/v2/speak?model=nobody", {"text": TEXT}, "err_code"),
        ("/tts/bytes", {"transcript": TEXT, "voice": {"id": "nobody"}}, "error_code"),
        ("/cartesia/tts/bytes", {"transcript": TEXT, "voice": {"id": "nobody"}}, "error_code"),
    ],
)
async def test_errors_below_the_name_of_a_service_have_its_shape(
    api: RunningApi, path: str, body: dict[str, Any], shape: str
) -> None:
    answered = await api.ask("POST", path, body)
    assert answered.status == 422
    assert answered.json.get(shape)
    assert shape != "detail" or answered.json["detail"]["status"] == "voice_not_found"
    assert not shape.endswith("_code") or answered.json["request_id"] == answered.headers["X-Request-Id"]


async def test_the_header_of_elevenlabs_tells_its_clients_where_services_share_a_path(locked: RunningApi) -> None:
    answered = await locked.ask("GET", "/v1/voices", headers={"xi-api-key": "wrong"})
    assert (answered.status, answered.json["detail"]["status"]) == (401, "unauthorized")
    answered = await locked.ask("GET", "/v1/voices/nobody", headers={"xi-api-key": READER})
    assert answered.json["detail"]["status"] == "voice_not_found"
    (await locked.ask("GET", "/v1/voices")).check_problem(401, "unauthorized")


async def test_elevenlabs_clients_try_their_key_with_the_user() -> None:
    config = make_config(tokens=(TokenConfig(KEY, ("call", "read"), tenant="acme"), TokenConfig(READER, ("read",))))
    config = replace(config, tenants={"acme": TenantConfig(max_characters_per_day=100)})
    async with running_api(config) as api:
        await api.ask("POST", "/v1/audio/speech", {"input": TEXT}, headers={"Authorization": f"Bearer {KEY}"})
        user = (await api.ask("GET", "/v1/user", headers={"xi-api-key": KEY})).json
        assert (user["user_id"], user["subscription"]["status"]) == ("acme", "active")
        assert (user["subscription"]["character_count"], user["subscription"]["character_limit"]) == (len(TEXT), 100)
        assert (await api.ask("GET", "/v1/user", headers={"xi-api-key": READER})).json["user_id"] == "operator"
        refused = await api.ask("GET", "/v1/user", headers={"xi-api-key": "wrong"})
        assert (refused.status, refused.json["detail"]["status"]) == (401, "unauthorized")


async def test_openai_names_a_field_within_another_with_a_dot_and_no_field_where_the_whole_is_wrong(
    api: RunningApi,
) -> None:
    faults = [
        ({"input": "hi", "voice": {"name": "x"}}, "voice.id"),
        ({"input": 5}, "input"),
        ([], None),
    ]
    for body, param in faults:
        assert (await api.ask("POST", "/v1/audio/speech", body)).json["error"]["param"] == param


@pytest.mark.parametrize(
    ("query", "content_type"),
    [
        ("encoding=linear16&container=wav", "audio/wav"),
        ("encoding=linear16&container=none", "audio/pcm"),
        ("encoding=mulaw&container=none", "audio/basic"),
        ("encoding=mulaw&container=wav", ""),
        ("encoding=linear16&container=ogg", ""),
        ("container=flv", ""),
    ],
)
async def test_deepgram_gets_the_container_that_it_asks_for_or_is_refused(
    api: RunningApi, query: str, content_type: str
) -> None:
    answered = await api.ask("POST", f"/v1/speak?model=en-us&{query}", {"text": TEXT})
    if content_type:
        assert answered.headers["Content-Type"].partition(";")[0] == content_type
    else:
        assert (answered.status, answered.json["err_code"]) == (422, "unprocessable")


@pytest.mark.parametrize(
    ("path", "half", "end"),
    [
        (
            "/v1/text-to-speech/en-us/stream-input?output_format=pcm_8000",
            '{"text": "One two three \\ud83d"}',
            '{"text": ""}',
        ),
        ("/v1/speak?model=en-us", '{"type": "Speak", "text": "One two three \\ud83d"}', '{"type": "Close"}'),
        ("/v2/speak?model=en-us", '{"type": "Speak", "text": "One two three \\ud83d"}', '{"type": "Close"}'),
        (
            "/tts/websocket",
            '{"transcript": "One two three \\ud83d", "voice": {"id": "en-us"}, "continue": true}',
            '{"transcript": "\\ude00"}',
        ),
        ("/v1/jambonz/stream?voice=en-us", '{"type": "stream", "text": "One two three \\ud83d"}', '{"type": "flush"}'),
    ],
)
async def test_a_token_that_ends_within_a_character_is_spoken(api: RunningApi, path: str, half: str, end: str) -> None:
    async with api.session.ws_connect(path) as socket:
        await socket.send_str(half)
        await socket.send_str(end)
        async with asyncio.timeout(PATIENCE_S):
            while not _has_audio(message := await socket.receive()):
                assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), "it is closed without audio"


def _has_audio(message: aiohttp.WSMessage) -> bool:
    if message.type is not aiohttp.WSMsgType.TEXT:
        return message.type is aiohttp.WSMsgType.BINARY
    told = json.loads(message.data)
    return told.get("type") != "connect" and bool(told.get("audio") or told.get("data"))


async def test_jambonz_is_told_of_its_own_field(api: RunningApi) -> None:
    answered = await api.ask("POST", "/v1/jambonz/speech", {"text": "<speak>x", "type": "ssml"})
    answered.check_problem(422, "ssml_malformed", "/text")


async def test_a_text_of_elevenlabs_that_is_empty_from_the_start_ends_as_every_text(api: RunningApi) -> None:
    async with connected(api) as socket:
        await socket.send_json({"text": ""})
        assert await until_closed(socket) == [{"audio": "", "isFinal": True}]


async def test_cartesia_takes_no_id_for_the_only_context_and_tells_errors_in_its_words(api: RunningApi) -> None:
    text = {"transcript": TEXT, "voice": {"id": "en-us"}, "context_id": None}
    async with api.session.ws_connect("/tts/websocket") as socket:
        await socket.send_json(text)
        async with asyncio.timeout(PATIENCE_S):
            while (told := await socket.receive_json())["type"] == "chunk":
                pass
        assert told["type"] == "done"
        await socket.send_json(text | {"voice": {"id": "nobody"}})
        told = await socket.receive_json()
    assert (told["type"], told["title"], told["error_code"], told["done"]) == (
        "error",
        "Unknown voice",
        "unknown_voice",
        True,
    )


# --- the key in the first message of a WebSocket


def connected(api: RunningApi, path: str = "stream-input", **options: Any) -> Any:
    return api.session.ws_connect(f"/v1/text-to-speech/en-us/{path}?output_format=pcm_8000", **options)


async def until_closed(socket: aiohttp.ClientWebSocketResponse) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return [json.loads(message.data) async for message in socket]


@pytest.mark.parametrize("field", ["xi_api_key", "xi-api-key", "authorization"])
@pytest.mark.parametrize("path", ["stream-input", "multi-stream-input"])
async def test_the_key_is_in_the_first_message(
    locked: RunningApi, field: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[UtteranceLine] = []
    monkeypatch.setattr(AccountingLog, "add", lambda _log, line: lines.append(line))
    async with connected(locked, path) as socket:
        await socket.send_json({"text": " ", field: f"Bearer {KEY}" if field == "authorization" else KEY})
        await socket.send_json({"text": "Hello there. ", "flush": True})
        await socket.send_json({"close_socket": True} if path.startswith("multi") else {"text": ""})
        seen = await until_closed(socket)
    assert seen[0]["audio"]
    assert seen[-1]["isFinal"]
    assert socket.close_code == 1000
    assert [line.tenant for line in lines] == ["acme"]


@pytest.mark.parametrize("told", [{"xi_api_key": "wrong"}, {"xi_api_key": READER}, {}])
async def test_a_client_without_a_key_that_may_speak_is_closed(locked: RunningApi, told: dict[str, str]) -> None:
    async with connected(locked) as socket:
        await socket.send_json({"text": "Hello there. ", **told})
        await socket.send_json({"text": "And there. ", "flush": True, "xi_api_key": KEY})
        (error,) = await until_closed(socket)
    assert error["error"] in ("unauthorized", "forbidden")
    assert socket.close_code == 1008
    assert not locked.registry.source.streams


async def test_a_client_whose_key_does_not_come_is_closed(locked: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elevenlabs, "KEY_TIMEOUT_S", 0.05)
    async with connected(locked) as socket:
        (error,) = await until_closed(socket)
    assert (error["error"], socket.close_code) == ("unauthorized", 1008)


async def test_a_key_in_a_header_is_looked_at_before_the_handshake(locked: RunningApi) -> None:
    assert await refusal(connected(locked, headers={"xi-api-key": "wrong"})) == 401
    # no other service has its key in a message
    assert await refusal(locked.session.ws_connect("/v1/speak?model=en-us")) == 401


# --- Vapi


def vapi(text: str = TEXT, rate_hz: int = 16_000) -> dict[str, Any]:
    said = {"type": "voice-request", "text": text, "sampleRate": rate_hz, "timestamp": 1, "call": {"id": "c"}}
    return {"message": said, "assistant": {}}


async def test_vapi_gets_pcm_without_a_header_at_its_rate(locked: RunningApi) -> None:
    lengths = []
    for rate_hz in (8000, 16_000, 22_050, 24_000):
        headers = {"x-vapi-secret": KEY}
        async with locked.session.post("/vapi/en-us", json=vapi(rate_hz=rate_hz), headers=headers) as response:
            assert (response.status, response.headers["Content-Type"]) == (200, "application/octet-stream")
            audio = await response.read()
        assert not audio.startswith(b"RIFF")
        lengths.append(len(audio) / rate_hz)
    assert lengths == pytest.approx([lengths[0]] * 4, rel=0.1)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/vapi/nobody", vapi(), 422, "unknown_voice"),
        ("/vapi/en-us", vapi(rate_hz=11_025), 422, "unprocessable"),
        ("/vapi/en-us", vapi("..."), 422, "nothing_to_say"),
        ("/vapi/en-us", vapi("one\0"), 422, "unprocessable"),
        ("/vapi/en-us", {"message": {"type": "status-update"}}, 422, "unprocessable"),
    ],
)
async def test_vapi_is_told_by_the_status_so_that_its_fallback_acts(
    api: RunningApi, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answered = await api.ask("POST", path, body)
    assert (answered.status, answered.json["code"]) == (status, code)
    assert code == "unknown_voice" or all(pointer.startswith("/message/") for pointer in answered.pointers)


# --- the end of a connection


@pytest.mark.parametrize(
    ("path", "stop", "told"),
    [
        ("/v1/speak", "Clear", ["Metadata", "Cleared"]),
        ("/v2/speak", "Interrupt", ["Connected", "SpeechStarted", "SpeechInterrupted", "SessionMetadata"]),
    ],
)
async def test_a_client_that_interrupts_what_is_spoken_before_the_end_is_closed(
    api: RunningApi, path: str, stop: str, told: list[str]
) -> None:
    api.registry.source.gate.clear()
    async with api.session.ws_connect(f"{path}?model=en-us&encoding=mulaw&sample_rate=8000") as socket:
        for message in ({"type": "Speak", "text": TEXT}, {"type": "Flush"}, {"type": "Close"}):
            await socket.send_json(message)
        await until(lambda: api.registry.source.streams)
        await socket.send_json({"type": stop})
        assert [each["type"] for each in await until_closed(socket)] == told
        assert socket.close_code == 1000
