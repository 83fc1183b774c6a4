"""What a webhook answers to ``call.incoming``, over HTTP."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from cc_tts.config.schema import WebhookConfig, WebhooksConfig
from lab.waiting import until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs
from tests.support.webhook_receiver import Json, Receiver, receiver, secret

pytestmark = pytest.mark.integration

SECRET = secret()


@asynccontextmanager
async def answering(
    answer: Any, *, after_s: float = 0.0, status: int = 200, **settings: Any
) -> AsyncIterator[tuple[RunningApi, Receiver]]:
    """A receiver that answers ``call.incoming`` so."""

    async def behave(_request: web.Request, event: Json) -> web.StreamResponse:
        if event["type"] != "call.incoming":
            return web.Response(status=204)
        await asyncio.sleep(after_s)
        if isinstance(answer, str):
            return web.Response(text=answer, status=status)
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status, content_type="application/json")
        return web.json_response(answer, status=status)

    async with receiver(secret=SECRET, behaviour=behave) as server:
        endpoint = WebhookConfig(url=server.url, secret=SECRET, name="crm")
        webhooks = WebhooksConfig(endpoints=(endpoint,), **settings)
        async with running_api(dataclasses.replace(make_config(), webhooks=webhooks)) as api:
            yield api, server


def answers(api: RunningApi, result: str) -> float:
    found = api.context.services.metrics.registry.get_sample_value("cctts_webhook_answers_total", {"result": result})
    return found or 0.0


async def test_it_speaks_gathers_and_answers() -> None:
    commands = {"answer": True, "speak": {"text": "one two"}, "gather": {"gather_id": "menu", "max_digits": 1}}
    async with answering(commands) as (api, server):
        call = api.registry.add("c1")
        await until(lambda: call.state == "established")
        assert call.keys.running.id == "menu"
        (prompt,) = api.registry.prompts.values()
        assert "one two" in str(prompt.content)
        assert answers(api, "used") == 1
        await until(lambda: "call.established" in server.kinds("c1"))


async def test_it_need_not_answer() -> None:
    async with answering({"speak": {"text": "one"}}) as (api, _):
        call = api.registry.add("c1")
        await until(lambda: answers(api, "used") == 1)
        assert call.waits_for_answer
        assert len(call.utterances) == 1


@pytest.mark.parametrize("answer", ["ok", b"", b"{}", " "])
async def test_a_response_without_an_answer_is_none(answer: Any) -> None:
    async with answering(answer) as (api, server):
        call = api.registry.add("c1")
        await until(lambda: "call.incoming" in server.kinds("c1"))
        await asyncio.sleep(0.1)
        assert call.waits_for_answer
        assert [answers(api, result) for result in ("used", "unusable", "refused", "late")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b"not JSON, a s3cret", "unusable"),
        ([], "unusable"),
        ({"anser": True}, "unusable"),
        ({"answer": "s3cret"}, "unusable"),
        ({"speak": {}}, "unusable"),
        ({"speak": {"text": "s3cret\0"}, "answer": True}, "unusable"),
        ({"gather": {"min_digits": 5, "max_digits": 2}}, "unusable"),
        ({"gather": {"sensitive": True, "digits_to": {"connection": "s3cret"}}}, "unusable"),
        ({"gather": {"sensitive": True, "digits_to": {"webhook": "s3cret"}}}, "unusable"),
        ({"speak": {"text": "s3cret", "voice": "s3cret"}, "answer": True}, "unusable"),
        ({"speak": {"text": "s3cret " * 100}, "answer": True}, "unusable"),
        (b"[" * 60_000, "unusable"),
        ({"speak": {"text": "s3cret " * 10_000}, "answer": True}, "unusable"),
        ({"speak": {"text": "one"}, "gather": {"prompt": {"text": "s3cret", "voice": "s3cret"}}}, "unusable"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_counted_and_its_content_not_logged(answer: Any, result: str) -> None:
    with capture_logs() as logged:
        async with answering(answer) as (api, _):
            call = api.registry.add("c1")
            await until(lambda: answers(api, result) == 1)
            assert call.waits_for_answer
            assert not call.utterances
    (line,) = [each for each in logged if each["event"] == "webhook_answer_not_used"]
    assert line["call_id"] == "c1"
    assert "s3cret" not in str(logged)


@pytest.mark.parametrize(
    ("answer", "fields", "detail"),
    [
        ({"anser": True}, ["/anser"], "crm: /anser: unknown field, did you mean answer?"),
        ({"gather": {"invalid_prompt": {"text": "…"}}}, ["/gather/invalid_prompt/text"], "crm: nothing"),
    ],
)
async def test_the_application_learns_why_its_answer_has_no_effect(
    answer: Json, fields: list[str], detail: str
) -> None:
    with capture_logs() as logged:
        async with answering(answer) as (api, server):
            api.registry.add("c1")
            await until(lambda: "call.command_failed" in server.kinds("c1"))
            (told,) = server.of_kind("call.command_failed")
    assert told["data"]["command"] == "webhook_answer"
    assert told["data"]["detail"].lower().startswith(detail)
    (line,) = [each for each in logged if each["event"] == "webhook_answer_not_used"]
    assert line["fields"] == fields


async def test_an_answer_that_comes_late_is_not_used() -> None:
    async with answering({"answer": True}, after_s=0.3, answer_timeout_ms=200) as (api, server):
        call = api.registry.add("c1")
        await until(lambda: answers(api, "late") == 1)
        assert call.waits_for_answer
        await until(lambda: "call.command_failed" in server.kinds("c1"))


async def test_an_answer_of_a_failure_is_not_used() -> None:
    async with answering({"answer": True}, status=500) as (api, server):
        call = api.registry.add("c1")
        await until(lambda: len(server.attempts) >= 1)
        await asyncio.sleep(0.1)
        assert call.waits_for_answer


async def test_an_answer_for_a_call_that_has_ended_is_refused() -> None:
    async with answering({"answer": True, "speak": {"text": "one"}}, after_s=0.2) as (api, _):
        api.registry.add("c1")
        api.registry.ua.ended("c1")
        await until(lambda: answers(api, "refused") == 1)
