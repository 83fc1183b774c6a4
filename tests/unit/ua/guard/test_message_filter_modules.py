"""What the message filter does with requests and responses, without PJSIP."""

from collections.abc import Callable
from typing import cast

import pytest

from cc_tts.ua.guard.c_library import CLibrary, Headers
from cc_tts.ua.guard.message_filter import MessageFilter
from cc_tts.ua.refer.message import Notification
from cc_tts.ua.sip.reason import RemoteReason

pytestmark = pytest.mark.unit

SDP = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 9 RTP/AVP {format}\r\n"
GOOD, BAD = SDP.format(format=0), SDP.format(format=18)
ANAT = GOOD + "c=IN IP6 ::1\r\nm=audio 9 RTP/AVP 0\r\n"


TRANSACTIONS = 16
"""PJSIP_MOD_PRIORITY_TSX_LAYER."""


class FakeLibrary:
    def __init__(self) -> None:
        self.requests: list[Callable[[int], bool]] = []
        self.responses: list[Callable[[int], bool]] = []
        self.answers: list[tuple[int, Headers]] = []
        self.dropped: list[str] = []
        self.malformed: list[str] = []
        self.ends: list[tuple[str, str, tuple[RemoteReason, ...]]] = []
        self.before_transactions: list[Callable[[int], bool]] = []
        self.notified: list[tuple[str, str, Notification]] = []
        self.lost: list[tuple[str, str]] = []
        self.has_referred = True
        self.off: tuple[int, ...] = ()
        self.fails = False
        self._message = ""

    def register_module(
        self,
        _name: bytes,
        priority: int,
        *,
        on_request: Callable[[int], bool] | None = None,
        on_response: Callable[[int], bool] | None = None,
    ) -> None:
        if on_request:
            (self.before_transactions if priority < TRANSACTIONS else self.requests).append(on_request)
        self.responses += [on_response] if on_response else []

    def method_of(self, _rdata: int) -> str:
        return self._message.partition(" ")[0]

    def message(self, _rdata: int) -> tuple[str, str]:
        if self.fails:
            raise RuntimeError("broken")
        return "192.0.2.1", self._message

    def sdp(self, _rdata: int, repaired: Callable[[str], str]) -> tuple[str, bool] | None:
        body = repaired(self._message.partition("\r\n\r\n")[2])
        return (body, "a=\r" not in body) if body.startswith("v=") else None

    def has_dialog(self, _call_id: str, local_tag: str, _remote_tag: str) -> bool:
        return local_tag == "ours"

    def is_over(self, _call_id: str, local_tag: str, _remote_tag: str) -> bool | None:
        return None if local_tag == "unknown" else local_tag == "over"

    def respond(self, _rdata: int, code: int, headers: Headers = (), *, reason: str = "") -> None:
        self.answers.append((code, headers))

    def notify(self, call_id: str, remote_tag: str, notification: Notification) -> bool:
        self.notified.append((call_id, remote_tag, notification))
        return self.has_referred

    def drop_body(self, _rdata: int) -> None:
        self.dropped.append("body")

    def drop_headers(self, _rdata: int, name: str) -> None:
        self.dropped.append(name)

    def switch_off(self, _rdata: int, indexes: tuple[int, ...], *, num_media: int) -> None:
        assert num_media == 2
        self.off = indexes

    def receive(
        self, start: str, body: str = "", *lines: str, method: str = "", to_tag: str = "ours", from_tag: str = "theirs"
    ) -> list[bool]:
        head = (
            start,
            "Call-ID: c",
            f"From: <sip:x@y>;tag={from_tag}",
            f"To: <sip:a@b>;tag={to_tag}".removesuffix(";tag="),
        )
        cseq = f"CSeq: 7 {method or start.partition(' ')[0]}"
        self._message = "\r\n".join((*head, cseq, *lines, "", body))
        self.answers.clear()
        self.dropped.clear()
        return [module(1) for module in (self.responses if start.startswith("SIP/2.0") else self.requests)]


