"""Tenants over the API: each token reaches what is its tenant's, on every route there is, within the tenant's limits."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

from cc_tts.api.http.route import Route
from cc_tts.api.routes import ROUTES
from cc_tts.calls.events import types
from cc_tts.config.schema import TenantConfig, TokenConfig
from cc_tts.errors import EngineFailed
from cc_tts.tenants.quotas import TenantQuotas
from lab.waiting import until
from tests.fakes.running_api import Answered, RunningApi, bearer, make_config, running_api
from tests.fakes.served_call import refusal, served

pytestmark = pytest.mark.integration

OPERATOR, ACME, ACME_TOO, OTHER = "the-operators-token", "token-of-acme", "2nd-token-of-acme", "token-of-other"
TOKENS = (
    TokenConfig(OPERATOR),
    TokenConfig(ACME, tenant="acme"),
    TokenConfig(ACME_TOO, tenant="acme"),
    TokenConfig(OTHER, tenant="other"),
)
KEY = types.CallDtmf(digit="1", duration_ms=100, method="rfc4733")

SHARED: Final = {
    ("GET", "/v1/voices"),
    ("GET", "/v1/lexicons"),
    ("GET", "/v1/lexicons/{name}"),
    ("POST", "/v1/audio/speech"),
    *(
        ("GET", path)
        for path in ("/v1/audio/voices", "/v1/models", "/v1/models/{model}", "/v1/voices/{voice}", "/v2/voices")
    ),
    *(
        ("POST", f"/v1/text-to-speech/{{voice}}{path}")
        for path in ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
    ),
    *((method, f"/v{number}/speak") for method in ("GET", "POST") for number in (1, 2)),
    ("POST", "/v1/jambonz/speech"),
    ("GET", "/v1/jambonz/stream"),
    ("POST", "/vapi/{voice}"),
    ("POST", "/tts/bytes"),
    *((method, "/inference_sft") for method in ("GET", "POST")),
    ("POST", "/v1/speech"),
    ("GET", "/tts/websocket"),
    ("GET", "/voices"),
    *(("GET", f"/v1/text-to-speech/{{voice}}/{path}") for path in ("stream-input", "multi-stream-input")),
}
"""Routes without a call, the same for all tenants."""
FILTERED: Final = {("GET", "/v1/calls"), ("POST", "/v1/calls"), ("GET", "/v1/events"), ("GET", "/v1/user")}
"""Routes whose responses are a tenant's own; each has a test of its own, that of /v1/user with the clients."""
STAGED: Final = {("GET", "/v1/prompts"), ("POST", "/v1/prompts"), ("GET", "/v1/prompts/{prompt_id}/audio")} | {
    (method, "/v1/prompts/{prompt_id}") for method in ("GET", "PUT", "DELETE")
}
"""Routes of staged prompts, whose tenants are tested with them."""
RECORDED: Final = {("GET", "/v1/recordings"), ("GET", "/v1/recordings/{id}/audio")} | {
    (method, "/v1/recordings/{id}") for method in ("GET", "DELETE")
}
"""Routes of recordings, likewise."""
OPERATORS: Final = {
    ("GET", "/metrics"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/admin/status"),
    ("GET", "/v1/admin/tenants"),
    ("PATCH", "/v1/admin/log"),
    ("POST", "/v1/admin/reload"),
    ("POST", "/v1/admin/drain"),
    ("POST", "/v1/voices"),
    ("DELETE", "/v1/voices/{voice}"),
    *(
        (method, f"/inference_{mode}")
        for method in ("GET", "POST")
        for mode in ("zero_shot", "cross_lingual", "instruct2")
    ),
    ("PUT", "/v1/lexicons/{name}"),
    ("DELETE", "/v1/lexicons/{name}"),
    ("GET", "/v1/admin/webhooks"),
    ("POST", "/v1/admin/webhooks/{name}/test"),
}
OPEN: Final = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/asyncapi.json"),
    ("GET", "/v1/speech/{link}"),
    *(("GET", path) for path in ("/", "/console", "/console/", "/console/{file}")),
}
BODIES: Final[dict[str, Any]] = {
    "speakOnCall": {"text": "hello"},
    "playOnCall": {"tone": "beep"},
    "sendDtmf": {"digits": "1"},
    "updateCall": {"metadata": {"a": "b"}},
    "transferCall": {"to": "sip:agent@127.0.0.1", "hold": False},
    "acceptRefer": {"refer_id": "r1"},
    "refuseRefer": {"refer_id": "r1"},
    "bridgeCalls": {"call_id": "c-acme"},
    "startRelay": {"url": "wss://app.example.com/relay"},
    "consentToRecording": {"given": True},
}
"""Where an empty one is of no use."""


