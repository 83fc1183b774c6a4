"""Calls and speaking over HTTP: what reaches the layer below and what comes back."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts.calls.adoption import record as records
from cc_tts.calls.call_state import CallState
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.prompts.utterance import CompletionCause, UtteranceError
from cc_tts.config.record import RecordConfig
from cc_tts.config.schema import SpeechBargeIn
from cc_tts.errors import EngineOverloaded
from cc_tts.media.quality import Levels
from cc_tts.speech.prompt import Prompt, SilenceContent, TextContent, ToneContent
from cc_tts.speech.timing.spans import SpokenSpan
from cc_tts.ua import messages
from tests.fakes.running_api import BUSY, UA_DOWN, RunningApi, make_config, running_api

pytestmark = pytest.mark.integration


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api() as running:
        running.registry.add("c1", answered=True)
        running.registry.add("c2")
        yield running


async def test_a_call_as_clients_see_it(api: RunningApi) -> None:
    answered, call = await api.ask("GET", "/v1/calls/c1"), api.registry.call("c1")
    assert answered.status == 200
    assert answered.headers["Content-Type"] == "application/json"
    assert answered.json == {
        "id": "c1",
        "direction": "inbound",
        "state": "established",
        "caller": "sip:alice@127.0.0.1",
        "callee": "sip:bob@127.0.0.1",
        "sip_call_id": "sip-c1",
        "headers": {"X-Queue": "sales"},
        "uri_parameters": {},
        "codec": "PCMU",
        "clock_rate_hz": 8000,
        "transport": None,
        "srtp": False,
        "held": False,
        "paused": False,
        "created_at": call.created_at_s,
        "answered_at": call.answered_at_s,
        "ended_at": None,
        "disclosed_at": None,
        "ending": None,
        "utterances": [],
        "quality": {
            "packets_sent": 0,
            "packets_received": 0,
            "packets_lost": 0,
            "jitter_ms": None,
            "round_trip_ms": None,
            "underruns": 0,
            "late_frames": 0,
            "mos": None,
            "remote": None,
        },
        "voice": None,
        "language": None,
        "speed": None,
        "instructions": None,
        "lexicons": [],
        "barge_in": {"dtmf": None, "speech": None},
        "metadata": {},
        "client_state": None,
    }


async def test_calls_are_listed_and_filtered(api: RunningApi) -> None:
    everyone = await api.ask("GET", "/v1/calls")
    assert [call["id"] for call in everyone.json["calls"]] == ["c1", "c2"]
    ringing = await api.ask("GET", "/v1/calls?state=early")
    assert [call["id"] for call in ringing.json["calls"]] == ["c2"]


async def test_calls_are_found_by_their_sip_call_id(api: RunningApi) -> None:
    found = await api.ask("GET", "/v1/calls?sip_call_id=sip-c2")
    assert [call["id"] for call in found.json["calls"]] == ["c2"]
    assert (await api.ask("GET", "/v1/calls?sip_call_id=sip-c2&state=established")).json["calls"] == []
    assert (await api.ask("GET", "/v1/calls?sip_call_id=unknown")).json["calls"] == []


@pytest.mark.parametrize("wrong", ["", "a%20b", "a%0Db", "%C3%A4", "a" * 1025])
async def test_what_is_no_call_id_is_refused(api: RunningApi, wrong: str) -> None:
    answered = await api.ask("GET", f"/v1/calls?sip_call_id={wrong}")
    assert (answered.status, answered.json["code"]) == (400, "malformed")


async def test_a_call_that_has_ended_is_deleted_without_a_fault(api: RunningApi) -> None:
    first = await api.ask("DELETE", "/v1/calls/c1")
    again = await api.ask("DELETE", "/v1/calls/c1")
    assert (first.status, again.status, again.json["state"]) == (200, 200, "terminated")
    assert api.registry.call("c1").state is CallState.TERMINATED
    assert (await api.ask("POST", "/v1/calls/c1/hangup")).status == 409


async def test_head_is_get_without_a_body(api: RunningApi) -> None:
    answered = await api.ask("HEAD", "/v1/calls")
    assert (answered.status, answered.raw) == (200, b"")


async def test_originate(api: RunningApi) -> None:
    answered = await api.ask(
        "POST",
        "/v1/calls",
        {
            "to": "sip:*98#@pbx.example.com:5070;transport=tcp",
            "from": "sip:desk@127.0.0.1",
            "headers": {"X-Campaign": "42", "User-to-User": "00c0ffee;encoding=hex"},
            "timeout_s": 20,
            "voice": "de",
            "speak": "Guten Tag",
            "call_id": "mine:1",
        },
    )
    assert answered.status == 201
    assert answered.headers["Location"] == "/v1/calls/mine%3A1"
    assert answered.json["state"] == "outgoing"
    assert api.registry.requests == [
        OriginateRequest(
            to="sip:*98#@pbx.example.com:5070;transport=tcp",
            from_="sip:desk@127.0.0.1",
            headers={"X-Campaign": "42", "User-to-User": "00c0ffee;encoding=hex"},
            timeout_s=20,
            voice="de",
            prompt=Prompt(content=TextContent("Guten Tag", "de")),
            call_id="mine:1",
        )
    ]
    assert (await api.ask("GET", answered.headers["Location"])).json["id"] == "mine:1"


async def test_originate_with_a_whole_prompt(api: RunningApi) -> None:
    body = {"to": "sip:x@h", "voice": "de", "speak": {"text": "Hallo", "then": "hangup", "utterance_id": "u"}}
    assert (await api.ask("POST", "/v1/calls", body)).status == 201
    assert api.registry.requests[0].prompt == Prompt(
        content=TextContent("Hallo", "de"), then="hangup", utterance_id="u"
    )


@pytest.mark.parametrize(
    ("error", "code", "retry_after"), [(BUSY, "capacity_exceeded", "3"), (UA_DOWN, "user_agent_unavailable", "2")]
)
async def test_originate_while_it_cannot_be(api: RunningApi, error: Exception, code: str, retry_after: str) -> None:
    api.registry.originate_error = error
    answered = await api.ask("POST", "/v1/calls", {"to": "sip:x@h"})
    answered.check_problem(503, code)
    assert answered.headers["Retry-After"] == retry_after


async def test_answer_ring_hold_hangup(api: RunningApi) -> None:
    assert (await api.ask("POST", "/v1/calls/c2/ring", {"early_media": True})).status == 200
    assert (await api.ask("GET", "/v1/calls/c2")).json["state"] == "early"
    assert (await api.ask("POST", "/v1/calls/c2/answer")).status == 200
    answered = await api.ask("GET", "/v1/calls/c2")
    assert (answered.json["state"], answered.json["codec"]) == ("established", "PCMU")
    assert (await api.ask("POST", "/v1/calls/c2/answer", {})).status == 409
    for action, held in (("hold", True), ("unhold", False)):
        assert (await api.ask("POST", f"/v1/calls/c2/{action}", {})).status == 200
        assert (await api.ask("GET", "/v1/calls/c2")).json["held"] is held
    await api.ask("POST", "/v1/calls/c2/hangup", {"sip_code": 486, "reason": "busy with another caller"})
    ended = await api.ask("GET", "/v1/calls/c2")
    assert ended.json["ending"] == {"result": "completed", "reason": "local_hangup", "sip_code": 486}
    assert api.registry.ua.commands("ring")[-1] == ("c2", True)
    assert api.registry.ua.commands("hold") == [("c2", True), ("c2", False)]
    assert api.registry.ua.commands("hangup") == [("c2", 486, "busy with another caller", 0)]


async def test_dtmf(api: RunningApi) -> None:
    assert (await api.ask("POST", "/v1/calls/c1/dtmf", {"digits": "0123456789ABCD*#"})).status == 200
    assert (await api.ask("POST", "/v1/calls/c1/dtmf", {"digits": "1", "duration_ms": 80})).status == 200
    assert api.registry.ua.commands("dtmf") == [("c1", "0123456789ABCD*#", 160), ("c1", "1", 80)]


async def test_gathers(api: RunningApi) -> None:
    assert (await api.ask("POST", "/v1/calls/c1/gather", {"gather_id": "first"})).status == 201
    (await api.ask("POST", "/v1/calls/c1/gather", {})).check_problem(409, "gather_active")
    assert (await api.ask("GET", "/v1/calls/c1/gather")).json["state"] == "in_progress"
    stopped = (await api.ask("DELETE", "/v1/calls/c1/gather")).json
    assert (stopped["state"], stopped["result"]) == ("complete", "cancelled")
    (await api.ask("GET", "/v1/calls/c1/gather")).check_problem(404, "gather_not_found")


async def test_speak(api: RunningApi) -> None:
    answered = await api.ask(
        "POST",
        "/v1/calls/c1/speak",
        {
            "text": "Grüße, 世界 👋",
            "voice": "de",
            "language": "de-DE",
            "speed": 1.5,
            "instructions": "in a whisper",
            "queue": "replace",
            "utterance_id": "u-1",
            "barge_in": {"dtmf": False, "speech": {"min_speech_ms": 250, "action": "pause"}},
            "cache": "no",
            "then": "hangup",
            "client_state": "step 3 ✓",
        },
    )
    assert answered.status == 201
    assert answered.headers["Location"] == "/v1/utterances/u-1"
    assert answered.json == {
        "id": "u-1",
        "call_id": "c1",
        "state": "in_progress",
        "completion_cause": None,
        "text_chars": 11,
        "voice": "de",
        "engine": "fake",
        "cached": False,
        "then": "hangup",
        "accepted_at": api.registry.services.utterances.get("u-1").accepted_at_s,
        "time_to_first_pcm_ms": None,
        "time_to_first_audio_ms": None,
        "played_ms": 0.0,
        "spoken_text": "",
        "underruns": 0,
        "error": None,
        "client_state": "step 3 ✓",
    }
    assert [*api.registry.prompts.values()] == [
        Prompt(
            content=TextContent("Grüße, 世界 👋", "de", "de-DE", 1.5, may_cache=False, instructions="in a whisper"),
            queue="replace",
            utterance_id="u-1",
            barge_in_dtmf=False,
            barge_in_speech=SpeechBargeIn(min_speech_ms=250, action="pause"),
            then="hangup",
            client_state="step 3 ✓",
        )
    ]


async def test_the_defaults_of_speak(api: RunningApi) -> None:
    answered = await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"})
    assert answered.status == 201
    assert [*api.registry.prompts.values()] == [Prompt(content=TextContent("hi"))]
    assert (await api.ask("GET", answered.headers["Location"])).json["id"] == answered.json["id"]


async def test_what_became_of_an_utterance(api: RunningApi) -> None:
    api.registry.source.gate.clear()
    await api.ask("POST", "/v1/calls/c1/speak", {"text": "one two three", "utterance_id": "u"})
    utterance = api.registry.services.utterances.get("u")
    utterance.completion_cause = CompletionCause.ERROR
    utterance.error = UtteranceError("engine_failed", "it broke off")
    utterance.spans.append(SpokenSpan("one two ", 0.0, 500.0))
    utterance.played_ms = 500.04
    utterance.first_speech_ns = utterance.origin_ns + 42_000_000
    seen = (await api.ask("GET", "/v1/utterances/u")).json
    assert seen["completion_cause"] == "error"
    assert seen["error"] == {"code": "engine_failed", "detail": "it broke off"}
    assert seen["spoken_text"] == "one two"
    assert (seen["played_ms"], seen["time_to_first_audio_ms"]) == (500.0, 42.0)


async def test_play(api: RunningApi) -> None:
    for body in ({"tone": "beep"}, {"tone": "busy", "duration_ms": 300, "then": "hangup"}, {"silence_ms": 250}):
        answered = await api.ask("POST", "/v1/calls/c1/play", body)
        assert answered.status == 201
        assert answered.json["text_chars"] == 0
    assert [*api.registry.prompts.values()] == [
        Prompt(content=ToneContent("beep")),
        Prompt(content=ToneContent("busy", 300), then="hangup"),
        Prompt(content=SilenceContent(250)),
    ]


async def test_a_recording_that_is_not_on_the_disk_yet_is_known_and_cannot_be_removed(tmp_path: Path) -> None:
    record = RecordConfig(dir=str(tmp_path), min_free_bytes=0)
    async with running_api(dataclasses.replace(make_config(), record=record)) as api:
        api.registry.add("c1", answered=True)
        begun = await api.ask("POST", "/v1/calls/c1/record", {"recording_id": "r1"})
        assert (begun.status, begun.json["state"]) == (201, "starting")
        assert (begun.json["duration_ms"], begun.json["bytes"]) == (None, None)
        assert (await api.ask("GET", "/v1/recordings/r1")).json == begun.json
        (await api.ask("GET", "/v1/recordings/r1/audio")).check_problem(409, "wrong_state")
        (await api.ask("DELETE", "/v1/recordings/r1")).check_problem(409, "wrong_state")


async def test_a_folder_of_recordings_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.symlink_to(folder)
    async with running_api(dataclasses.replace(make_config(), record=RecordConfig(dir=str(folder)))) as api:
        api.registry.add("c1", answered=True)
        (await api.ask("GET", "/v1/recordings")).check_problem(503, "recordings_unreadable")
        (await api.ask("GET", "/v1/recordings/r1")).check_problem(503, "recordings_unreadable")
        (await api.ask("DELETE", "/v1/recordings/r1")).check_problem(503, "recordings_unreadable")
        (await api.ask("POST", "/v1/calls/c1/record", {})).check_problem(507, "recording_storage_full")
        assert (await api.ask("GET", "/v1/calls/c1/report")).status == 200


async def test_nothing_is_recorded_into_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cc_tts.recorder.store.os.access", lambda _path, _mode: False)
    record = RecordConfig(dir=str(tmp_path), min_free_bytes=0)
    async with running_api(dataclasses.replace(make_config(), record=record)) as api:
        api.registry.add("c1", answered=True)
        (await api.ask("POST", "/v1/calls/c1/record", {})).check_problem(507, "recording_storage_full")


async def test_stop_pause_resume(api: RunningApi) -> None:
    for number in range(3):
        await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi", "utterance_id": f"u{number}"})
    stopped = await api.ask("POST", "/v1/calls/c1/stop")
    assert stopped.json["stopped"] == ["u0"]
    stopped = await api.ask("POST", "/v1/calls/c1/stop", {"scope": "all"})
    assert stopped.json["stopped"] == ["u1", "u2"]
    assert (await api.ask("POST", "/v1/calls/c1/pause")).json["paused"] is True
    (await api.ask("POST", "/v1/calls/c1/pause")).check_problem(409, "wrong_state")
    assert (await api.ask("POST", "/v1/calls/c1/resume", {})).json["paused"] is False
    (await api.ask("POST", "/v1/calls/c1/resume")).check_problem(409, "wrong_state")


async def test_engine_at_its_limit_is_503(api: RunningApi) -> None:
    api.registry.source.refusal = EngineOverloaded("admission", retry_after_s=4)
    answered = await api.ask("POST", "/v1/calls/c1/speak", {"text": "hi"})
    answered.check_problem(503, "engine_overloaded")
    assert answered.headers["Retry-After"] == "4"


async def test_voices(api: RunningApi) -> None:
    assert (await api.ask("GET", "/v1/voices")).json["voices"][0] == {
        "id": "en-us",
        "engine": "fake",
        "language": "en-US",
        "kind": "builtin",
        "model": "",
        "gender": "",
        "rate_hz": 16_000,
        "cost": None,
        "streams": None,
        "takes_instructions": False,
        "live": True,
        "ready": True,
        "description": "",
        "voice_id": "en-us",
        "name": "en-us",
        "category": "premade",
    }


async def test_levels_are_measured_while_somebody_asks(api: RunningApi) -> None:
    call = api.registry.call("c1")
    assert "levels" not in (await api.ask("GET", "/v1/calls/c1")).json
    assert api.registry.ua.commands("levels") == []
    assert (await api.ask("GET", "/v1/calls/c1?levels=true")).json["levels"] is None
    levels = Levels(received_dbov=-20, sent_dbov=-127)
    api.registry.ua.report(messages.QualityReport(call_id="c1", quality=call.quality, levels=levels))
    listed = (await api.ask("GET", "/v1/calls?levels=true&state=established")).json["calls"]
    assert [each["levels"] for each in listed] == [{"received_dbov": -20, "sent_dbov": -127}]
    assert api.registry.ua.commands("levels") == [("c1",), ("c1",)]
    api.registry.ua.report(messages.QualityReport(call_id="c1", quality=call.quality))
    assert (await api.ask("GET", "/v1/calls/c1?levels=true")).json["levels"] is None
    assert (await api.ask("GET", "/v1/calls/c1?levels=loud")).status == 422


@pytest.mark.parametrize("transport", messages.LINES_WITHOUT_SIP)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/calls/c1/hold", None),
        ("/v1/calls/c1/unhold", None),
        ("/v1/calls/c1/dtmf", {"digits": "1"}),
        ("/v1/calls/c1/bridge", {"call_id": "c3"}),
        ("/v1/calls/c3/bridge", {"call_id": "c1"}),
        ("/v1/calls/c1/transfer", {"to": "sip:agent@127.0.0.1"}),
        ("/v1/calls/c3/transfer", {"mode": "attended", "consult_call_id": "c1"}),
        ("/v1/calls/c1/transfer", {"to": "sip:agent@127.0.0.1", "mode": "warm"}),
        ("/v1/calls", {"to": "sip:agent@127.0.0.1", "bridge": {"call_id": "c1"}}),
    ],
)
async def test_what_a_line_without_sip_does_not_have_is_refused_before_anybody_is_asked(
    api: RunningApi, transport: str, path: str, body: dict[str, object] | None
) -> None:
    api.registry.add("c3", answered=True)
    api.registry.call("c1").transport = transport
    api.registry.ua.sent.clear()
    answered = await api.ask("POST", path, body)
    answered.check_problem(409, "line_unsupported")
    assert f"call c1 came by {transport}" in answered.json["detail"]
    assert "have Asterisk do that" in answered.json["detail"]
    assert not [each for each in api.registry.ua.sent if not isinstance(each, messages.KeepRecord)]


async def test_the_client_state_of_a_command_is_kept_for_the_next_server(api: RunningApi) -> None:
    assert (await api.ask("POST", "/v1/calls/c1/pause", {"client_state": "step-3"})).status == 200
    record = records.decode(api.registry.ua.records["c1"])
    assert record is not None
    assert record.client_state == "step-3"