@pytest.fixture
def keys() -> list[tuple[str, str, int, str, int]]:
    return []


@pytest.fixture
def library(keys: list[tuple[str, str, int, str, int]]) -> FakeLibrary:
    fake = FakeLibrary()
    MessageFilter(
        cast("CLibrary", fake),
        codecs=frozenset({"PCMU/8000"}),
        srtp=False,
        on_key=lambda *key: keys.append(key),
        on_notify=fake.notify,
        on_notify_refused=lambda *dialog: fake.lost.append(dialog),
        on_end=lambda *end: fake.ends.append(end),
        on_offer=lambda _codecs: None,
        on_malformed=fake.malformed.append,
    ).install()
    return fake


@pytest.mark.parametrize("to_tag", ["", "ours"])
def test_an_offer_is_looked_at_once_in_its_place(library: FakeLibrary, to_tag: str) -> None:
    wanted = [True, False] if to_tag else [False, True]
    for method in ("INVITE", "UPDATE", "PRACK"):
        assert library.receive(f"{method} sip:a@b SIP/2.0", BAD, to_tag=to_tag) == wanted
        ((status, headers),) = library.answers
        assert (status, headers[0][0]) == (488, "Warning")
        assert library.receive(f"{method} sip:a@b SIP/2.0", GOOD, to_tag=to_tag) == [False, False]
        assert library.receive(f"{method} sip:a@b SIP/2.0", to_tag=to_tag) == [False, False]
    assert library.receive("MESSAGE sip:a@b SIP/2.0", BAD, to_tag=to_tag) == [False, False]


def test_what_pjsip_cannot_read_is_refused_too(library: FakeLibrary) -> None:
    assert library.receive("INVITE sip:a@b SIP/2.0", GOOD + "a=\r\n") == [True, False]
    assert library.answers[0][0] == 400


def test_of_two_lines_the_one_of_ipv6_is_switched_off(library: FakeLibrary) -> None:
    assert library.receive("INVITE sip:a@b SIP/2.0", ANAT) == [False, False]
    assert library.off == (0,)


@pytest.mark.parametrize(("method", "to_tag"), [("BYE", "ours"), ("CANCEL", "")])
def test_the_reasons_of_a_bye_and_of_a_cancel_are_told_before_pjsip_sees_them(
    library: FakeLibrary, method: str, to_tag: str
) -> None:
    start = f"{method} sip:a@b SIP/2.0"
    assert library.receive(start, "", "Reason: Q.850;cause=21", to_tag=to_tag) == [False, False]
    assert library.receive(start, to_tag=to_tag) == [False, False]
    assert library.ends == [("c", "theirs", (RemoteReason("Q.850", 21),)), ("c", "theirs", ())]


def test_an_ack_is_never_answered(library: FakeLibrary) -> None:
    for body in (BAD, "hello"):
        assert library.receive("ACK sip:a@b SIP/2.0", body) == [False, False]
        assert (library.dropped, library.answers) == (["body"], [])
    assert len(library.malformed) == 2
    for body in (GOOD, ""):
        assert library.receive("ACK sip:a@b SIP/2.0", body) == [False, False]
        assert (library.dropped, len(library.malformed)) == ([], 2)


