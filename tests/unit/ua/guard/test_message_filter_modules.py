"""What the message filter does with what PJSIP must not see as it is, without PJSIP."""

import pytest

from cc_tts.ua.refer.message import Notification
from cc_tts.ua.sip.reason import RemoteReason
from tests.fakes.filtered_messages import HOST, TRANSACTIONS, Filtered

pytestmark = pytest.mark.unit

SDP = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 9 RTP/AVP {format}\r\n"
GOOD, BAD = SDP.format(format=0), SDP.format(format=18)
ANAT = GOOD + "c=IN IP6 ::1\r\nm=audio 9 RTP/AVP 0\r\n"


@pytest.fixture
def filtered() -> Filtered:
    return Filtered("sip.max_requests_per_source_s=0")


@pytest.mark.parametrize(
    ("method", "to_tag"), [("INVITE", ""), ("INVITE", "ours"), ("UPDATE", "ours"), ("PRACK", "ours")]
)
def test_an_offer_is_looked_at_in_its_place(filtered: Filtered, method: str, to_tag: str) -> None:
    assert filtered.receive(method, body=BAD, to_tag=to_tag) == 488
    assert filtered.header("Warning")
    assert filtered.receive(method, body=GOOD, to_tag=to_tag) == "passed"
    assert filtered.receive(method, to_tag=to_tag) == "passed"
    assert filtered.receive(method, body=GOOD + "a=\r\n", to_tag=to_tag) == 400, "PJSIP cannot read it"
    assert filtered.receive(method, body="hello", to_tag=to_tag) == 415
    assert filtered.header("Accept") == "application/sdp"
    assert filtered.receive("BYE", body=BAD, to_tag="ours") == "passed"


def test_of_two_lines_the_one_of_ipv6_is_switched_off(filtered: Filtered) -> None:
    assert filtered.receive("INVITE", body=ANAT) == "passed"
    assert filtered.library.off == (0,)


@pytest.mark.parametrize(("method", "to_tag", "wanted"), [("BYE", "ours", "passed"), ("CANCEL", "", 481)])
def test_the_reasons_of_a_bye_and_of_a_cancel_are_told_before_pjsip_sees_them(
    filtered: Filtered, method: str, to_tag: str, wanted: int | str
) -> None:
    assert filtered.receive(method, "Reason: Q.850;cause=21", to_tag=to_tag) == wanted, "481: of no transaction"
    assert filtered.receive(method, to_tag=to_tag) == wanted
    assert filtered.leg.ends == [(RemoteReason("Q.850", 21),), ()]


def test_an_ack_is_never_answered(filtered: Filtered) -> None:
    for body, dropped in ((BAD, ["body"]), ("hello", ["body"]), (GOOD, []), ("", [])):
        assert filtered.receive("ACK", body=body, to_tag="ours") == "passed"
        assert filtered.library.dropped == dropped
    assert filtered.refused() == {"malformed": 2}


def test_what_cannot_be_used_is_taken_out_of_a_response(filtered: Filtered) -> None:
    def dropped(status: int, body: str = "", *lines: str, method: str = "INVITE") -> list[str]:
        assert not filtered.drops(str(status), method, *lines, body=body)
        return list(filtered.library.dropped)

    assert dropped(183, BAD) == dropped(200, "hello") == dropped(200, ANAT, method="UPDATE") == ["body"]
    assert dropped(200, GOOD, "Contact: <sip:a@b>", "Record-Route: <sip:p;lr>, <sip:q;lr>") == []
    assert dropped(488, BAD) == dropped(200, BAD, method="OPTIONS") == []
    assert dropped(200, GOOD, "Contact: <tel:+1>") == dropped(180, "", "m: *") == ["Contact"]
    assert dropped(302, "", 'Contact: "x, <y>" <sip:a@b>, <mailto:a@b>') == ["Contact"]
    assert dropped(200, GOOD, "Record-Route: <tel:+1>") == ["Record-Route"]
    assert dropped(180, "", f"Contact: <sip:x@{'h' * 242}>") == [], "as long as DNS takes it"
    assert dropped(180, "", f"Contact: <sip:x@{'h' * 243}>") == ["Contact"]


