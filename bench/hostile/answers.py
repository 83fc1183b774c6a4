"""Responses of a called party and of a registrar that nobody should send, and requests inside the call they begin. Pure, by
seed: each function takes the random numbers and the server's request and returns what is sent back, and when.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.hostile.media import CONNECTIONS, mutate_sdp, offer
from bench.hostile.sip import LIMITS, METHODS, WORDS, Sip, content_type, mutate

OWN_CONTACT: Final = "own"
"""Stands for the address this peer can be reached at."""
CONTACTS: Final = (
    "*", "*;expires=0", "*, <sip:x@127.0.0.1:9>", "<*>", "<tel:+1>", "tel:+1", "<tel:+1;phone-context=x>", "<sip:>",
    "<sip:x>", "sip:", "<>", "", "<urn:service:sos>", "<http://127.0.0.1/>", "<mailto:x@y.z>", "<sips:x@127.0.0.1:9>",
    "<sip:x@[::1]:9>", "<sip:x@[::1>", "<sip:x@127.0.0.1:0>", "<sip:x@127.0.0.1:99999>", "<sip:x@nowhere.invalid>",
    "<sip:x@127.0.0.1;transport=tls>", "<sip:x@127.0.0.1;transport=sctp>", "<sip:x@127.0.0.1;maddr=::1>",
    "<sip:x@127.0.0.1:9?Route=%3Csip:y%3E&body=%00>", '"open <sip:x@y>', "<sip:x@127.0.0.1:9>, <tel:+1>", "tel:",
    "<tel:>", "<sip:%00@127.0.0.1:9>", "<sip:" + "u" * 1500 + "@127.0.0.1:9>", "<sip:x@" + "h" * 1500 + ">",
    ", ".join(["<sip:x@127.0.0.1:9>"] * 60),
)  # fmt: skip
OPUS_ONLY: Final = (
    "v=0\r\no=hostile 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio {port} RTP/AVP 111\r\na=rtpmap:111 opus/48000/2\r\n"
)
SCHEMES: Final = (
    'Digest realm="x", nonce="n"', 'Digest realm="x", nonce="n", qop="auth,auth-int", algorithm=MD5, stale=true',
    'Digest realm="x", nonce="n", qop="auth-int"', 'Digest realm="x", nonce="n", algorithm=SHA-256',
    'Digest realm="x", nonce="n", algorithm=AKAv1-MD5', 'Digest realm="x", nonce="n", algorithm=none', "Digest", "",
    'Digest realm="", nonce=""', 'Digest nonce="n"', 'Digest realm="x"', 'Basic realm="x"', "NTLM", "NoScheme a=b",
    'Digest realm="' + "r" * 1500 + '", nonce="n"', 'Digest realm="x", nonce="' + "n" * 1500 + '", opaque=""',
    'Digest realm="x", nonce="n", qop=""', 'Digest realm="x", nonce="n", domain="sip:x", charset=',
    'Digest realm="x\\"", nonce="\\', "Digest " + "a=b, " * 300,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Here:
    host: str
    port: int
    rtp_port: int


@dataclass(frozen=True, slots=True)
class Step:
    """One message back, ``after_s`` from the one before."""

    kind: str
    sip: Sip
    after_s: float = 0.0


Scene = Callable[[random.Random, str, Here], list[Step]]


def reply(
    request: str, status: str, here: Here, *, contact: str = OWN_CONTACT, body: str = "", tag: str = "peer"
) -> Sip:
    """A response as it should be: the headers that RFC 3261 §8.2.6.2 has copied, To with a tag."""
    kept = re.findall(r"^(Via|From|To|Call-ID|CSeq)[ \t]*:[ \t]*(.*?)\r?$", request, re.MULTILINE | re.IGNORECASE)
    headers = [
        (name, f"{value};tag={tag}" if name.lower() == "to" and tag and ";tag=" not in value else value)
        for name, value in kept
    ]
    headers.append(("Contact", f"<sip:peer@{here.host}:{here.port}>" if contact == OWN_CONTACT else contact))
    if body:
        headers.append(("Content-Type", "application/sdp"))
    return Sip(f"SIP/2.0 {status}", headers, body)


# --- a called party -----------------------------------------------------------------------------------------------------


def unusable_sdp(rng: random.Random, here: Here) -> str:
    """An answer that takes none of what was offered, or cannot be read."""
    good = offer(here.rtp_port)
    return rng.choice(
        (
            OPUS_ONLY.format(port=here.rtp_port),
            good.replace("IN IP4 127.0.0.1", rng.choice(CONNECTIONS)),
            good.replace("c=IN IP4 127.0.0.1\r\n", rng.choice(("", "c=IN IP4 127.0.0.1\r\n" * 2, "c=\r\n"))),
            good.replace("m=audio", f"c={rng.choice(CONNECTIONS)}\r\nm=audio"),
            good.replace("RTP/AVP", rng.choice(("RTP/SAVP", "UDP/TLS/RTP/SAVPF", "udptl", "x"))),
            good.replace(f"m=audio {here.rtp_port}", f"m=audio {rng.choice(LIMITS)}"),
            re.sub(r"m=audio.*", "", good, flags=re.DOTALL),
            good.replace("m=audio", "m=video"),
            good + good[good.index("m=") :] * rng.choice((1, 20)),
            good[good.index("m=") :] + good[: good.index("m=")],
            "v=0\r\n", "\r\n", "x", "v=0", good.replace("\r\n", "\r"), good[: rng.randrange(len(good))],
            mutate_sdp(rng, good),
        )
    )  # fmt: skip


def early_media_then_good(rng: random.Random, request: str, here: Here) -> list[Step]:
    """Early media that cannot be used, then an answer that can; by the same far side or by another of a fork."""
    early_tag = rng.choice(("peer", "other"))
    steps = [
        Step("183 unusable", reply(request, "183 Progress", here, body=unusable_sdp(rng, here), tag=early_tag), 0.02)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    if rng.random() < 0.3:
        for step in steps:
            step.sip.headers += [("Require", "100rel"), ("RSeq", rng.choice(("1", "1", *LIMITS)))]
    return [*steps, Step("200 good", reply(request, "200 OK", here, body=offer(here.rtp_port)), 0.1)]


def answered_unusably(rng: random.Random, request: str, here: Here) -> list[Step]:
    """200 with SDP that takes nothing; now and then another 200 behind it."""
    bodies = [rng.choice((unusable_sdp(rng, here), unusable_sdp(rng, here), "")) for _ in range(rng.choice((1, 1, 2)))]
    return [Step("200 unusable", reply(request, "200 OK", here, body=body), 0.05) for body in bodies]


def odd_contact(rng: random.Random, request: str, here: Here) -> list[Step]:
    """A Contact that no request can be sent to: the ACK and the BYE would go there (RFC 3261 §12.1.2)."""
    steps = []
    if rng.random() < 0.5:
        early = reply(request, rng.choice(("180 Ringing", "183 Progress")), here, contact=rng.choice(CONTACTS))
        if rng.random() < 0.5:
            early.headers += [("Require", "100rel"), ("RSeq", "7")]
        steps.append(Step("18x odd contact", early, 0.05))
    contact = rng.choice((*CONTACTS, OWN_CONTACT))
    answer = reply(request, "200 OK", here, contact=contact, body=offer(here.rtp_port))
    for _ in range(rng.choice((0, 0, 1, 3))):
        answer.headers.append(("Record-Route", rng.choice(CONTACTS)))
    if rng.random() < 0.2:
        answer.headers = [each for each in answer.headers if each[0] != "Contact"]
    return [*steps, Step("200 odd contact", answer, 0.1)]


def fork(rng: random.Random, request: str, here: Here) -> list[Step]:
    """Several far sides (RFC 3261 §13.2.2.4): provisional answers and 200 with tags of their own, good and bad."""
    steps = []
    for number in range(rng.choice((2, 3, 3, 12))):
        body = rng.choice((offer(here.rtp_port), unusable_sdp(rng, here), ""))
        status = rng.choice(("180 Ringing", "183 Progress", "183 Progress", "200 OK", "199 Gone", "486 Busy"))
        tag = rng.choice((f"fork{number}", f"fork{number}", "fork0", ""))
        sip = reply(request, status, here, body=body, tag=tag, contact=rng.choice((OWN_CONTACT, rng.choice(CONTACTS))))
        if status.startswith("18") and rng.random() < 0.3:
            sip.headers += [("Require", "100rel"), ("RSeq", str(rng.randrange(1, 3)))]
        steps.append(Step(f"fork {status[:3]}", sip, 0.02))
    if rng.random() < 0.6:
        steps.append(Step("fork 200", reply(request, "200 OK", here, body=offer(here.rtp_port), tag="fork0"), 0.05))
    return steps


def redirect(rng: random.Random, request: str, here: Here) -> list[Step]:
    """RFC 3261 §8.1.3.4."""
    sip = reply(request, rng.choice(("300 Many", "301 Moved", "302 Moved", "305 Proxy", "380 Else")), here)
    contacts = [rng.choice((*CONTACTS, f"<sip:peer@{here.host}:{here.port}>;q={rng.choice(LIMITS)}")) for _ in range(2)]
    sip.headers = [each for each in sip.headers if each[0] != "Contact"]
    sip.headers += [("Contact", contact) for contact in contacts[: rng.randrange(3)]]
    return [Step("redirect", sip)]


def wrong_number(rng: random.Random, request: str, here: Here) -> list[Step]:
    """CSeq, tags and branches of another request, then the right ones."""
    sip = reply(request, rng.choice(("183 Progress", "200 OK", "200 OK", "486 Busy")), here, body=offer(here.rtp_port))
    match rng.randrange(4):
        case 0:
            sip.put("CSeq", f"{rng.choice(LIMITS)} INVITE")
        case 1:
            sip.put("CSeq", f"{sip.value('CSeq').split(' ')[0]} {rng.choice(METHODS)}")
        case 2:
            sip.put("From", re.sub(r";tag=.*", rng.choice(("", ";tag=", ";tag=x")), sip.value("From")))
        case _:
            sip.put("Via", sip.value("Via") + rng.choice((";branch=z9hG4bKother", "x", ", SIP/2.0/UDP 127.0.0.1:9")))
    return [Step("wrong number", sip), Step("200 good", reply(request, "200 OK", here, body=offer(here.rtp_port)), 0.1)]


def in_parts(rng: random.Random, request: str, here: Here) -> list[Step]:
    """Multipart bodies, and SDP under another name."""
    steps = []
    for status in rng.choice((("183 Progress", "200 OK"), ("200 OK",), ("486 Busy",))):
        body = rng.choice((offer(here.rtp_port), unusable_sdp(rng, here)))
        sip = reply(request, status, here, body=body)
        content_type(rng, sip)
        steps.append(Step(f"{status[:3]} in parts", sip, 0.1))
    return steps


def challenge(rng: random.Random, request: str, here: Here) -> list[Step]:
    """RFC 3261 §22, and the other refusals that ask for a second request."""
    status, name = rng.choice((("401 Who", "WWW-Authenticate"), ("407 Who", "Proxy-Authenticate")))
    sip = reply(request, status, here)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        sip.headers.append((name, rng.choice(SCHEMES)))
    if rng.random() < 0.3:
        sip = reply(request, rng.choice(("422 Interval", "423 Brief", "420 Ext", "421 Ext", "494 Sec")), here)
        sip.headers += [("Min-SE", rng.choice(LIMITS)), ("Min-Expires", rng.choice(LIMITS)), ("Unsupported", "timer")]
    return [Step("challenge", sip)]


def anything(rng: random.Random, request: str, here: Here) -> list[Step]:
    """Any status, any SDP, mutated like any message."""
    steps = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        status = rng.choice(
            ("100 Trying", "180 Ringing", "183 Progress", "200 OK", "200 OK", "486 Busy", "491 Glare", "503 Out",
             "603 No", "199 x", "299 x", "700 x", "181 Fwd", "182 Queue", "608 Rejected", "000 x", "65536 x")
        )  # fmt: skip
        body = rng.choice((offer(here.rtp_port), offer(here.rtp_port), mutate_sdp(rng, offer(here.rtp_port)), ""))
        sip = reply(request, status, here, body=body, tag=rng.choice(("peer", "fork1", "fork2", "")))
        for name, value in (("RSeq", "1"), ("Require", "100rel"), ("Session-Expires", "90"), ("Retry-After", "-1")):
            if rng.random() < 0.1:
                sip.add(rng, name, value)
        kind = mutate(rng, sip) if rng.random() < 0.7 else "as it is"
        steps.append(Step(f"{status[:3]} {kind}", sip, 0.02))
    return steps


CALLEE: Final[Sequence[Scene]] = (
    early_media_then_good, early_media_then_good, answered_unusably, odd_contact, odd_contact, fork, fork, redirect,
    wrong_number, in_parts, challenge, anything, anything, anything,
)  # fmt: skip


def to_invite(rng: random.Random, request: str, here: Here) -> list[Step]:
    """What comes back to an INVITE of the server."""
    return rng.choice(CALLEE)(rng, request, here)


def to_request(rng: random.Random, request: str, here: Here) -> list[Step]:
    """What comes back to a request of the server inside a call: mostly 200, as calls must end."""
    is_invite = request.startswith("INVITE ")
    sip = reply(request, "200 OK", here, body=offer(here.rtp_port) if is_invite else "")
    if rng.random() < 0.7:
        return [Step("good", sip)]
    if is_invite and rng.random() < 0.5:
        sip.body = unusable_sdp(rng, here)
        return [Step("re-INVITE unusable", sip)]
    sip.start = (
        f"SIP/2.0 {rng.choice(('200 OK', '202 Later', '302 Moved', '401 Who', '481 Gone', '491 Glare', '500 x'))}"
    )
    return [Step(f"inside {mutate(rng, sip)}", sip)]


# --- a registrar --------------------------------------------------------------------------------------------------------


def registered(request: str, here: Here, expires: str) -> Sip:
    """200 with the binding as it was asked for (RFC 3261 §10.3)."""
    match = re.search(r"^(?:Contact|m)[ \t]*:[ \t]*(<[^>]*>)", request, re.MULTILINE | re.IGNORECASE)
    contact = f"{match[1] if match else '<sip:x@127.0.0.1>'};expires={expires}"
    return reply(request, "200 OK", here, contact=contact)


def _odd_bindings(rng: random.Random, request: str, here: Here) -> Sip:
    """200 whose Contact, lifetime or service headers are not what a registrar says."""
    sip = registered(request, here, rng.choice(("1", "2", "", *LIMITS)))
    match rng.randrange(6):
        case 0:
            sip.put("Contact", rng.choice(CONTACTS))
        case 1:
            sip.put("Contact", "*")
        case 2:
            sip.headers += [("Contact", rng.choice(CONTACTS)) for _ in range(rng.choice((1, 3, 60)))]
            rng.shuffle(sip.headers)
        case 3:
            sip.headers = [each for each in sip.headers if each[0] != "Contact"]
        case 4:
            names = ("Service-Route", "Path", "P-Associated-URI", "Route", "Record-Route")
            sip.headers += [(rng.choice(names), rng.choice(CONTACTS)) for _ in range(rng.choice((1, 3, 40)))]
        case _:
            gruu = rng.choice(("sip:x@y;gr=z", "", '"', "tel:+1", "*"))
            sip.put("Contact", f'{sip.value("Contact")};pub-gruu="{gruu}";temp-gruu={gruu};reg-id={rng.choice(LIMITS)}')
    if rng.random() < 0.5:
        sip.add(rng, "Expires", rng.choice(("1", *LIMITS, *WORDS)))
    return sip


def to_register(rng: random.Random, request: str, here: Here) -> list[Step]:
    """What comes back to a REGISTER. Lifetimes are short, so that another follows soon."""
    steps = []
    for _ in range(rng.choice((1, 1, 2))):
        dice = rng.random()
        if dice < 0.6:
            kind, sip = "200", _odd_bindings(rng, request, here)
        elif dice < 0.8:
            kind, sip = "challenge", challenge(rng, request, here)[0].sip
        else:
            status = rng.choice(
                ("100 x", "199 x", "302 Moved", "305 Proxy", "403 No", "404 No", "423 Brief", "439 Path", "500 x",
                 "503 Out", "600 x", "700 x")
            )  # fmt: skip
            kind, sip = status[:3], reply(request, status, here, contact=rng.choice((OWN_CONTACT, *CONTACTS)))
            for name, value in (("Min-Expires", LIMITS), ("Retry-After", LIMITS), ("Warning", WORDS)):
                if rng.random() < 0.5:
                    sip.add(rng, name, rng.choice(value))
        if rng.random() < 0.2:
            sip.body = rng.choice(("x", offer(9), "<?xml?>"))
            content_type(rng, sip)
        if rng.random() < 0.4:
            kind += f" {mutate(rng, sip)}"
        steps.append(Step(kind, sip, 0.02))
    if rng.random() < 0.5:
        steps.append(Step("200 good", registered(request, here, rng.choice(("1", "2", "6"))), 0.05))
    return steps