def test_what_cannot_be_used_is_taken_out_of_a_response(library: FakeLibrary) -> None:
    def dropped(status: int, body: str = "", *lines: str, method: str = "INVITE") -> list[str]:
        assert library.receive(f"SIP/2.0 {status} Text", body, *lines, method=method) == [False]
        return list(library.dropped)

    assert dropped(183, BAD) == dropped(200, "hello") == dropped(200, ANAT, method="UPDATE") == ["body"]
    assert dropped(200, GOOD, "Contact: <sip:a@b>", "Record-Route: <sip:p;lr>, <sip:q;lr>") == []
    assert dropped(488, BAD) == dropped(200, BAD, method="OPTIONS") == []
    assert dropped(200, GOOD, "Contact: <tel:+1>") == dropped(180, "", "m: *") == ["Contact"]
    assert dropped(302, "", 'Contact: "x, <y>" <sip:a@b>, <mailto:a@b>') == ["Contact"]
    assert dropped(200, GOOD, "Record-Route: <tel:+1>") == ["Record-Route"]
    assert dropped(180, "", f"Contact: <sip:x@{'h' * 253}>") == [], "as long as DNS takes it"
    assert dropped(180, "", f"Contact: <sip:x@{'h' * 254}>") == ["Contact"]


def test_a_lifetime_that_cannot_be_counted_is_not_said(library: FakeLibrary) -> None:
    def dropped(*lines: str) -> list[str]:
        assert library.receive("SIP/2.0 200 OK", "", *lines, method="REGISTER") == [False]
        return list(library.dropped)

    assert dropped("Contact: <sip:a@b>;expires=60", "Expires: 60") == []
    assert dropped(*["Service-Route: <sip:p;lr>"] * 8) == []
    assert dropped(*["Service-Route: <sip:p;lr>"] * 9) == dropped("Service-Route: <tel:+1>") == ["Service-Route"]
    assert dropped("Contact: *") == ["Contact"]
    assert (
        dropped("Expires: 4294967295") == dropped("Contact: <sip:a@b>;expires=99999999999999") == ["Contact", "Expires"]
    )


def test_a_response_with_two_of_a_header_that_may_come_once_is_dropped(library: FakeLibrary) -> None:
    assert library.receive("SIP/2.0 200 OK", GOOD, "To: <sip:a@b>", method="INVITE") == [True]
    assert library.malformed == ["192.0.2.1"]


def test_info_is_answered_here(library: FakeLibrary, keys: list[tuple[str, str, int, str, int]]) -> None:
    def status(body: str, kind: str) -> int:
        lines = (f"Content-Type: {kind}",) if kind else ()
        assert library.receive("INFO sip:a@b SIP/2.0", body, *lines) == [True, False]
        return library.answers[0][0]

    assert status("Signal=5", "application/dtmf-relay") == status("10", "APPLICATION/DTMF;x=y") == status("", "") == 200
    assert keys == [("c", "theirs", 7, "5", 0), ("c", "theirs", 7, "*", 0)]
    assert status("x", "application/dtmf") == status("Duration=5", "application/dtmf-relay") == 400
    assert status("x", "text/plain") == status("x", "") == 415
    assert library.receive("INFO sip:a@b SIP/2.0", to_tag="") == [False, False], "of no call"
    assert len(keys) == 2


@pytest.mark.parametrize("form", ["application/dtmf-relay", "application/dtmf"])
@pytest.mark.parametrize(
    ("written", "key"),
    [("10", "*"), ("11", "#"), ("12", "A"), ("15", "D"), ("16", "R"), ("!", "R"), ("*", "*"), ("#", "#"), ("d", "D")],
)
def test_a_key_by_info_may_be_written_as_the_number_of_its_event(
    library: FakeLibrary, keys: list[tuple[str, str, int, str, int]], form: str, written: str, key: str
) -> None:
    body = f"Signal= {written}\r\nDuration=160\r\n" if form.endswith("relay") else written
    assert library.receive("INFO sip:a@b SIP/2.0", body, f"Content-Type: {form}") == [True, False]
    assert [each[3] for each in keys] == [key]


def test_what_it_fails_on_goes_no_further(library: FakeLibrary) -> None:
    library.fails = True
    assert library.receive("INVITE sip:a@b SIP/2.0", GOOD) == [True, True]
    assert library.receive("SIP/2.0 200 OK", GOOD, method="INVITE") == [True]


