from typing import Any

import pytest

from cc_tts.softphone.facts import CallFacts, ending_of
from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.report import SoftphoneEnding
from cc_tts.ua.sip.reason import RemoteReason

pytestmark = pytest.mark.unit

PLAN = DialPlan(call="1", uri="sip:a@b", timeout_s=3)
TALKED: dict[str, Any] = {
    "answered_ns": 5,
    "is_connected": True,
    "has_any_response": True,
    "last_code": 200,
    "last_reason": "OK",
}


@pytest.mark.parametrize(
    ("seen", "ending"),
    [
        (TALKED | {"has_remote_bye": True}, SoftphoneEnding("completed", "them", 200, "OK")),
        (
            TALKED | {"has_remote_bye": True, "remote_reasons": (RemoteReason("Q.850", 41, "Temporary failure"),)},
            SoftphoneEnding("completed", "them", 200, "Temporary failure"),
        ),
        (TALKED | {"hangup_ns": 9}, SoftphoneEnding("completed", "us", 200, "OK")),
        (TALKED | {"has_remote_bye": True, "hangup_ns": 9}, SoftphoneEnding("completed", "them", 200, "OK")),
        (TALKED | {"last_code": 408, "last_reason": "Timeout"}, SoftphoneEnding("failed", "nobody", 408, "Timeout")),
        (
            {"has_any_response": True, "last_code": 486, "last_reason": "Busy Here"},
            SoftphoneEnding("refused", "them", 486, "Busy Here"),
        ),
        (
            {"has_any_response": True, "last_code": 503, "last_reason": "No", "retry_after_s": 5},
            SoftphoneEnding("refused", "them", 503, "No", 5),
        ),
        (
            {"has_any_response": True, "last_code": 487, "last_reason": "x", "hangup_ns": 9},
            SoftphoneEnding("cancelled", "us", 487, "x"),
        ),
        (
            {"has_any_response": True, "last_code": 487, "hangup_ns": 9, "is_timed_out": True},
            SoftphoneEnding("no_answer", "us", 487, "not answered within 3 s"),
        ),
        (
            {"last_code": 487, "hangup_ns": 9, "is_timed_out": True},
            SoftphoneEnding("unreachable", "nobody", 0, "no SIP answer from sip:a@b within 3 s"),
        ),
        (
            {"last_code": 503, "last_reason": "Connection refused"},
            SoftphoneEnding("unreachable", "nobody", 0, "Connection refused"),
        ),
        ({"last_code": 487, "last_reason": "x", "hangup_ns": 9}, SoftphoneEnding("cancelled", "us", 487, "x")),
    ],
    ids=[
        "they hang up",
        "they hang up and say why",
        "we hang up",
        "both hang up",
        "the far side vanished",
        "busy",
        "overload with Retry-After",
        "we cancel",
        "it only rang",
        "no answer at all",
        "connection refused",
        "we cancel before anything came",
    ],
)
def test_endings(seen: dict[str, Any], ending: SoftphoneEnding) -> None:
    assert ending_of(CallFacts(**seen), PLAN) == ending
