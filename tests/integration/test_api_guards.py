"""What stands before every handler: tokens, time limits, Idempotency-Key, request ids, logs; and the operations."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from cc_tts.config.schema import TokenConfig
from cc_tts.logs import MAX_REPEATS
from lab.waiting import PATIENCE_S
from tests.fakes.running_api import Answered, RunningApi, bearer, make_config, running_api
from tests.fakes.served_call import refusal
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

READ, CALL, ADMIN = "read-token-1", "call-token-22", "admin-token-333"
TOKENS = (TokenConfig(READ, ("read",)), TokenConfig(CALL, ("call",)), TokenConfig(ADMIN, ("admin",)))


@pytest.fixture
async def locked() -> AsyncIterator[RunningApi]:
    async with running_api(make_config(tokens=TOKENS)) as running:
        running.registry.add("c1", answered=True)
        yield running


# --- tokens


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/calls", READ),
        ("GET", "/v1/voices", READ),
        ("GET", "/metrics", READ),
        ("POST", "/v1/calls/c1/pause", CALL),
        ("DELETE", "/v1/calls/c1", CALL),
        ("POST", "/v1/admin/drain", ADMIN),
    ],
)
async def test_each_scope_opens_its_own_routes(locked: RunningApi, method: str, path: str, scope: str) -> None:
    answered = await locked.ask(method, path)
    answered.check_problem(401, "unauthorized")
    assert answered.headers["WWW-Authenticate"] == 'Bearer realm="cc-tts"'
    for token in (READ, CALL, ADMIN):
        answered = await locked.ask(method, path, headers=bearer(token))
        if token == scope:
            assert answered.status in (200, 202)
        else:
            answered.check_problem(403, "forbidden")
            assert 'error="insufficient_scope"' in answered.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Bearer wrong", "Basic " + READ, READ, f"Bearer {READ}x", f"Bearer {READ[:-1]}", "Bearer ü"],
)
async def test_wrong_tokens_are_401(locked: RunningApi, authorization: str) -> None:
    answered = await locked.ask("GET", "/v1/calls", headers={"Authorization": authorization})
    answered.check_problem(401, "unauthorized")
    assert answered.headers["WWW-Authenticate"] == 'Bearer realm="cc-tts", error="invalid_token"'


async def test_the_scheme_is_compared_without_case(locked: RunningApi) -> None:
    assert (await locked.ask("GET", "/v1/calls", headers={"Authorization": f"bEARER {READ}"})).status == 200


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": f"Token {READ}"}, {"xi-api-key": READ}, {"X-API-Key": READ}],
    ids=lambda each: next(iter(each)),
)
async def test_clients_of_other_services_send_the_token_in_their_own_header(
    locked: RunningApi, headers: dict[str, str]
) -> None:
    assert (await locked.ask("GET", "/v1/voices", headers=headers)).status == 200
    wrong = {name: value.replace(READ, "wrong") for name, value in headers.items()}
    assert (await locked.ask("GET", "/v1/voices", headers=wrong)).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/openapi.json"])
async def test_some_routes_need_no_token(locked: RunningApi, path: str) -> None:
    assert (await locked.ask("GET", path)).status == 200


async def test_a_wrong_token_is_refused_before_its_body_is_read(locked: RunningApi) -> None:
    async with locked.connect() as (reader, writer):
        writer.write(
            b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")


FOREIGN_PAGES = [
    {"Host": "evil.example:8080"},  # DNS rebinding
    {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"},
    {"Host": "evil.localhost:8080", "Origin": "http://evil.localhost:8080"},
    {"Host": "192.0.2.7:8080"},
    {"Host": "0.0.0.0:8080"},
    {"Host": "localhost:8080@evil.example"},
    {"Host": "localhost:8080.evil.example"},
    {"Host": ""},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://203.0.113.9"},
    {"Origin": "http://203.0.113.9:{port}"},
    {"Origin": "http://evil.localhost"},
    {"Origin": "http://localhost:{port}"},  # Host is 127.0.0.1
    {"Host": "localhost:{port}", "Origin": "http://localhost:3000"},
    {"Host": "localhost:{port}", "Origin": "http://localhost"},
    {"Host": "localhost:{port}", "Origin": "https://localhost:{port}"},
    {"Host": "localhost:{port}", "Origin": "http://localhost:{port}/"},
    {"Host": "localhost:{port}", "Origin": "http://evil@localhost:{port}"},
    {"Host": "localhost:{port}", "Origin": "file://localhost:{port}"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]
EVERY_ROUTE = [
    ("GET", "/v1/calls"),
    ("HEAD", "/v1/calls"),
    ("GET", "/v1/calls/c1"),
    ("POST", "/v1/calls/c1/pause"),
    ("DELETE", "/v1/calls/c1"),
    ("GET", "/v1/utterances/u1"),
    ("GET", "/v1/voices"),
    ("GET", "/v1/events"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/admin/drain"),
    ("GET", "/metrics"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/openapi.json"),
    ("OPTIONS", "/v1/admin/drain"),
    ("GET", "/nowhere"),
]


def with_port(headers: dict[str, str], api: RunningApi) -> dict[str, str]:
    return {name: value.replace("{port}", str(api.port)) for name, value in headers.items()}


@pytest.mark.parametrize("headers", FOREIGN_PAGES, ids=repr)
async def test_without_tokens_web_pages_are_kept_out(api: RunningApi, headers: dict[str, str]) -> None:
    answered = await api.ask("POST", "/v1/admin/drain", headers=with_port(headers, api))
    answered.check_problem(403, "forbidden")
    assert not api.registry.draining
    assert await refusal(api.session.ws_connect("/v1/events", headers=with_port(headers, api))) == 403
    assert api.registry.services.events.num_subscribers == 0


@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
async def test_without_tokens_web_pages_are_kept_out_of_every_route(api: RunningApi, method: str, path: str) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://203.0.113.9"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await api.ask(method, path, headers=headers)).status == 403


async def test_two_hosts_or_origins_are_refused(api: RunningApi) -> None:
    host = f"localhost:{api.port}".encode()
    for more in (b"Host: evil.example", b"Origin: http://" + host + b"\r\nOrigin: http://evil.example"):
        async with api.connect() as (reader, writer):
            writer.write(b"GET /v1/calls HTTP/1.1\r\nHost: " + host + b"\r\n" + more + b"\r\n\r\n")
            assert (await reader.readline()).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:8080"},
        {"Host": "LOCALHOST"},
        {"Host": "127.0.0.1"},
        {"Host": "[::1]:8080"},
        {"Origin": "http://127.0.0.1:{port}"},
        {"Host": "localhost:9000", "Origin": "http://localhost:9000"},  # a forwarded port
        {"Host": "localhost:80", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "localhost:{port}", "Origin": "http://localhost:{port}", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=repr,
)
async def test_without_tokens_programs_and_pages_of_this_server_are_let_in(
    api: RunningApi, headers: dict[str, str]
) -> None:
    assert (await api.ask("GET", "/v1/calls", headers=with_port(headers, api))).status == 200
    async with api.session.ws_connect("/v1/events", headers=with_port(headers, api)):
        pass


async def test_with_tokens_the_name_and_the_page_do_not_matter(locked: RunningApi) -> None:
    for headers in ({"Host": "tts.example"}, {"Origin": "https://console.example", "Sec-Fetch-Site": "cross-site"}):
        assert (await locked.ask("GET", "/v1/calls", headers={**headers, **bearer(READ)})).status == 200
        assert (await locked.ask("GET", "/v1/calls", headers=headers)).status == 401


# --- time


async def test_a_body_that_stays_away_is_408(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(
            b"POST /v1/calls/c1/speak HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"text": '
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"Connection: close" in head


async def test_a_body_that_drips_is_408(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(
            b"POST /v1/calls/c1/speak HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

        async def drip() -> None:
            while True:
                writer.write(b"1\r\n \r\n")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        dripping.cancel()


async def test_a_client_that_breaks_off_its_body_leaves_the_server_well(api: RunningApi) -> None:
    async with api.connect() as (_, writer):
        writer.write(
            b"POST /v1/calls/c1/speak HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"te'
        )
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        assert (await api.ask("GET", "/healthz")).status == 200
        assert not api.registry.prompts


async def test_a_layer_below_that_hangs_is_503(api: RunningApi) -> None:
    api.registry.gate.clear()
    answered = await api.ask("POST", "/v1/calls", {"to": "sip:x@h"})
    answered.check_problem(503, "deadline_exceeded")
    assert "Retry-After" in answered.headers


# --- Idempotency-Key


async def test_the_same_key_and_body_speak_once(api: RunningApi) -> None:
    async def speak(headers: dict[str, str]) -> Answered:
        return await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"}, headers=headers)

    first, second = [await speak({"Idempotency-Key": "k1"}) for _ in range(2)]
    assert (first.status, first.raw) == (second.status, second.raw) == (201, first.raw)
    assert first.headers["Location"] == second.headers["Location"]
    assert first.headers["Content-Type"] == second.headers["Content-Type"]
    assert second.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert len(api.registry.prompts) == 1
    await speak({"Idempotency-Key": "k2"})
    assert len(api.registry.prompts) == 2


async def test_two_at_once_with_the_same_key_call_once() -> None:
    async with running_api(make_config(request_timeout_s=5.0)) as api:
        api.registry.gate.clear()
        body, headers = {"to": "sip:x@h"}, {"Idempotency-Key": "k"}
        both = [asyncio.create_task(api.ask("POST", "/v1/calls", body, headers=headers)) for _ in range(2)]
        await asyncio.sleep(0.1)
        api.registry.gate.set()
        first, second = await asyncio.gather(*both)
        assert first.status == second.status == 201
        assert first.json["id"] == second.json["id"]
        assert len(api.registry.requests) == 1


@pytest.mark.parametrize("handler_cancellation", [False, True])
async def test_a_client_that_hung_up_gets_its_answer_when_it_asks_again(handler_cancellation: bool) -> None:
    config = make_config(request_timeout_s=5.0)
    async with running_api(config, handler_cancellation=handler_cancellation) as api:
        api.registry.gate.clear()
        body, headers = {"to": "sip:x@h"}, {"Idempotency-Key": "k"}
        async with ClientSession(f"http://127.0.0.1:{api.port}") as impatient:
            asking = asyncio.create_task(impatient.post("/v1/calls", json=body, headers=headers))
            await asyncio.sleep(0.1)
            asking.cancel()
        again = asyncio.create_task(api.ask("POST", "/v1/calls", json.dumps(body).encode(), headers=headers))
        await asyncio.sleep(0.1)
        api.registry.gate.set()
        assert (await again).status == 201
        assert len(api.registry.requests) == 1


async def test_the_same_key_with_another_body_is_422(api: RunningApi) -> None:
    headers = {"Idempotency-Key": "k"}
    assert (await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"}, headers=headers)).status == 201
    (await api.ask("POST", "/v1/calls/c1/speak", {"text": "ho"}, headers=headers)).check_problem(
        422, "idempotency_mismatch"
    )


async def test_keys_of_paths_and_holders_do_not_meet() -> None:
    tokens = (TokenConfig("token-one"), TokenConfig("token-two"))
    async with running_api(make_config(tokens=tokens)) as api:
        for number, (path, token) in enumerate(
            [("c1/speak", "token-one"), ("c2/speak", "token-one"), ("c1/speak", "token-two")], 1
        ):
            if not api.registry.has(path[:2]):
                api.registry.add(path[:2], answered=True)
            headers = {"Idempotency-Key": "k", **bearer(token)}
            assert (await api.ask("POST", f"/v1/calls/{path}", {"text": "hi"}, headers=headers)).status == 201
            assert len(api.registry.prompts) == number


async def test_refusals_that_stay_are_kept_and_others_are_not(api: RunningApi) -> None:
    headers = {"Idempotency-Key": "k"}
    for _ in range(2):
        answered = await api.ask("POST", "/v1/calls/c9/speak", {"text": "hi"}, headers=headers)
        answered.check_problem(404, "call_not_found")
    assert answered.headers["Idempotency-Replayed"] == "true"
    while (await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"})).status == 201:
        pass
    body = {"text": "hi"}
    assert (await api.ask("POST", "/v1/calls/c1/speak", body, headers=headers)).status == 429
    assert (await api.ask("POST", "/v1/calls/c1/stop", {"scope": "all"})).status == 200
    assert (await api.ask("POST", "/v1/calls/c1/speak", body, headers=headers)).status == 201


async def test_server_errors_are_not_kept(api: RunningApi) -> None:
    headers = {"Idempotency-Key": "k"}
    api.registry.source.refusal = RuntimeError("no")
    assert (await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"}, headers=headers)).status == 500
    api.registry.source.refusal = None
    assert (await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"}, headers=headers)).status == 201


@pytest.mark.parametrize("key", ["", "a" * 256, "ü", "a\tb"])
async def test_unusable_keys_are_400(api: RunningApi, key: str) -> None:
    answered = await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"}, headers={"Idempotency-Key": key})
    answered.check_problem(400, "malformed")
    assert not api.registry.prompts


# --- ids and logs


async def test_request_ids_are_echoed_or_made(api: RunningApi) -> None:
    assert (await api.ask("GET", "/healthz", headers={"X-Request-Id": "abc-1"})).headers["X-Request-Id"] == "abc-1"
    for bad in ("", "x" * 129, "ü"):
        answered = await api.ask("GET", "/nowhere", headers={"X-Request-Id": bad})
        assert answered.headers["X-Request-Id"].startswith("req_")


async def test_a_refused_command_has_a_line_without_its_text(api: RunningApi) -> None:
    with capture_logs() as lines:
        await api.ask("POST", "/v1/calls/call_1/speak", {"text": "the secret"})
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert line["log_level"] == "info"
    assert (line["route"], line["id"], line["code"]) == ("/v1/calls/{id}/speak", "call_1", "call_not_found")
    assert "secret" not in str(lines)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/calls/call_1", 404, "call_not_found"),
        ("GET", "/v1/calls?state=nonsense", 400, "malformed"),
        ("PUT", "/v1/calls", 405, None),
        ("GET", "/v1/secret", 404, "not_found"),
    ],
)
async def test_each_refused_request_has_a_line_with_its_request_id(
    api: RunningApi, method: str, path: str, status: int, code: str | None
) -> None:
    with capture_logs() as lines:
        await api.ask(method, path, headers={"X-Request-Id": "my-req-77"})
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert (line["log_level"], line["request_id"]) == ("info", "my-req-77")
    assert (line["method"], line["status"], line["code"]) == (method, status, code)
    assert "secret" not in str(line)


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(("traceparent", "is_taken"), [(f"00-{TRACE}-{SPAN}-01", True), ("nonsense", False)])
async def test_ids_of_the_request_and_of_its_trace_reach_the_log(
    api: RunningApi, traceparent: str, is_taken: bool
) -> None:
    with capture_logs() as lines:
        await api.ask("GET", "/v1/calls", headers={"X-Request-Id": "abc-1", "traceparent": traceparent})
        await api.ask("GET", "/v1/calls")
    first, second = [line for line in lines if line["event"] == "http_request"]
    assert first["request_id"] == "abc-1"
    assert (first.get("trace_id"), first.get("span_id")) == ((TRACE, SPAN) if is_taken else (None, None))
    assert second["request_id"].startswith("req_")
    assert "trace_id" not in second


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",  # RFC 6455 §1.3
}


async def test_no_answer_names_versions(api: RunningApi) -> None:
    for path in ("/healthz", "/nowhere", "/v1/events"):
        assert (await api.ask("GET", path)).headers["Server"] == "cc-tts"
    answered = await api.ask("POST", "/v1/audio/speech", {"input": "hi"})
    assert (answered.status, answered.headers["Server"]) == (200, "cc-tts")
    async with api.session.get("/v1/events", headers=UPGRADE) as upgraded:
        assert (upgraded.status, upgraded.headers["Server"]) == (101, "cc-tts")
    for head in (b"GET / HTTP/9.9 nonsense", b"GET / HTTP/1.1\r\nX-A: " + 9000 * b"a"):
        async with api.connect() as (reader, writer):
            writer.write(head + b"\r\n\r\n")
            answer = (await asyncio.wait_for(reader.read(), PATIENCE_S)).lower()
        assert answer.split()[1] == b"400"
        assert b"application/problem+json" in answer
        assert b"or its head is too long" in answer
        assert b"server: cc-tts\r\n" in answer
        assert b"aiohttp" not in answer


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/call", "there is nothing at this path, did you mean /v1/calls?"),
        ("/v1/calls/c1/speek", "there is nothing at this path, did you mean /v1/calls/{id}/speak?"),
        ("/v1/calls/c1/say", "there is nothing at this path, did you mean /v1/calls/{id}/speak?"),
        ("/calls", "there is nothing at this path, did you mean /v1/calls?"),
        ("/v1/calls/", "there is nothing at this path, did you mean /v1/calls?"),
        ("/v1/webhooks", "there is nothing at this path, did you mean /v1/admin/webhooks?"),
        ("/v1/brand", "there is nothing at this path; GET /v1/openapi.json lists what there is"),
        ("/docs", "there is nothing at this path; GET /v1/openapi.json lists what there is"),
        ("/healtz", "there is nothing at this path, did you mean /healthz?"),
        ("/wp-login.php", "there is nothing at this path; GET /v1/openapi.json lists what there is"),
        ("/" + "x" * 5000, "there is nothing at this path; GET /v1/openapi.json lists what there is"),
    ],
)
async def test_an_unknown_path_is_told_the_nearest(api: RunningApi, path: str, detail: str) -> None:
    answered = await api.ask("GET", path)
    answered.check_problem(404, "not_found")
    assert answered.json["detail"] == detail


async def test_an_unexpected_failure_tells_the_log_and_not_the_client(api: RunningApi) -> None:
    api.registry.source.refusal = RuntimeError("internal detail")
    with capture_logs() as lines:
        answered = await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"})
    answered.check_problem(500, "internal")
    assert b"internal detail" not in answered.raw
    (failure,) = [line for line in lines if line["event"] == "http_handler_failed"]
    assert failure["exc_info"]
    assert failure["request_id"] == answered.headers["X-Request-Id"]


async def test_no_prompt_and_no_token_reaches_the_log(locked: RunningApi, caplog: pytest.LogCaptureFixture) -> None:
    secret = "the-caller-owes-us-money"
    with capture_logs() as lines:
        for body in ({"text": secret}, {"text": secret, secret: 1}, {"text": secret + "\0"}, {"text": secret * 9}):
            for token in (CALL, READ, secret):
                await locked.ask("POST", "/v1/calls/c1/speak", body, headers=bearer(token))
        async with locked.connect() as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nAuthorization: Bearer " + CALL.encode() * 2000 + b"\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"400"
    logged = repr(lines)
    assert lines
    assert not [word for word in (secret, READ, CALL) if word in logged]
    outside = [record for record in caplog.records if record.name != "cc_tts.api.protocol"]
    assert not [record for record in outside if CALL in record.getMessage()]


# --- operations


async def test_ready_tells_why_not(api: RunningApi) -> None:
    assert (await api.ask("GET", "/readyz")).json == {"status": "ready"}
    assert (await api.ask("GET", "/healthz")).json == {"status": "ok"}
    api.registry.not_ready = "the SIP user agent is starting"
    answered = await api.ask("GET", "/readyz")
    answered.check_problem(503, "not_ready")
    assert answered.json["reason"] == "the SIP user agent is starting"
    assert (await api.ask("GET", "/healthz")).status == 200


async def test_two_drains_are_one() -> None:
    drained: list[bool] = []
    async with running_api(on_drain=lambda: drained.append(True)) as api:
        first = await api.ask("POST", "/v1/admin/drain")
        second = await api.ask("POST", "/v1/admin/drain", {})
        assert (first.status, first.json) == (202, {"draining": True, "already": False})
        assert (second.status, second.json) == (202, {"draining": True, "already": True})
        assert drained == [True]
        answered = await api.ask("POST", "/v1/calls", {"to": "sip:x@h"})
        answered.check_problem(503, "draining")
        assert answered.headers["Retry-After"] == "5"
        (await api.ask("POST", "/v1/audio/speech", {"input": "hi"})).check_problem(503, "draining")


async def test_metrics_count_requests_by_route(api: RunningApi) -> None:
    await api.ask("GET", "/v1/calls/c1")
    await api.ask("GET", "/v1/calls/c9")
    await api.ask("GET", "/wp-login.php")
    await api.ask("PROPFIND", "/v1/calls/c1")
    api.registry.not_ready = "the engine is loading"
    answered = await api.ask("GET", "/metrics")
    assert answered.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answered.raw.decode().splitlines()
    assert 'cctts_http_requests_total{method="GET",route="/v1/calls/{id}",status="200"} 1.0' in lines
    assert 'cctts_http_requests_total{method="GET",route="/v1/calls/{id}",status="404"} 1.0' in lines
    assert 'cctts_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in lines
    assert 'cctts_http_requests_total{method="other",route="unmatched",status="405"} 1.0' in lines
    assert 'cctts_http_request_seconds_count{route="/v1/calls/{id}"} 2.0' in lines
    assert "cctts_ready 0.0" in lines
    assert "wp-login" not in answered.raw.decode()


async def test_probes_of_a_server_that_is_not_ready_leave_no_lines(api: RunningApi) -> None:
    api.registry.not_ready = "loading"
    with capture_logs() as lines:
        assert (await api.ask("GET", "/readyz")).status == 503
    assert not [line for line in lines if line["event"] == "request_refused"]


async def test_strangers_leave_a_few_lines_without_what_they_made_up(locked: RunningApi) -> None:
    """They may send any number of requests."""
    with capture_logs() as lines:
        for _ in range(30):
            await locked.ask("GET", "/v1/calls/made-up", headers=bearer("unknown-token"))
        await locked.ask("POST", "/v1/calls", {}, headers=bearer(READ))
    refused = [line for line in lines if line["event"] == "request_refused"]
    assert [line["status"] for line in refused] == [401] * MAX_REPEATS + [403]
    assert (refused[0]["route"], refused[0]["code"]) == ("/v1/calls/{id}", "unauthorized")
    assert "made-up" not in str(refused)


async def test_a_refusal_that_is_given_again_has_a_line_again(api: RunningApi) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            await api.ask("POST", "/v1/calls/call_1/stop", {}, headers={"Idempotency-Key": "k"})
    assert [line["status"] for line in lines if line["event"] == "request_refused"] == [404, 404]