def config_with(**limits: TenantConfig) -> Any:
    tenants = {"acme": TenantConfig(), "other": TenantConfig()} | limits
    return dataclasses.replace(make_config(tokens=TOKENS), tenants=tenants)


def book_of(api: RunningApi) -> TenantQuotas:
    return api.context.services.tenants


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(config_with()) as running:
        for call_id, tenant in (("c-acme", "acme"), ("c-other", "other"), ("c-nobody", "")):
            running.registry.add(call_id, answered=True).tenant = tenant
        yield running


async def ask(api: RunningApi, route: Route, token: str, id_: str) -> Answered:
    path = route.path.replace("{id}", id_).replace("{name}", "names").replace("{voice}", "en-us")
    body = None if route.body is None else BODIES.get(route.operation_id, {})
    return await api.ask(route.method, path, body, headers=bearer(token))


def test_every_route_is_known_here() -> None:
    """A route that is new has to be put into one of the groups; the tests below ask all of each."""
    rest = {(route.method, route.path) for route in ROUTES} - SHARED - FILTERED - STAGED - RECORDED - OPERATORS - OPEN
    assert {path.rpartition("{id}")[0] for _, path in rest} == {"/v1/calls/", "/v1/utterances/"}


@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES if "{id}" in each.path and (each.method, each.path) not in RECORDED],
    ids=lambda each: each.operation_id,
)
async def test_a_call_of_another_is_as_unknown_as_one_that_never_was(api: RunningApi, route: Route) -> None:
    theirs, unknown = "c-acme", "c-never"
    if route.path.startswith("/v1/utterances"):
        spoken = await api.ask("POST", "/v1/calls/c-acme/speak", {"text": "hello"}, headers=bearer(ACME))
        theirs, unknown = spoken.json["id"], "u-never"
    api.registry.ua.asked.clear()
    found = [await ask(api, route, OTHER, id_) for id_ in (theirs, unknown, "c-nobody")]
    for answered, id_ in zip(found, (theirs, unknown, "c-nobody"), strict=True):
        assert answered.status == 404, answered.json
        problem = answered.json
        assert problem["code"] in ("call_not_found", "utterance_not_found")
        assert json.dumps(problem).replace(id_, "ID") == json.dumps(found[0].json).replace(theirs, "ID")
    call = api.registry.call("c-acme")
    told = {name for name, *of in api.registry.ua.asked if of[0] == call.id}
    assert not told & {"ring", "answer", "hangup", "hold", "dtmf", "paused", "cut", "bridge"}
    assert not call.paused
    assert call.metadata == {}
    assert len(call.utterances) == (1 if route.path.startswith("/v1/utterances") else 0)
    for token in (ACME, ACME_TOO, OPERATOR):
        answered = await ask(api, route, token, theirs)
        assert answered.status != 401, answered.json
        assert answered.status != 403 or answered.json["code"] in ("transfer_not_allowed", "relay_not_allowed")
        own = ("gather_not_found", "recording_not_found", "refer_not_found", "relay_not_found", "trace_not_found")
        assert answered.status != 404 or answered.json["code"] in own


@pytest.mark.parametrize(("method", "path"), sorted(OPERATORS))
async def test_what_is_the_operators(api: RunningApi, method: str, path: str) -> None:
    (route,) = (route for route in ROUTES if (route.method, route.path) == (method, path))
    (await ask(api, route, OTHER, "")).check_problem(403, "forbidden")
    assert not api.registry.draining
    assert (await ask(api, route, OPERATOR, "")).status not in (401, 403)


@pytest.mark.parametrize(("method", "path"), sorted(SHARED | OPEN))
async def test_what_all_share(api: RunningApi, method: str, path: str) -> None:
    (route,) = (route for route in ROUTES if (route.method, route.path) == (method, path))
    for token in (OTHER, OPERATOR):
        assert (await ask(api, route, token, "")).status not in (401, 403)


async def test_lists_have_the_calls_of_the_tenant(api: RunningApi) -> None:
    seen = {}
    for token in (OPERATOR, ACME, ACME_TOO, OTHER):
        calls = (await api.ask("GET", "/v1/calls", headers=bearer(token))).json["calls"]
        seen[token] = {call["id"]: call.get("tenant") for call in calls}
    assert seen[OPERATOR] == {"c-acme": "acme", "c-other": "other", "c-nobody": None}
    assert seen[ACME] == seen[ACME_TOO] == {"c-acme": "acme"}
    assert seen[OTHER] == {"c-other": "other"}


async def test_a_tenant_finds_its_own_calls_alone_by_a_sip_call_id(api: RunningApi) -> None:
    for token, found in ((OPERATOR, ["c-other"]), (OTHER, ["c-other"]), (ACME, [])):
        answered = await api.ask("GET", "/v1/calls?sip_call_id=sip-c-other", headers=bearer(token))
        assert [call["id"] for call in answered.json["calls"]] == found


