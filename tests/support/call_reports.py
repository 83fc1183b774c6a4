"""The report of a call of the softphone, for tests of what is made of it."""

from typing import Any

from cc_tts.softphone.report import RtpReport, SoftphoneEnding, SoftphoneReport


def call_report(**changes: Any) -> SoftphoneReport:
    """A call that was answered a second after its INVITE, and that the far side ended 2 s later."""
    known: dict[str, Any] = dict.fromkeys(("ringing_ms", "recording", "speak"))
    known |= {"call": "1", "uri": "sip:a@b", "sip_call_id": "xyz", "codec": "pcmu", "rtp": RtpReport(packets=3)}
    known |= {
        "ending": SoftphoneEnding("completed", "them", 200, "OK"),
        "trying_ms": 1.0,
        "answered_ms": 1000.0,
        "talk_ms": 2000.0,
    }
    known |= {"invite_at_ns": 0, "answered_at_ns": 1_000_000_000, "ended_at_ns": 3_000_000_000}
    known |= dict.fromkeys(("first_rtp_at_ns", "first_speech_at_ns"), 1)
    known |= {"answer_to_first_rtp_ms": 5.0, "answer_to_first_speech_ms": 25.0}
    known |= dict.fromkeys(("talkspurts", "dtmf_sent", "dtmf_received"), ())
    return SoftphoneReport(**known | changes)
