from array import array

import msgspec
import pytest

from cc_tts.media.quality import mean_opinion_score
from cc_tts.softphone.report import (
    Gaps,
    RecordingReport,
    Result,
    RtpReport,
    SoftphoneEnding,
    SpeakReport,
    gaps_of,
    rtp_report,
)
from cc_tts.softphone.rtp.packets import RtpPacket
from cc_tts.softphone.rtp.receiver import KeyRecord, RtpReceiver, Talkspurt
from tests.support.call_reports import call_report

pytestmark = pytest.mark.unit

MS = 1_000_000


ANSWERED = call_report(
    rtp=RtpReport(packets=3, ssrcs=("0x00000001",), gap_ms=Gaps(2, 19.9, 20.0, 20.0, 20.1, 20.2, 20.3)),
    talkspurts=[Talkspurt(1, 2, 25.0, 1500.0)],
    dtmf_sent=[KeyRecord("5", 1, 100.0, 700.0)],
    recording=RecordingReport("a.wav", 1500.0, 1, is_truncated=False),
    speak=SpeakReport(error="HTTP 404"),
)


@pytest.mark.parametrize(
    ("result", "code"),
    [("completed", 0), ("refused", 1), ("no_answer", 1), ("cancelled", 1), ("failed", 1), ("unreachable", 2)],
)
def test_exit_codes(result: Result, code: int) -> None:
    assert SoftphoneEnding(result, "us").exit_code == code


def test_gap_percentiles() -> None:
    gaps = gaps_of(array("q", [20 * MS] * 99 + [80 * MS]))
    assert (gaps.count, gaps.min, gaps.mean, gaps.p50, gaps.max) == (100, 20.0, 20.6, 20.0, 80.0)
    assert gaps_of(array("q")) == Gaps()


def test_speak_measures_the_first_talkspurt_after_the_post() -> None:
    speak = SpeakReport(posted_at_ns=100 * MS, accepted_at_ns=110 * MS)
    speak.measure([Talkspurt(50 * MS, 160 * MS), Talkspurt(190 * MS, 300 * MS)])
    assert (speak.post_to_accepted_ms, speak.post_to_speech_ms, speak.accepted_to_speech_ms) == (10.0, 90.0, 80.0)
    silent = SpeakReport(posted_at_ns=100 * MS, accepted_at_ns=110 * MS)
    silent.measure([])
    assert silent.accepted_to_speech_ms is None


def test_table_for_an_answered_call() -> None:
    text = ANSWERED.table()
    for part in ("they hung up", "200 to first speech", "25.0 ms", "5 at 0.700 s", "a.wav  1.50 s", "HTTP 404"):
        assert part in text


def test_the_table_says_that_a_recording_is_not_whole() -> None:
    cut = call_report(recording=RecordingReport("a.wav", 3_600_000.0, 1, is_truncated=True))
    assert "a.wav  3600.00 s, and the rest is left out" in cut.table()


def test_table_for_a_refused_call_has_no_media_rows() -> None:
    text = call_report(
        answered_at_ns=None, ending=SoftphoneEnding("refused", "them", 503, "Service Unavailable", 5)
    ).table()
    assert "503 Service Unavailable" in text
    assert "Retry-After" in text
    assert "first RTP" not in text


def test_json_holds_everything() -> None:
    document = msgspec.json.decode(msgspec.json.encode(ANSWERED))
    assert document["ending"] == {
        "result": "completed",
        "by": "them",
        "sip_code": 200,
        "reason": "OK",
        "retry_after_s": None,
    }
    assert document["rtp"]["gap_ms"]["max"] == 20.3
    assert document["talkspurts"][0]["start_ms"] == 25.0


def test_the_mos_needs_a_round_trip() -> None:
    receiver = RtpReceiver(lambda *_, **__: None)
    empty = rtp_report(receiver, packets_sent=0)
    assert (empty.packets, empty.lost, empty.ssrc_changes, empty.gap_ms.p99) == (0, 0, 0, None)
    for sequence in (*range(90), 99):
        receiver.datagram(
            RtpPacket(0, sequence, 160 * sequence, 1, b"\xff" * 160).to_bytes(), sequence * 20 * MS, "h:1"
        )
    assert rtp_report(receiver, packets_sent=0).mos is None
    figures = rtp_report(receiver, packets_sent=0, round_trip_ms=40.0)
    assert (figures.lost, figures.round_trip_ms) == (9, 40.0)
    assert figures.mos == mean_opinion_score(loss=0.09, round_trip_ms=40.0)
