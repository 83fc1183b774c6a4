"""Webhooks against a real receiver that works, is slow, lies, or is not there."""

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cc_tts.config.schema import Config, WebhookConfig, WebhooksConfig
from lab.waiting import until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.webhook_receiver import Behaviour, Json, Receiver, receiver, secret, take

pytestmark = pytest.mark.integration

NEW, OLD = secret("n"), secret("o")


def configured(*endpoints: WebhookConfig, **settings: Any) -> Config:
    return dataclasses.replace(make_config(), webhooks=WebhooksConfig(endpoints=endpoints, **settings))


def to(server: Receiver, **fields: Any) -> WebhookConfig:
    return WebhookConfig(**{"url": server.url, "secret": NEW, **fields})


def end(api: RunningApi, call_id: str) -> None:
    api.registry.ua.ended(call_id)


async def test_events_arrive_in_order_with_right_signatures() -> None:
    async with receiver(secret=NEW) as server, running_api(configured(to(server))) as api:
        for call_id in ("c1", "c2"):
            api.registry.add(call_id, answered=True)
        assert (await api.ask("POST", "/v1/calls/c1/speak", {"text": "one two"})).status == 201
        for call_id in ("c1", "c2"):
            end(api, call_id)
        await until(lambda: len(server.of_kind("call.terminated")) == 2)
        for call_id in ("c1", "c2"):
            seqs = [each["seq"] for each in server.taken if each["call_id"] == call_id]
            assert seqs == list(range(1, len(seqs) + 1))
        assert not server.unverified
        first = server.headers[0]
        assert (first["cctts-call-id"], first["cctts-seq"], first["content-type"]) == ("c1", "1", "application/json")


async def test_both_secrets_sign_during_a_rotation() -> None:
    for verified in (OLD, NEW):
        async with receiver(secret=verified) as server, running_api(configured(to(server, secret=(NEW, OLD)))) as api:
            api.registry.add("c1")
            await until(lambda: "call.incoming" in server.kinds("c1"))
            assert not server.unverified


async def close_at_once(request: web.Request, _event: Json) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response(status=500)


async def redirect(request: web.Request, _event: Json) -> web.StreamResponse:
    return web.Response(status=301, headers={"Location": str(request.url.with_path("/elsewhere"))})


async def never(_request: web.Request, _event: Json) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response(status=200)


async def endless(request: web.Request, _event: Json) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b" " * 65_536)
    return response


async def half_a_body(request: web.Request, _event: Json) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.sleep(60)
    return response


async def test_an_event_that_is_refused_is_repeated_under_its_id_in_order() -> None:
    seen: set[str] = set()

    async def refuse_once_each(_request: web.Request, event: Json) -> web.StreamResponse:
        is_new = event["id"] not in seen
        seen.add(event["id"])
        return web.Response(status=500 if is_new else 200)

    async with receiver(secret=NEW, behaviour=refuse_once_each) as server, running_api(configured(to(server))) as api:
        api.registry.add("c1", answered=True)
        end(api, "c1")
        await until(lambda: "call.terminated" in server.kinds("c1"))
        assert [each["seq"] for each in server.taken] == list(range(1, len(server.taken) + 1))
        ids = [each["id"] for each in server.attempts]
        assert ids == [each for pair in zip(ids[::2], ids[::2], strict=True) for each in pair]
        assert not server.unverified


@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        (redirect, 301, ""),
        (close_at_once, None, "it closed the connection without a response"),
        (never, None, "no response within 0.3 s"),
    ],
)
async def test_what_is_no_success_is_shown_and_the_call_goes_on(
    behaviour: Behaviour, status: int | None, error: str
) -> None:
    async with (
        receiver(secret=NEW, behaviour=behaviour) as server,
        running_api(configured(to(server, name="crm", timeout_ms=300))) as api,
    ):
        call = api.registry.add("c1", answered=True)
        assert call.state == "established"
        await until(lambda: api.registry.webhooks.endpoints["crm"].num_failed >= 1)
        (shown,) = (await api.ask("GET", "/v1/admin/webhooks")).json["webhooks"]
        assert (shown["name"], shown["last_status"], shown["last_error"]) == ("crm", status, error)
        assert shown["queued"] >= 1
        assert shown["oldest_s"] >= 0
        assert (await api.ask("POST", "/v1/calls/c1/speak", {"text": "one"})).status == 201
        tried = (await api.ask("POST", "/v1/admin/webhooks/crm/test")).json
        assert (tried["taken"], tried["status"], tried["error"]) == (False, status, error)


@pytest.mark.parametrize(("behaviour", "timeout_ms"), [(endless, 5000), (half_a_body, 5000), (half_a_body, 500)])
async def test_a_body_without_end_is_not_read(behaviour: Behaviour, timeout_ms: int) -> None:
    async with (
        receiver(secret=NEW, behaviour=behaviour) as server,
        running_api(configured(to(server, timeout_ms=timeout_ms))) as api,
    ):
        api.registry.add("c1", answered=True)
        end(api, "c1")
        await until(lambda: api.registry.webhooks.endpoints["1"].num_delivered == 3)
        assert api.registry.webhooks.endpoints["1"].num_failed == 0