async def test_a_call_that_is_placed_is_of_the_token_s_tenant(api: RunningApi) -> None:
    for token, tenant in ((ACME, "acme"), (OPERATOR, "")):
        placed = await api.ask("POST", "/v1/calls", {"to": "sip:a@127.0.0.1"}, headers=bearer(token))
        assert (placed.status, placed.json.get("tenant", "")) == (201, tenant)
        assert api.registry.requests[-1].tenant == tenant
        answered = await api.ask("GET", f"/v1/calls/{placed.json['id']}", headers=bearer(OTHER))
        answered.check_problem(404, "call_not_found")


async def test_nobody_hears_the_events_of_others(api: RunningApi) -> None:
    events = api.registry.services.events
    before = events.last_id
    async with AsyncExitStack() as stack:
        opened = {
            token: await stack.enter_async_context(api.session.ws_connect("/v1/events" + query, headers=bearer(token)))
            for token, query in ((OPERATOR, ""), (ACME, ""), (OTHER, ""))
        }
        nosy = await stack.enter_async_context(
            api.session.ws_connect("/v1/events?call_id=c-acme", headers=bearer(OTHER))
        )
        for call_id, tenant in (("c-acme", "acme"), (None, ""), ("c-nobody", ""), ("c-other", "other")):
            events.publish(KEY, call_id=call_id, tenant=tenant)
        late = await stack.enter_async_context(
            api.session.ws_connect(f"/v1/events?since={before}", headers=bearer(OTHER))
        )
        events.publish(KEY, call_id="c-other", tenant="other")
        got = [[json.loads(await opened[token].receive_str()) for _ in range(num)] for token, num in
               ((OPERATOR, 5), (ACME, 1), (OTHER, 2))]  # fmt: skip
        assert [event["call_id"] for event in got[0]] == ["c-acme", None, "c-nobody", "c-other", "c-other"]
        assert [event["call_id"] for event in got[1]] == ["c-acme"]
        assert [event["tenant"] for event in got[1]] == ["acme"]
        assert "tenant" not in got[0][1]
        assert [event["call_id"] for event in got[2]] == ["c-other", "c-other"]
        assert [json.loads(await late.receive_str())["call_id"] for _ in range(2)] == ["c-other", "c-other"]
        events.close()  # what was queued is sent before the end
        assert [message.type.name for message in [message async for message in nosy]] == []


async def test_server_sent_events_are_filtered_too(api: RunningApi) -> None:
    headers = bearer(OTHER) | {"Accept": "text/event-stream"}
    async with api.session.get("/v1/events", headers=headers) as stream:
        api.registry.services.events.publish(KEY, call_id="c-acme", tenant="acme")
        api.registry.services.events.publish(KEY, call_id="c-other", tenant="other")
        api.registry.services.events.close()
        text = (await stream.read()).decode()
    assert "c-other" in text
    assert "c-acme" not in text


async def test_an_idempotency_key_of_another_gives_nothing_away(api: RunningApi) -> None:
    headers = {"Idempotency-Key": "one"}
    spoken = await api.ask("POST", "/v1/calls/c-acme/speak", {"text": "hello"}, headers=bearer(ACME) | headers)
    assert spoken.status == 201
    again = await api.ask("POST", "/v1/calls/c-acme/speak", {"text": "hello"}, headers=bearer(OTHER) | headers)
    again.check_problem(404, "call_not_found")


# --- limits


async def test_listeners_of_a_tenant() -> None:
    async with running_api(config_with(acme=TenantConfig(max_listeners=2))) as api, AsyncExitStack() as stack:
        first = await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(ACME)))
        await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(ACME_TOO)))
        refused = await api.ask("GET", "/v1/events", headers=bearer(ACME) | {"Accept": "text/event-stream"})
        refused.check_problem(429, "quota_exceeded")
        assert int(refused.headers["Retry-After"]) >= 1
        await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(OTHER)))
        await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(OPERATOR)))
        await first.close()
        await until(lambda: book_of(api).use()["acme"].listeners == 1)
        await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(ACME)))
        with pytest.raises(WSServerHandshakeError):
            await api.session.ws_connect("/v1/events", headers=bearer(ACME))


@pytest.mark.parametrize("query", ["?types=nonsense", "?since=evt_00000000_1", "?since=x"])
async def test_a_subscription_that_is_refused_is_none(query: str) -> None:
    async with running_api(config_with(acme=TenantConfig(max_listeners=1))) as api:
        headers = bearer(ACME) | {"Accept": "text/event-stream"}
        for _ in range(3):
            assert (await api.ask("GET", f"/v1/events{query}", headers=headers)).status in (400, 410)
        assert book_of(api).use()["acme"].listeners == 0


