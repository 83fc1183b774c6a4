"""What a UA process leaves of calls whose end no server heard."""

from pathlib import Path

import msgspec
import pytest

from cc_tts.media.playout_events import PlayoutFinished
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import encode
from cc_tts.ua import ended_calls, messages
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

INVITE = messages.IncomingCall(
    call_id="a",
    sip_call_id="s",
    caller="<sip:alice@127.0.0.1>",
    callee="<sip:annc@127.0.0.1>",
    request_uri="sip:annc@127.0.0.1:5060;play=tts:hidden%20words",
    source="127.0.0.1",
    headers={"X-TTS-Text": "hidden words"},
    identity={"P-Asserted-Identity": "<sip:hidden@127.0.0.1>"},
)
SNAPSHOT = messages.CallSnapshot(
    call_id="a",
    record=b"r",
    state="established",
    sip_call_id="s",
    sip_code=0,
    established_ns=5_000_000_000,
    transport="udp",
    held_by="none",
    media=None,
    invite=INVITE,
    utterances=(("1", 20.0),),
)
FINISHED = messages.PlayoutReport(
    call_id="a", event=PlayoutFinished("1", at_ns=1, cause="drained", played_ms=20.0, underruns=0)
)
ENDED = messages.CallEnded(call_id="a", sip_code=200, ended_by="remote", quality=Quality(), at_ns=8_000_000_000)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "ua.sock"


def clock_at(now_ns: int, wall_s: float) -> FakeClock:
    clock = FakeClock()
    clock.now_ns = lambda: now_ns  # type: ignore[method-assign]
    clock.wall_s = lambda: wall_s  # type: ignore[method-assign]
    return clock


def test_the_next_server_is_told_what_it_would_have_been_told(socket: Path) -> None:
    clock = clock_at(10_000_000_000, 1000.0)
    ended_calls.leave(socket, [SNAPSHOT, FINISHED, ENDED, messages.SnapshotComplete()], clock)
    told = ended_calls.take(socket, clock)
    assert told == [msgspec.structs.replace(SNAPSHOT, invite=None), FINISHED, ENDED]
    assert ended_calls.take(socket, clock) == [], "once"


def test_instants_are_right_after_a_reboot(socket: Path) -> None:
    """The call ended 2 s before the file was written, and a machine with another monotonic clock reads it 50 s later."""
    ended_calls.leave(socket, [SNAPSHOT, ENDED], clock_at(10_000_000_000, 1000.0))
    snapshot, ended = ended_calls.take(socket, clock_at(3_000_000_000, 1050.0))
    assert isinstance(snapshot, messages.CallSnapshot)
    assert isinstance(ended, messages.CallEnded)
    assert ended.at_ns == 3_000_000_000 - 52_000_000_000
    assert ended.at_ns - snapshot.established_ns == ENDED.at_ns - SNAPSHOT.established_ns


@pytest.mark.parametrize("record", [b"r", b""])
def test_no_text_is_in_the_file(socket: Path, record: bytes) -> None:
    clock = clock_at(10_000_000_000, 1000.0)
    ended_calls.leave(socket, [msgspec.structs.replace(SNAPSHOT, record=record), ENDED], clock)
    path = socket.with_suffix(ended_calls.SUFFIX)
    assert b"hidden" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    (snapshot, _) = ended_calls.take(socket, clock)
    assert isinstance(snapshot, messages.CallSnapshot)
    assert (snapshot.invite is None) == bool(record)


def test_without_an_ended_call_there_is_no_file(socket: Path) -> None:
    ended_calls.leave(socket, [SNAPSHOT, messages.SnapshotComplete()], clock_at(1, 1.0))
    assert list(socket.parent.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 40,
        encode(ENDED),
        encode(ended_calls.Written(at_ns=1, wall_s=1.0))[:-1],
        encode(messages.SnapshotComplete()),
    ],
)
def test_a_file_that_cannot_be_read_costs_its_calls_alone(socket: Path, data: bytes) -> None:
    path = socket.with_suffix(ended_calls.SUFFIX)
    path.write_bytes(data)
    assert ended_calls.take(socket, clock_at(1, 1.0)) == []
    assert not path.exists()


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    ended_calls.leave(tmp_path / "gone" / "ua.sock", [SNAPSHOT, ENDED], clock_at(1, 1.0))
    assert ended_calls.take(tmp_path / "gone" / "ua.sock", clock_at(1, 1.0)) == []
