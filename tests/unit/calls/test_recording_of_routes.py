"""The recording that a route or an INVITE asks for: what is read, and when it begins."""

from pathlib import Path
from typing import Any

import pytest

from cc_tts.calls.dialplan.record import record_of
from cc_tts.calls.recording.recording import RecordRequest
from cc_tts.config.record import RecordConfig, RouteRecordConfig
from cc_tts.config.schema import RouteConfig
from cc_tts.errors import MalformedRequest, RecordingOff
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

ON = RecordConfig(dir="/recordings")
DUAL = RecordRequest(channels="dual")


@pytest.mark.parametrize(
    ("header", "route", "wanted"),
    [
        ("", "", None),
        ("", "dual", DUAL),
        ("no", "dual", None),
        ("dual", "", DUAL),
        ("Dual", "mono", DUAL),
        ("yes", "dual", DUAL),
        ("yes", "", RecordRequest()),
        ("beep=yes", "dual", RecordRequest(channels="dual", beep=True)),
        ("", RouteRecordConfig(tracks="caller", trim_silence=True), RecordRequest(tracks="caller", trim_silence=True)),
        ("dual", RouteRecordConfig(consent="required"), RecordRequest(channels="dual", consent="required")),
        (
            "mono; max=600000; silence=5000; finish=*#; tracks=caller; trim=yes; encoding=pcm16; consent=given",
            "",
            RecordRequest(
                tracks="caller",
                encoding="pcm16",
                max_duration_ms=600_000,
                silence_timeout_ms=5000,
                finish_on_key="*#",
                trim_silence=True,
                consent="given",
            ),
        ),
    ],
)
def test_a_header_goes_before_the_route(header: str, route: Any, wanted: RecordRequest | None) -> None:
    assert record_of(header, route, ON) == wanted


@pytest.mark.parametrize(
    "header",
    [
        "stereo",
        "dual;tracks=caller",
        "dual;max=99",
        "dual;max=43200001",
        "dual;beep",
        "dual;beep=no;beep=no",
        "dual;x=1",
    ],
)
def test_a_header_that_cannot_be_read_is_refused(header: str) -> None:
    with pytest.raises(MalformedRequest, match="X-TTS-Record"):
        record_of(header, "", ON)


@pytest.mark.parametrize(("header", "route"), [("dual", ""), ("", "mono")])
def test_without_a_folder_a_call_that_is_to_be_recorded_is_refused(header: str, route: Any) -> None:
    with pytest.raises(RecordingOff):
        record_of(header, route, RecordConfig())


class Recorded:
    def __init__(self, folder: Path, **route: Any) -> None:
        routes = {"recorded": RouteConfig(**{"record": "dual", "greeting": "Good morning", **route})}
        self.exchange = Exchange(record=RecordConfig(dir=str(folder)), routes=routes)
        self.call_id = self.exchange.ua.incoming("recorded")
        self.call = self.exchange.registry.call(self.call_id)

    @property
    def commands(self) -> list[str]:
        return [name for name, *_ in self.exchange.ua.asked if name in ("record", "answer", "ring")]


async def test_the_recording_begins_before_the_call_is_answered(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    assert recorded.commands == ["record", "answer"]
    recording = recorded.call.recorder.running
    assert (recording.plan.info.channels, recording.state) == ("dual", "starting")
    recorded.exchange.ua.report(messages.RecordingStarted(recording.id))
    told: list[Any] = [event.data for event in recorded.exchange.seen if event.type == "call.recording"]
    assert [each.state for each in told] == ["started"]
    assert [each.recording_id for each in recorded.call.recordings] == [recording.id]


async def test_a_recording_is_in_the_folder_of_the_tenant_of_the_route(tmp_path: Path) -> None:
    plan = Recorded(tmp_path, tenant="acme").call.recorder.running.plan
    assert (plan.info.tenant, Path(plan.folder)) == ("acme", tmp_path / "tenant=acme")


async def test_a_call_that_nobody_answers_is_not_recorded(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, answer="manual")
    recorded.exchange.ua.ended(recorded.call_id)
    assert "record" not in recorded.commands


async def test_early_media_is_recorded(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, answer="manual")
    recorded.call.ring(early_media=True)
    recorded.call.answer()
    assert recorded.commands[-3:] == ["record", "ring", "answer"]


async def test_a_route_that_requires_consent_waits_for_it(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, record=RouteRecordConfig(consent="required"))
    assert recorded.commands == ["answer"]
    assert recorded.call.recorder.running.state == "waiting"