async def test_speech_without_a_call_counts_as_streams_and_characters() -> None:
    limits = TenantConfig(max_streams=1, max_characters_per_day=12)
    async with running_api(config_with(acme=limits)) as api:
        api.registry.source.gate.clear()
        async with AsyncExitStack() as stack:
            first = api.session.post("/v1/audio/speech", json={"input": "one two"}, headers=bearer(ACME))
            running = asyncio.create_task(first.__aenter__())
            await until(lambda: book_of(api).use()["acme"].streams == 1)
            refused = await api.ask("POST", "/v1/audio/speech", {"input": "three"}, headers=bearer(ACME))
            refused.check_problem(429, "quota_exceeded")
            theirs = asyncio.create_task(api.ask("POST", "/v1/audio/speech", {"input": "four"}, headers=bearer(OTHER)))
            api.registry.source.gate.set()
            assert (await theirs).status == 200
            response = await running
            stack.push_async_callback(first.__aexit__, None, None, None)
            await response.read()
        await until(lambda: book_of(api).use()["acme"].streams == 0)
        assert book_of(api).use()["acme"].characters == 7
        refused = await api.ask("POST", "/v1/audio/speech", {"input": "seven more"}, headers=bearer(ACME))
        refused.check_problem(429, "quota_exceeded")
        assert int(refused.headers["Retry-After"]) <= 86_400
        assert (await api.ask("POST", "/v1/audio/speech", {"input": "five."}, headers=bearer(ACME))).status == 200


async def test_speech_that_fails_before_it_is_heard_is_not_charged() -> None:
    async with running_api(config_with(acme=TenantConfig(max_characters_per_day=20))) as api:
        api.registry.source.fail_at, api.registry.source.error = 0, EngineFailed("it broke")
        for _ in range(5):
            answered = await api.ask("POST", "/v1/audio/speech", {"input": "hello there"}, headers=bearer(ACME))
            assert answered.status == 500
        use = book_of(api).use()["acme"]
        assert (use.streams, use.characters) == (0, 0)


@pytest.mark.parametrize("kind", ["media", "stream"])
async def test_the_sockets_of_a_call(kind: str) -> None:
    """Who listens to a call counts as a listener; who only sends it text does not."""
    async with served(kind, TOKENS) as api, AsyncExitStack() as stack:
        registry, api.call.tenant = api.exchange.registry, "acme"
        tenants = {"acme": TenantConfig(max_listeners=1), "other": TenantConfig()}
        registry.services.reload(dataclasses.replace(api.exchange.services.config, tenants=tenants))
        assert await refusal(api.connect(headers=bearer(OTHER))) == 404
        await stack.enter_async_context(api.connect(headers=bearer(ACME)))
        if kind == "media":
            assert await refusal(api.connect(headers=bearer(ACME_TOO))) == 429
            assert await refusal(api.connect("?rate=7", headers=bearer(ACME))) == 422
            await stack.enter_async_context(api.connect(headers=bearer(OPERATOR)))
            assert len(api.call.followers) == 2
        else:
            await stack.enter_async_context(api.connect(headers=bearer(ACME_TOO)))
            assert len(api.call.followers) == 2
        await stack.aclose()
        use = api.exchange.services.tenants.use
        await until(lambda: use()["acme"].listeners == 0, timeout_s=100.0)


async def test_text_beyond_the_characters_of_a_day_is_refused_over_the_stream() -> None:
    async with served("stream", TOKENS) as api:
        registry, api.call.tenant = api.exchange.registry, "acme"
        limits = {"acme": TenantConfig(max_characters_per_day=5)}
        registry.services.reload(dataclasses.replace(api.exchange.services.config, tenants=limits))
        async with api.connect(headers=bearer(ACME)) as socket:
            await socket.send_json({"type": "tokens", "text": "hello everybody", "id": "1"})
            error = await socket.receive_json()
            assert (error["type"], error["code"], error["id"]) == ("error", "quota_exceeded", "1")


async def test_readers_of_a_tenant_do_not_keep_the_operator_out() -> None:
    config = config_with()
    config = dataclasses.replace(config, http=dataclasses.replace(config.http, max_event_subscribers=3))
    async with running_api(config) as api, AsyncExitStack() as stack:

        async def read(token: str) -> Any:
            return await stack.enter_async_context(api.session.ws_connect("/v1/events", headers=bearer(token)))

        theirs = [await read(ACME), await read(ACME_TOO), await read(ACME)]
        operators = await read(OPERATOR)
        closed = await theirs[0].receive(timeout=5)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1013)
        assert await refusal(read(ACME)) == 503
        api.registry.services.events.publish(KEY, call_id="c-acme", tenant="acme")
        for reader in (operators, *theirs[1:]):
            assert json.loads((await reader.receive(timeout=5)).data)["call_id"] == "c-acme"
