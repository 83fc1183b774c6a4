"""Which offers of SRTP are refused before pjsua sees them."""

import base64

import pytest

from cc_tts.ua.guard.srtp_sdp import MAX_KEYS, fault_of, without_keys

pytestmark = pytest.mark.unit

KEY = base64.b64encode(bytes(30)).decode()
LONG_KEY = base64.b64encode(bytes(46)).decode()
GOOD = f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"


def invite(*lines: str) -> str:
    head = "INVITE sip:a@h SIP/2.0\r\nContent-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    return head + "".join(f"{line}\r\n" for line in lines)


def offer(profile: str, *keys: str) -> str:
    return invite(f"m=audio 9 {profile} 0", *(f"a=crypto:{key}" for key in keys))


@pytest.mark.parametrize(
    "message",
    [
        "INVITE sip:a@h SIP/2.0\r\nContent-Length: 0\r\n\r\n",
        "INVITE sip:a@h SIP/2.0",
        offer("RTP/AVP"),
        offer("rtp/avp"),
        offer("RTP/AVPF"),
        offer("RTP/SAVP", GOOD),
        offer("RTP/SAVPF", GOOD),
        offer("RTP/AVP", GOOD),
        offer("RTP/AVP", f"1 F8_128_HMAC_SHA1_80 inline:{KEY}"),
        offer("RTP/SAVP", f"{GOOD}|2^48"),
        offer("RTP/SAVP", f"{GOOD}|1048576 WSH=64"),
        offer("RTP/SAVP", f"1 AES_256_CM_HMAC_SHA1_80 inline:{LONG_KEY}"),
        offer("RTP/SAVP", f"1 AEAD_AES_256_GCM inline:{LONG_KEY}|2^20|1:4", GOOD.replace("1 ", "2 ", 1)),
        invite("m=video 9 UDP/TLS/RTP/SAVPF 96", "a=crypto:nonsense", "m=audio 9 RTP/AVP 0"),
        invite("m=audio 0 UDP/TLS/RTP/SAVPF 0", "m=audio 9 RTP/SAVP 0", f"a=crypto:{GOOD}"),
    ],
)
def test_what_can_be_answered_passes(message: str) -> None:
    assert fault_of(message) == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (offer("UDP/TLS/RTP/SAVP"), "keys by a=crypto"),
        (offer("UDP/TLS/RTP/SAVPF", GOOD), "keys by a=crypto"),
        (offer("TCP/RTP/AVP"), "keys by a=crypto"),
        (invite("m=audio 9 UDP/TLS/RTP/SAVP"), "keys by a=crypto"),
        (invite("m=audio 9 RTP/AVP 0", "m=AUDIO 9 UDP/TLS/RTP/SAVP 0"), "keys by a=crypto"),
        (offer("RTP/SAVP"), "of a suite that is served"),
        (offer("RTP/SAVP", f"1 F8_128_HMAC_SHA1_80 inline:{KEY}"), "of a suite that is served"),
        (offer("RTP/SAVP", ""), "malformed"),
        (offer("RTP/SAVP", "1"), "malformed"),
        (offer("RTP/SAVP", GOOD.replace("1 ", "-1 ", 1)), "malformed"),
        (offer("RTP/SAVP", GOOD.replace("1 ", "9999999999 ", 1)), "malformed"),
        (offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 uri:x"), "malformed"),
        (offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 inline:"), "not of 30 bytes"),
        (offer("RTP/SAVP", f"1 AES_CM_128_HMAC_SHA1_80 inline:{LONG_KEY}"), "not of 30 bytes"),
        (offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 inline:!!!!"), "not base64"),
        (offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 inline:\udcff"), "not base64"),
        (offer("RTP/SAVP", f"{GOOD}|2^20|1:4"), "master key index"),
        (offer("RTP/SAVP", f"{GOOD}|1:4"), "master key index"),
        (offer("RTP/SAVP", f"{GOOD};inline:{KEY}"), "malformed"),
        (offer("RTP/SAVP", f"{GOOD} UNENCRYPTED_SRTP"), "but WSH"),
        (offer("RTP/SAVP", f"{GOOD} KDR=1 WSH=64"), "but WSH"),
        (offer("RTP/AVP", f"{GOOD}|1:4"), "master key index"),
        (offer("RTP/SAVP", GOOD, GOOD), "of one tag"),
        (offer("RTP/SAVP", *(f"{number} X inline:AA" for number in range(MAX_KEYS + 1))), "More than"),
    ],
)
def test_what_cannot_be_answered_is_named(message: str, said: str) -> None:
    fault = fault_of(message)
    assert said in fault
    assert '"' not in fault
    assert KEY not in fault


def test_an_offer_without_its_keys_is_otherwise_the_same() -> None:
    head, tail = "v=0\r\nm=audio 9 RTP/AVP 0\r\n", "a=rtpmap:0 PCMU/8000\r\na=x-crypto:1\r\n"
    assert without_keys(f"{head}a=crypto:{GOOD}\r\na=crypto:2 x inline:y\r\n{tail}") == head + tail
    assert without_keys(f"{head}{tail}a=crypto:{GOOD}\r\n") == head + tail
    assert without_keys(head + tail) == head + tail
