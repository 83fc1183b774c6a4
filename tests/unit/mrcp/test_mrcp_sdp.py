"""Offers of MRCP clients, and the answers to them."""

import pytest

from cc_tts.mrcp.rtp.codecs import Codec
from cc_tts.mrcp.sip import sdp
from cc_tts.mrcp.sip.request import SipRefusal

pytestmark = pytest.mark.unit

CHANNEL = "abc@speechsynth"

HEAD = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n"
CONTROL = "m=application 9 TCP/MRCPv2 1\r\na=setup:active\r\na=connection:new\r\na=resource:speechsynth\r\na=cmid:1\r\n"
AUDIO = "m=audio 4000 RTP/AVP 0 8 96 101\r\na=rtpmap:96 L16/8000/1\r\na=recvonly\r\na=mid:1\r\n"


def audio(formats: str, *lines: str) -> sdp.OfferedMedia:
    return sdp.read(HEAD + f"m=audio 4000 RTP/AVP {formats}\r\n" + "".join(f"{line}\r\n" for line in lines))[0]


@pytest.mark.parametrize(
    ("formats", "lines", "codec"),
    [
        ("0 8", (), Codec("PCMU", 8000, 0)),
        ("8 0", (), Codec("PCMA", 8000, 8)),
        ("18 97 0", ("a=rtpmap:97 l16/16000",), Codec("L16", 16000, 97)),
        ("96", ("a=rtpmap:96 L16/8000/2",), None),
        ("96", ("a=rtpmap:96 opus/48000/2",), None),
        ("0", ("a=rtpmap:0 G722/8000",), None),
        ("300", ("a=rtpmap:300 L16/8000",), None),
        ("", (), None),
    ],
)
def test_the_codec_is_the_first_of_the_offer_that_we_speak(
    formats: str, lines: tuple[str, ...], codec: Codec | None
) -> None:
    assert audio(formats, *lines).codec() == codec


@pytest.mark.parametrize(
    ("change", "is_ours"),
    [
        (("", ""), True),
        (("speechsynth", "speechrecog"), False),
        (("setup:active", "setup:passive"), False),
        (("setup:active", "setup:actpass"), True),
        (("application 9", "application 0"), False),
        (("TCP/MRCPv2", "TCP/BFCP"), False),
        (("TCP/MRCPv2", "TCP/TLS/MRCPv2"), True),
    ],
)
def test_a_synthesiser_is_asked_for(change: tuple[str, str], *, is_ours: bool) -> None:
    offer = sdp.read(HEAD + (CONTROL.replace(*change) if change[0] else CONTROL))
    assert offer[0].is_our_resource == is_ours


@pytest.mark.parametrize(
    ("lines", "address", "direction"),
    [
        ((), "192.0.2.1", ""),
        (("c=IN IP4 192.0.2.9", "a=inactive"), "192.0.2.9", "inactive"),
        (("c=IN IP4 host.example", "a=sendonly"), "", "sendonly"),
        (("c=IN IP6 2001:db8::1",), "192.0.2.1", ""),
    ],
)
def test_where_audio_goes(lines: tuple[str, ...], address: str, direction: str) -> None:
    media = audio("0", *lines)
    assert (media.address, media.direction) == (address, direction)


@pytest.mark.parametrize(
    "text",
    ["", "v=0\r\n", "hello", HEAD + "m=audio x RTP/AVP 0\r\n", HEAD + "m=audio 70000 RTP/AVP 0\r\n", HEAD + AUDIO * 17],
)
def test_what_is_no_description_is_an_error(text: str) -> None:
    with pytest.raises(SipRefusal):
        sdp.read(text)


def test_the_answer_has_a_section_for_each_of_the_offer_in_its_order() -> None:
    recognizer = CONTROL.replace("speechsynth", "speechrecog").replace("cmid:1", "cmid:2")
    offer = sdp.read(HEAD + CONTROL + recognizer + AUDIO + "m=video 5000 RTP/AVP 99\r\n")
    offer[0].accepted_port, offer[2].accepted_port = 1544, 17_000
    assert sdp.answer(offer, channel=CHANNEL, address="192.0.2.7", sdp_id=5, version=2).split("\r\n") == [
        "v=0", "o=cc-tts 5 2 IN IP4 192.0.2.7", "s=-", "c=IN IP4 192.0.2.7", "t=0 0",
        "m=application 1544 TCP/MRCPv2 1", "a=setup:passive", "a=connection:new", "a=channel:abc@speechsynth", "a=cmid:1",
        "m=application 0 TCP/MRCPv2 1", "a=channel:abc@speechrecog", "a=cmid:2",
        "m=audio 17000 RTP/AVP 0", "a=rtpmap:0 PCMU/8000", "a=sendonly", "a=ptime:20", "a=mid:1",
        "m=video 0 RTP/AVP 99", "",
    ]  # fmt: skip


def test_a_line_that_is_refused_keeps_its_name_as_unimrcp_writes_0_in_its_next_offer_otherwise() -> None:
    recognizer = "m=audio 4002 RTP/AVP 0 8 9 96 101\r\na=sendonly\r\na=ptime:20\r\na=mid:2\r\n"
    answer = sdp.answer(sdp.read(HEAD + recognizer), channel=CHANNEL, address="192.0.2.7", sdp_id=1, version=1)
    assert answer.endswith("m=audio 0 RTP/AVP 0 8 9 96 101\r\na=mid:2\r\n")
    offer = sdp.read(HEAD + CONTROL.replace("cmid:1", "cmid:1 a=channel:x"))
    offer[0].accepted_port = 1544
    answer = sdp.answer(offer, channel=CHANNEL, address="192.0.2.7", sdp_id=1, version=1)
    assert "cmid" not in answer, "what the client names cannot add a line"


LINES: list[tuple[str, tuple[str, ...], str]] = [
    ("cmid:1", ("sendonly mid:2", "recvonly mid:1"), "mid:1"),
    ("cmid:1", ("recvonly mid:2", "inactive mid:1"), "mid:1"),
    ("cmid:2\r\na=cmid:1", ("recvonly mid:3", "sendonly mid:2", "recvonly mid:1"), "mid:1"),
    ("cmid:9", ("sendonly mid:1", "sendrecv mid:2"), "mid:2"),
    ("cmid:9", ("sendonly mid:1",), "mid:1"),
]


@pytest.mark.parametrize(("control", "lines", "mid"), LINES)
def test_the_audio_of_a_synthesiser_is_what_its_control_line_names_and_the_client_hears(
    control: str, lines: tuple[str, ...], mid: str
) -> None:
    sections = [
        f"m=audio 4000 RTP/AVP 0\r\na={direction}\r\na={named}\r\n"
        for direction, named in (each.split() for each in lines)
    ]
    offer = sdp.read(HEAD + CONTROL.replace("cmid:1", control) + "".join(sections))
    found = sdp.audio_of(offer, offer[0])
    assert found is not None
    assert f"mid:{found.attributes['mid']}" == mid
