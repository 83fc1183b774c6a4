"""What a BYE says of how the call went."""

import pytest

from cc_tts.ua.messages import Hangup
from cc_tts.ua.sip.bye import bye_headers, quoted

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("normal", 'Q.850;cause=16;text="Normal call clearing"'),
        ("barge_in", 'Q.850;cause=16;text="Normal call clearing"'),
        ("max_duration", 'Q.850;cause=16;text="Normal call clearing"'),
        ("error", 'Q.850;cause=41;text="Temporary failure"'),
        ("rtp_inactivity", 'Q.850;cause=102;text="Recovery on timer expiry"'),
    ],
)
def test_the_reason_of_each_cause(cause: str, reason: str) -> None:
    headers = bye_headers(Hangup(call_id="c", cause=cause), played_ms=1234.6)
    assert headers == {"X-TTS-Cause": cause, "X-TTS-Played-Ms": "1235", "Reason": reason}


def test_the_status_and_words_of_whoever_hung_up() -> None:
    headers = bye_headers(Hangup(call_id="c", sip_code=486, reason='all "busy"'), played_ms=0.0)
    assert headers["Reason"] == 'SIP;cause=486;text="all \\"busy\\""'
    assert bye_headers(Hangup(call_id="c", sip_code=486), played_ms=0.0)["Reason"] == "SIP;cause=486"
    assert bye_headers(Hangup(call_id="c", reason="lunch"), played_ms=0.0)["Reason"] == 'Q.850;cause=16;text="lunch"'


def test_the_results_of_a_gather_and_of_a_transfer_where_there_are_some() -> None:
    hangup = Hangup(call_id="c", cause="transfer_failed", sip_code=486, digits="12", transfer_result="busy")
    headers = bye_headers(hangup, played_ms=0.0)
    assert headers == {
        "X-TTS-Cause": "transfer_failed",
        "X-TTS-Digits": "12",
        "X-TTS-Transfer-Result": "busy",
        "X-TTS-Played-Ms": "0",
        "Reason": "SIP;cause=486",
    }


def test_nothing_breaks_out_of_a_quoted_string() -> None:
    assert quoted('a"b\\c\r\nX: y') == '"a\\"b\\\\c  X: y"'
