"""What is made of session descriptions before PJMEDIA reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.ua.guard.sdp_check import check
from cc_tts.ua.guard.sdp_repair import repaired

pytestmark = pytest.mark.unit

SDP_OF_EVENTS = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0 101\r\n"
    "a=rtpmap:101 {odd}\r\n"
)

GOOD = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n"
    "m=audio 4000 RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\na=maxptime:150\r\n"
)
CODECS = frozenset({"PCMU/8000"})


@pytest.mark.parametrize(
    "sdp",
    [GOOD, GOOD.replace("\r\n", "\n"), GOOD.rstrip(), "hello", "", GOOD.replace("a=maxptime:150", "a=maxptime:20")],
)
def test_what_is_well_is_left(sdp: str) -> None:
    assert repaired(sdp) == sdp


@pytest.mark.parametrize("subject", ["s=\r\n", "s= \r\n", "s=\t\r\n", ""])
def test_an_empty_subject_or_none_is_filled(subject: str) -> None:
    assert repaired(GOOD.replace("s=-\r\n", subject)) == GOOD


@pytest.mark.parametrize(
    "origin",
    [
        "o=Some Gateway 42 1 IN IP4 192.0.2.1\r\n",
        "o=- x y IN IP4 192.0.2.1\r\n",
        "o=\r\n",
        "o=-\r\n",
        "",
        "o=- 99999999999999999999 1 IN IP4 192.0.2.1\r\n",
    ],
)
def test_an_origin_that_is_none_is_replaced(origin: str) -> None:
    new = repaired(GOOD.replace("o=- 1 1 IN IP4 192.0.2.1\r\n", origin))
    assert new == GOOD.replace("o=- 1 1 IN IP4 192.0.2.1", "o=- 0 0 IN IP4 0.0.0.0")
    assert check(new, codecs=CODECS, secure=False).fault is None


@pytest.mark.parametrize(
    "line",
    ["a=ptime", "a=ptime:", "a=ptime:-20", "a=ptime:20ms", "a=ptime:9999999", "a=maxptime:x", "a=rtcp", "a=rtcp:x"],
)
def test_an_attribute_that_says_nothing_is_dropped(line: str) -> None:
    sdp = GOOD.replace("a=ptime:20\r\na=maxptime:150\r\n", "")
    assert repaired(f"{sdp}{line}\r\n") == sdp


@pytest.mark.parametrize(
    "line", ["a=ptime: 20.0 ", "a=rtcp:4001", "a=rtcp:4001 IN IP4 192.0.2.1", "a=rtcp-mux", "a=ptimes:x"]
)
def test_an_attribute_that_says_something_is_left(line: str) -> None:
    assert repaired(f"{GOOD}{line}\r\n") == f"{GOOD}{line}\r\n"


def test_formats_that_nothing_describes_are_dropped() -> None:
    bare = GOOD.replace("a=rtpmap:101 telephone-event/8000\r\n", "").replace("0 101", "0 96 8 101")
    assert "m=audio 4000 RTP/AVP 0 8\r\n" in repaired(bare)
    assert check(repaired(bare), codecs=CODECS, secure=False).fault is None


@pytest.mark.parametrize("odd", ["telephone-event/0", "Telephone-Event", "telephone-event/", "telephone-event/00 "])
def test_telephone_events_without_a_rate_have_that_of_the_audio(odd: str) -> None:
    lines = repaired(SDP_OF_EVENTS.format(odd=odd)).splitlines()
    assert "a=rtpmap:101 telephone-event/8000" in lines
    assert "m=audio 9 RTP/AVP 0 101" in lines


@pytest.mark.parametrize("odd", ["PCMU/0", "PCMU", "PCMU/x", ""])
def test_a_static_format_needs_no_description(odd: str) -> None:
    sdp = SDP_OF_EVENTS.format(odd="telephone-event/8000")
    assert repaired(f"{sdp}a=rtpmap:0 {odd}\r\n") == sdp
    assert repaired(f"{sdp}a=rtpmap:0 PCMU/8000\r\n") == f"{sdp}a=rtpmap:0 PCMU/8000\r\n"


def test_a_line_of_nothing_else_is_switched_off() -> None:
    bare = GOOD + "m=video 4002 RTP/AVP 96 97\r\na=sendrecv\r\n"
    assert "m=video 0 RTP/AVP 96 97\r\n" in repaired(bare)
    alone = GOOD.replace("0 101", "96")
    fault = check(repaired(alone), codecs=CODECS, secure=False).fault
    assert fault is not None
    assert fault.status == 488


def test_the_describing_attribute_must_be_of_the_same_line() -> None:
    bare = GOOD + "m=audio 4002 RTP/AVP 8 101\r\n"
    assert repaired(bare).endswith("m=audio 4002 RTP/AVP 8\r\n")


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ("a=maxptime:10\r\n", ["a=maxptime:10", "a=ptime:10"]),
        ("a=maxptime:40\r\n", ["a=maxptime:40"]),
        ("a=ptime:60\r\na=maxptime:30\r\n", ["a=maxptime:30", "a=ptime:30"]),
        ("a=maxptime:30\r\na=ptime:60\r\n", ["a=maxptime:30", "a=ptime:30"]),
        ("a=ptime:10\r\na=maxptime:10\r\n", ["a=ptime:10", "a=maxptime:10"]),
        ("a=maxptime:0\r\n", ["a=maxptime:0"]),
        ("a=maxptime: 10\r\n", ["a=maxptime: 10", "a=ptime:10"]),
    ],
)
def test_a_packet_is_not_longer_than_maxptime(times: str, wanted: list[str]) -> None:
    sdp = repaired(GOOD.replace("a=ptime:20\r\na=maxptime:150\r\n", times))
    assert [line for line in sdp.splitlines() if "ptime" in line] == wanted


@given(st.text(st.sampled_from("vosmact=:0 19/\r\nxIN"), max_size=120))
def test_any_text_may_come(text: str) -> None:
    once = repaired("v=0\r\n" + text)
    assert repaired(once) == once
