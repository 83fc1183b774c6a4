"""What a UA process keeps while it has no server."""

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cc_tts.config import load as config
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import ProcessFailed
from cc_tts.media.playout_events import PlayoutFinished, PlayoutProgress
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.ua import detached, messages
from cc_tts.ua.client import settings_of
from cc_tts.ua.detached import KeptReports
from cc_tts.ua.process.loop import ProcessLoop
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def snapshot(call_id: str, *utterances: tuple[str, float]) -> messages.CallSnapshot:
    return messages.CallSnapshot(
        call_id=call_id,
        record=b"r",
        state="established",
        sip_call_id="s",
        sip_code=0,
        established_ns=1,
        transport="",
        held_by="none",
        media=None,
        invite=None,
        utterances=utterances,
    )


def finished(call_id: str, utterance_id: str, played_ms: float = 400.0) -> messages.PlayoutReport:
    event = PlayoutFinished(utterance_id, at_ns=1, cause="drained", played_ms=played_ms, underruns=0)
    return messages.PlayoutReport(call_id=call_id, event=event)


def ended_call(call_id: str) -> messages.CallEnded:
    return messages.CallEnded(call_id=call_id, sip_code=200, ended_by="remote", quality=Quality())


def test_a_call_is_told_with_what_was_over_of_its_prompts() -> None:
    kept = KeptReports(snapshot)
    kept.keep(finished("a", "1"))
    kept.keep(messages.PlayoutReport(call_id="a", event=PlayoutProgress("2", at_ns=1, played_ms=5.0)))
    kept.keep(messages.DtmfReceived(call_id="a", digit="5", duration_ms=1, method="sip_info", at_ns=1))
    assert list(kept.reports([snapshot("a", ("2", 20.0)), snapshot("b")])) == [
        snapshot("a", ("1", 400.0), ("2", 20.0)),
        finished("a", "1"),
        snapshot("b"),
        messages.SnapshotComplete(),
    ]
    assert list(kept.reports([snapshot("a")])) == [snapshot("a"), messages.SnapshotComplete()], (
        "the server knows it now"
    )


def test_a_call_that_has_ended_is_told_before_those_that_live() -> None:
    kept = KeptReports(lambda call_id: snapshot(call_id, ("1", 20.0)))
    ended = ended_call("a")
    kept.keep(finished("a", "1", 20.0))
    kept.keep_end(ended)
    told: list[Message] = list(kept.reports([snapshot("b")]))
    assert told[:3] == [snapshot("a", ("1", 20.0)), finished("a", "1", 20.0), ended]
    assert told[3:] == [snapshot("b"), messages.SnapshotComplete()]


def test_an_end_is_told_until_a_server_has_noted_it() -> None:
    """Another server is told of those that the one before may not have read or written down."""
    kept = KeptReports(lambda call_id: snapshot(call_id) if call_id != "of no leg" else None)
    for call_id in ("a", "b", "of no leg", "b"):
        kept.keep_end(ended_call(call_id))
    kept.forget_end("a")
    kept.forget_end("unknown")
    told = [snapshot("b"), ended_call("b"), messages.SnapshotComplete()]
    assert list(kept.reports([])) == told
    assert list(kept.reports([])) == told, "it has not been noted by being told"


def test_ends_that_nobody_notes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "MAX_UNNOTED_ENDS", 3)
    kept = KeptReports(snapshot)
    for number in range(10):
        kept.keep_end(ended_call(str(number)))
    assert [each.call_id for each in kept.reports([]) if isinstance(each, messages.CallEnded)] == ["7", "8", "9"]


def fingerprint(*overrides: str) -> str:
    (only,) = settings_of(config.load(overrides=list(overrides)))
    return only.fingerprint


@pytest.mark.parametrize(
    ("override", "is_taken_over"),
    [
        ("log.level=debug", True),
        ("sip.trusted_peers=['10.0.0.0/8']", True),
        ("sip.nameservers=['192.0.2.1']", True),
        ("auth.users=[{username='a',password='long enough'}]", True),
        ("ua.orphan_grace_ms=0", True),
        ("calls.max_duration_s=7", True),
        ("sip.port=5062", False),
        ("rtp.inactivity_timeout_s=77", False),
        ("rtp.clock_rate_hz=16000", False),
        ("playout.window_ms=300", False),
        ("registration.username=x", False),
    ],
)
def test_what_a_running_process_can_take_over_makes_no_difference(override: str, *, is_taken_over: bool) -> None:
    assert (fingerprint(override) == fingerprint()) is is_taken_over


def test_a_key_that_only_the_other_version_knows_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    (now,) = settings_of(config.load())
    fields = dataclasses.fields

    def of_an_older_version(section: Any) -> Any:
        return [each for each in fields(section) if each.name != "follow_redirects"]

    before = now.fingerprint
    monkeypatch.setattr(dataclasses, "fields", of_an_older_version)
    assert now.fingerprint == before
    assert now.log == LogConfig()


def test_the_socket_is_named_by_what_one_process_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/cc-tts")
    wanted = config.load(overrides=["ua.processes=2", "sip.transports=['udp']"])
    here = format(Path("/proc/self/ns/net").stat().st_ino, "x")
    assert [each.adoption_socket for each in settings_of(wanted)] == [
        f"/run/cc-tts/ua/ua-127.0.0.1-5060-5061-1-{here}.sock",
        f"/run/cc-tts/ua/ua-127.0.0.1-5060-5061-2-{here}.sock",
    ]
    (only,) = settings_of(config.load(overrides=["ua.orphan_grace_ms=0"]))
    assert only.adoption_socket == ""


def test_the_end_of_a_call_is_kept_from_a_server_that_stops_reading() -> None:
    """Its next reader is the file beside the socket."""

    class FullChannel:
        def put(self, _message: Message, _payload: bytes = b"") -> None:
            raise ProcessFailed("the server has stopped reading")

    link = SimpleNamespace(outlives_server=True, is_detached=False, channel=FullChannel())
    agent = SimpleNamespace(snapshot=snapshot)
    loop = ProcessLoop(
        "ua", cast("Any", link), settings_of(config.load())[0], FakeClock(), lambda *_: cast("Any", agent)
    )
    loop.report(ended_call("a"))
    assert loop.run(threading.Event()), "no server is left"
    assert ended_call("a") in list(loop.kept.reports(()))
    assert link.is_detached, "so that it is written into the file"
