"""Staged prompts over HTTP: texts, files in every form that clients send, limits, tenants, and what a restart finds."""

import asyncio
import dataclasses
import errno
import io
import os
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from cc_tts.config.schema import Config, TenantConfig, TokenConfig
from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.speech.prompt import UrlContent
from lab.waiting import until
from tests.fakes.running_api import RunningApi, make_config, running_api

pytestmark = pytest.mark.integration

PATH = "/v1/prompts"


def wav(seconds: float = 0.5, rate_hz: int = 44_100, channels: int = 2) -> bytes:
    places = np.arange(round(seconds * rate_hz)) * 2 * np.pi * 440 / rate_hz
    samples = np.repeat((8000 * np.sin(places)).astype("<i2"), channels)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(samples.tobytes())
    return file.getvalue()


def config(**prompts: Any) -> Config:
    tokens = (
        TokenConfig(token="o" * 32, scopes=("read", "call", "admin")),
        TokenConfig(token="a" * 32, scopes=("read", "call"), tenant="acme"),
        TokenConfig(token="r" * 32, scopes=("read",)),
    )
    return dataclasses.replace(
        make_config(tokens=tokens), prompts=PromptsConfig(**prompts), tenants={"acme": TenantConfig()}
    )


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(config(max_prompts=8, max_total_s=4, max_upload_bytes=1_000_000)) as it:
        yield it


OPS = {"Authorization": f"Bearer {'o' * 32}"}
ACME = {"Authorization": f"Bearer {'a' * 32}"}


async def send(
    api: RunningApi, method: str, path: str, *, headers: dict[str, str] = OPS, **options: Any
) -> tuple[int, Any]:
    async with api.session.request(method, path, headers=headers, **options) as response:
        return response.status, await response.json(content_type=None)


async def stage(api: RunningApi, **body: Any) -> tuple[int, Any]:
    return await send(api, "POST", PATH, json=body)


async def test_a_text_is_staged_shown_and_deleted(api: RunningApi) -> None:
    status, staged = await stage(api, prompt_id="welcome", text="Welcome to the bank.")
    assert (status, staged["state"], staged["duration_ms"], staged["chars"]) == (201, "ready", 400, 20)
    assert await send(api, "GET", f"{PATH}/welcome") == (200, staged)
    assert (await send(api, "GET", PATH))[1] == {"prompts": [staged]}
    assert (await send(api, "DELETE", f"{PATH}/welcome"))[0] == 200
    assert (await send(api, "GET", f"{PATH}/welcome"))[1]["code"] == "prompt_not_found"


async def test_the_same_words_without_an_id_are_staged_once(api: RunningApi) -> None:
    first, second = await stage(api, text="One."), await stage(api, text="One.")
    assert first[1]["prompt_id"] == second[1]["prompt_id"]
    assert (first[0], second[0]) == (201, 200)
    assert (await stage(api, text="One.", voice="de"))[1]["prompt_id"] != first[1]["prompt_id"]


async def test_without_waiting_the_event_says_when_it_is_ready(api: RunningApi) -> None:
    api.registry.source.gate.clear()
    async with api.session.ws_connect("/v1/events?types=prompt.ready", headers=OPS) as events:
        status, staged = await send(api, "POST", f"{PATH}?wait=false", json={"prompt_id": "slow", "text": "One two."})
        assert (status, staged["state"]) == (201, "making")
        api.registry.source.gate.set()
        event = await events.receive_json(timeout=5)
    assert event["data"] == {"prompt_id": "slow", "state": "ready", "duration_ms": 200}


async def test_a_text_that_cannot_be_spoken_fails_with_its_code(api: RunningApi) -> None:
    api.registry.source.fail_at = 0
    status, staged = await stage(api, prompt_id="broken", text="One.")
    assert (status, staged["state"], staged["error"]) == (201, "failed", "internal")


@pytest.mark.parametrize("media_type", ["audio/wav", "application/octet-stream", "audio/mpeg"])
async def test_a_file_is_the_body(api: RunningApi, media_type: str) -> None:
    for expected in (201, 200):  # made, then replaced (RFC 9110 §9.3.4)
        status, staged = await send(api, "PUT", f"{PATH}/tone", data=wav(), headers={**OPS, "Content-Type": media_type})
        assert (status, staged["kind"], staged["duration_ms"]) == (expected, "audio", 500)
    async with api.session.get(f"{PATH}/tone/audio", headers=OPS) as response:
        with wave.open(io.BytesIO(await response.read())) as heard:
            assert (heard.getframerate(), heard.getnchannels(), heard.getnframes()) == (8000, 1, 4000)