UNWRITABLE = (
    "f: <sip:a@[]>",
    "To: sip:[]:5060",
    "X: y\nTo: <sip:%61@[]>",
    "Record-Route: <sip:[];lr>",
    "Record-Route: <sip:a;lr>,\r\n <sip:b;hid%65=1>",
)


@pytest.mark.parametrize("line", UNWRITABLE)
def test_what_pjsip_would_not_repeat_in_an_answer_gets_none(filtered: Filtered, line: str) -> None:
    for method in ("INVITE", "OPTIONS", "ACK", "BYE"):
        assert filtered.receive(method, line, to_tag="ours") == "silence"
        assert filtered.library.answers == []
    assert filtered.drops("200", "INVITE", line)
    assert filtered.refused() == {"malformed": 5}


def test_a_route_of_a_registrar_that_pjsip_would_not_write_is_not_taken(filtered: Filtered) -> None:
    assert filtered.drops("200", "REGISTER", "Service-Route: <sip:p;hide>")


def test_a_display_name_and_an_address_of_ipv6_can_be_repeated(filtered: Filtered) -> None:
    assert (
        filtered.receive("INVITE", "X-From: <sip:[]>", "Record-Route: <sip:[::1];lr;hidden>", to_tag="ours")
        != "silence"
    )


@pytest.mark.parametrize(
    ("lines", "dropped"),
    [
        (("Contact: <sip:a@b>;expires=60", "Expires: 60"), []),
        (["Service-Route: <sip:p;lr>"] * 8, []),
        (["Service-Route: <sip:p;lr>"] * 9, ["Service-Route"]),
        (["Service-Route: <tel:+1>"], ["Service-Route"]),
        (["Contact: *"], ["Contact"]),
        (["Expires: 4294967295"], ["Contact", "Expires"]),
        (["Contact: <sip:a@b>;expires=99999999999999"], ["Contact", "Expires"]),
        (["Flow-Timer: 2", "Expires: 0"], []),
        (["Flow-Timer: 1"], ["Flow-Timer"]),
        (["Flow-Timer: 4294967297"], ["Flow-Timer"]),
        (["Flow-Timer: 120", "Flow-Timer: 1x"], ["Flow-Timer"]),
    ],
)
def test_of_a_registrar_what_cannot_be_counted_is_not_said(
    filtered: Filtered, lines: list[str], dropped: list[str]
) -> None:
    assert not filtered.drops("200", "REGISTER", *lines)
    assert filtered.library.dropped == dropped


def test_a_response_with_two_of_a_header_that_may_come_once_is_dropped(filtered: Filtered) -> None:
    filtered.leg.dialog = ("c", "")  # a call that we place
    assert filtered.drops("200", "INVITE", "To: <sip:a@b>", body=GOOD)
    assert filtered.policy.take_refused()["malformed"].sources == {HOST}
    assert [text.partition("\r\n")[0] for text in filtered.leg.not_read] == ["SIP/2.0 200 Text"]


def test_info_is_answered_here(filtered: Filtered) -> None:
    def status(body: str, kind: str) -> int | str:
        lines = (f"Content-Type: {kind}",) if kind else ()
        return filtered.receive("INFO", *lines, body=body, to_tag="ours")

    assert status("Signal=5", "application/dtmf-relay") == status("10", "APPLICATION/DTMF;x=y") == status("", "") == 200
    assert filtered.leg.keys == [(7, "5", 0), (7, "*", 0)]
    assert status("x", "application/dtmf") == status("Duration=5", "application/dtmf-relay") == 400
    assert status("x", "text/plain") == status("x", "") == 415
    content = "Content-Type: application/dtmf-relay"
    for to_tag in ("", "unknown", "over"):
        assert filtered.receive("INFO", content, body="Signal=5", to_tag=to_tag) == 481, "of no call"
    assert len(filtered.leg.keys) == 2


@pytest.mark.parametrize("form", ["application/dtmf-relay", "application/dtmf"])
@pytest.mark.parametrize(
    ("written", "key"),
    [("10", "*"), ("11", "#"), ("12", "A"), ("15", "D"), ("16", "R"), ("!", "R"), ("*", "*"), ("#", "#"), ("d", "D")],
)
def test_a_key_by_info_may_be_written_as_the_number_of_its_event(
    filtered: Filtered, form: str, written: str, key: str
) -> None:
    body = f"Signal= {written}\r\nDuration=160\r\n" if form.endswith("relay") else written
    assert filtered.receive("INFO", f"Content-Type: {form}", body=body, to_tag="ours") == 200
    assert [each[1] for each in filtered.leg.keys] == [key]


