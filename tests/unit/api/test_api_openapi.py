"""The OpenAPI document is valid and says what the router does."""

import re
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from cc_tts.api.app import build_app
from cc_tts.api.calls import Originate
from cc_tts.api.http import bodies, openapi
from cc_tts.api.plugs.openai import AudioSpeech
from cc_tts.api.routes import ROUTES
from cc_tts.api.schemas import Play, Speak
from cc_tts.config.schema import ALL_SCOPES
from cc_tts.errors import CcTtsError
from tests.fakes.running_api import make_context

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
    mounted = {(route.method, path) for route in ROUTES for path in route.paths if path != route.path}
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == served - mounted


def test_it_names_the_paths_of_the_contract(document: Any) -> None:
    assert set(document["paths"]) == {
        "/v1/calls", "/v1/calls/{id}", "/v1/utterances/{id}", "/v1/voices", "/v1/audio/speech", "/v1/events",
            "/v1/audio/voices", "/v1/models", "/v1/models/{model}", "/v1/voices/{voice}", "/v2/voices", "/v1/user",
            "/v1/speak", "/v2/speak", "/v1/jambonz/speech", "/v1/jambonz/stream", "/tts/bytes", "/tts/websocket", "/voices",
            "/vapi/{voice}", "/inference_sft", "/inference_zero_shot", "/inference_cross_lingual", "/inference_instruct2",
            "/v1/speech", "/v1/speech/{link}",
            "/v1/lexicons", "/v1/lexicons/{name}",
            "/v1/prompts", "/v1/prompts/{prompt_id}", "/v1/prompts/{prompt_id}/audio",
        "/v1/admin/status", "/v1/admin/tenants", "/v1/admin/reload", "/v1/admin/log",
        "/v1/admin/webhooks", "/v1/admin/webhooks/{name}/test",
        "/v1/recordings", "/v1/recordings/{id}", "/v1/recordings/{id}/audio",
        "/healthz", "/readyz", "/metrics", "/v1/cluster", "/v1/admin/drain", "/v1/openapi.json", "/v1/asyncapi.json",
        "/", "/console", "/console/", "/console/{file}",
    } | {
        f"/v1/text-to-speech/{{voice}}{path}"
        for path in ("", "/stream", "/with-timestamps", "/stream/with-timestamps", "/stream-input", "/multi-stream-input")
    } | {
        f"/v1/calls/{{id}}/{action}"
        for action in (
            "answer", "ring", "hangup", "hold", "unhold", "dtmf", "speak", "play", "stop", "pause", "resume", "gather",
            "stream",
            "media",
            "transfer", "bridge", "unbridge", "relay", "refer/accept", "refer/refuse", "record", "record/pause",
            "record/resume", "record/consent", "trace", "report",
        )
    }  # fmt: skip


def test_operations_are_told_apart_and_say_who_may(document: Any) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)+", operation["operationId"]) for operation in operations)
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == (route.scope in ALL_SCOPES)
        assert ("401" in operation["responses"]) == (route.scope is not None)
        assert ("requestBody" in operation) == (route.body is not None)


def test_forms_with_files_are_described(document: Any) -> None:
    for path in ("/v1/prompts", "/v1/voices"):
        assert "multipart/form-data" in document["paths"][path]["post"]["requestBody"]["content"]
    fields = document["components"]["schemas"]["EnrolVoice"]
    assert set(fields["required"]) == {"file", "voice_id", "transcript", "language"}


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


def test_operations_are_in_groups(document: Any) -> None:
    listed = {tag["name"] for tag in document["tags"]}
    used = {tuple(operation["tags"]) for methods in document["paths"].values() for operation in methods.values()}
    assert used == {(name,) for name in listed}
    assert document["paths"]["/v1/calls/{id}/speak"]["post"]["operationId"] == "speakOnCall"


def test_examples_are_bodies_that_are_taken(document: Any) -> None:
    shown = 0
    for route in ROUTES:
        if not route.examples:
            continue
        content = document["paths"][route.path][route.method.lower()]["requestBody"]["content"]["application/json"]
        for name, value in route.examples.items():
            assert content["examples"][name]["value"] == value
            assert schema_of(document, content["schema"]).is_valid(value), (route.path, name)
            assert is_taken(value, route.body), (route.path, name)
            shown += 1
    assert shown > 10
    for path in ("/v1/calls", "/v1/calls/{id}/speak", "/v1/calls/{id}/play", "/v1/audio/speech"):
        assert "examples" in document["paths"][path]["post"]["requestBody"]["content"]["application/json"], path


def schema_of(document: Any, schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def is_taken(value: Any, kind: Any) -> bool:
    """Whether the server takes a body, as far as no engine and no call are asked."""
    try:
        body = bodies.decode(msgspec.json.encode(value), kind)
        for name in ("prompt", "request", "content"):
            if callable(use := getattr(body, name, None)):
                use()
    except CcTtsError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((Speak, value) for value in ({}, {"text": "a"}, {"ssml": "<speak>a</speak>"}, {"voice": "x"})),
        (Speak, {"text": "a", "ssml": "<speak>a</speak>"}),
        *((Play, value) for value in ({}, {"tone": "beep"}, {"silence_ms": 10}, {"tone": "beep", "silence_ms": 10})),
        *((AudioSpeech, value) for value in ({}, {"input": "a"}, {"ssml": "<speak>a</speak>"})),
        (AudioSpeech, {"input": "a", "ssml": "<speak>a</speak>"}),
        *((Originate, {"to": "sip:x@h", "speak": value}) for value in ("a", {"text": "a"}, {}, {"voice": "x"})),
        (Originate, {"to": "sip:x@h", "metadata": {"a b": "c"}}),
        (Originate, {"to": "sip:x@h", "metadata": {str(number): "c" for number in range(17)}}),
        (Speak, {"text": "a", "client_state": "x" * 1025}),
    ],
    ids=repr,
)
def test_the_document_takes_what_the_server_takes(document: Any, kind: Any, value: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    assert schema_of(document, schema).is_valid(value) == is_taken(value, kind)


def test_responses_that_are_not_json_are_described(document: Any) -> None:
    speech = document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["content"]
    compressed = {"audio/mpeg", "audio/ogg", "audio/aac", "audio/flac"}
    assert set(speech) == compressed | {"audio/wav", "audio/pcm", "audio/basic", "audio/PCMA", "text/event-stream"}
    assert speech.pop("text/event-stream") == {"schema": {"type": "string"}}
    assert all(content["schema"] == {"type": "string", "format": "binary"} for content in speech.values())
    events = document["paths"]["/v1/events"]["get"]["responses"]
    assert events["200"]["content"] == {"text/event-stream": {"schema": {"type": "string"}}}
    assert "content" not in events["101"]
    for methods in document["paths"].values():
        for operation in methods.values():
            for response in operation["responses"].values():
                assert all("schema" in content for content in response.get("content", {}).values())
