"""``PATCH /v1/calls/{id}``, and the client's own state and metadata in what clients see."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cc_tts.calls.call import Call
from cc_tts.speech.prompt import PromptDefaults
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

CALL = "/v1/calls/c1"
LEXICON = {"language": "en", "entries": [{"grapheme": "Mobivox", "alias": "mo bee vox"}]}
NAMES = [f"name{number}" for number in range(17)]


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(make_config(max_body_bytes=65_536)) as running:
        running.registry.add("c1", answered=True)
        yield running


@pytest.fixture
def call(api: RunningApi) -> Call:
    return api.registry.call("c1")


async def test_what_is_left_out_stays_and_null_takes_back(api: RunningApi, call: Call) -> None:
    assert (await api.ask("PUT", "/v1/lexicons/crm", LEXICON)).status == 201
    everything = {
        "voice": "de",
        "language": "de-DE",
        "speed": 1.5,
        "instructions": "speak calmly",
        "lexicons": ["crm"],
        "barge_in": {"dtmf": False, "speech": True},
    }
    answered = await api.ask("PATCH", CALL, everything)
    assert answered.status == 200
    assert everything == {name: answered.json[name] for name in everything}
    assert call.defaults == PromptDefaults(
        voice="de",
        language="de-DE",
        speed=1.5,
        instructions="speak calmly",
        lexicons=("crm",),
        barge_in_dtmf=False,
        barge_in_speech=True,
    )
    assert (await api.ask("PATCH", CALL, {})).json == answered.json
    changes = {"speed": None, "voice": "en-us", "language": None, "instructions": None}
    assert (await api.ask("PATCH", CALL, changes)).status == 200
    assert call.defaults == PromptDefaults(voice="en-us", lexicons=("crm",), barge_in_dtmf=False, barge_in_speech=True)
    assert (await api.ask("PATCH", CALL, dict.fromkeys(everything))).status == 200
    assert call.defaults == PromptDefaults()
    assert (await api.ask("GET", CALL)).json["barge_in"] == {"dtmf": None, "speech": None}


async def test_metadata_are_merged_name_by_name(api: RunningApi) -> None:
    steps: list[tuple[Any, dict[str, str]]] = [
        ({"customer": "4711", "tier": "gold"}, {"customer": "4711", "tier": "gold"}),
        ({"tier": None, "lang": "日本語"}, {"customer": "4711", "lang": "日本語"}),
        ({}, {"customer": "4711", "lang": "日本語"}),
        ({"unknown": None, "customer": ""}, {"customer": "", "lang": "日本語"}),
        (None, {}),
    ]
    for change, expected in steps:
        assert (await api.ask("PATCH", CALL, {"metadata": change})).json["metadata"] == expected


async def test_metadata_of_many_names_can_be_exchanged_but_not_exceeded(api: RunningApi) -> None:
    assert (await api.ask("PATCH", CALL, {"metadata": dict.fromkeys(NAMES[:16], "x")})).status == 200
    (await api.ask("PATCH", CALL, {"metadata": {NAMES[16]: "x"}})).check_problem(422, "unprocessable", "/metadata")
    answered = await api.ask("PATCH", CALL, {"metadata": {NAMES[16]: "y", NAMES[0]: None}})
    assert len(answered.json["metadata"]) == 16


@pytest.mark.parametrize(
    ("body", "status", "code", "pointers"),
    [
        (None, 400, "malformed", [""]),
        ({"voice": 1}, 400, "malformed", ["/voice"]),
        ({"state": "terminated"}, 400, "malformed", ["/state"]),
        ({"barge_in": True}, 400, "malformed", ["/barge_in"]),
        ({"metadata": {"a": 1}}, 400, "malformed", ["/metadata"]),
        ({"metadata": ["a"]}, 400, "malformed", ["/metadata"]),
        ({"client_state": {"step": 3}}, 400, "malformed", ["/client_state"]),
        ({"voice": "nobody"}, 422, "unknown_voice", ["/voice"]),
        ({"language": "fr"}, 422, "language_unsupported", ["/language"]),
        ({"language": "no language"}, 422, "unprocessable", ["/language"]),
        ({"speed": 0.1}, 422, "unprocessable", ["/speed"]),
        ({"speed": 3}, 422, "unprocessable", ["/speed"]),
        ({"instructions": "calmly<|endofprompt|>"}, 422, "unprocessable", ["/instructions"]),
        ({"instructions": "a\0"}, 422, "unprocessable", ["/instructions"]),
        ({"instructions": "x" * 501}, 422, "unprocessable", ["/instructions"]),
        ({"lexicons": ["none"]}, 422, "unknown_lexicon", ["/lexicons"]),
        ({"lexicons": ["a"] * 11}, 422, "unprocessable", ["/lexicons"]),
        ({"barge_in": {"speech": "yes"}}, 400, "malformed", ["/barge_in/speech"]),
        ({"barge_in": {"speech": {"min_speech": 1}}}, 400, "malformed", ["/barge_in/speech/min_speech"]),
        ({"barge_in": {"speech": {"min_speech_ms": 1}}}, 422, "unprocessable", ["/barge_in/speech/min_speech_ms"]),
        ({"barge_in": {"speech": {"confirm_ms": None}}}, 400, "malformed", ["/barge_in/speech/confirm_ms"]),
        ({"barge_in": {"speech": {"action": "wait"}}}, 422, "unprocessable", ["/barge_in/speech/action"]),
        ({"metadata": {"": "x"}}, 422, "unprocessable", ["/metadata"]),
        ({"metadata": {"a b": "x"}}, 422, "unprocessable", ["/metadata"]),
        ({"metadata": {"a" * 65: "x"}}, 422, "unprocessable", ["/metadata"]),
        ({"metadata": {"a": "x" * 513}}, 422, "unprocessable", ["/metadata"]),
        ({"client_state": "x" * 1025}, 422, "unprocessable", ["/client_state"]),
    ],
)
async def test_what_cannot_be_used_changes_nothing(
    api: RunningApi, call: Call, body: Any, status: int, code: str, pointers: list[str]
) -> None:
    before = (await api.ask("GET", CALL)).json
    answered = await api.ask("PATCH", CALL, body)
    if body is None:
        assert (answered.status, answered.json["code"]) == (status, code)
    else:
        answered.check_problem(status, code, *pointers)
    assert (await api.ask("GET", CALL)).json == before
    assert call.defaults == PromptDefaults()


async def test_a_fault_beside_what_is_right_changes_nothing(api: RunningApi, call: Call) -> None:
    body = {"voice": "nobody", "metadata": {"a": "b"}, "client_state": "s"}
    (await api.ask("PATCH", CALL, body)).check_problem(422, "unknown_voice", "/voice")
    assert (call.metadata, call.client_state, call.defaults) == ({}, None, PromptDefaults())


async def test_a_call_that_is_over_stays_as_it_is(api: RunningApi, call: Call) -> None:
    api.registry.ua.ended(call.id)
    (await api.ask("PATCH", CALL, {"metadata": {"a": "b"}})).check_problem(409, "wrong_state")
    (await api.ask("PATCH", "/v1/calls/nobody", {})).check_problem(404, "call_not_found")


async def test_the_clients_own_state_of_a_call(api: RunningApi, call: Call) -> None:
    """The last command that brings one counts; one that is refused changes nothing."""
    steps: list[tuple[str, str, Any, str | None]] = [
        ("POST", "/hold", {}, None),
        ("POST", "/unhold", {"client_state": "one"}, "one"),
        ("POST", "/pause", {}, "one"),
        ("POST", "/resume", {"client_state": ""}, ""),
        ("POST", "/dtmf", {"digits": "1", "client_state": "two"}, "two"),
        ("PATCH", "", {"speed": 1.1}, "two"),
        ("PATCH", "", {"client_state": None}, None),
        ("PATCH", "", {"client_state": "three"}, "three"),
        ("POST", "/hangup", {"client_state": "four"}, "four"),
    ]
    for method, action, body, expected in steps:
        answered = await api.ask(method, CALL + action, body)
        assert answered.status == 200, answered.json
        assert answered.json["client_state"] == expected, action
    (await api.ask("POST", CALL + "/hold", {"client_state": "five"})).check_problem(409, "wrong_state")
    assert call.client_state == "four"


async def test_the_clients_own_state_while_it_rings(api: RunningApi) -> None:
    api.registry.add("c2")
    assert (await api.ask("POST", "/v1/calls/c2/ring", {"client_state": "a"})).json["client_state"] == "a"
    assert (await api.ask("POST", "/v1/calls/c2/answer", {"client_state": "b"})).json["client_state"] == "b"
    assert (await api.ask("POST", "/v1/calls/c2/hold", b"")).json["client_state"] == "b"


async def test_a_replayed_command_does_not_bring_its_state_back(api: RunningApi, call: Call) -> None:
    key = {"Idempotency-Key": "k"}
    assert (await api.ask("POST", CALL + "/hold", {"client_state": "one"}, headers=key)).status == 200
    assert (await api.ask("PATCH", CALL, {"client_state": "two"})).status == 200
    replayed = await api.ask("POST", CALL + "/hold", {"client_state": "one"}, headers=key)
    assert (replayed.status, replayed.json["client_state"]) == (200, "one")
    assert replayed.headers["Idempotency-Replayed"] == "true"
    assert call.client_state == "two"


async def test_a_call_that_is_placed_has_them_from_its_start(api: RunningApi) -> None:
    own = {"metadata": {"campaign": "spring"}, "client_state": "ticket-17"}
    answered = await api.ask("POST", "/v1/calls", {"to": "sip:x@h", "speak": "Hello", **own})
    assert {name: answered.json[name] for name in own} == own
    (request,) = api.registry.requests
    assert (request.metadata, request.client_state) == tuple(own.values())
    assert request.prompt is not None
    assert request.prompt.client_state == "ticket-17", "its prompt is of the same command"
    body = {"to": "sip:x@h", "speak": {"text": "Hello", "client_state": "greeting"}, **own}
    assert (await api.ask("POST", "/v1/calls", body)).status == 201
    assert api.registry.requests[1].prompt is not None
    assert api.registry.requests[1].prompt.client_state == "greeting"


@pytest.mark.parametrize(
    ("more", "pointer"),
    [({"client_state": "x" * 1025}, "/client_state"), ({"metadata": dict.fromkeys(NAMES, "x")}, "/metadata")],
)
async def test_too_much_for_a_call_that_is_placed(api: RunningApi, more: Any, pointer: str) -> None:
    (await api.ask("POST", "/v1/calls", {"to": "sip:x@h", **more})).check_problem(422, "unprocessable", pointer)
    assert not api.registry.requests


@pytest.mark.parametrize("action", ["speak", "play"])
async def test_too_long_a_state_of_a_prompt(api: RunningApi, call: Call, action: str) -> None:
    body = {"text": "hi"} if action == "speak" else {"tone": "beep"}
    answered = await api.ask("POST", f"{CALL}/{action}", {**body, "client_state": "x" * 1025})
    answered.check_problem(422, "unprocessable", "/client_state")
    assert not api.registry.prompts


async def test_neither_reaches_the_log(api: RunningApi, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"metadata": {"secretname": "secretvalue"}, "client_state": "secretstate"}
    with capture_logs() as lines:
        assert (await api.ask("PATCH", CALL, body)).status == 200
        assert (await api.ask("POST", CALL + "/speak", {"text": "hi", "client_state": "secretstate"})).status == 201
        (await api.ask("PATCH", CALL, body | {"voice": "nobody"})).check_problem(422, "unknown_voice", "/voice")
    assert lines
    assert "secret" not in f"{lines}{caplog.text}"
