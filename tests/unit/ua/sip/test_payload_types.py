"""The payload types of a session description: telephone events and codecs."""

import pytest

from cc_tts.ua.sip.payload_types import event_type, with_codecs, with_event_type

pytestmark = pytest.mark.unit

OFFER = (
    "v=0\r\no=- 120 120 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\nm=audio 4120 RTP/AVP 8 0 120\r\n"
    "c=IN IP4 192.0.2.1\r\na=ptime:20\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:120 telephone-event/8000\r\na=fmtp:120 0-16\r\n"
)


@pytest.mark.parametrize(
    ("sdp", "number"),
    [
        (OFFER, 120),
        (OFFER.replace("telephone-event", "Telephone-Event"), 120),
        ("v=0\r\n", None),
        (OFFER.replace("event/8000", "event/16000"), None),
    ],
)
def test_the_number_that_is_named(sdp: str, number: int | None) -> None:
    assert event_type(sdp) == number


def test_events_are_offered_by_another_number_and_nothing_else_changes() -> None:
    changed = with_event_type(OFFER, 101)
    assert changed == (
        OFFER.replace(" 0 120\r\n", " 0 101\r\n").replace("rtpmap:120", "rtpmap:101").replace("fmtp:120", "fmtp:101")
    )
    assert event_type(changed) == 101


def test_a_number_that_is_taken_and_a_description_without_events_are_left() -> None:
    taken = OFFER.replace("0 120", "0 101 120") + "a=rtpmap:101 L16/8000\r\n"
    for sdp in (taken, "v=0\r\nm=audio 9 RTP/AVP 0\r\n"):
        assert with_event_type(sdp, 101) == sdp


@pytest.mark.parametrize(
    ("names", "formats", "gone"),
    [
        ((), "8 0 120", ()),
        (("PCMU", "PCMA"), "0 8 120", ()),
        (("PCMU",), "0 120", ("a=rtpmap:8 PCMA/8000\r\n",)),
        (("G722", "PCMA"), "8 120", ()),
        (("G722",), "8 0 120", ()),
    ],
)
def test_the_codecs_of_a_description_are_limited(names: tuple[str, ...], formats: str, gone: tuple[str, ...]) -> None:
    wanted = OFFER.replace("8 0 120", formats)
    for line in gone:
        wanted = wanted.replace(line, "")
    assert with_codecs(OFFER, names) == wanted
    assert with_codecs("v=0\r\nm=audio\r\n", names) == "v=0\r\nm=audio\r\n"


def test_l16_is_none_of_the_codecs_of_a_trunk() -> None:
    with_l16 = OFFER.replace("8 0 120", "8 0 70 121 120").replace(
        "a=ptime:20\r\n", "a=ptime:20\r\na=rtpmap:70 L16/8000\r\na=rtpmap:121 L16/8000\r\n"
    )
    assert with_codecs(with_l16, ("PCMA", "PCMU")) == OFFER
    assert with_codecs(with_l16, ()) == with_l16
