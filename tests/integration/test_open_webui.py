"""The requests of Open WebUI 0.12.4 whose engine of speech is OpenAI with a base URL of its own, as it sends them."""

from collections.abc import AsyncIterator

import pytest

from cc_tts.config.schema import TokenConfig
from tests.fakes.running_api import RunningApi, make_config, running_api

pytestmark = pytest.mark.integration

KEY = "k" * 32
PLAYED = {"audio/mpeg", "audio/wav", "audio/ogg", "audio/flac", "audio/aac"}
"""The media types that it passes on to a browser."""


@pytest.fixture(params=["/v1", "/openai/v1"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[RunningApi, str]]:
    async with running_api(make_config(tokens=(TokenConfig(KEY, ("call", "read")),))) as api:
        yield api, request.param


async def test_it_speaks_with_the_settings_and_parameters_of_its_administrator(served: tuple[RunningApi, str]) -> None:
    api, base = served
    # what its page sends, then model, voice and "additional parameters" of its settings
    body = {"input": "Hello there. ", "voice": "alloy", "model": "tts-1", "speed": 1.1, "response_format": "mp3"}
    headers = {
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "X-OpenWebUI-User-Name": "Anna",
        "X-OpenWebUI-User-Email": "anna@example.com",
    }
    async with api.session.post(f"{base}/audio/speech", json=body, headers=headers) as response:
        assert response.status == 200
        assert response.content_type in PLAYED
        assert len(await response.read()) > 500


async def test_it_shows_the_message_of_an_error(served: tuple[RunningApi, str]) -> None:
    api, base = served
    headers = {"Authorization": f"Bearer {KEY}"}
    body = {"input": "Hello.", "voice": "nobody", "model": "tts-1"}
    answered = await api.ask("POST", f"{base}/audio/speech", body, headers=headers)
    assert answered.status == 422
    assert "no voice is called 'nobody'" in answered.json["error"]["message"]


async def test_it_lists_voices_and_models_of_a_server_without_tokens() -> None:
    async with running_api() as api:  # it sends no token here: with tokens it offers OpenAI's names
        voices = (await api.ask("GET", "/v1/audio/voices")).json["voices"]
        assert "en-us" in {each["id"]: each["name"] for each in voices}
        assert (await api.ask("GET", "/v1/audio/models")).status == 404
        assert "tts-1" in [each["id"] for each in (await api.ask("GET", "/v1/models")).json["data"]]
