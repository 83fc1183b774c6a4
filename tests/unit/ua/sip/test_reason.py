"""The Reason header of the far side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.ua.sip.reason import MAX_REASONS, MAX_TEXT_CHARS, RemoteReason, remote_reasons

pytestmark = pytest.mark.unit


def message(*values: str) -> str:
    return "BYE sip:a@b SIP/2.0\r\n" + "".join(f"Reason: {value}\r\n" for value in values) + "\r\nReason: Q.850;cause=1"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('Q.850;cause=21;text="CALL_REJECTED"', RemoteReason("Q.850", 21, "CALL_REJECTED")),
        ("q.850 ; cause = 16", RemoteReason("Q.850", 16)),
        ('SIP ;cause=200 ;text="Call completed elsewhere"', RemoteReason("SIP", 200, "Call completed elsewhere")),
        ("SIP;text=busy;cause=486", RemoteReason("SIP", 486, "busy")),
        ('Q.850;cause=0;text="a \\"b\\", c; d"', RemoteReason("Q.850", 0, 'a "b", c; d')),
        ("X.int;reasoncode=0x00000000;add-info=05CC.0001.0006", RemoteReason("X.int")),
        ("Preemption;cause=5", RemoteReason("Preemption", 5)),
        ("Q.850;cause=17;location=LN", RemoteReason("Q.850", 17)),
        ('Q.850;cause=16;text=""', RemoteReason("Q.850", 16)),
    ],
)
def test_a_reason_is_read(value: str, wanted: RemoteReason) -> None:
    assert remote_reasons(message(value)) == (wanted,)


@pytest.mark.parametrize(
    "value",
    ["", ";cause=16", "Q.850;cause=128", "Q.850;cause=x", "SIP;cause=99", "SIP;cause=700", "Q.850;cause=-1",
     "X;cause=100000", "X;cause=" + "9" * 400, 'Q.850;text="open', "Q.850;cause=16 17", "a" * 33 + ";cause=1", "\x00"],
)  # fmt: skip
def test_what_is_malformed_is_left_out(value: str) -> None:
    assert remote_reasons(message(value)) == ()
    assert remote_reasons(message(value, "SIP;cause=487")) == (RemoteReason("SIP", 487),)


def test_several_reasons_stand_in_one_header_or_in_several() -> None:
    both = (RemoteReason("SIP", 480, "a, b"), RemoteReason("Q.850", 18))
    assert remote_reasons(message('SIP;cause=480;text="a, b",Q.850;cause=18')) == both
    assert remote_reasons(message('SIP;cause=480;text="a, b"', "Q.850;cause=18")) == both
    assert remote_reasons(message()) == ()


def test_number_and_length_are_bounded() -> None:
    assert len(remote_reasons(message(*["Q.850;cause=16"] * 40))) == MAX_REASONS
    assert len(remote_reasons(message(",".join(["Q.850;cause=16"] * 20)))) == MAX_REASONS
    (found,) = remote_reasons(message(f'Q.850;cause=16;text="{"x" * 300}"'))
    assert found.text == "x" * MAX_TEXT_CHARS
    (found,) = remote_reasons(message('Q.850;cause=16;text="a\tb\x1b[31m\u2028c"'))
    assert found.text == "ab[31mc", "nothing that a terminal or a log would act on"


@given(value=st.text(alphabet='Q.850SIP;=, "\\cause text19\t\u00e9', max_size=80))
def test_whatever_is_sent_is_read_within_bounds(value: str) -> None:
    for reason in remote_reasons(message(value)):
        assert reason.protocol
        assert len(reason.text) <= MAX_TEXT_CHARS
        assert reason.cause is None or 0 <= reason.cause < 100_000
