"""Which session descriptions may reach PJMEDIA."""

import pytest

from cc_tts.ua.guard.sdp_check import MAX_ATTRIBUTES, Checked, check

pytestmark = pytest.mark.unit

CODECS = frozenset({"PCMU/8000", "G722/8000", "L16/8000"})
HEAD = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\n"
IPV4 = "c=IN IP4 192.0.2.1\r\n"
TIME = "t=0 0\r\n"
AUDIO = "m=audio 4000 RTP/AVP 0\r\n"


def checked(media: str, *, connection: str = IPV4, secure: bool = False) -> Checked:
    return check(HEAD + connection + TIME + media, codecs=CODECS, secure=secure)


def refusal(media: str, *, connection: str = IPV4) -> tuple[int, int]:
    fault = checked(media, connection=connection).fault
    assert fault is not None
    return fault.status, fault.warning


@pytest.mark.parametrize(
    "media",
    [
        AUDIO,
        AUDIO.replace("\r\n", "\n"),
        "m=audio 4000/2 RTP/AVP 0 8 18\r\n",
        "m=audio 4000 RTP/AVPF 101 9\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\n",
        "m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 L16/8000\r\n",
        "m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 l16/8000/1\r\na=ptime:20\r\na=maxptime:240\r\n",
        AUDIO + "c=IN IP4 198.51.100.7 \r\nb=AS:64\r\na=rtcp:4001 IN IP4 198.51.100.7\r\n",
        AUDIO + "a=rtcp:4001\r\na=sendonly\r\na=x\r\n\r\n",
        AUDIO + "c=IN IP4 0.0.0.0\r\n",
        AUDIO + "a=ptime:0\r\n",
        "m=audio 4000 RTP/AVP 96 0\r\na=ptime:180\r\na=rtpmap:96 L16/8000\r\n",
        "m=audio 4000 RTP/AVP 96\r\na=ptime:80\r\na=rtpmap:96 L16/8000\r\n",
        AUDIO + "m=video 0 RTP/AVP 96\r\nm=message 9 TCP/MSRP *\r\n",
        AUDIO.rstrip("\r\n"),
    ],
)
def test_what_is_served_passes(media: str) -> None:
    assert checked(media).fault is None


@pytest.mark.parametrize(
    ("media", "connection"),
    [
        (AUDIO, "c=IN IP4 2001:db8::1\r\n"),
        (AUDIO, "c=IN IP6 192.0.2.1\r\n"),
        (AUDIO, "c=IN IP4 192.0.2.256\r\n"),
        (AUDIO, "c=IN IP4 192.0.2\r\n"),
        (AUDIO, "c=IN IP4\r\n"),
        (AUDIO, "c=IN IP4 192.0.2.1/\r\n"),
        (AUDIO, ""),
        (AUDIO + IPV4 + "m=video 0 RTP/AVP 96\r\n", ""),
        ("m=audio 65536 RTP/AVP 0\r\n", IPV4),
        ("m=audio 4000 RTP/AVP\r\n", IPV4),
        ("m=audio 4000 RTP/AVP 128\r\n", IPV4),
        ("m=audio 4000 RTP/AVP x\r\n", IPV4),
        ("m=audio 4000 RTP/AVP 0 96\r\n", IPV4),
        ("m=audio 4000 RTP/AVP 96\r\n" + "a=x\r\n" * MAX_ATTRIBUTES + "a=rtpmap:96 L16/8000\r\n", IPV4),
        (AUDIO + "a=rtpmap:0 PCMU/0\r\n", IPV4),
        (AUDIO + "a=rtpmap:0 PCMU\r\n", IPV4),
        ("m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 L16/8000", IPV4),
        (AUDIO + "a=rtcp:4001 IN IP4 ::1\r\n", IPV4),
        (AUDIO + "a=rtcp:x\r\n", IPV4),
        (AUDIO + "b=AS\r\n", IPV4),
        (AUDIO + "a=" + "x" * 1000 + "\r\n", IPV4),
        (AUDIO + "a=x:\0\r\n", IPV4),
        (AUDIO + "hello\r\n", IPV4),
        (AUDIO + "Z=1\r\n", IPV4),
    ],
)
def test_what_is_malformed_is_400(media: str, connection: str) -> None:
    assert refusal(media, connection=connection) == (400, 399)


