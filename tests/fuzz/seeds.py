"""Inputs from which the fuzzer begins: one of each kind that is as it should be."""

import struct
from typing import Final

SDP: Final = (
    b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/SAVP 0 8 9 101\r\n"
    b"a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\n"
    b"a=rtcp:4001 IN IP4 192.0.2.1\r\n"
    b"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz|2^20|1:32\r\na=sendrecv\r\n"
)
DIGEST: Final = (
    b'Digest username="bob", realm="cc-tts", nonce="NONCE", uri="sip:a@b", response="ab12", cnonce="c", qop=auth, '
    b"nc=0000000a, algorithm=SHA-256, opaque=x"
)
INVITE: Final = (
    b"INVITE sip:annc@x;play=tts:a SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK1;rport;received=1.2.3.4\r\n"
    b"From: <sip:a@b>;tag=known\r\nTo: <sip:x@y>;tag=t\r\nCall-ID: over\r\nCSeq: 1 INVITE\r\nContact: <sip:a@192.0.2.9>\r\n"
    b'Require: 100rel\r\nP-Asserted-Identity: <sip:a@b>\r\nX-TTS-Text: hello\r\nReason: Q.850;cause=16;text="bye"\r\n'
    b"Authorization: "
    + DIGEST
    + b"\r\nContent-Type: application/dtmf-relay\r\nContent-Length: 24\r\n\r\nSignal=5\r\nDuration=160\r\n"
    + SDP
)
RESPONSE: Final = (
    b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK2\r\nFrom: <sip:a@b>;tag=f\r\nTo: <sip:x@y>;tag=t\r\n"
    b"Call-ID: c\r\nCSeq: 1 REGISTER\r\nContact: <sip:a@192.0.2.9>;expires=60\r\nExpires: 60\r\n"
    b"Service-Route: <sip:p;lr>\r\n"
    b"Content-Type: application/sdp\r\n\r\n" + SDP
)
SSML: Final = (
    b'<speak xml:lang="en">Hi <break time="250ms"/><say-as interpret-as="cardinal">12</say-as><sub alias="b">a</sub>'
    b'<prosody rate="90%" volume="+3dB"><phoneme alphabet="x-sampa" ph="wIn">x</phoneme></prosody><mark name="m"/></speak>'
)
PLS: Final = (
    b'<lexicon version="1.0" alphabet="ipa" xml:lang="en"><lexeme><grapheme>a</grapheme><alias>b</alias></lexeme>'
    b'<lexeme><grapheme>c</grapheme><phoneme alphabet="x-sampa" prefer="true">wIn</phoneme></lexeme></lexicon>'
)
LEXICON: Final = (
    b'{"language":"en","entries":[{"grapheme":"C++","alias":"see"},{"grapheme":"New York","ipa":"n","whole_word":false}]}\n'
    b'Mobivox in New York, C++ <b> {x} a@b.c "k": http://x/y'
)
WAV: Final = (
    b"RIFF" + struct.pack("<I", 68) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + b"data"
    + struct.pack("<I", 32) + bytes(32)
)  # fmt: skip
FORM_OF_RTP: Final = (
    struct.pack(">BBHII", 0xB2, 101, 1, 160, 7) + bytes(8) + b"\xbe\xde\x00\x01abcd\x05\x8a\x00\xa0\x00\x00\x00\x04"
)
MRCP: Final = (
    b"MRCP/2.0 167 SPEAK 543257\r\nChannel-Identifier: 32aecb234338@speechsynth\r\nVoice-Gender: female\r\n"
    b"Prosody-Rate: +20%\r\nContent-Type: text/plain;charset=gbk\r\nContent-Length: 12\r\n\r\nHello there."
    b"MRCP/2.0 88 CONTROL 543258\r\nChannel-Identifier: 32aecb234338@speechsynth\r\nJump-Size: -3 Word\r\n"
)
MRCP_OFFER: Final = (
    b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=application 9 TCP/MRCPv2 1\r\n"
    b"a=setup:active\r\na=connection:new\r\na=resource:speechsynth\r\na=cmid:1\r\nm=audio 4000 RTP/AVP 0 8 96\r\n"
    b"a=rtpmap:96 L16/8000/1\r\na=recvonly\r\na=mid:1\r\n"
)
