"""Addresses at which a text is spoken."""

import io
import wave
from urllib.parse import urlsplit

import pytest

from cc_tts.api.plugs import links
from cc_tts.config.schema import TokenConfig
from cc_tts.errors import EngineFailed
from tests.fakes.running_api import RunningApi, make_config, running_api

pytestmark = pytest.mark.integration


async def address(api: RunningApi, **body: object) -> str:
    made = await api.ask("POST", "/v1/speech", {"text": "one two three", **body})
    assert made.status == 201
    return urlsplit(str(made.json["url"])).path


async def test_a_wav_file_of_known_length_is_at_the_address(api: RunningApi) -> None:
    path = await address(api)
    assert path.endswith(".wav")
    answered = await api.ask("GET", path)
    assert (answered.status, answered.headers["Content-Type"]) == (200, "audio/wav")
    assert answered.headers["AI-Disclosure"]
    with wave.open(io.BytesIO(answered.raw)) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 2400)


async def test_a_player_asks_for_its_length_and_for_parts_of_it(api: RunningApi) -> None:
    path = await address(api)
    head = await api.ask("HEAD", path)
    whole = (await api.ask("GET", path)).raw
    assert (head.status, head.raw) == (200, b"")
    assert (head.headers["Content-Length"], head.headers["Accept-Ranges"]) == (str(len(whole)), "bytes")
    size = len(whole)
    parts = [
        ("0-1", whole[:2], f"0-1/{size}"),
        ("100-", whole[100:], f"100-{size - 1}/{size}"),
        ("-9", whole[-9:], None),
    ]
    for wanted, part, named in parts:
        answered = await api.ask("GET", path, headers={"Range": f"bytes={wanted}"})
        assert (answered.status, answered.raw) == (206, part)
        assert named is None or answered.headers["Content-Range"] == f"bytes {named}"
    beyond = await api.ask("GET", path, headers={"Range": f"bytes={size}-"})
    assert (beyond.status, beyond.raw, beyond.headers["Content-Range"]) == (416, b"", f"bytes */{size}")


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "lines=1-2"},
        {"Range": "bytes=9-1"},
        {"Range": "bytes=0-1,3-4"},
        {"Range": "bytes=0-1", "If-Range": '"x"'},
    ],
)
async def test_a_part_that_cannot_be_told_is_the_whole(api: RunningApi, headers: dict[str, str]) -> None:
    path = await address(api)
    answered = await api.ask("GET", path, headers=headers)
    assert (answered.status, answered.raw) == (200, (await api.ask("GET", path)).raw)


async def test_it_is_synthesised_once_and_asked_for_by_its_tag(api: RunningApi) -> None:
    path = await address(api, format="mp3", sample_rate_hz=24_000)
    first = await api.ask("GET", path)
    assert first.headers["Content-Type"] == "audio/mpeg"
    again = await api.ask("GET", path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.raw) == (304, b"")
    assert again.headers["Cache-Control"].startswith("private, max-age="), "what the client has stays good"
    assert (await api.ask("GET", path, headers={"If-None-Match": "*"})).status == 304
    assert (await api.ask("GET", path)).raw == first.raw
    assert len(api.registry.source.streams) == 1


async def test_it_needs_no_token_but_making_one_does() -> None:
    token = "c" * 32
    async with running_api(make_config(tokens=(TokenConfig(token),))) as api:
        assert (await api.ask("POST", "/v1/speech", {"text": "one"})).status == 401
        made = await api.ask("POST", "/v1/speech", {"text": "one"}, headers={"Authorization": f"Bearer {token}"})
        assert (await api.ask("GET", urlsplit(made.json["url"]).path)).status == 200


async def test_what_cannot_be_spoken_gets_no_address(api: RunningApi) -> None:
    assert (await api.ask("POST", "/v1/speech", {"text": "one", "voice": "nobody"})).pointers == ["/voice"]
    (await api.ask("GET", "/v1/speech/none.wav")).check_problem(404, "link_not_found")


async def test_an_address_ends(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await address(api, ttl_s=60)
    now_s = api.context.services.clock.wall_s()
    monkeypatch.setattr(type(api.context.services.clock), "wall_s", lambda _clock: now_s + 61)
    assert (await api.ask("GET", path)).status == 404


async def test_a_failure_is_told_and_the_next_request_tries_again(api: RunningApi) -> None:
    path = await address(api)
    source = api.registry.source
    source.fail_at, source.error = 1, EngineFailed()
    assert (await api.ask("GET", path)).status == 500
    source.fail_at = None
    assert (await api.ask("GET", path)).status == 200


async def test_audio_that_is_dropped_for_others_is_made_again(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_KEPT_BYTES", 6000)
    paths = [await address(api, text=f"one two three {number}") for number in range(2)]
    for path in (*paths, paths[0]):
        assert (await api.ask("GET", path)).status == 200
    assert len(api.registry.source.streams) == 3


async def test_there_are_only_so_many_addresses(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_LINKS", 1)
    await address(api)
    (await api.ask("POST", "/v1/speech", {"text": "two"})).check_problem(503, "capacity_exceeded")