@pytest.mark.parametrize(
    ("media", "connection", "warning"),
    [
        (AUDIO, "c=IN IP6 2001:db8::1\r\n", 301),
        (AUDIO, "c=IN IP4 pbx.example.com\r\n", 301),
        (AUDIO + "a=rtcp:4001 IN IP4 pbx.example.com\r\n", IPV4, 301),
        (AUDIO + "a=rtcp:4001 IN IP6 ::1\r\n", IPV4, 301),
        (AUDIO, "c=IN IP4 224.2.1.1/127/3\r\n", 330),
        ("m=audio 4000 RTP/SAVP 0\r\n", IPV4, 302),
        ("m=audio 4000 UDP/TLS/RTP/SAVPF 0\r\n", IPV4, 302),
        ("m=video 4000 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n", IPV4, 304),
        ("m=audio 0 RTP/AVP 0\r\n", IPV4, 304),
        ("", IPV4, 304),
        ("m=audio 4000 RTP/AVP 8 18\r\n", IPV4, 305),
        ("m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 L16/8000/2\r\n", IPV4, 305),
        ("m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 PCMU/16000\r\n", IPV4, 305),
        (AUDIO + "a=ptime:5120\r\n", IPV4, 306),
        (AUDIO + "a=ptime:181\r\n", IPV4, 306),
        (AUDIO + "a=ptime:200\r\na=ptime:20\r\n", IPV4, 306),
        ("m=audio 4000 RTP/AVP 96\r\na=ptime:90\r\na=rtpmap:96 L16/8000\r\n", IPV4, 306),
        (AUDIO + "m=audio 0 RTP/AVP 0\r\nc=IN IP4 localhost\r\n", IPV4, 301),
        ("m=audio 9 RTP/AVP 0\r\nc=IN IP4 localhost\r\n" + AUDIO, IPV4, 301),
        (AUDIO + "a=rtcp:9 IN IP4 localhost\r\nc=IN IP4 192.0.2.1\r\n", "", 301),
    ],
)
def test_what_is_not_served_is_488_with_its_warning(media: str, connection: str, warning: int) -> None:
    assert refusal(media, connection=connection) == (488, warning)


def test_a_line_that_cannot_be_served_beside_one_that_can_is_told() -> None:
    six = "c=IN IP6 ::1\r\n"
    found = checked(AUDIO + six + "m=video 9 RTP/AVP 31\r\n" + AUDIO + "m=audio 9 RTP/SAVP 0\r\n")
    assert (found.fault, found.unusable, found.num_media) == (None, (0, 3), 4)
    assert checked("m=audio 9 RTP/SAVP 0\r\n" + AUDIO, secure=True).unusable == ()
    assert checked(AUDIO * 40).num_media == 16, "PJMEDIA reads no more"


@pytest.mark.parametrize(
    "odd",
    [
        "101 telephone-event/0",
        "101 telephone-event/",
        "101 telephone-event",
        "101 /8000",
        "101 x/-1",
        "101 x/8000/0",
        "101 x/99999999999",
        "101 " + "x" * 65 + "/8000",
        "101 \u00e9/8000",
        "101 ",
        "13 CN/0",
        "18 G729",
        "300 telephone-event/8000",
        "x",
        "",
    ],
)
def test_an_odd_format_is_one_that_is_not_used(odd: str) -> None:
    """FreeSWITCH writes a rate of 0 after ``sofia recover``."""
    media = f"m=audio 4000 RTP/AVP 0 101 13 18\r\na=rtpmap:{odd}\r\na=rtpmap:101 telephone-event/8000\r\n"
    assert (checked(media).fault, checked(media).codecs) == (None, frozenset({"PCMU/8000"}))
    only = f"m=audio 4000 RTP/AVP 101 13 18\r\na=rtpmap:{odd}\r\na=rtpmap:101 telephone-event/8000\r\n"
    assert refusal(only) == (488, 305)


L16 = "a=rtpmap:70 L16/8000\r\n"
ONLY_L16 = {"L16/8000"}


@pytest.mark.parametrize(
    ("media", "codecs"),
    [
        ("m=audio 9 RTP/AVP 70 101\r\n" + L16 + "a=rtpmap:101 telephone-event/8000\r\n", ONLY_L16),
        ("m=audio 9 RTP/AVP 70\r\na=rtpmap:70 l16/8000/1\r\n", ONLY_L16),
        ("m=audio 9 RTP/AVP 18 70\r\n" + L16, ONLY_L16),
        ("m=audio 9 RTP/AVP 70 8\r\n" + L16, ONLY_L16),
        ("m=audio 9 RTP/AVP 70 0\r\n" + L16, {"PCMU/8000", *ONLY_L16}),
        ("m=audio 9 RTP/AVP 70 96\r\na=rtpmap:96 G722/8000\r\n" + L16, {"G722/8000", *ONLY_L16}),
        ("m=audio 0 RTP/AVP 0\r\nm=audio 9 RTP/AVP 70\r\n" + L16, ONLY_L16),
        ("m=audio 9 RTP/AVP 70\r\na=rtpmap:70 L16/16000\r\n", set()),
        ("m=audio 9 RTP/AVP 70\r\na=rtpmap:70 L16/8000/2\r\n", set()),
        ("m=audio 9 RTP/AVP 11\r\n", set()),
        ("m=audio 0 RTP/AVP 70\r\n" + L16, set()),
    ],
)
def test_which_of_our_codecs_are_offered(media: str, codecs: set[str]) -> None:
    assert checked(media).codecs == codecs
