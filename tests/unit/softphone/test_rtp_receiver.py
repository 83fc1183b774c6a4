from typing import Any

import numpy as np
import pytest

from cc_tts.media import g711
from cc_tts.softphone.rtp.packets import RtpPacket, TelephoneEvent
from cc_tts.softphone.rtp.receiver import RtpReceiver
from cc_tts.softphone.rtp.recording import RtpRecording
from tests.support.alaw import alaw_encode

pytestmark = pytest.mark.unit

MS = 1_000_000
SOURCE = "127.0.0.1:4000"


def tone(amplitude: int) -> bytes:
    return g711.ulaw_encode(np.full(160, amplitude, "<i2").tobytes())


LOUD, SOFT, SILENT = tone(8000), tone(80), tone(0)


class Line:
    """Feeds packets into a receiver: ``(index, payload, extra delay in ms)``."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.receiver = RtpReceiver(self._report_event)

    def _report_event(self, event: str, at_ns: int, **_values: Any) -> None:
        self.events.append((event, at_ns // MS))

    def packet(self, index: int, payload: bytes = LOUD, *, late_ms: float = 0, ssrc: int = 1) -> None:
        packet = RtpPacket(0, (100 + index) % 65536, 1000 + index * 160, ssrc, payload)
        self.receiver.datagram(packet.to_bytes(), 1_000 * MS + int((index * 20 + late_ms) * MS), SOURCE)

    @property
    def heard(self) -> str:
        """One letter a 20 ms frame of the recording: L loud, s soft, . silent."""
        pcm = np.frombuffer(self.receiver.recording.pcm, "<i2").reshape(-1, 160)
        return "".join("L" if frame[0] > 4000 else "s" if frame[0] else "." for frame in pcm)


@pytest.mark.parametrize(
    ("order", "heard", "lost", "reordered", "duplicates"),
    [
        ([0, 1, 2], "LLL", 0, 0, 0),
        ([0, 2], "L.L", 1, 0, 0),
        ([0, 2, 1, 3], "LLLL", 0, 1, 0),
        ([0, 1, 1, 2], "LLL", 0, 0, 1),
    ],
)
def test_recording_follows_rtp_time(order: list[int], heard: str, lost: int, reordered: int, duplicates: int) -> None:
    line = Line()
    for index in order:
        line.packet(index)
    assert line.heard == heard
    (source,) = line.receiver.sources
    assert (source.lost, source.reordered, source.duplicates) == (lost, reordered, duplicates)
    assert line.receiver.recording.filled_samples == 160 * heard.count(".")


def test_a_packet_too_late_for_any_jitter_buffer_is_dropped() -> None:
    line = Line()
    for index in [*range(5), *range(6, 20), 5]:
        line.packet(index)
    assert line.heard == "LLLLL.LLLLLLLLLLLLLL"
    assert line.receiver.recording.late == 1


def test_new_ssrc_goes_on_where_its_arrival_puts_it() -> None:
    line = Line()
    line.packet(0)
    line.packet(1)
    packet = RtpPacket(0, 9, 777_777_777, 2, SOFT)
    line.receiver.datagram(packet.to_bytes(), 1_000 * MS + 80 * MS, SOURCE)
    assert line.heard == "LL..s"
    assert [each.ssrc for each in line.receiver.sources] == [1, 2]


def test_clock_jump_of_one_ssrc_does_not_make_hours_of_silence() -> None:
    recording = RtpRecording()
    recording.add(ssrc=1, timestamp=0, pcm=bytes(320), arrival_ns=0)
    recording.add(ssrc=1, timestamp=2**31, pcm=bytes(320), arrival_ns=20 * MS)
    assert recording.num_samples == 320


def test_recording_has_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cc_tts.softphone.rtp.recording.MAX_SECONDS", 1)
    recording = RtpRecording()
    for index in range(60):
        recording.add(ssrc=1, timestamp=index * 160, pcm=bytes(320), arrival_ns=index * 20 * MS)
    assert recording.num_samples == 8000
    assert recording.is_truncated


def test_talkspurts_span_short_pauses_and_report_edges() -> None:
    line = Line()
    pattern = "..LL....LL" + "." * 20 + "LLs."
    for index, kind in enumerate(pattern):
        line.packet(index, {"L": LOUD, "s": SOFT, ".": SILENT}[kind])
        line.receiver.detector.poll(1_000 * MS + index * 20 * MS)
    line.receiver.detector.finish()
    spurts = [(s.start_at_ns // MS - 1000, s.end_at_ns // MS - 1000) for s in line.receiver.detector.talkspurts]
    assert spurts == [(40, 200), (600, 640)]
    assert line.events == [("speech_start", 1040), ("speech_end", 1200), ("speech_start", 1600), ("speech_end", 1640)]


def test_gaps_count_only_packets_that_follow_each_other() -> None:
    line = Line()
    for index, late in [(0, 0), (1, 0), (2, 30), (3, 10), (5, 0), (6, 0)]:
        line.packet(index, late_ms=late)
    assert [gap // MS for gap in line.receiver.gaps_ns] == [20, 50, 0, 20]
    assert line.heard == "LLLL.LL", "when they arrive moves no audio in the file"


def test_key_is_reported_once_and_does_not_count_as_audio() -> None:
    line = Line()
    line.packet(0)
    for number, (end, duration) in enumerate([(False, 160), (False, 320), (True, 480), (True, 480), (True, 480)]):
        payload = TelephoneEvent(5, end, duration).to_bytes()
        packet = RtpPacket(101, 101 + number, 1160, 1, payload, marker=number == 0)
        line.receiver.datagram(packet.to_bytes(), (1020 + 20 * number) * MS, SOURCE)
    line.packet(6)
    (key,) = line.receiver.keys
    assert (key.digit, key.duration_ms, key.at_ns) == ("5", 60, 1020 * MS)
    assert [at_ms for event, at_ms in line.events if event == "dtmf_received"] == [1020]
    assert line.heard == "L.....L"
    assert len(line.receiver.gaps_ns) == 0
    assert line.receiver.sources[0].lost == 0


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x40" + bytes(20), bytes.fromhex("8f00") + bytes(10), b"junk" * 50])
def test_junk_is_counted_and_nothing_else_happens(data: bytes) -> None:
    line = Line()
    line.receiver.datagram(data, MS, SOURCE)
    assert line.receiver.invalid == 1
    assert line.receiver.sources == []


def test_rtcp_and_unknown_payload_types_are_not_heard() -> None:
    line = Line()
    line.receiver.datagram(bytes.fromhex("80c80001") + bytes(4), MS, SOURCE)
    line.receiver.datagram(RtpPacket(18, 1, 1, 1, b"\0" * 20).to_bytes(), MS, SOURCE)
    assert line.receiver.rtcp_on_rtp_port == 1
    assert line.receiver.payload_types == {18: 1}
    assert line.heard == ""
    alaw = RtpPacket(8, 2, 161, 1, alaw_encode(np.full(160, 8000, "<i2").tobytes()))
    line.receiver.datagram(alaw.to_bytes(), MS, SOURCE)
    assert line.heard == "L"