async def test_the_audio_of_words_is_labelled_and_a_recording_is_not(api: RunningApi) -> None:
    await stage(api, prompt_id="made", text="One two.")
    await send(api, "PUT", f"{PATH}/recorded", data=wav(), headers={**OPS, "Content-Type": "audio/wav"})
    labels = {}
    for name in ("made", "recorded"):
        async with api.session.get(f"{PATH}/{name}/audio", headers=OPS) as response:
            labels[name] = (response.headers.get("AI-Disclosure"), b"AIGC" in await response.read())
    assert labels == {"made": ("mode=machine-generated", True), "recorded": (None, False)}


async def test_a_file_in_a_form(api: RunningApi) -> None:
    form = aiohttp.FormData({"prompt_id": "tone", "ttl_s": "60"})
    form.add_field("file", wav(), filename="tone.wav", content_type="audio/wav")
    status, staged = await send(api, "POST", PATH, data=form)
    assert (status, staged["prompt_id"], staged["duration_ms"]) == (201, "tone", 500)
    assert staged["expires_at"] is not None


async def test_what_has_no_meaning_beside_a_file_is_refused(api: RunningApi) -> None:
    form = aiohttp.FormData({"prompt_id": "tone", "text": "One."})
    form.add_field("file", wav(), filename="tone.wav", content_type="audio/wav")
    status, refused = await send(api, "POST", PATH, data=form)
    assert (status, refused["code"], refused["errors"][0]["pointer"]) == (400, "malformed", "/text")


@pytest.mark.parametrize(
    ("data", "media_type", "status", "code"),
    [
        (b"no audio", "audio/wav", 422, "audio_unreadable"),
        (wav(0), "audio/wav", 422, "audio_unreadable"),
        (wav()[:60], "audio/wav", 422, "audio_unreadable"),
        (b"x" * 1_000_001, "audio/wav", 413, "body_too_large"),
        (b"{}", "application/json", 400, "malformed"),
        (b"--x\r\n", "multipart/form-data", 400, "malformed"),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 400, "malformed"),
        (wav(), "image/png", 415, "unsupported_media_type"),
    ],
    ids=["bytes", "no samples", "cut off", "too large", "no text", "no boundary", "no file", "a picture"],
)
async def test_what_is_no_prompt(api: RunningApi, data: bytes, media_type: str, status: int, code: str) -> None:
    found, body = await send(api, "POST", PATH, data=data, headers={**OPS, "Content-Type": media_type})
    assert (found, body.get("code")) == (status, code)


async def test_the_length_of_all_is_bounded_and_texts_make_room(api: RunningApi) -> None:
    await stage(api, prompt_id="text", text=" ".join(["word"] * 15))
    for number in range(2):
        assert (
            await send(api, "PUT", f"{PATH}/{number}", data=wav(1.6), headers={**OPS, "Content-Type": "audio/wav"})
        )[0] == 201
    assert (await send(api, "GET", f"{PATH}/text"))[1]["cached"] is False
    status, refused = await send(api, "PUT", f"{PATH}/3", data=wav(1.6), headers={**OPS, "Content-Type": "audio/wav"})
    assert (status, refused["code"]) == (507, "prompts_full")


async def test_a_tenant_has_a_quarter_and_sees_its_own_and_hears_those_of_the_operator(api: RunningApi) -> None:
    await stage(api, prompt_id="shared", text="Shared.")
    for number in range(2):
        status, _ = await send(api, "POST", PATH, headers=ACME, json={"prompt_id": f"own{number}", "text": "Own."})
        assert status == 201
    status, refused = await send(api, "POST", PATH, headers=ACME, json={"prompt_id": "own3", "text": "Own."})
    assert (status, refused["code"]) == (507, "prompts_full")
    shown = (await send(api, "GET", PATH, headers=ACME))[1]["prompts"]
    assert [each["prompt_id"] for each in shown] == ["own0", "own1"]
    assert (await send(api, "DELETE", f"{PATH}/shared", headers=ACME))[0] == 404
    assert api.registry.services.staged.get("shared", "acme").id == "shared"


async def test_only_a_token_that_may_call_stages(api: RunningApi) -> None:
    reader = {"Authorization": f"Bearer {'r' * 32}"}
    assert (await send(api, "POST", PATH, headers=reader, json={"text": "One."}))[0] == 403
    assert (await send(api, "GET", PATH, headers=reader))[0] == 200


async def test_a_call_speaks_and_plays_what_was_staged(api: RunningApi) -> None:
    await stage(api, prompt_id="welcome", text="Welcome to the bank.")
    await send(api, "PUT", f"{PATH}/music", data=wav(), headers={**OPS, "Content-Type": "audio/wav"})
    api.registry.add("c1", answered=True)
    status, spoken = await send(api, "POST", "/v1/calls/c1/speak", json={"prompt_id": "welcome"})
    assert (status, spoken["text_chars"]) == (201, 20)
    status, _ = await send(api, "POST", "/v1/calls/c1/play", json={"prompt_id": "music", "volume_db": -6, "loop": True})
    assert status == 201
    status, refused = await send(api, "POST", "/v1/calls/c1/play", json={"prompt_id": "gone"})
    assert (status, refused["code"], refused["errors"][0]["pointer"]) == (404, "prompt_not_found", "/prompt_id")
    for option in ({"voice": "de"}, {"instructions": "calmly"}):
        status, refused = await send(api, "POST", "/v1/calls/c1/speak", json={"prompt_id": "welcome", **option})
        assert (status, refused["errors"][0]["pointer"]) == (422, f"/{next(iter(option))}")


