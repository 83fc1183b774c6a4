"""What of a SIP message is copied: everything but what only its two ends shall read."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.ua.trace.masking import masked

pytestmark = pytest.mark.unit

SECRET = "Your-PIN-is-4711"


@pytest.mark.parametrize(
    "line",
    [
        "X-TTS-Text: {}",
        "x-tts-text:{}",
        "X-TTS-Text: first\r\n {}\r\n\t{}",
        "X-TTS-SSML: <speak>{}</speak>",
        "X-TTS-Instructions: {}",
        "X-TTS-Digits: {}",
        'Authorization: Digest username="a", response="{}"',
        "Proxy-Authorization: Basic {}",
        "To: <sip:100@b;play={}>;tag=1",
        "To: <sip:100@b;PLAY={};early=no>",
        "To: <sip:100@b;%70l%61y={}>",
        'To: <sip:100@b;play="tts:Hello; {}";early=no>',
        "Refer-To: <sip:100@b?X-TTS-Text={}&Replaces=1>",
        "Refer-To: <sip:100@b%3Bplay%3D{}>",
        "Contact: <sip:alice:{}@192.0.2.1:5060>",
        "Contact: <sip:+1;phone-context=x:{}@192.0.2.1:5060>",
        "Contact: <sip:192.0.2.7:5060>, <sip:alice:{}@192.0.2.1:5060>",
    ],
)
def test_secrets_of_headers_are_hidden(line: str) -> None:
    message = f"INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h\r\n{line}\r\nCall-ID: x\r\n\r\n".replace("{}", SECRET)
    hidden = masked(message.encode())
    assert SECRET.encode() not in hidden
    assert b"4711" not in hidden
    assert len(hidden) == len(message)
    assert b"\r\nCall-ID: x\r\n\r\n" in hidden


@pytest.mark.parametrize(
    ("kind", "body", "left"),
    [
        (
            "application/sdp",
            "v=0\r\na=crypto:1 AES_CM_128 inline:{}\r\nm=audio 1\r\n",
            "a=crypto:1 AES_CM_128 inline:****",
        ),
        ("application/sdp", "v=0\r\nk=clear:{}\r\n", "v=0\r\nk=****"),
        ("application/dtmf-relay", "Signal={}\r\nDuration=160\r\n", "****"),
        ("application/dtmf", "{}", "****"),
        ("\r\n application/dtmf-relay", "Signal={}\r\n", "****"),
        ("message/sipfrag", "INVITE sip:a@b;play={} SIP/2.0\r\nX-TTS-Text: {}\r\n", "INVITE sip:a@b;play=****"),
    ],
)
def test_secrets_of_bodies_are_hidden(kind: str, body: str, left: str) -> None:
    message = f"INFO sip:a@b SIP/2.0\r\nc: {kind}\r\n\r\n{body}".replace("{}", SECRET)
    hidden = masked(message.encode())
    assert SECRET.encode() not in hidden
    assert left.encode() in hidden
    assert len(hidden) == len(message)


def test_the_rest_is_as_it_came() -> None:
    message = (
        b"INVITE sip:100@192.0.2.1:5060;voice=de SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5060;branch=z9\r\n"
        b'From: "Alice" <sip:+49301@192.0.2.9>;tag=1\r\nX-Queue: play=1\r\nX-TTS-Voice: de\r\n'
        b'WWW-Authenticate: Digest realm="x"\r\nContent-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 192.0.2.9\r\n'
    )
    assert masked(message) == message


def test_the_time_is_linear_in_the_length() -> None:
    message = b"INVITE sip:a@b SIP/2.0\r\nX: " + b"sip:a:" * 50_000
    began_s = time.perf_counter()
    assert masked(message) == message
    assert time.perf_counter() - began_s < 2  # the square of it takes more than a minute


@given(st.binary(max_size=300))
def test_any_bytes_keep_their_length(message: bytes) -> None:
    assert len(masked(message)) == len(message)