async def test_410_disables_an_endpoint_until_a_test_succeeds() -> None:
    async def gone(_request: web.Request, _event: Json) -> web.StreamResponse:
        return web.Response(status=410)

    async with receiver(secret=NEW, behaviour=gone) as server, running_api(configured(to(server, name="crm"))) as api:
        api.registry.add("c1")
        await until(lambda: api.registry.webhooks.endpoints["crm"].state == "disabled")
        server.behaviour = take
        assert (await api.ask("POST", "/v1/admin/webhooks/crm/test")).json["taken"]
        assert server.of_kind("webhook.test")[0]["data"] == {"webhook": "crm"}
        api.registry.add("c2")
        await until(lambda: "call.incoming" in server.kinds("c2"))
        (await api.ask("POST", "/v1/admin/webhooks/crn/test")).check_problem(404, "webhook_not_found")


async def test_a_receiver_that_is_dead_at_first_gets_everything_in_order_later() -> None:
    async with receiver(secret=NEW) as gone:
        url = gone.url
    async with running_api(configured(WebhookConfig(url=url, secret=NEW))) as api:
        for call_id in ("c1", "c2"):
            api.registry.add(call_id, answered=True)
            end(api, call_id)
        await until(lambda: api.registry.webhooks.endpoints["1"].num_failed >= 2)
        async with receiver(secret=NEW, port=int(url.split(":")[2].split("/")[0])) as server:
            await until(lambda: len(server.of_kind("call.terminated")) == 2)
            for call_id in ("c1", "c2"):
                seqs = [each["seq"] for each in server.taken if each["call_id"] == call_id]
                assert seqs == list(range(1, len(seqs) + 1))


async def test_durable_events_outlive_the_server(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.jsonl"
    async with receiver(secret=NEW) as gone:
        url = gone.url
    endpoint = WebhookConfig(url=url, secret=NEW, name="crm")
    async with running_api(configured(endpoint, file=str(file))) as api:
        api.registry.add("c1", answered=True)
        end(api, "c1")
        await until(lambda: b"call.terminated" in content_of(file))
    assert file.stat().st_mode & 0o077 == 0
    async with (
        receiver(secret=NEW, port=int(url.split(":")[2].split("/")[0])) as server,
        running_api(configured(endpoint, file=str(file))),
    ):
        await until(lambda: server.kinds("c1") == ["call.terminated"])
    async with running_api(configured(endpoint, file=str(file))) as api:
        assert len(api.registry.webhooks.endpoints["crm"].queue) == 0


async def test_a_call_has_a_webhook_of_its_own_where_that_is_allowed() -> None:
    async with receiver(secret=OLD) as server:
        wanted = {"to": "sip:bob@127.0.0.1", "call_id": "c9", "webhook": {"url": server.url, "secret": OLD}}
        async with running_api(configured(allow_per_call=True, allowed_hosts=("127.0.0.0/8",))) as api:
            assert (await api.ask("POST", "/v1/calls", wanted)).status == 201
            end(api, "c9")
            await until(lambda: server.kinds("c9") == ["call.outgoing", "call.terminated"])
            assert not server.unverified


@pytest.mark.parametrize(
    ("settings", "webhook", "status", "code"),
    [
        ({}, {"url": "http://127.0.0.1:9/x"}, 403, "webhook_not_allowed"),
        ({"allow_per_call": True}, {"url": "http://127.0.0.1:9/x"}, 403, "webhook_not_allowed"),
        (
            {"allow_per_call": True, "allowed_hosts": ("a.b",)},
            {"url": "http://localhost:9/"},
            403,
            "webhook_not_allowed",
        ),
        ({"allow_per_call": True}, {"url": "file:///etc/passwd"}, 422, "unprocessable"),
        ({"allow_per_call": True}, {"url": "http://u:p@a.b/"}, 422, "unprocessable"),
        ({"allow_per_call": True}, {"url": "http://a.b/", "secret": "whsec_short"}, 422, "unprocessable"),
    ],
)
async def test_a_webhook_of_a_call_that_is_refused(settings: Json, webhook: Json, status: int, code: str) -> None:
    async with running_api(configured(**settings)) as api:
        refused = await api.ask("POST", "/v1/calls", {"to": "sip:bob@127.0.0.1", "webhook": webhook})
        pointer = "/webhook/secret" if "secret" in webhook else "/webhook/url"
        refused.check_problem(status, code, pointer)


async def test_a_name_that_leads_to_a_private_address_is_not_reached() -> None:
    async with receiver(secret=NEW) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        wanted = {"to": "sip:bob@127.0.0.1", "call_id": "c9", "webhook": {"url": url, "secret": NEW}}
        async with running_api(configured(allow_per_call=True, allowed_hosts=("localhost",))) as api:
            assert (await api.ask("POST", "/v1/calls", wanted)).status == 201
            (endpoint,) = api.registry.webhooks.all_endpoints
            await until(lambda: endpoint.num_failed == 1)
            assert endpoint.last_error == "webhooks.allowed_hosts has none of its addresses, which are not public"
        assert not server.attempts


async def test_secrets_are_replaced_while_the_server_runs() -> None:
    async with receiver(secret=OLD) as server:
        endpoint = to(server, name="crm", secret=OLD)
        async with running_api(configured(endpoint)) as api:
            api.registry.add("c1")
            await until(lambda: "call.incoming" in server.kinds("c1"))
            crm = api.registry.webhooks.endpoints["crm"]
            await until(lambda: not (len(crm.queue) or crm.num_in_flight))  # what is under way has the old signature
            api.registry.webhooks.reload(WebhooksConfig(endpoints=(dataclasses.replace(endpoint, secret=NEW),)))
            server.secret = NEW
            api.registry.add("c2")
            await until(lambda: "call.incoming" in server.kinds("c2"))
            assert not server.unverified


def content_of(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""