async def test_a_restart_finds_what_was_staged_and_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "by-hand.wav").write_bytes(wav())
    (tmp_path / "broken.wav").write_bytes(b"no audio")
    async with running_api(config(dir=str(tmp_path))) as api:
        assert await api.registry.services.staged.load() == [
            "prompts.dir: broken.wav: this is no audio file; WAV, FLAC, MP3 and Ogg are read"
        ]
        await stage(api, prompt_id="text", text="One two.", instructions="speak calmly")
        await stage(api, prompt_id="gone", text="Three.", ttl_s=60)
        await send(api, "PUT", f"{PATH}/tone", data=wav(), headers={**ACME, "Content-Type": "audio/wav"})
    async with running_api(config(dir=str(tmp_path))) as api:
        await api.registry.services.staged.load()
        await until(lambda: api.registry.services.staged.get("text").state == "ready")
        words = api.registry.services.staged.get("text").words
        assert words is not None
        assert (words.text, words.instructions) == ("One two.", "speak calmly")
        assert [each.id for each in api.registry.services.staged.all_of("")] == ["by-hand", "text"]
        assert [each.duration_ms for each in api.registry.services.staged.all_of("acme")] == [500]


async def test_a_folder_of_a_tenant_that_cannot_be_read_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "by-hand.wav").write_bytes(wav())
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "acme":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    async with running_api(config(dir=str(tmp_path))) as api:
        assert await api.registry.services.staged.load() == ["prompts.dir: acme: Permission denied"]
        assert [each.id for each in api.registry.services.staged.all_of("")] == ["by-hand"]


async def test_a_folder_that_cannot_be_written_takes_prompts_with_a_time_to_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("cc_tts.atomic_file.write", refuse)
    async with running_api(config(dir=str(tmp_path))) as api:
        body = {"prompt_id": "p", "text": "One."}
        status, refused = await send(api, "POST", PATH, json=body)
        assert (status, refused["code"]) == (507, "prompt_not_stored")
        assert "Read-only file system; a prompt with ttl_s is kept in memory alone" in refused["detail"]
        assert (await send(api, "POST", PATH, json={**body, "ttl_s": 60}))[0] == 201


async def test_a_prompt_is_forgotten_after_its_time(api: RunningApi) -> None:
    await stage(api, prompt_id="brief", text="One.", ttl_s=0.05)
    await asyncio.sleep(0.1)
    assert (await send(api, "GET", f"{PATH}/brief"))[0] == 404


@pytest.mark.parametrize("prompt_id", ["..", "a%2Fb", "a.wav", "x" * 65, ".hidden"])
async def test_an_id_is_no_path(api: RunningApi, prompt_id: str) -> None:
    status, _ = await send(api, "PUT", f"{PATH}/{prompt_id}", json={"text": "One."})
    assert status in (404, 405, 422)
    assert api.registry.services.staged.all_of("") == []


async def test_a_file_of_a_host_that_is_not_allowed_is_not_played(api: RunningApi) -> None:
    api.registry.add("c1", answered=True)
    for url, status, code in (
        ("https://media.example.com/a.wav", 403, "url_not_allowed"),
        ("https://127.0.0.1/a.wav", 403, "url_not_allowed"),
        ("ftp://media.example.com/a.wav", 422, "unprocessable"),
        ("https://u:p@media.example.com/a.wav", 422, "unprocessable"),
    ):
        answered = await api.ask("POST", "/v1/calls/c1/play", {"url": url}, headers=OPS)
        answered.check_problem(status, code, "/url")


async def test_an_allowed_file_is_accepted_for_a_call_and_a_gather() -> None:
    async with running_api(config(allowed_hosts=("media.example.com",))) as api:
        api.registry.add("c1", answered=True)
        played = {"url": "https://media.example.com/a.wav"}
        assert (await api.ask("POST", "/v1/calls/c1/play", {**played, "volume_db": -6}, headers=OPS)).status == 201
        assert (await api.ask("POST", "/v1/calls/c1/gather", {"prompt": played}, headers=OPS)).status == 201
        assert [each.content for each in api.registry.prompts.values()] == [
            UrlContent(played["url"], -6.0), UrlContent(played["url"])
        ]  # fmt: skip
        await api.registry.services.staged.stop()
