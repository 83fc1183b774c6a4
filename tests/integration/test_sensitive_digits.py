"""Digits of sensitive gathers: whose connection, webhook and file gets them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from cc_tts.config.schema import Scope, TokenConfig, WebhookConfig, WebhooksConfig
from lab.waiting import until
from tests.fakes.running_api import RunningApi, bearer, make_config, running_api
from tests.support.webhook_receiver import receiver, secret

pytestmark = pytest.mark.integration

BASIC: tuple[Scope, ...] = ("read", "call")
TOKENS = (
    TokenConfig("payments-token", BASIC),
    TokenConfig("analytics-token", BASIC),
    TokenConfig("auditors-token", (*BASIC, "digits")),
)
CARD = "4111111111111111"
HIDDEN = "x" * 16


async def gather(api: RunningApi, **more: Any) -> None:
    api.registry.add("c1", answered=True)
    body = {"sensitive": True, "max_digits": 16, **more}
    started = await api.ask("POST", "/v1/calls/c1/gather", body, headers=bearer("payments-token"))
    assert started.status == 201, started.json
    for key in CARD:
        api.registry.ua.digit("c1", key)


async def test_readers_get_the_digits_by_scope_and_by_name() -> None:
    async with running_api(make_config(tokens=TOKENS)) as api, ClientSession(f"http://127.0.0.1:{api.port}") as http:
        asked = {
            "named": ("payments-token", "?connection=cards"),
            "another of the token": ("payments-token", ""),
            "the name with another token": ("analytics-token", "?connection=cards"),
            "the scope": ("auditors-token", ""),
        }
        sockets = {
            name: await http.ws_connect(f"/v1/events{query}", headers=bearer(token))
            for name, (token, query) in asked.items()
        }
        await gather(api, digits_to={"connection": "cards"})
        seen = {}
        for name, socket in sockets.items():
            while (event := json.loads(await socket.receive_str(timeout=5)))["type"] != "call.gather_complete":
                assert CARD[:4] not in json.dumps(event)
            seen[name] = (event["data"]["digits"], event["data"].get("digits_withheld", False))
        assert seen == {
            "named": (CARD, False),
            "another of the token": (HIDDEN, True),
            "the name with another token": (HIDDEN, True),
            "the scope": (CARD, False),
        }
        first = event["id"].rpartition("_")[0] + "_0"
        later = await http.ws_connect(f"/v1/events?since={first}&connection=cards", headers=bearer("payments-token"))
        while (event := json.loads(await later.receive_str(timeout=5)))["type"] != "call.gather_complete":
            pass
        assert event["data"]["digits"] == HIDDEN, "the history has none"


async def test_a_webhook_gets_them_if_the_command_names_it_and_the_file_never(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.jsonl"
    async with receiver(secret=secret("a")) as named, receiver(secret=secret("b")) as other:
        endpoints = tuple(
            WebhookConfig(url=server.url, secret=server.secret, name=name)
            for name, server in (("cards", named), ("crm", other))
        )
        config = dataclasses.replace(
            make_config(tokens=TOKENS), webhooks=WebhooksConfig(endpoints=endpoints, file=str(file))
        )
        async with running_api(config) as api:
            await gather(api, digits_to={"webhook": "cards"})
            written = b""
            for server in (named, other):
                await until(lambda: "call.gather_complete" in server.kinds())  # noqa: B023 - it is awaited
            await until(lambda: b"call.gather_complete" in file.read_bytes())
            written = file.read_bytes()
    assert [server.of_kind("call.gather_complete")[0]["data"]["digits"] for server in (named, other)] == [CARD, HIDDEN]
    assert CARD.encode() not in written
    assert not named.unverified
    assert not other.unverified


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"sensitive": True, "digits_to": {"webhook": "nobody"}}, 422, "/digits_to/webhook"),
        ({"sensitive": True, "digits_to": {"webhook": "call"}}, 422, "/digits_to/webhook"),
        ({"digits_to": {"connection": "cards"}}, 422, "/digits_to"),
        ({"sensitive": True, "digits_to": {}}, 400, "/digits_to"),
        ({"sensitive": True, "digits_to": {"connection": "a", "webhook": "b"}}, 400, "/digits_to"),
        ({"sensitive": True, "digits_to": {"connection": "a b"}}, 422, "/digits_to/connection"),
    ],
)
async def test_a_destination_that_is_none_is_refused(body: Any, status: int, pointer: str) -> None:
    async with running_api() as api:
        api.registry.add("c1", answered=True)
        refused = await api.ask("POST", "/v1/calls/c1/gather", body)
        refused.check_problem(status, "unprocessable" if status == 422 else "malformed", pointer)
