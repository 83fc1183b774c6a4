"""CosyVoice's own HTTP shape: forms by GET and POST, and recordings that come with a request."""

import io
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec
import pytest

from cc_tts.config.schema import TokenConfig
from cc_tts.speech.prompt import TextContent
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

OPERATOR, CALLER = "o" * 32, "c" * 32
TEXT = "one two three"
RECORDING = b"RIFF....WAVE"


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    config = make_config(tokens=(TokenConfig(OPERATOR), TokenConfig(CALLER, ("call",))))
    async with running_api(config) as it:
        yield it


async def ask(
    api: RunningApi,
    method: str,
    mode: str,
    fields: Mapping[str, str],
    *,
    recording: bytes | None = None,
    token: str = OPERATOR,
) -> tuple[int, str, bytes]:
    form = aiohttp.FormData(fields)
    if recording is not None:
        form.add_field(
            "prompt_wav", io.BytesIO(recording), filename="prompt_wav", content_type="application/octet-stream"
        )
    headers = {"Authorization": f"Bearer {token}"}
    async with api.session.request(method, f"/inference_{mode}", data=form, headers=headers) as response:
        return response.status, response.headers["Content-Type"], await response.read()


def said(api: RunningApi) -> TextContent:
    content = api.registry.source.opened[-1]
    assert isinstance(content, TextContent)
    return content


def problem(body: bytes) -> Any:
    return msgspec.json.decode(body)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_speaker_says_a_text_as_pcm_without_a_header(api: RunningApi, method: str) -> None:
    status, content_type, audio = await ask(api, method, "sft", {"tts_text": TEXT, "spk_id": "en-us"}, token=CALLER)
    assert (status, content_type) == (200, "audio/pcm;rate=24000")
    assert len(audio) > 1000
    assert len(audio) % 2 == 0
    assert said(api).voice == "en-us"


async def test_the_text_of_a_form_is_utf_8(api: RunningApi) -> None:
    await ask(api, "GET", "sft", {"tts_text": "Grüße, 你好 & +", "spk_id": "en-us"})
    assert said(api).text == "Grüße, 你好 & +"


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("application/x-www-form-urlencoded", b"tts_text=%C4%FA%BA%C3+and+welcome"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="tts_text"\r\n\r\n\xc4\xfa\xba\xc3 and welcome\r\n--b--\r\n',
        ),
    ],
)
async def test_a_text_in_gbk_is_refused_since_words_of_it_would_not_be_spoken(
    api: RunningApi, content_type: str, form: bytes
) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": content_type}
    async with api.session.post("/inference_sft", data=form, headers=headers) as response:
        assert (response.status, problem(await response.read()).get("errors", [{}])[0]["pointer"]) == (400, "/tts_text")


async def test_a_speaker_of_the_first_model_is_a_voice_of_the_language(api: RunningApi) -> None:
    assert (await ask(api, "GET", "sft", {"tts_text": TEXT, "spk_id": "英文女"}))[0] == 200
    assert (said(api).voice, said(api).language) == (None, "en")


@pytest.mark.parametrize(
    ("fields", "status", "pointer"),
    [
        ({"tts_text": TEXT, "spk_id": "nobody"}, 422, "/spk_id"),
        ({"tts_text": "...", "spk_id": "en-us"}, 422, "/tts_text"),
        ({"spk_id": "en-us"}, 400, "/tts_text"),
    ],
)
async def test_what_a_speaker_cannot_say(api: RunningApi, fields: dict[str, str], status: int, pointer: str) -> None:
    answered, _, body = await ask(api, "POST", "sft", fields)
    assert (answered, [each["pointer"] for each in problem(body).get("errors", ())]) == (status, [pointer])


WITH_RECORDING = [
    ("zero_shot", {"tts_text": TEXT, "prompt_text": "what is said"}),
    ("cross_lingual", {"tts_text": TEXT}),
    ("instruct2", {"tts_text": TEXT, "instruct_text": "Speak calmly."}),
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("mode", "fields"), WITH_RECORDING)
async def test_where_no_voice_can_be_enrolled_the_error_says_what_is_missing(
    api: RunningApi, method: str, mode: str, fields: dict[str, str]
) -> None:
    status, _, body = await ask(api, method, mode, fields, recording=RECORDING)
    assert (status, problem(body)["code"]) == (501, "enrolment_unavailable")
    assert "tts.engine" in problem(body)["detail"]


@pytest.mark.parametrize(("mode", "fields"), WITH_RECORDING)
async def test_a_recording_needs_the_scope_admin_and_is_there(
    api: RunningApi, mode: str, fields: dict[str, str]
) -> None:
    status, _, body = await ask(api, "POST", mode, fields, recording=RECORDING, token=CALLER)
    assert (status, problem(body)["code"]) == (403, "forbidden")
    status, _, body = await ask(api, "POST", mode, fields)
    assert (status, [each["pointer"] for each in problem(body)["errors"]]) == (400, ["/prompt_wav"])


@pytest.mark.parametrize(("mode", "field"), [("zero_shot", "prompt_text"), ("instruct2", "instruct_text")])
@pytest.mark.parametrize("blank", [" ", "<|endofprompt|>"])
async def test_words_that_are_blank_are_refused_before_anything_is_enrolled(
    api: RunningApi, mode: str, field: str, blank: str
) -> None:
    status, _, body = await ask(api, "POST", mode, {"tts_text": TEXT, field: blank}, recording=RECORDING)
    assert (status, [each["pointer"] for each in problem(body).get("errors", ())]) == (422, [f"/{field}"])


@pytest.mark.parametrize(("mode", "fields"), WITH_RECORDING)
async def test_nothing_is_enrolled_for_a_text_that_cannot_be_spoken_or_by_a_server_that_drains(
    api: RunningApi, mode: str, fields: dict[str, str]
) -> None:
    for text in ("...", "one\0two"):
        status, _, body = await ask(api, "POST", mode, fields | {"tts_text": text}, recording=RECORDING)
        assert (status, [each["pointer"] for each in problem(body).get("errors", ())]) == (422, ["/tts_text"])
    api.registry.start_drain()
    status, _, body = await ask(api, "POST", mode, fields, recording=RECORDING)
    assert (status, problem(body)["code"]) == (503, "draining")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_who_has_a_recording_enrolled_is_in_the_log(api: RunningApi, method: str) -> None:
    with capture_logs() as lines:
        await ask(api, method, "cross_lingual", {"tts_text": TEXT}, recording=RECORDING)
        await ask(api, method, "sft", {"tts_text": TEXT})
    assert [line["route"] for line in lines if line["event"] == "administered"] == ["/inference_cross_lingual"]


@pytest.mark.parametrize("form", [b"&".join([b"a=1"] * 20), b"tts_text=a&tts_text=b"])
async def test_a_form_that_cannot_be_read(api: RunningApi, form: bytes) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/x-www-form-urlencoded"}
    async with api.session.post("/inference_sft", data=form, headers=headers) as response:
        assert (response.status, (await response.json(content_type=None))["code"]) == (400, "malformed")