def test_an_info_of_a_dialog_that_is_not_known_by_both_tags_is_not_left_to_pjsip(library: FakeLibrary) -> None:
    content = "Content-Type: application/dtmf-relay"
    assert library.receive("INFO sip:a@b SIP/2.0", "Signal=", content, to_tag="unknown") == [True, False]
    assert [status for status, _ in library.answers] == [481]


def test_what_belongs_to_a_call_that_is_over_never_gets_to_pjsip(library: FakeLibrary) -> None:
    for method in ("INVITE", "UPDATE", "BYE", "ACK", "INFO"):
        assert library.receive(f"{method} sip:a@b SIP/2.0", GOOD, to_tag="over") == [True, False]
        assert library.answers == ([] if method == "ACK" else [(481, ())])


@pytest.mark.parametrize(
    ("status", "local_tag", "to_tag", "drops"),
    [
        ("200 OK", "over", "theirs", True),
        ("183 Session Progress", "over", "theirs", True),
        ("486 Busy Here", "over", "theirs", False),
        ("200 OK", "ours", "theirs", False),
        ("200 OK", "unknown", "theirs", False),
        ("200 OK", "ours", "", False),
        ("200 OK", "unknown", "", True),
    ],
)
def test_responses_to_a_call_that_is_over_are_dropped(
    library: FakeLibrary, status: str, local_tag: str, to_tag: str, *, drops: bool
) -> None:
    assert library.receive(f"SIP/2.0 {status}", method="INVITE", from_tag=local_tag, to_tag=to_tag) == [drops]


@pytest.mark.parametrize(
    ("start", "to_tag", "is_dropped"),
    [("ACK sip:a SIP/2.0", "", True), ("ACK sip:a SIP/2.0", "ours", False), ("INVITE sip:a SIP/2.0", "", False)],
)
def test_an_ack_without_our_tag_does_not_reach_the_transactions(
    library: FakeLibrary, start: str, to_tag: str, *, is_dropped: bool
) -> None:
    library.receive(start, to_tag=to_tag)
    assert [module(1) for module in library.before_transactions] == [is_dropped]


@pytest.mark.parametrize(
    ("event", "to_tag", "has_referred", "status"),
    [
        ("Event: refer", "ours", True, 200),
        ("o: refer;id=7", "ours", True, 200),
        ("Event: refer", "ours", False, 481),
        ("Event: presence", "ours", True, 489),
        ("X: no event", "ours", True, 489),
        ("Event: refer", "unknown", True, 481),
        ("Event: refer", "over", True, 481),
    ],
)
def test_a_notify_is_answered_here_whatever_it_is(
    library: FakeLibrary, event: str, to_tag: str, *, has_referred: bool, status: int
) -> None:
    library.has_referred = has_referred
    library.receive("NOTIFY sip:a SIP/2.0", "garbage", event, to_tag=to_tag)
    assert [code for code, _ in library.answers] == [status]


def test_a_notify_says_what_its_body_names(library: FakeLibrary) -> None:
    kind = "Content-Type: message/sipfrag;version=2.0"
    library.receive("NOTIFY sip:a SIP/2.0", "SIP/2.0 180 Ringing\r\n", "Event: refer", kind)
    assert library.notified == [("c", "theirs", Notification(180, is_last=False, cseq=7))]


@pytest.mark.parametrize(
    ("status", "lost"),
    [("408 Timeout", [("c", "theirs")]), ("481 No Subscription", [("c", "theirs")]), ("200 OK", [])],
)
def test_a_notify_that_is_refused_does_not_end_the_call(
    library: FakeLibrary, status: str, lost: list[tuple[str, str]]
) -> None:
    (dealt_with,) = library.receive(f"SIP/2.0 {status}", method="NOTIFY", from_tag="ours", to_tag="theirs")
    assert dealt_with is bool(lost), "PJSIP would end the call"
    assert (library.lost, library.malformed) == (lost, [])
