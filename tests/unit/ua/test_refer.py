"""Refer-To, Replaces, and what a NOTIFY of any kind says."""

import pytest

from cc_tts.ua.refer import message as refer
from cc_tts.ua.refer.message import Notification

pytestmark = pytest.mark.unit


def notify(body: str, *lines: str) -> str:
    return "\r\n".join(("NOTIFY sip:a@b SIP/2.0", "CSeq: 9 NOTIFY", *lines, "", body))


@pytest.mark.parametrize(
    ("body", "lines", "said"),
    [
        ("SIP/2.0 100 Trying\r\n", ("Subscription-State: active;expires=60",), (100, False)),
        ("SIP/2.0 200 OK", ("Subscription-State: terminated;reason=noresource",), (200, True)),
        ("SIP/2.0 486 Busy Here\r\nX: y\r\n", ("Subscription-State: active",), (486, False)),
        ("\r\nsip/2.0 603 \r\n", ("subscription-state:Terminated",), (603, True)),
        ("SIP/2.0 200 OK", (), (200, True)),
        ("SIP/2.0 180 Ringing", (), (180, False)),
        ("", ("Subscription-State: terminated",), (0, True)),
        ("", (), (0, False)),
        ("SIP/2.0 999 Odd", (), (0, False)),
        ("SIP/2.0 20", (), (0, False)),
        ("SIP/2.0 2000 OK", (), (0, False)),
        ("\x00\xff" * 500, (), (0, False)),
        ("SIP/2.0 200 OK", ("Content-Type: text/plain",), (0, False)),
        ("SIP/2.0 200 OK", ("c: message/sipfrag",), (200, True)),
    ],
)
def test_a_notify_says_a_status_or_nothing(body: str, lines: tuple[str, ...], said: tuple[int, bool]) -> None:
    found = refer.notification(notify(body, "Event: refer", *lines))
    assert found == Notification(*said, cseq=9)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        ("refer;id=93", 93),
        ("REFER ; id=93 ; x", 93),
        ("refer;id=x", None),
        ("refer;id=" + "9" * 30, None),
        ("refer", None),
    ],
)
def test_a_notify_names_the_refer_that_it_is_of(event: str, named: int | None) -> None:
    found = refer.notification(notify("", f"Event: {event}"))
    assert found is not None
    assert found.refer == named


@pytest.mark.parametrize("line", ["Event: referee", "Event:", "X: y"])
def test_another_package_is_not_for_us(line: str) -> None:
    assert refer.notification(notify("SIP/2.0 200 OK", line)) is None


def test_headers_of_the_new_call_are_escaped() -> None:
    headers = {"X-A": "b&c=d?e>", "User-to-User": "00;encoding=hex"}
    assert refer.refer_to("sip:a@b", headers) == "<sip:a@b?X-A=b%26c%3Dd%3Fe%3E&User-to-User=00%3Bencoding%3Dhex>"
    assert refer.refer_to("sip:a@b", {}) == "<sip:a@b>"


def test_replaces_names_the_dialog_as_its_far_side_does() -> None:
    assert refer.replaces("c@d", local_tag="ours", remote_tag="theirs") == "c@d;to-tag=theirs;from-tag=ours"
