"""The OpenAPI document is valid and says what the router does."""

import re
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from cc_tts.api.app import build_app
from cc_tts.api.http import openapi
from cc_tts.api.routes import ROUTES
from cc_tts.api.schemas import Speak
from cc_tts.config.schema import ALL_SCOPES
from tests.fakes.fake_calls import make_context

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def document() -> Any:
    return msgspec.json.decode(msgspec.json.encode(openapi.document(ROUTES)))


def test_it_is_valid(document: Any) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1")


async def test_it_names_the_routes_of_the_router(document: Any) -> None:
    context, _ = make_context()
    served = {
        (route.method, route.resource.canonical)
        for route in build_app(context).router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == served


def test_it_names_the_paths_of_the_contract(document: Any) -> None:
    assert set(document["paths"]) == {
        "/v1/calls", "/v1/calls/{id}", "/v1/utterances/{id}", "/v1/voices", "/v1/audio/speech", "/v1/events",
            "/v1/lexicons", "/v1/lexicons/{name}",
        "/healthz", "/readyz", "/metrics", "/v1/admin/drain", "/v1/openapi.json",
    } | {
        f"/v1/calls/{{id}}/{action}"
        for action in (
            "answer", "ring", "hangup", "hold", "unhold", "dtmf", "speak", "play", "stop", "pause", "resume", "gather"
        )
    }  # fmt: skip


def test_operations_are_told_apart_and_say_who_may(document: Any) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == (route.scope in ALL_SCOPES)
        assert ("401" in operation["responses"]) == (route.scope is not None)
        assert ("requestBody" in operation) == (route.body is not None)


def test_every_problem_is_a_problem_document(document: Any) -> None:
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"]
                if status in ("429", "503"):
                    assert "Retry-After" in response["headers"]


def test_patterns_are_those_of_json_schema(document: Any) -> None:
    patterns = re.findall(r'"pattern":\s*"((?:[^"\\]|\\.)*)"', msgspec.json.encode(document).decode())
    assert patterns
    assert all(pattern.endswith("$") for pattern in patterns)


def test_bodies_are_the_types_that_validate(document: Any) -> None:
    schema = document["components"]["schemas"]["Speak"]
    assert set(schema["properties"]) == {field.encode_name for field in msgspec.structs.fields(Speak)}
    assert schema["additionalProperties"] is False
    assert "``" not in msgspec.json.encode(document).decode()
