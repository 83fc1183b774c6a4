"""The recording of a call as its server has it: consent, pauses, ends, and what is told of them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.events.types import CallRecordingDelivered
from cc_tts.calls.recording.recorder import AFTER_GATHER_MS
from cc_tts.calls.recording.recording import Recording, RecordRequest
from cc_tts.config.record import RecordConfig
from cc_tts.config.schema import CallWebhook
from cc_tts.errors import (
    DuplicateId,
    RecordingActive,
    RecordingNotFound,
    RecordingOff,
    RecordingStorageFull,
    WrongState,
)
from cc_tts.recorder.info import Ending, RecordingInfo
from cc_tts.ua import messages
from lab.waiting import until
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit


class Recorded:
    def __init__(self, record: RecordConfig) -> None:
        self.exchange = Exchange(record=record)
        self.ua = self.exchange.ua
        self.call: Call = self.exchange.registry.call(self.exchange.talking("silent"))

    async def record(self, **wanted: Any) -> Recording:
        return await self.call.recorder.start(RecordRequest(**wanted))

    async def started(self, **wanted: Any) -> Recording:
        recording = await self.record(**wanted)
        self.ua.report(messages.RecordingStarted(recording.id))
        return recording

    def over(self, recording: Recording, reason: Ending) -> None:
        info = msgspec.structs.replace(recording.plan.info, state="saved", reason=reason)
        self.ua.report(messages.RecordingOver(info))

    def press(self, key: str) -> None:
        self.ua.report(
            messages.DtmfReceived(call_id=self.call.id, digit=key, duration_ms=80, method="rfc4733", at_ns=0)
        )

    def hung_up(self) -> None:
        self.ua.ended(self.call.id)

    @property
    def told(self) -> list[tuple[str, str | None]]:
        data: list[Any] = [event.data for event in self.exchange.seen if event.type == "call.recording"]
        return [(each.state, each.reason) for each in data]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(RecordConfig(dir=str(tmp_path), min_free_bytes=0))


async def test_the_last_event_of_a_recording_is_one_of_its_call(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, CallWebhook | None]] = []
    monkeypatch.setattr(
        recorded.exchange.events, "_sink", lambda event, **options: sent.append((event.type, options["of_call"]))
    )

    async def deliver(info: RecordingInfo, _path: Path) -> CallRecordingDelivered:
        return CallRecordingDelivered(
            recording_id=info.recording_id, to="command", result="delivered", attempts=1, detail=""
        )

    recorded.exchange.registry.services.recordings.deliver = deliver
    recorded.call.webhook, recorded.call.metadata = CallWebhook(url="https://app.example.com/7"), {"order": "17"}
    recording = await recorded.started()
    recorded.hung_up()
    recorded.over(recording, "call_ended")
    await until(lambda: "call.recording_delivered" in [type_ for type_, _ in sent])
    data: list[Any] = [each.data for each in recorded.exchange.seen if each.type.startswith("call.recording")]
    assert [each.type for each in data] == ["call.recording", "call.recording", "call.recording_delivered"]
    assert [each.metadata for each in data] == [{"order": "17"}] * 3
    assert {webhook for type_, webhook in sent if type_.startswith("call.recording")} == {recorded.call.webhook}


async def test_each_recording_has_one_last_event(recorded: Recorded) -> None:
    recording = await recorded.started()
    recorded.call.disclosed_at_s = 12.5
    recorded.call.recorder.stop()
    recorded.over(recording, "stopped")
    recorded.over(recording, "stopped")
    assert recorded.ua.commands("record_stop") == [(recorded.call.id, "stopped")]
    assert recorded.told == [("started", None), ("saved", "stopped")]
    on_the_disk = recording.plan.info
    recordings = recorded.exchange.registry.services.recordings
    assert recordings.latest(on_the_disk).disclosed_at_s == 12.5, "whoever asks at the event sees what it tells of"
    with pytest.raises(RecordingNotFound):
        recorded.call.recorder.stop()


async def test_a_recording_whose_recorder_died_before_its_file_was_there_has_failed_at_once(recorded: Recorded) -> None:
    recordings = recorded.exchange.registry.services.recordings
    recordings.start()
    recording = await recorded.record()
    recorded.ua.report(messages.RecorderLost((recording.id,)))
    await until(lambda: bool(recorded.told))
    await recordings.stop()
    assert recorded.told == [("failed", "storage_error")]
    assert recorded.call.recorder.current is None


async def test_a_call_has_one_recording_at_a_time(recorded: Recorded) -> None:
    first = await recorded.started()
    with pytest.raises(RecordingActive):
        await recorded.record()
    recorded.over(first, "max_duration")
    assert (await recorded.record()).id != first.id


async def test_of_two_requests_at_the_same_time_one_is_refused(recorded: Recorded) -> None:
    results = await asyncio.gather(recorded.record(), recorded.record(), return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["Recording", "RecordingActive"]
    assert len(recorded.ua.commands("record")) == 1


async def test_of_two_calls_that_want_one_id_at_the_same_time_one_is_refused(recorded: Recorded) -> None:
    other = recorded.exchange.registry.call(recorded.exchange.talking("silent"))
    results = await asyncio.gather(
        recorded.record(recording_id="r1"),
        other.recorder.start(RecordRequest(recording_id="r1")),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in results) == ["DuplicateId", "Recording"]
    assert len(recorded.ua.commands("record")) == 1


async def test_a_call_that_is_over_is_not_recorded_nor_one_that_there_is_no_room_for(
    recorded: Recorded, tmp_path: Path
) -> None:
    recorded.hung_up()
    with pytest.raises(WrongState):
        await recorded.record()
    with pytest.raises(RecordingOff):
        await Recorded(RecordConfig()).record()
    with pytest.raises(RecordingStorageFull):
        await Recorded(RecordConfig(dir=str(tmp_path), min_free_bytes=1 << 50)).record()


async def test_an_id_that_is_on_the_disk_is_taken(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "r1.wav").touch()
    with pytest.raises(DuplicateId):
        await recorded.record(recording_id="r1")
    assert not recorded.ua.commands("record")


@pytest.mark.parametrize("request_says", [True, False])
async def test_nothing_is_recorded_before_consent(tmp_path: Path, request_says: bool) -> None:
    recorded = Recorded(RecordConfig(dir=str(tmp_path), min_free_bytes=0, consent_required=not request_says))
    recording = await recorded.record(consent="required" if request_says else None)
    assert not recorded.ua.commands("record")
    recorded.call.recorder.consent(given=True)
    assert recorded.ua.commands("record") == [(recorded.call.id, False)]
    recorded.ua.report(messages.RecordingStarted(recording.id))
    assert recorded.told == [("waiting", "consent"), ("started", None)]
    assert [each.consent for each in recorded.call.recordings] == ["given"]
    with pytest.raises(WrongState):
        recorded.call.recorder.consent(given=True)


async def test_a_caller_who_refuses_is_not_recorded(recorded: Recorded) -> None:
    await recorded.record(consent="required")
    refused = recorded.call.recorder.consent(given=False)
    assert (refused.state, refused.plan.info.reason) == ("failed", "consent_refused")
    assert not recorded.ua.commands("record")
    assert recorded.told[-1] == ("failed", "consent_refused")
    assert [each.consent for each in recorded.call.recordings] == ["refused"]


@pytest.mark.parametrize("by", ["stop", "hangup"])
async def test_without_an_answer_to_the_question_for_consent_nothing_is_recorded(recorded: Recorded, by: str) -> None:
    await recorded.record(consent="required")
    recorded.call.recorder.stop() if by == "stop" else recorded.hung_up()
    assert not recorded.ua.commands("record")
    assert recorded.told == [("waiting", "consent"), ("failed", "no_consent")]


async def test_a_sensitive_gather_is_not_recorded(recorded: Recorded) -> None:
    await recorded.started()
    recorded.call.gather(GatherRequest(sensitive=True, max_digits=4))
    assert recorded.ua.commands("record_paused") == [(recorded.call.id, True, False, 0)]
    with pytest.raises(WrongState):
        recorded.call.recorder.set_paused(paused=False)
    for key in "1234":
        recorded.press(key)
    assert recorded.ua.commands("record_paused")[1:] == [(recorded.call.id, False, False, AFTER_GATHER_MS)]
    assert recorded.told == [("started", None), ("paused", "gather"), ("resumed", "gather")]


async def test_a_recording_does_not_go_on_when_the_call_ends_in_a_sensitive_gather(recorded: Recorded) -> None:
    recorded.call.gather(GatherRequest(sensitive=True, max_digits=4))
    recording = await recorded.started()
    assert recorded.ua.commands("record") == [(recorded.call.id, True)], "it begins paused"
    recorded.hung_up()
    recorded.over(recording, "call_ended")
    assert recorded.told == [("started", None), ("paused", "gather"), ("saved", "call_ended")]


async def test_a_recording_does_not_go_on_after_a_sensitive_gather_that_ends_the_call(recorded: Recorded) -> None:
    await recorded.started()
    recorded.call.gather(GatherRequest(sensitive=True, max_digits=1, then="hangup"))
    recorded.press("1")
    assert recorded.ua.commands("record_paused") == [(recorded.call.id, True, False, 0)]
    assert recorded.told == [("started", None), ("paused", "gather")]


async def test_a_pause_of_the_client_outlasts_a_sensitive_gather(recorded: Recorded) -> None:
    await recorded.started()
    recorded.call.recorder.set_paused(paused=True)
    recorded.call.gather(GatherRequest(sensitive=True, max_digits=1))
    recorded.press("1")
    assert recorded.ua.commands("record_paused") == [(recorded.call.id, True, False, 0)]
    recorded.call.recorder.set_paused(paused=False)
    assert recorded.told[1:] == [("paused", "request"), ("resumed", "request")]


async def test_a_finish_key_ends_it_and_another_key_does_not(recorded: Recorded) -> None:
    await recorded.started(finish_on_key="#")
    recorded.call.gather(GatherRequest(max_digits=4))
    recorded.press("1")
    assert not recorded.ua.commands("record_stop")
    assert not recorded.ua.commands("record_paused"), "a gather that is not sensitive is recorded"
    recorded.press("#")
    assert recorded.ua.commands("record_stop") == [(recorded.call.id, "key")]
