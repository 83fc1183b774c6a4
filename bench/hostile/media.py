"""SDP, RTP, RTCP, telephone events and the prompts of an INVITE as they should be and as they should not. Pure, by seed."""

import json
import random
import struct
from collections.abc import Sequence
from typing import Any, Final

from bench.hostile.sip import LIMITS, WORDS, Mutation, Sip

SILENCE: Final = b"\xff" * 160
EVENT_FORMAT: Final = 101


def offer(port: int, *, host: str = "127.0.0.1", direction: str = "sendrecv", version: int = 1) -> str:
    """An ordinary offer or answer of G.711 and telephone events (RFC 4566, RFC 3264)."""
    return (
        f"v=0\r\no=hostile 1 {version} IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\n"
        f"m=audio {port} RTP/AVP 0 8 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n"
        f"a=fmtp:101 0-15\r\na=ptime:20\r\na={direction}\r\n"
    )


def mutate_sdp(rng: random.Random, sdp: str) -> str:
    """One to three faults or oddities."""
    lines = sdp.split("\r\n")[:-1] or ["v=0"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_sdp(rng, lines)
    return rng.choice(("\r\n", "\r\n", "\r\n", "\n", "\r")).join(lines) + rng.choice(("\r\n", "\r\n", "", "\r\n\r\n"))


def _change_sdp(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    word = rng.choice(WORDS)
    match rng.randrange(14):
        case 0:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        case 1 if len(lines) > 1:
            del lines[at]
        case 2:
            lines[at] = rng.choice(
                (word, lines[at][:2] + word, lines[at][:1], lines[at] + word, lines[at] + "z" * 3000)
            )
        case 3:
            _set(rng, lines, "m=", _media_line(rng))
        case 4:
            count = rng.choice((2, 5, 20, 300))
            lines.extend([f"m={rng.choice(('audio', 'video'))} {rng.choice((0, 4000))} RTP/AVP 0"] * count)
        case 5 | 6:
            _connect(rng, lines)
        case 7:
            start = rng.choice(("o=", "t=", "v=", "s="))
            _set(rng, lines, start, start + rng.choice(("", "1", "- 1 1 IN IP4 x", word, *LIMITS)))
        case _:
            lines.extend(_attributes(rng))


def _connect(rng: random.Random, lines: list[str]) -> None:
    """The connection of the session, of the media, of both, twice or nowhere (RFC 8866 §5.7)."""
    if rng.random() < 0.5:
        _set(rng, lines, "c=", f"c={rng.choice(CONNECTIONS)}")
        return
    lines[:] = [each for each in lines if not each.startswith("c=")]
    for _ in range(rng.choice((0, 1, 1, 2, 20))):
        lines.insert(rng.randrange(len(lines) + 1), f"c={rng.choice((*CONNECTIONS, 'IN IP4 127.0.0.1'))}")


CONNECTIONS: Final = (
    "IN IP4 0.0.0.0", "IN IP4 127.0.0.1/127/3", "IN IP6 ::1", "IN IP4 127.255.255.255", "IN IP4", "IN IP4 999.1.1.1",
    "IN IP4 nowhere.invalid", "X Y Z", "", "IN IP6 127.0.0.1", "IN IP4 ::1", "IN IP4 ::ffff:127.0.0.1", "IN IP6 ::",
    "IN IP6 127.0.0.1%lo", "IN IP6 fe80::1%lo", "IN IP6 [::1]", "IN IP6 ff02::1/3", "IN IP6 x", "IN IP6", "IN IP4 ",
    "IN IP4 224.2.1.1/127", "IN IP4 224.2.1.1/127/3", "IN IP4 224.2.1.1/999", "IN IP4 127.0.0.1/", "IN IP4 127.0.0.1 x",
    "IN  IP4  127.0.0.1", "IN IP4\t127.0.0.1", "IN IP4 127.1", "IN IP4 0x7f000001", "IN IP4 127.0.0.01", "IN IP5 127.0.0.1",
    "in ip4 127.0.0.1", "TN IP4 127.0.0.1", "IN IP4 localhost", "IN IP4 " + "a" * 300 + ".invalid", "IN IP4 127.0.0.1\0",
)  # fmt: skip


def _media_line(rng: random.Random) -> str:
    formats = ("0", "", "0 " * 100, "-1", "128", "999", "0 8 0 8", "96", "*", "101", "0 101 101")
    profiles = ("RTP/AVP", "RTP/AVP", "RTP/SAVP", "RTP/AVPF", "UDP/TLS/RTP/SAVPF", "udptl", "", "RTP/AVP/")
    kinds = ("audio", "audio", "audio", "video", "image", "text", "application", "message", "x", "")
    ports = ("4000", "0", "1", "65534/2", rng.choice(LIMITS))
    return f"m={rng.choice(kinds)} {rng.choice(ports)} {rng.choice(profiles)} {rng.choice(formats)}"


def _attributes(rng: random.Random) -> list[str]:
    number, word = rng.choice(LIMITS), rng.choice(WORDS)
    suite, key = rng.choice(("AES_CM_128_HMAC_SHA1_80", "X", "")), rng.choice(("A" * 40, "", "/" * 400))
    codec, rate = rng.choice(("PCMU", "telephone-event", "G722", word)), rng.choice(("8000", "0", number))
    return rng.choice(
        (
            [f"a=ptime:{rng.choice(('0', '1', '10', '30', '200', '1000000', number))}", f"a=maxptime:{number}"],
            [f"a=crypto:{number} {suite} inline:{key}|2^{number}|1:{number}"],
            [rng.choice(("a=fingerprint:sha-256 00:11", "a=setup:actpass", "a=fingerprint:", "a=setup:x"))],
            [f"a=rtpmap:{rng.choice(('0', '8', '101', '96', number))} {codec}/{rate}/{number}"],
            [f"a=fmtp:{rng.choice(('101', '0', number))} {rng.choice(('0-15', '0-' + number, word, ',' * 500))}"],
            [
                rng.choice(
                    ("a=sendonly", "a=recvonly", "a=inactive", "a=sendrecv", "a=rtcp-mux", "a=group:BUNDLE 1 2", "a=")
                )
            ],
            [f"a=rtcp:{number}", "a=rtcp:9 IN IP6 ::1", f"b=AS:{number}", f"a=T38FaxVersion:{number}", f"a=mid:{word}"],
            ["a=ice-ufrag:x", "a=ice-pwd:" + "p" * 300, f"a=candidate:1 1 UDP {number} 127.0.0.1 {number} typ host"],
            ["a=content:" + "a" * 4000],
        )
    )


def _set(rng: random.Random, lines: list[str], start: str, line: str) -> None:
    places = [index for index, each in enumerate(lines) if each.startswith(start)]
    if places:
        lines[rng.choice(places)] = line
    else:
        lines.append(line)


def rtp(*, seq: int, ssrc: int, payload_type: int = 0, payload: bytes = SILENCE) -> bytes:
    """A good packet of 20 ms (RFC 3550 §5.1)."""
    return struct.pack("!BBHII", 0x80, payload_type, seq & 0xFFFF, seq * 160 & 0xFFFFFFFF, ssrc & 0xFFFFFFFF) + payload


def bad_rtp(rng: random.Random, *, seq: int, ssrc: int) -> tuple[str, bytes]:
    """A packet with a fault or an oddity, and which."""
    packet = rtp(seq=seq, ssrc=ssrc)
    jump = struct.pack("!H", (seq + rng.choice((-1, -100, 3000, 32767, 32768, 65535))) & 0xFFFF)
    extension = struct.pack("!HH", 0xBEDE, rng.choice((0, 1, 40, 41, 65535))) + rng.randbytes(8)
    kinds = {
        "length": packet[: rng.choice((0, 1, 4, 11, 12, 13, 50))],
        "giant": packet + rng.randbytes(rng.choice((1, 160, 1400, 9000, 60_000))),
        "first octet": rng.randbytes(1) + packet[1:],  # version, padding, extension, number of CSRC
        "padding": b"\xa0" + packet[1:-1] + bytes([rng.choice((0, 1, 160, 161, 255))]),
        "extension": b"\x90" + packet[1:12] + extension,
        "payload type": packet[:1] + rng.randbytes(1) + packet[2:],
        "sequence": packet[:2] + jump + packet[4:],
        "timestamp": packet[:4] + rng.randbytes(4) + packet[8:],
        "ssrc": packet[:8] + rng.randbytes(4) + packet[12:],
        "event (RFC 4733)": _event(rng, seq, ssrc),
        "noise": rng.randbytes(rng.choice((1, 12, 172, 1400))),
    }
    return rng.choice(list(kinds.items()))


def _event(rng: random.Random, seq: int, ssrc: int) -> bytes:
    """A telephone event, now and then cut or repeated."""
    code, volume = rng.choice((0, 1, 9, 10, 11, 12, 15, 16, 37, 255)), rng.randrange(256)
    event = struct.pack("!BBH", code, volume, rng.choice((0, 1, 160, 800, 8000, 65535)))
    event = event[: rng.choice((0, 1, 3, 4, 4, 4, 4))] * rng.choice((1, 1, 1, 2, 40))
    head = rtp(seq=seq // 7, ssrc=ssrc, payload_type=EVENT_FORMAT | rng.choice((0, 0x80)), payload=b"")
    return head[:2] + struct.pack("!H", seq & 0xFFFF) + head[4:] + event


def bad_rtcp(rng: random.Random, *, ssrc: int) -> tuple[str, bytes]:
    """RFC 3550 §6: reports, SDES, BYE, APP, compounds and what only looks like it."""
    kind = rng.choice((192, 200, 201, 202, 203, 204, 205, 206, 207, 255))
    count, words = rng.randrange(32), rng.choice((0, 1, 6, 7, 100, 65535))
    body = rng.choice((b"", struct.pack("!I", ssrc & 0xFFFFFFFF), rng.randbytes(24), rng.randbytes(rng.randrange(600))))
    one = struct.pack("!BBH", rng.choice((0x80, 0x80, 0x80, 0xA0, 0x00)) | count, kind, words) + body
    if rng.random() < 0.5:
        one = struct.pack("!BBH", 0x80 | count, kind, max(0, len(body) // 4)) + body
    report = struct.pack("!BBHIIIIII", 0x80, 200, 6, ssrc & 0xFFFFFFFF, *[rng.getrandbits(32) for _ in range(5)])
    sdes = struct.pack("!BBHIBB", 0x81, 202, 2, ssrc & 0xFFFFFFFF, 1, rng.choice((2, 0, 255))) + b"ab\0\0"
    bye = struct.pack("!BBHI", 0x81, 203, 1, ssrc & 0xFFFFFFFF)
    return rng.choice(
        (
            ("one", one),
            ("compound", report + sdes + one),
            ("bye", report + sdes + bye),
            ("many", one * 20),
            ("cut", report[:-3]),
        )
    )


# --- our own handlers ---------------------------------------------------------------------------------------------------

TEXTS: Final = (
    "Hello", "a" * 4999, "a" * 5001, "%20", "%", "%4", "%zz", "%00", "%FF", "%C3%A4", "%ED%A0%80", "%E2%80%AE",
    "%F0%9F%98%80",
    "...", "%0D%0AX-Evil:%201", "1" * 200, "&amp;", "<speak>", "%3Cspeak%3E", "\xff\xfe", "", " ", "1e309", "-" * 300,
    "99999999999999",
)  # fmt: skip


def tts_headers(rng: random.Random, sip: Sip) -> None:
    for _ in range(rng.choice((1, 2, 4))):
        name = rng.choice(("Text", "Text", "Voice", "Language", "Then", "Prompt-Id", "Other", "", "Text-\xff"))
        value = rng.choice((*TEXTS, "en-us", "en", "de", "zh", "xx-XX", "hangup", "stay", "HANGUP", "nobody", *LIMITS))
        sip.add(rng, rng.choice((f"X-TTS-{name}", f"x-tts-{name.lower()}")), value)


def announcement(rng: random.Random, sip: Sip) -> None:
    """``annc`` with its parameters (RFC 4240 §3)."""
    method, _, rest = sip.start.partition(" ")
    uri, _, version = rest.rpartition(" ")
    host = uri.rpartition("@")[2].partition(";")[0]
    names = (
        "play",
        "play",
        "repeat",
        "delay",
        "duration",
        "locale",
        "voice",
        "speed",
        "extension",
        "param[]",
        "",
        "PLAY",
    )
    parameters = [f"play=tts:{rng.choice(TEXTS)}"] if rng.random() < 0.7 else []
    for _ in range(rng.choice((0, 1, 2, 30))):
        schemes = ("tts:", "prompt:", "http://127.0.0.1/", "https:", "file:///etc/passwd", "TTS%3A", "tts", ":", "")
        value = (
            rng.choice(schemes) + rng.choice(TEXTS)
            if rng.random() < 0.3
            else rng.choice((*LIMITS, *TEXTS, "forever", "en_US"))
        )
        parameters.append(f"{rng.choice(names)}={value}")
    rng.shuffle(parameters)
    user = rng.choice(("annc", "annc", "annc", "Annc", "%61nnc", "annc:pw", "annc;x=y", "annc%00"))
    sip.start = f"{method} sip:{user}@{host};{';'.join(parameters)} {version}"


def request_user(rng: random.Random, sip: Sip) -> None:
    """Users no route may expect."""
    method, _, rest = sip.start.partition(" ")
    uri, _, version = rest.rpartition(" ")
    user = rng.choice((*TEXTS, *WORDS, "ring", "manual", "refused", "+4930;phone-context=x", "a:b", "silent"))
    sip.start = f"{method} sip:{user}@{uri.rpartition('@')[2]} {version}"


OWN: Final[Sequence[Mutation]] = (tts_headers, tts_headers, announcement, announcement, request_user)


def info_body(rng: random.Random) -> tuple[str, str]:
    """Content-Type and body of an INFO that may be a digit: with and without line ends, empty, far too long."""
    signal, duration = rng.choice(("1", "#", "*", "16", "A", "flash", "", "11", *WORDS)), rng.choice(("160", *LIMITS))
    end = rng.choice(("\r\n", "\r\n", "\n", "\r", "", "\0"))
    kind, body = rng.choice(
        (
            ("dtmf-relay", f"Signal={signal}{end}Duration={duration}{end}"), ("dtmf-relay", f"Signal={signal}{end}"),
            ("dtmf-relay", f"Signal={signal}"), ("dtmf-relay", f"Signal= {signal}\r\nDuration= {duration}"),
            ("dtmf-relay", f"Duration={duration}{end}"), ("dtmf-relay", f"Duration={duration}{end}Signal={signal}"),
            ("dtmf-relay", "Signal"), ("dtmf-relay", "Signal="), ("dtmf-relay", "Signal=\r"), ("dtmf-relay", "="),
            ("dtmf-relay", "Signal=" * 500), ("dtmf-relay", "Signal=5\r\nDuration="), ("dtmf-relay", ""),
            ("dtmf-relay", f"Signal={'5' * rng.choice((40, 3000, 14_000))}{end}"), ("dtmf-relay", end * 300),
            ("dtmf-relay", f"signal={signal}{end}DURATION={duration}{end}"), ("dtmf", signal), ("dtmf", signal + end),
            ("dtmf", ""), ("dtmf", "5" * rng.choice((2, 3000, 14_000))), ("dtmf", f"Signal={signal}{end}"),
            ("DTMF-Relay", f"Signal={signal}"), ("dtmf-relay;charset=x", f"Signal={signal}"), ("vnd.x", signal),
            ("media_control+xml", "<media_control><picture_fast_update/></media_control>"),
            ("media_control+xml", rng.choice(("", "<", "<media_control>" * 400))),
        )
    )  # fmt: skip
    return f"application/{kind}", body


def json_body(rng: random.Random, good: dict[str, Any]) -> bytes:
    """A body of the control API with a fault, now and then none."""
    body = dict(good)
    values: tuple[Any, ...] = (
        None,
        True,
        -1,
        1e308,
        2**70,
        "",
        "a" * 6000,
        "\0",
        "\u202e",
        [],
        {},
        [[[]]],
        {"a": {}},
        "en-us",
    )
    for _ in range(rng.choice((0, 1, 1, 2))):
        body[rng.choice((*good, "voice", "language", "speed", "queue", "then", "barge_in", "x"))] = rng.choice(values)
    raw = json.dumps(body).encode()
    match rng.randrange(8):
        case 0:
            return raw[: rng.randrange(len(raw) + 1)]
        case 1:
            return b"[" * rng.choice((10, 5000)) + raw
        case 2:
            return raw.replace(b'"', rng.choice((b"'", b'\\ud800"', b"\xff")), 1)
        case _:
            return raw
