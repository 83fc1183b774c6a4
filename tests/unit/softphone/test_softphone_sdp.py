import pytest

from cc_tts.softphone.sdp import RemoteAudio, remote_audio, with_own_media

pytestmark = pytest.mark.unit

PJMEDIA_OFFER = (
    "v=0\r\no=- 4004 4005 IN IP4 127.0.0.1\r\ns=pjmedia\r\nb=AS:84\r\nt=0 0\r\na=X-nat:0\r\n"
    "m=audio 4000 RTP/AVP 0 8 120\r\nc=IN IP4 127.0.0.1\r\nb=TIAS:64000\r\na=rtcp:4001 IN IP4 127.0.0.1\r\n"
    "a=sendonly\r\na=rtpmap:0 PCMU/8000\r\n"
    "a=rtpmap:8 PCMA/8000\r\na=rtpmap:120 telephone-event/8000\r\na=fmtp:120 0-16\r\n"
    "a=ssrc:1 cname:x\r\n"
)


@pytest.mark.parametrize(("codec", "number", "name"), [("pcmu", 0, "PCMU"), ("pcma", 8, "PCMA")])
def test_offer_gets_our_port_and_one_codec(codec: str, number: int, name: str) -> None:
    sdp = with_own_media(PJMEDIA_OFFER, address="127.0.0.9", port=20002, codec=codec)
    assert remote_audio(sdp) == RemoteAudio("127.0.0.9", 20002, (number, 101), 101)
    rejected = with_own_media("v=0\r\nm=audio 0 RTP/AVP 0\r\nc=IN IP4 1.2.3.4\r\n", address="x", port=9, codec=codec)
    assert "m=audio 0 RTP/AVP 0" in rejected
    assert sdp.split("\r\n") == [
        "v=0",
        "o=- 4004 4005 IN IP4 127.0.0.1",
        "s=pjmedia",
        "t=0 0",
        f"m=audio 20002 RTP/AVP {number} 101",
        "c=IN IP4 127.0.0.9",
        f"a=rtpmap:{number} {name}/8000",
        "a=rtpmap:101 telephone-event/8000",
        "a=fmtp:101 0-15",
        "a=ptime:20",
        "a=sendonly",
        "",
    ]


HEAD = "v=0\r\no=u 1 1 IN IP4 10.0.0.1\r\ns=-\r\n"


@pytest.mark.parametrize(
    ("sdp", "expected"),
    [
        (
            HEAD + "c=IN IP4 10.0.0.2\r\nm=audio 6000 RTP/AVP 0\r\n",
            RemoteAudio("10.0.0.2", 6000, (0,), None),
        ),
        (
            HEAD + "c=IN IP4 10.0.0.2\r\nm=audio 6000 RTP/AVP 8 96\r\nc=IN IP4 10.0.0.3\r\n"
            "a=rtpmap:96 telephone-event/8000\r\na=recvonly\r\n",
            RemoteAudio("10.0.0.3", 6000, (8, 96), 96),
        ),
        (
            HEAD + "c=IN IP4 10.0.0.2\r\na=inactive\r\nm=video 5 RTP/AVP 34\r\nm=audio 6000 RTP/AVP 0\r\n",
            RemoteAudio("10.0.0.2", 6000, (0,), None),
        ),
        (
            HEAD + "c=IN IP4 10.0.0.2\r\nm=audio 6000 RTP/AVP 0 200\r\na=rtpmap:200 telephone-event/8000\r\n",
            RemoteAudio("10.0.0.2", 6000, (0,), None),
        ),
        (HEAD + "m=audio 6000 RTP/AVP 0\r\n", None),
        (HEAD + "c=IN IP4 host.example\r\nm=audio 6000 RTP/AVP 0\r\n", None),
        (HEAD + "c=IN IP4 10.0.0.2\r\nm=audio 99999 RTP/AVP 0\r\n", None),
        (HEAD + "c=IN IP4 10.0.0.2\r\nm=audio 6000 RTP/SAVP 0\r\n", None),
        (HEAD + "c=IN IP4 10.0.0.2\r\nm=audio\r\n", None),
        ("", None),
    ],
    ids=[
        "session address",
        "media address and attributes",
        "session direction, audio second",
        "payload type out of range",
        "no address",
        "a name",
        "port out of range",
        "SRTP",
        "cut off",
        "empty",
    ],
)
def test_remote_audio(sdp: str, expected: RemoteAudio | None) -> None:
    assert remote_audio(sdp) == expected