def test_an_invite_that_comes_again_is_no_second_call(filtered: Filtered) -> None:
    filtered.leg.is_incoming = True
    assert filtered.receive("INVITE", body=GOOD) == 482
    assert filtered.receive("INVITE", body=GOOD, to_tag="ours") == "passed", "a re-INVITE"
    filtered.leg.dialog = ("c", "another's")
    assert filtered.receive("INVITE", body=GOOD) == "passed"


def test_what_it_fails_on_goes_no_further(filtered: Filtered) -> None:
    filtered.library.fails = True
    assert filtered.receive("INVITE", body=GOOD) == "silence"
    assert filtered.drops("200", "INVITE", body=GOOD)


@pytest.mark.parametrize(
    ("method", "wanted"), [("INVITE", 481), ("UPDATE", 481), ("BYE", 481), ("INFO", 481), ("ACK", "silence")]
)
def test_what_belongs_to_a_call_that_is_over_never_gets_to_pjsip(
    filtered: Filtered, method: str, wanted: int | str
) -> None:
    assert filtered.receive(method, body=GOOD, to_tag="over") == wanted


@pytest.mark.parametrize(
    ("method", "wanted"), [("INVITE", 481), ("UPDATE", 481), ("BYE", "passed"), ("INFO", 200), ("ACK", "passed")]
)
def test_after_our_bye_there_is_nothing_to_offer(filtered: Filtered, method: str, wanted: int | str) -> None:
    assert filtered.receive(method, to_tag="ours") == ("passed" if wanted == 481 else wanted)
    filtered.leg.is_ending = True
    assert filtered.receive(method, to_tag="ours") == wanted


@pytest.mark.parametrize(
    ("status", "local_tag", "to_tag", "drops"),
    [
        ("200", "over", "theirs", True),
        ("183", "over", "theirs", True),
        ("486", "over", "theirs", False),
        ("200", "ours", "theirs", False),
        ("200", "unknown", "theirs", False),
        ("200", "ours", "", False),
        ("200", "unknown", "", True),
    ],
)
def test_responses_to_a_call_that_is_over_are_dropped(
    filtered: Filtered, status: str, local_tag: str, to_tag: str, *, drops: bool
) -> None:
    assert filtered.drops(status, "INVITE", from_tag=local_tag, to_tag=to_tag) == drops


@pytest.mark.parametrize(
    ("method", "to_tag", "is_dropped"), [("ACK", "", True), ("ACK", "ours", False), ("INVITE", "", False)]
)
def test_an_ack_without_our_tag_does_not_reach_the_transactions(
    filtered: Filtered, method: str, to_tag: str, *, is_dropped: bool
) -> None:
    filtered.receive(method, to_tag=to_tag)
    (module,) = (each for priority, each in filtered.library.requests.items() if priority < TRANSACTIONS)
    assert module(1) is is_dropped


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
    filtered: Filtered, event: str, to_tag: str, *, has_referred: bool, status: int
) -> None:
    filtered.leg.has_referred = has_referred
    assert filtered.receive("NOTIFY", event, body="garbage", to_tag=to_tag) == status


def test_a_notify_says_what_its_body_names(filtered: Filtered) -> None:
    kind = "Content-Type: message/sipfrag;version=2.0"
    filtered.receive("NOTIFY", "Event: refer", kind, body="SIP/2.0 180 Ringing\r\n", to_tag="ours")
    assert filtered.leg.notified == [Notification(180, is_last=False, cseq=7)]


@pytest.mark.parametrize(("status", "is_lost"), [("408", True), ("481", True), ("200", False)])
def test_a_notify_that_is_refused_does_not_end_the_call(filtered: Filtered, status: str, *, is_lost: bool) -> None:
    assert filtered.drops(status, "NOTIFY") is is_lost, "PJSIP would end the call"
    assert filtered.leg.num_lost == is_lost
    assert filtered.refused() == {}
