"""Audio files at URLs on real calls: heard, looped, fetched once, and failing without harm to the call."""

import asyncio
import io
import wave
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web

from lab.raw_sip import invite_once
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from tests.support.served_app import served_app

pytestmark = pytest.mark.e2e


class Media:
    def __init__(self) -> None:
        self.paths: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        match request.path:
            case "/tone.wav":
                return web.Response(body=tone(1.0), headers={"Cache-Control": "max-age=60"})
            case "/slow.wav":
                await asyncio.sleep(5)
            case "/away.wav":
                raise web.HTTPFound("/tone.wav")
            case "/page.wav":
                return web.Response(text="<html>Sorry</html>")
        raise web.HTTPNotFound


def tone(seconds: float) -> bytes:
    samples = (9000 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * 16_000)) / 16_000)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(samples.tobytes())
    return file.getvalue()


@pytest_asyncio.fixture(loop_scope="session")
async def media() -> AsyncIterator[Media]:
    media = Media()
    async with served_app(web.get("/{path:.*}", media.answer)) as port:
        media.url = f"http://127.0.0.1:{port}"
        yield media


async def play(server: Server, call_id: str, log: Any, **body: Any) -> dict[str, Any]:
    accepted = await server.create(f"/v1/calls/{call_id}/play", body)
    complete: dict[str, Any] = (await log.wait("speak.complete", utterance_id=accepted["id"]))["data"]
    return complete


async def test_a_file_is_heard_and_one_that_fails_leaves_the_call(
    server: Server, media: Media, phone: SoftphoneProcess
) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        ends = [
            await play(server, call_id, log, url=f"{media.url}/{path}.wav")
            for path in ("slow", "away", "page", "none", "tone", "tone")
        ]
        await server.post(f"/v1/calls/{call_id}/hangup", {})
        report = await phone.report()
    causes = [(each["completion_cause"], each["error"]) for each in ends]
    assert causes == [
        *[("error", "fetch_failed")] * 2, ("error", "audio_unreadable"), ("error", "fetch_failed"), *[("normal", None)] * 2
    ]  # fmt: skip
    assert [each["played_ms"] for each in ends[-2:]] == [pytest.approx(1000, abs=20)] * 2
    assert sum(each["end_ms"] - each["start_ms"] for each in report["talkspurts"]) == pytest.approx(2000, abs=200)
    assert media.paths.count("/tone.wav") == 1


async def test_a_loop_of_a_file_goes_on_until_it_is_stopped(
    server: Server, media: Media, phone: SoftphoneProcess
) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        end = await play(
            server, call_id, log, url=f"{media.url}/tone.wav?loop", loop=True, max_duration_ms=2500, volume_db=-6
        )
        await server.post(f"/v1/calls/{call_id}/hangup", {})
    assert (end["completion_cause"], end["played_ms"]) == ("normal", pytest.approx(2500, abs=20))


async def test_an_announcement_at_a_url(server: Server, media: Media, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        await phone.dial(f"{server.uri('annc')};play={media.url}/tone.wav%3Fannc")
        assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "normal"
    refused = await invite_once("annc;play=http://10.0.0.1/a.wav", server.sip_port)
    assert refused.status == 403
