"""What a client can do wrong, with the exact answer to each."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.running_api import RunningApi

pytestmark = pytest.mark.integration

SPEAK = "/v1/calls/c1/speak"
PLAY = "/v1/calls/c1/play"
GATHER = "/v1/calls/c1/gather"
CALLS = "/v1/calls"
LEXICON = "/v1/lexicons/crm"
SPEECH = "/v1/audio/speech"
BOB = "sip:bob@127.0.0.1"
UNBRIEFED = ("unprocessable", ("/accept_key",))


BAD: list[tuple[str, str, Any, int, str, tuple[str, ...]]] = [
    # --- not JSON, not the right shape: 400
    ("POST", SPEAK, b"", 400, "malformed", ()),
    ("POST", SPEAK, b'{"text": "hi"} x', 400, "malformed", ()),
    ("POST", SPEAK, b'{"text": "hi", "then": "stay", "then": "hangup"}', 400, "malformed", ()),
    ("POST", SPEAK, b'{"text": "\xed\xa0\x80"}', 400, "malformed", ()),
    ("POST", SPEAK, b'{"text": "\\ud800"}', 422, "nothing_to_say", ("/text",)),
    ("POST", SPEAK, b'{"text": "a\nb"}', 400, "malformed", ()),
    ("POST", SPEAK, b'{"text": "hi", "speed": NaN}', 400, "malformed", ()),
    ("POST", SPEAK, b'{"x": ' + b"[" * 4000, 400, "malformed", ("/x",)),
    ("POST", SPEAK, b"[]", 400, "malformed", ("",)),
    ("POST", SPEAK, b"null", 400, "malformed", ("",)),
    ("POST", SPEAK, {}, 400, "malformed", ("/text",)),
    ("POST", SPEAK, {"text": 5}, 400, "malformed", ("/text",)),
    ("POST", SPEAK, {"text": None}, 400, "malformed", ("/text",)),
    ("POST", SPEAK, {"text": "hi", "colour": 1}, 400, "malformed", ("/colour",)),
    ("POST", SPEAK, {"text": "hi", "a/b~c": 1}, 400, "malformed", ("/a~1b~0c",)),
    ("POST", SPEAK, {"text": "hi", "barge_in": {"dtmf": 1}}, 400, "malformed", ("/barge_in/dtmf",)),
    ("POST", SPEAK, {"text": "hi", "barge_in": {"keys": True}}, 400, "malformed", ("/barge_in/keys",)),
    ("POST", PLAY, {}, 400, "malformed", ("",)),
    ("POST", PLAY, {"tone": "beep", "silence_ms": 10}, 400, "malformed", ("",)),
    ("POST", CALLS, {}, 400, "malformed", ("/to",)),
    ("POST", CALLS, {"to": BOB, "headers": {"X-A": 1}}, 400, "malformed", ("/headers",)),
    ("POST", CALLS, {"to": BOB, "speak": {"text": "hi", "x": 1}}, 400, "malformed", ("/speak/x",)),
    ("POST", CALLS, {"to": BOB, "speak": {}}, 400, "malformed", ("/speak/text",)),
    ("POST", SPEECH, {"voice": "de"}, 400, "malformed", ("/input",)),
    ("POST", "/v1/calls/c1/answer", {"x": 1}, 400, "malformed", ("/x",)),
    ("GET", "/v1/calls?state=asleep", None, 400, "malformed", ()),
    ("GET", "/v1/calls?stat=early", None, 400, "malformed", ()),
    ("GET", "/v1/calls?state=early&state=early", None, 400, "malformed", ()),
    ("GET", "/v1/events?types=call.gone", None, 400, "malformed", ()),
    ("GET", "/v1/events?type=call.early", None, 400, "malformed", ()),
    ("GET", "/v1/events?call_id=" + "x" * 201, None, 400, "malformed", ()),
    ("POST", GATHER, {"max_digits": 0}, 422, "unprocessable", ("/max_digits",)),
    ("POST", GATHER, {"min_digits": 5, "max_digits": 4}, 422, "unprocessable", ("/min_digits",)),
    ("POST", GATHER, {"finish_on_key": "x"}, 422, "unprocessable", ("/finish_on_key",)),
    ("POST", GATHER, {"initial_timeout_ms": 0}, 422, "unprocessable", ("/initial_timeout_ms",)),
    ("POST", GATHER, {"prompt": {}}, 400, "malformed", ("/prompt/text",)),
    ("POST", GATHER, {"prompt": {"text": "a", "tone": "beep"}}, 400, "malformed", ("/prompt",)),
    ("POST", GATHER, {"prompt": {"text": "a", "then": "hangup"}}, 422, "unprocessable", ("/prompt/then",)),
    ("POST", GATHER, {"prompt": {"text": "hi", "voice": "nobody"}}, 422, "unknown_voice", ("/prompt/voice",)),
    ("POST", GATHER, {"prompt": {"text": "…"}}, 422, "nothing_to_say", ("/prompt/text",)),
    ("POST", GATHER, {"prompt": {"text": "a"}, "invalid_prompt": {"text": "…"}}, 422, "nothing_to_say",
     ("/invalid_prompt/text",)),
    ("POST", GATHER, {"invalid_prompt": {"tone": "moo"}}, 422, "unprocessable", ("/invalid_prompt/tone",)),
    ("POST", GATHER, {"prompt": {"prompt_id": "p"}}, 404, "prompt_not_found", ("/prompt/prompt_id",)),
    ("POST", GATHER, {"prompt": {"url": "http://10.0.0.1/a.wav"}}, 403, "url_not_allowed", ("/prompt/url",)),
    ("POST", GATHER, {"digits": 4}, 400, "malformed", ("/digits",)),
    ("DELETE", GATHER, None, 404, "gather_not_found", ()),
    ("POST", "/v1/calls/c1/transfer", {}, 400, "malformed", ("/to",)),
    ("POST", "/v1/calls/c1/transfer", {"to": "tel:+1900"}, 422, "unprocessable", ("/to",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "referred_by": "x"}, 422, "unprocessable", ("/referred_by",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "headers": {"From": "x"}}, 422, "unprocessable", ("/headers/From",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "timeout_ms": 0}, 422, "unprocessable", ("/timeout_ms",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB}, 403, "transfer_not_allowed", ("/to",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "brief": {"text": "a"}}, 422, "unprocessable", ("/brief",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "mode": "warm", "hold": False}, 422, "unprocessable", ("/hold",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "mode": "warm", "accept_key": "1"}, 422, *UNBRIEFED),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "mode": "warm"}, 403, "transfer_not_allowed", ("/to",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "mode": "warm", "speak": {"text": "a"}, "brief": {"text": "…"}}, 422,
     "nothing_to_say", ("/brief/text",)),
    ("POST", "/v1/calls/c1/transfer", {"to": BOB, "mode": "warm", "brief": {"prompt_id": "p"}}, 404, "prompt_not_found",
     ("/brief/prompt_id",)),
    ("POST", "/v1/calls/c1/bridge", {}, 400, "malformed", ("/call_id",)),
    ("POST", "/v1/calls/c1/bridge", {"call_id": "nobody"}, 422, "unprocessable", ("/call_id",)),
    ("POST", "/v1/calls/c1/bridge", {"call_id": "c1"}, 409, "wrong_state", ()),
    ("POST", "/v1/calls/c1/unbridge", None, 409, "wrong_state", ()),
    ("POST", CALLS, {"to": BOB, "bridge": {"call_id": "nobody"}}, 422, "unprocessable", ("/bridge/call_id",)),
    # --- nothing there: 404, 405, 426
    ("GET", "/nothing", None, 404, "not_found", ()),
    ("GET", "/v1/calls/", None, 404, "not_found", ()),
    ("POST", "/v1/calls/c1/record", {}, 422, "recording_off", ()),
    ("GET", "/v1/calls/c1/record", None, 404, "recording_not_found", ()),
    ("GET", "/v1/calls/nobody", None, 404, "call_not_found", ()),
    ("GET", "/v1/calls/" + "x" * 500, None, 404, "call_not_found", ()),
    ("GET", "/v1/calls/%00%ff", None, 404, "call_not_found", ()),
    ("POST", "/v1/calls/nobody/speak", {"text": "hi"}, 404, "call_not_found", ()),
    ("GET", "/v1/utterances/none", None, 404, "utterance_not_found", ()),
    ("GET", "/v1/utterances/" + "x" * 500, None, 404, "utterance_not_found", ()),
    ("PUT", "/v1/calls/c1", {}, 405, "method_not_allowed", ()),
    ("POST", "/healthz", {}, 405, "method_not_allowed", ()),
    ("DELETE", "/v1/voices", None, 405, "method_not_allowed", ()),
    ("GET", "/v1/events", None, 426, "upgrade_required", ()),
    # --- too much: 413
    ("POST", SPEAK, {"text": "a" * 101}, 413, "text_too_long", ("/text",)),
    ("POST", CALLS, {"to": BOB, "speak": "a" * 101}, 413, "text_too_long", ("/speak",)),
    ("POST", SPEECH, {"input": "a" * 101}, 413, "text_too_long", ("/input",)),
    ("POST", SPEAK, {"text": "a" * 5000}, 413, "body_too_large", ()),
    # --- the right shape with content of no use: 422
    ("POST", SPEAK, {"ssml": "<speak/>"}, 422, "nothing_to_say", ("/ssml",)),
    ("POST", SPEAK, {"ssml": "<speak>a"}, 422, "ssml_malformed", ("/ssml",)),
    ("POST", SPEAK, {"ssml": "hello"}, 422, "ssml_malformed", ("/ssml",)),
    ("POST", SPEAK, {"ssml": '<!DOCTYPE x [<!ENTITY y "z">]><speak>&y;</speak>'}, 422, "ssml_malformed", ("/ssml",)),
    ("POST", SPEAK, {"ssml": '<speak><voice name="nobody">hi</voice></speak>'}, 422, "unknown_voice", ("/ssml",)),
    ("POST", SPEAK, {"ssml": f"<speak>{'a' * 101}</speak>"}, 413, "text_too_long", ("/ssml",)),
    ("POST", SPEAK, {"ssml": 1}, 400, "malformed", ("/ssml",)),
    ("POST", SPEAK, {"prompt_id": "p"}, 404, "prompt_not_found", ("/prompt_id",)),
    ("POST", SPEAK, {"prompt_id": "../p"}, 422, "unprocessable", ("/prompt_id",)),
    ("POST", SPEAK, {"text": "hi", "ssml": "x", "prompt_id": "p"}, 400, "malformed", ("",)),
    ("POST", SPEAK, {"text": "hi", "ssml": "<speak>hi</speak>"}, 400, "malformed", ("",)),
    ("POST", SPEECH, {"ssml": "<speak><p></speak>"}, 422, "ssml_malformed", ("/ssml",)),
    ("POST", SPEECH, {"input": "hi", "ssml": "<speak>hi</speak>"}, 400, "malformed", ("",)),
    ("GET", "/v1/utterances/u?words=maybe", None, 404, "utterance_not_found", ()),
    ("POST", SPEAK, {"text": "a\0b"}, 422, "unprocessable", ("/text",)),
    ("POST", SPEAK, {"text": ""}, 422, "nothing_to_say", ("/text",)),
    ("POST", SPEAK, {"text": "…"}, 422, "nothing_to_say", ("/text",)),
    ("POST", SPEAK, {"text": "hi", "voice": "nobody"}, 422, "unknown_voice", ("/voice",)),
    ("POST", SPEAK, {"text": "hi", "voice": ""}, 422, "unprocessable", ("/voice",)),
    ("POST", SPEAK, {"text": "hi", "language": "fr"}, 422, "language_unsupported", ("/language",)),
    ("POST", SPEAK, {"text": "hi", "language": "en us"}, 422, "unprocessable", ("/language",)),
    ("POST", SPEAK, {"text": "hi", "language": "en\n"}, 422, "unprocessable", ("/language",)),
    ("POST", SPEAK, {"text": "hi", "speed": 0.1}, 422, "unprocessable", ("/speed",)),
    ("POST", SPEAK, {"text": "hi", "speed": 2.01}, 422, "unprocessable", ("/speed",)),
    ("POST", SPEAK, b'{"text": "hi", "speed": 1e999}', 422, "unprocessable", ("/speed",)),
    ("POST", SPEAK, {"text": "hi", "queue": "jump"}, 422, "unprocessable", ("/queue",)),
    ("POST", SPEAK, {"text": "hi", "cache": "yes"}, 422, "unprocessable", ("/cache",)),
    ("POST", SPEAK, {"text": "hi", "then": "transfer"}, 422, "unprocessable", ("/then",)),
    ("POST", SPEAK, {"text": "hi", "utterance_id": "a b"}, 422, "unprocessable", ("/utterance_id",)),
    ("POST", SPEAK, {"text": "hi", "utterance_id": ".."}, 422, "unprocessable", ("/utterance_id",)),
    ("POST", SPEAK, {"text": "hi", "utterance_id": "a\n"}, 422, "unprocessable", ("/utterance_id",)),
    ("POST", SPEAK, {"text": "hi", "utterance_id": "a" * 129}, 422, "unprocessable", ("/utterance_id",)),
    ("POST", SPEAK, {"text": "hi", "barge_in": {"speech": {"threshold": 2}}}, 422, "unprocessable",
     ("/barge_in/speech/threshold",)),
    ("POST", SPEAK, {"text": "hi", "lexicons": "crm"}, 400, "malformed", ("/lexicons",)),
    ("POST", SPEAK, {"text": "hi", "lexicons": ["a"] * 11}, 422, "unprocessable", ("/lexicons",)),
    ("PUT", LEXICON, {"entries": [{"grapheme": "a"}]}, 422, "lexicon_malformed", ("/entries/0",)),
    ("PUT", LEXICON, {"entries": [{"grapheme": "", "alias": "b"}]}, 422, "unprocessable", ("/entries/0/grapheme",)),
    ("PUT", LEXICON, {"entries": [{"word": "a"}]}, 400, "malformed", ("/entries/0/word",)),
    ("PUT", LEXICON, {}, 400, "malformed", ("/entries",)),
    ("PUT", "/v1/lexicons/a%20b", {"entries": []}, 422, "lexicon_malformed", ()),
    ("GET", "/v1/lexicons/none", None, 404, "lexicon_not_found", ()),
    ("DELETE", "/v1/lexicons/none", None, 404, "lexicon_not_found", ()),
    ("POST", PLAY, {"url": "http://x/y.wav"}, 403, "url_not_allowed", ("/url",)),
    ("POST", PLAY, {"tone": "bee"}, 422, "unprocessable", ("/tone",)),
    ("POST", PLAY, {"tone": ""}, 422, "unprocessable", ("/tone",)),
    ("POST", PLAY, {"silence_ms": 0}, 422, "unprocessable", ("/silence_ms",)),
    ("POST", PLAY, {"silence_ms": 10**30}, 422, "unprocessable", ("/silence_ms",)),
    ("POST", PLAY, {"silence_ms": 10, "duration_ms": 5}, 422, "unprocessable", ("/duration_ms",)),
    ("POST", "/v1/calls/c1/stop", {"scope": "some"}, 422, "unprocessable", ("/scope",)),
    ("POST", "/v1/calls/c1/dtmf", {"digits": ""}, 422, "unprocessable", ("/digits",)),
    ("POST", "/v1/calls/c1/dtmf", {"digits": "12E"}, 422, "unprocessable", ("/digits",)),
    ("POST", "/v1/calls/c1/dtmf", {"digits": "1\n"}, 422, "unprocessable", ("/digits",)),
    ("POST", "/v1/calls/c1/dtmf", {"digits": "1" * 65}, 422, "unprocessable", ("/digits",)),
    ("POST", "/v1/calls/c1/dtmf", {"digits": "1", "duration_ms": 10}, 422, "unprocessable", ("/duration_ms",)),
    ("POST", "/v1/calls/c1/hangup", {"sip_code": 200}, 422, "unprocessable", ("/sip_code",)),
    ("POST", "/v1/calls/c1/hangup", {"sip_code": 700}, 422, "unprocessable", ("/sip_code",)),
    ("POST", "/v1/calls/c1/hangup", {"reason": "a\r\nX-Evil: 1"}, 422, "unprocessable", ("/reason",)),
    ("POST", "/v1/calls/c1/hangup", {"reason": "a\n"}, 422, "unprocessable", ("/reason",)),
    ("POST", "/v1/calls/c1/hangup", {"reason": "é"}, 422, "unprocessable", ("/reason",)),
    ("POST", "/v1/calls/c1/hangup", {"reason": "a" * 129}, 422, "unprocessable", ("/reason",)),
    ("DELETE", "/v1/calls/c1", {"sip_code": 99}, 422, "unprocessable", ("/sip_code",)),
    ("POST", SPEECH, {"input": "a\0"}, 422, "unprocessable", ("/input",)),
    ("POST", SPEECH, {"input": "!"}, 422, "nothing_to_say", ("/input",)),
    ("POST", SPEECH, {"input": "hi", "voice": "ally"}, 422, "unknown_voice", ("/voice",)),
    ("POST", SPEECH, {"input": "hi", "response_format": "mp4"}, 422, "unprocessable", ("/response_format",)),
    ("POST", SPEECH, {"input": "hi", "stream_format": "ws"}, 422, "unprocessable", ("/stream_format",)),
    ("POST", SPEECH, {"input": "hi", "sample_rate_hz": 11025}, 422, "unprocessable", ("/sample_rate_hz",)),
    (
        "POST",
        SPEECH,
        {"input": "hi", "response_format": "ulaw", "sample_rate_hz": 16000},
        422,
        "unprocessable",
        ("/sample_rate_hz",),
    ),
    # --- nothing may be injected into SIP
    ("POST", CALLS, {"to": "bob"}, 422, "unprocessable", ("/to",)),
    ("POST", CALLS, {"to": "sip:bob@h\r\nX-Evil: 1"}, 422, "unprocessable", ("/to",)),
    ("POST", CALLS, {"to": BOB, "from": "sip:a b@h"}, 422, "unprocessable", ("/from",)),
    ("POST", CALLS, {"to": BOB, "display_name": "a\r\nX: y"}, 422, "unprocessable", ("/display_name",)),
    ("POST", CALLS, {"to": BOB, "asserted_identity": "sip:a@b>\r\nX: y"}, 422, "unprocessable", ("/asserted_identity",)),
    ("POST", CALLS, {"to": BOB, "asserted_identity": "tel:+49 30"}, 422, "unprocessable", ("/asserted_identity",)),
    ("POST", CALLS, {"to": BOB, "asserted_identity": "tel:+4930>,<tel:1"}, 422, "unprocessable", ("/asserted_identity",)),
    ("POST", CALLS, {"to": BOB, "asserted_identity": "mailto:a@b"}, 422, "unprocessable", ("/asserted_identity",)),
    ("POST", CALLS, {"to": "x", "from": "y"}, 422, "unprocessable", ("/to", "/from")),
    ("POST", CALLS, {"to": BOB, "headers": {"X-A": "1\r\nVia: x"}}, 422, "unprocessable", ("/headers/X-A",)),
    ("POST", CALLS, {"to": BOB, "headers": {"X-A\r\nVia": "1"}}, 422, "unprocessable", ("/headers/X-A\r\nVia",)),
    ("POST", CALLS, {"to": BOB, "headers": {"X-A/b": "1"}}, 422, "unprocessable", ("/headers/X-A~1b",)),
    ("POST", CALLS, {"to": BOB, "headers": {"Route": "1", "From": "2"}}, 422, "unprocessable",
     ("/headers/Route", "/headers/From")),
    ("POST", CALLS, {"to": BOB, "headers": {"X-A": "a" * 1025}}, 422, "unprocessable", ("/headers/X-A",)),
    ("POST", CALLS, {"to": BOB, "timeout_s": 0}, 422, "unprocessable", ("/timeout_s",)),
    ("POST", CALLS, {"to": BOB, "call_id": "a/b"}, 422, "unprocessable", ("/call_id",)),
    ("POST", CALLS, {"to": BOB, "speak": "a\0"}, 422, "unprocessable", ("/speak",)),
    ("POST", CALLS, {"to": BOB, "speak": "!"}, 422, "nothing_to_say", ("/speak",)),
    ("POST", CALLS, {"to": BOB, "speak": {"text": "a\0"}}, 422, "unprocessable", ("/speak/text",)),
    ("POST", CALLS, {"to": BOB, "speak": {"ssml": "x"}}, 422, "ssml_malformed", ("/speak/ssml",)),
    ("POST", CALLS, {"to": BOB, "speak": {"ssml": f"<speak>{'a' * 101}</speak>"}}, 413, "text_too_long", ("/speak/ssml",)),
    ("POST", CALLS, {"to": BOB, "speak": {"ssml": '<speak><voice name="x">a</voice></speak>'}}, 422, "unknown_voice",
     ("/speak/ssml",)),
    ("POST", CALLS, {"to": BOB, "speak": {"text": "hi", "voice": "x"}}, 422, "unknown_voice", ("/speak/voice",)),
    ("POST", CALLS, {"to": BOB, "speak": {"prompt_id": "p"}}, 404, "prompt_not_found", ("/speak/prompt_id",)),
    ("POST", "/v1/calls/c1/speak?voice=en-gb", {"text": "hi"}, 400, "malformed", ()),
    ("POST", "/v1/calls/c1/hangup?sip_code=486", {}, 400, "malformed", ()),
    ("GET", "/v1/lexicons?name=a", None, 400, "malformed", ()),
    ("GET", "/v1/recordings?callid=c1", None, 400, "malformed", ()),
    ("POST", CALLS, {"to": BOB, "voice": "x", "speak": "hi"}, 422, "unknown_voice", ("/voice",)),
    (
        "POST",
        CALLS,
        {"to": BOB, "speak": {"text": "hi", "barge_in": {"speech": {"guard_ms": -1}}}},
        422,
        "unprocessable",
        ("/speak/barge_in/speech/guard_ms",),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "pointers"),
    BAD,
    ids=[f"{number}-{case[4]}" for number, case in enumerate(BAD)],
)
async def test_bad_request(
    api: RunningApi, method: str, path: str, body: Any, status: int, code: str, pointers: tuple[str, ...]
) -> None:
    answered = await api.ask(method, path, body)
    answered.check_problem(status, code, *pointers)
    assert not [*api.registry.prompts.values()]
    assert not api.registry.prompts


@pytest.mark.parametrize(
    "path", ["/healthz?probe=1", "/v1/voices?show_legacy=true", "/v1/models?api-version=2024-10-21", "/console/?_=17"]
)
async def test_probes_browsers_and_vendors_clients_may_send_query_parameters_of_their_own(
    api: RunningApi, path: str
) -> None:
    assert (await api.ask("GET", path)).status == 200


async def test_method_not_allowed_names_the_methods(api: RunningApi) -> None:
    answered = await api.ask("PUT", "/v1/calls/c1")
    assert answered.headers["Allow"] == "DELETE, GET, HEAD, PATCH"
    assert answered.json["detail"].endswith("use DELETE, GET, HEAD, PATCH")


@pytest.mark.parametrize(
    ("method", "path", "body", "next_step"),
    [
        ("GET", "/v1/calls/nobody", None, "GET /v1/calls lists"),
        ("POST", GATHER, {"prompt": {"prompt_id": "p"}}, "GET /v1/prompts lists"),
        ("POST", "/v1/calls/c1/transfer", {"to": BOB}, "add one to the configuration"),
        ("POST", "/v1/calls/c1/record", {}, "set record.dir"),
        ("POST", "/v1/calls/c1/relay", {"url": "wss://app.example.com/relay"}, "relay.allowed_hosts: add it"),
        ("POST", GATHER, {"prompt": {"url": "http://10.0.0.1/a.wav"}}, "prompts.allowed_hosts: add it"),
        ("POST", "/v1/admin/webhooks/crm/test", None, "GET /v1/admin/webhooks lists"),
    ],
)
async def test_a_refusal_says_what_to_do_next(
    api: RunningApi, method: str, path: str, body: Any, next_step: str
) -> None:
    answered = await api.ask(method, path, body)
    assert next_step in answered.json["detail"]


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/pls+xml", "application/x-www-form-urlencoded", "application/json; charset=utf-16"],
)
async def test_only_json_is_taken(api: RunningApi, content_type: str) -> None:
    answered = await api.ask("POST", SPEAK, b'{"text": "hi"}', headers={"Content-Type": content_type})
    answered.check_problem(415, "unsupported_media_type")


async def test_compressed_bodies_are_refused(api: RunningApi) -> None:
    answered = await api.ask("POST", SPEAK, b'{"text": "hi"}', headers={"Content-Encoding": "gzip"})
    answered.check_problem(415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=UTF-8"])
async def test_json_is_taken(api: RunningApi, content_type: str) -> None:
    answered = await api.ask("POST", SPEAK, b'{"text": "hi"}', headers={"Content-Type": content_type})
    assert answered.status == 201


async def test_queue_full_is_429_with_retry_after(api: RunningApi) -> None:
    for _ in range(3):
        assert (await api.ask("POST", SPEAK, {"text": "hi"})).status == 201
    answered = await api.ask("POST", SPEAK, {"text": "hi"})
    answered.check_problem(429, "queue_full")
    assert answered.headers["Retry-After"] == "1"


async def test_taken_ids_are_409(api: RunningApi) -> None:
    assert (await api.ask("POST", SPEAK, {"text": "hi", "utterance_id": "u1"})).status == 201
    (await api.ask("POST", SPEAK, {"text": "hi", "utterance_id": "u1"})).check_problem(
        409, "duplicate_id", "/utterance_id"
    )
    (await api.ask("POST", CALLS, {"to": BOB, "call_id": "c1"})).check_problem(409, "duplicate_id", "/call_id")


@pytest.mark.parametrize("action", ["speak", "play", "stop", "pause", "resume", "answer", "hold", "dtmf", "hangup"])
async def test_an_ended_call_is_409(api: RunningApi, action: str) -> None:
    api.registry.ua.ended("c1")
    body = {"speak": {"text": "hi"}, "play": {"tone": "beep"}, "dtmf": {"digits": "1"}}.get(action)
    (await api.ask("POST", f"/v1/calls/c1/{action}", body)).check_problem(409, "wrong_state")


@pytest.mark.parametrize("path", ["/v1/calls/c1/speak", "/v1/audio/speech", "/v1/calls"])
async def test_announced_bodies_over_the_limit_are_refused_before_they_are_sent(api: RunningApi, path: str) -> None:
    async with api.connect() as (reader, writer):
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in head


async def test_chunked_bodies_over_the_limit_are_refused(api: RunningApi) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"text": "'
        for _ in range(50):
            yield b"a" * 100
        yield b'"}'

    async with api.session.post(SPEAK, data=pieces(), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 413
        assert (await response.json(content_type=None))["code"] == "body_too_large"


async def test_expect_continue_is_answered_when_the_body_is_wanted(api: RunningApi) -> None:
    body = b'{"text": "hi"}'
    async with api.connect() as (reader, writer):
        writer.write(
            f"POST {SPEAK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")


async def test_other_expectations_are_417(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(
            f"POST {SPEAK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Expect: a miracle\r\nContent-Length: 2\r\n\r\n{}".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 417 ")


async def test_a_path_that_is_not_text_is_answered(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(b"GET /v1/calls/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status = await reader.readline()
        assert status.split()[1] in (b"400", b"404")
