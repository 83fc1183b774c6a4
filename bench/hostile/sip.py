"""SIP messages as they should be, and what can be done to them. Pure: the same seed makes the same message.

A message is a start line, a list of headers and a body; text is Latin-1, so that every byte can be written. A mutation
takes the random numbers and the message and changes the message; its name is kept, so that what was sent can be told
(RFC 3261, and the extensions named at their place).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

LIMITS: Final = (
    "0", "-1", "1", "255", "256", "65535", "65536", "2147483647", "2147483648", "4294967295", "4294967296",
    "18446744073709551616", "9" * 40, "", " ", "1e9", "0x10", "1.5", "+1", "1 1", "abc", "\u00b2",
)  # fmt: skip
"""Where a number is expected."""
WORDS: Final = (
    "", ",", ";", ":", "<", ">", "<>", '"', '"\\', "@", "=", "%", "%zz", "%00", "\0", "\xff\xfe", "\xed\xa0\x80",
    "\xc0\x80",
    "a" * 300, "\t", "\r", "{}", "[::]", "[", "sip:", "sip:@", "tel:+1", "urn:x", "*", "%s%n", "\u00fc", "\xe2\x80\xae",
)  # fmt: skip
"""Where a word is expected."""
METHODS: Final = (
    "INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER", "SUBSCRIBE", "NOTIFY", "MESSAGE", "INFO", "UPDATE",
    "PRACK",
    "REFER", "PUBLISH", "TELEPORT", "invite", "INVITE\t", "", "A" * 300,
)  # fmt: skip
COMPACT: Final = {
    "Via": "v", "From": "f", "To": "t", "Call-ID": "i", "Contact": "m", "Content-Length": "l", "Content-Type": "c",
    "Content-Encoding": "e", "Subject": "s", "Supported": "k", "Session-Expires": "x", "Event": "o", "Refer-To": "r",
}  # fmt: skip

Mutation = Callable[[random.Random, "Sip"], None]


@dataclass(slots=True)
class Sip:
    """One message. Content-Length is written unless a header of that name is there."""

    start: str
    headers: list[tuple[str, str]]
    body: str = ""
    line_end: str = "\r\n"

    def render(self) -> bytes:
        headers = list(self.headers)
        if not any(name.strip().lower() in ("content-length", "l") for name, _ in headers):
            headers.append(("Content-Length", str(len(self.body))))
        lines = [self.start, *(f"{name}: {value}" for name, value in headers)]
        return (self.line_end.join(lines) + self.line_end * 2 + self.body).encode("latin-1", "replace")

    def value(self, name: str) -> str:
        return next((value for each, value in self.headers if each == name), "")

    def put(self, name: str, value: str) -> None:
        """Replace the first header of this name, or add it."""
        for index, (each, _) in enumerate(self.headers):
            if each == name:
                self.headers[index] = (name, value)
                return
        self.headers.append((name, value))

    def add(self, rng: random.Random, name: str, value: str) -> None:
        self.headers.insert(rng.randint(0, len(self.headers)), (name, value))


def duplicate_header(rng: random.Random, sip: Sip) -> None:
    for _ in range(rng.choice((1, 1, 2, 60))):
        sip.headers.insert(rng.randint(0, len(sip.headers)), rng.choice(sip.headers))


def drop_header(rng: random.Random, sip: Sip) -> None:
    for _ in range(rng.choice((1, 1, 1, 3))):
        if len(sip.headers) > 1:
            sip.headers.pop(rng.randrange(len(sip.headers)))


def exchange_values(rng: random.Random, sip: Sip) -> None:
    one, other = rng.randrange(len(sip.headers)), rng.randrange(len(sip.headers))
    (name, value), (other_name, other_value) = sip.headers[one], sip.headers[other]
    sip.headers[one], sip.headers[other] = (name, other_value), (other_name, value)


def giant(rng: random.Random, sip: Sip) -> None:
    index = rng.randrange(len(sip.headers))
    name, value = sip.headers[index]
    filler = rng.choice(("A", "\xff", ";a=b", ",<sip:a@b>", " \r\n ", "%41")) * rng.choice((100, 1000, 4000, 12_000))
    sip.headers[index] = rng.choice(((name, value + filler), (name, filler), (name + filler[:3000], value)))


def number(rng: random.Random, sip: Sip) -> None:
    limit = rng.choice(LIMITS)
    method = sip.start.split(" ", 1)[0]
    name, value = rng.choice(
        (
            ("CSeq", f"{limit} {method}"), ("Max-Forwards", limit), ("Content-Length", limit), ("Expires", limit),
            ("Min-Expires", limit), ("Timestamp", limit), ("RSeq", limit), ("RAck",
            f"{limit} {rng.choice(LIMITS)} INVITE"),
            ("Retry-After", limit), ("Via", f"SIP/2.0/UDP 127.0.0.1:{limit};branch=z9hG4bK{limit}"),
            ("Contact", f"<sip:x@127.0.0.1:{limit}>;expires={limit};q={limit}"), ("MIME-Version", limit),
        )
    )  # fmt: skip
    sip.put(name, value)


def word(rng: random.Random, sip: Sip) -> None:
    index = rng.randrange(len(sip.headers))
    sip.headers[index] = (sip.headers[index][0], rng.choice(WORDS))


def splice(rng: random.Random, sip: Sip) -> None:
    index = rng.randrange(len(sip.headers))
    name, value = sip.headers[index]
    at = rng.randint(0, len(value))
    sip.headers[index] = (name, value[:at] + rng.choice(WORDS) + value[at + rng.randint(0, 3) :])


def via(rng: random.Random, sip: Sip) -> None:
    branch = rng.choice(("z9hG4bK", "", "1", "z9hG4bK" + "b" * 500, "z9hG4bK\xff", f"z9hG4bK{rng.random()}"))
    host = rng.choice(
        ("127.0.0.1:9", "[::1]:5060", "nowhere.invalid", "127.0.0.1:0", "127.0.0.1:99999", "", "127.255.255.255", "a b")
    )
    value = rng.choice(
        (
            f"SIP/2.0/UDP {host};branch={branch}", f"SIP/2.0/TLS {host};rport;branch={branch}",
            f"SIP/3.0/UDP {host};branch={branch}", f"SIP / 2.0 / UDP {host} ;branch = {branch}",
            f"SIP/2.0/UDP {host};received=1.2.3;rport=abc;branch={branch}",
            f"SIP/2.0/UDP {host};maddr=127.0.0.2;ttl=300",
            f"SIP/2.0/UDP {host};branch={branch};branch={branch}", f"SIP/2.0/UNKNOWN {host};branch={branch}",
        )
    )  # fmt: skip
    if rng.random() < 0.5:
        sip.put("Via", value)
    else:
        for _ in range(rng.choice((1, 5, 70))):
            sip.headers.append(("Via", value))


def address(rng: random.Random, sip: Sip) -> None:
    value = rng.choice(
        (
            "*", "<>", "<sip:>", "<sip:x@>", "<sip:x@[::1]:9>", "<sip:x@nowhere.invalid;transport=tls>",
            "<tel:+4930123>",
            "<sips:x@127.0.0.1:9>", "<sip:x@127.0.0.1;lr;lr=1;maddr=127.0.0.1>", '"\\"" <sip:x@127.0.0.1:9>',
            '"open <sip:x@y>',
            "sip:x@127.0.0.1:9;transport=tcp", "<sip:x@127.0.0.1?Replaces=a%3Bb&X=%00>", "<http://127.0.0.1/>",
            "<sip:%00%ff@127.0.0.1:9>", "<sip:x@127.0.0.1:9>, <sip:y@127.0.0.1:9>",
            "<sip:" + "u" * 2000 + "@127.0.0.1:9>", f"<sip:x@{'h' * rng.choice((242, 243, 254, 300))}>",
            "<sip:x@[]>", "<sip:127.0.0.1:9;hide>", "<sip:x@nowhere.invalid;tr%61nsport=sctp>",
            f"<sip:x@127.0.0.1:{rng.choice(LIMITS)}>;tag={rng.choice(WORDS)}", "<sip:x@127.0.0.1:9>;tag=;tag=2",
        )
    )  # fmt: skip
    name = rng.choice(("Contact", "From", "To", "Route", "Record-Route", "Reply-To", "Refer-To", "Referred-By", "Path"))
    if name in ("Route", "Record-Route"):
        for _ in range(rng.choice((1, 1, 3, 40))):
            sip.add(rng, name, value)
    else:
        sip.put(name, value)


def timers(rng: random.Random, sip: Sip) -> None:
    """RFC 4028."""
    sip.add(
        rng, "Session-Expires", f"{rng.choice(('90', '1', *LIMITS))};refresher={rng.choice(('uac', 'uas', 'x', ''))}"
    )
    sip.add(rng, "Min-SE", rng.choice(LIMITS))
    sip.add(rng, rng.choice(("Supported", "Require")), "timer")


def reliable(rng: random.Random, sip: Sip) -> None:
    """RFC 3262."""
    sip.add(rng, rng.choice(("Supported", "Require")), rng.choice(("100rel", "100rel,timer", "100rel,,", "100REL")))
    if rng.random() < 0.5:
        sip.put("RAck", f"{rng.choice(LIMITS)} {rng.choice(LIMITS)} {rng.choice(METHODS)}")


def options_tags(rng: random.Random, sip: Sip) -> None:
    name = rng.choice(("Require", "Proxy-Require", "Supported", "Unsupported", "Allow", "Accept", "Accept-Encoding"))
    value = rng.choice(("nothingSupportsThis", "replaces", "100rel, x" * 50, ",", "precondition", "*/*;q=9", *WORDS))
    sip.add(rng, name, value)


def tags(rng: random.Random, sip: Sip) -> None:
    name = rng.choice(("From", "To"))
    bare = sip.value(name).partition(";tag=")[0]
    sip.put(name, rng.choice((bare, bare + ";tag=", bare + ";tag=other", f"{bare};tag={rng.choice(WORDS)};tag=2")))


def identity(rng: random.Random, sip: Sip) -> None:
    name, value = rng.choice(
        (
            ("Authorization", 'Digest username="a", realm="b", nonce="c", uri="d", response="' + "e" * 400 + '"'),
            ("Authorization", rng.choice(("Digest", "Digest ,,", "NoOneKnowsThisScheme opaque=x",
            "Digest nc=-1, qop=", "\xff"))),
            ("Proxy-Authorization", 'Digest username="\\", realm'), ("Authorization", "Digest " + "a=b, " * 500),
            ("Replaces", f"{rng.choice(WORDS)};to-tag={rng.choice(WORDS)};from-tag=;early-only"), ("Join",
            "a;to-tag=b"),
            ("Event", f"{rng.choice(('presence', 'refer', 'dialog', ''))};id={rng.choice(LIMITS)}"),
            ("Subscription-State", rng.choice(("active;expires=-1", "terminated;reason=", "", "pending"))),
            ("Reason", f"SIP;cause={rng.choice(LIMITS)};text={rng.choice(WORDS)}"), ("Date",
            "Fri, 99 Foo 0000 25:61:61 CET"),
            ("Warning", "399 a b, 9999 c"), ("Alert-Info", "<http://127.0.0.1/>"), ("In-Reply-To", ","),
            ("Content-Encoding", "gzip"), ("Content-Disposition", rng.choice(("render;handling=required",
            "x;handling=", ""))),
            ("Call-ID", rng.choice((*WORDS, "c" * 4000))), ("User-Agent", rng.choice(WORDS)), ("X-\xff", "y"),
        )
    )  # fmt: skip
    sip.put(name, value)


def content_type(rng: random.Random, sip: Sip) -> None:
    boundary = rng.choice(("b", "", "b b", '"b"', "x" * 300))
    sip.put(
        "Content-Type",
        rng.choice(
            (f"multipart/mixed;boundary={boundary}", "application/", "/", "application/sdp;charset=", "text/plain",
             "application/dtmf-relay", "message/sip", "message/sipfrag", "application/x\0y",
             "application/sdp, text/plain")
        ),
    )  # fmt: skip
    if rng.random() < 0.7:
        part = f"--{boundary}\r\nContent-Type: application/sdp\r\n\r\n{sip.body}\r\n"
        sip.body = part * rng.choice((1, 2, 30)) + rng.choice((f"--{boundary}--\r\n", "", f"--{boundary}"))


def content_length(rng: random.Random, sip: Sip) -> None:
    length = len(sip.body)
    sip.put("Content-Length", rng.choice((str(length + 1), str(max(0, length - 1)), "0", str(length * 2), *LIMITS)))


def start_line(rng: random.Random, sip: Sip) -> None:
    method, _, rest = sip.start.partition(" ")
    uri, _, version = rest.partition(" ")
    sip.start = rng.choice(
        (
            f"{rng.choice(METHODS)} {rest}",
            f"{method} {uri} {rng.choice(('SIP/7.0', 'sip/2.0', 'HTTP/1.1', '', 'SIP/2.0 '))}",
            f"{method}  {uri} {version}", f"{method} <{uri}> {version}", f"{method} {uri}{rng.choice(WORDS)} {version}",
            f"{method} {rng.choice(WORDS)} {version}", sip.start + " ", "", f"{method} {uri}",
            f"SIP/2.0 {rng.choice(LIMITS)} x",
            f"{method} {uri.replace('sip:', rng.choice(('sips:', 'tel:', 'soap.beep:', 'SIP:', '')))} {version}",
            f"SIP/2.0 {rng.choice((99, 100, 183, 200, 302, 401, 407, 422, 481, 503, 699, 700))} {rng.choice(WORDS)}",
        )
    )  # fmt: skip


def writing(rng: random.Random, sip: Sip) -> None:
    """The same in other letters: compact, folded, spaced; mostly legal (RFC 3261 §7.3)."""
    match rng.randrange(5):
        case 0:
            sip.headers = [(COMPACT.get(name, name), value) for name, value in sip.headers]
        case 1:
            sip.headers = [(name + " \t", value.replace(" ", "\r\n\t ")) for name, value in sip.headers]
        case 2:
            sip.headers = [(rng.choice((name.upper(), name.lower())), value) for name, value in sip.headers]
        case 3:
            sip.line_end = rng.choice(("\n", "\r", "\r\n\r", "\r\r\n"))
        case _:
            rng.shuffle(sip.headers)


MUTATIONS: Final[Sequence[Mutation]] = (
    duplicate_header, drop_header, exchange_values, giant, number, number, word, splice, splice, via, address,
    address, timers,
    reliable, options_tags, tags, identity, identity, content_type, content_length, start_line, writing,
)  # fmt: skip


def mutate(rng: random.Random, sip: Sip, own: Sequence[Mutation] = ()) -> str:
    """Change ``sip`` in one to three ways; ``own`` are preferred where given. Returns the names of the ways."""
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(own if own and rng.random() < 0.6 else MUTATIONS)
        change(rng, sip)
        names.append(change.__name__)
    return "+".join(names)


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Now and then damage the bytes as well: flip, cut, repeat, insert."""
    if rng.random() > 0.1 or not data:
        return data
    raw = bytearray(data)
    match rng.randrange(4):
        case 0:
            for _ in range(rng.choice((1, 8, 200))):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        case 1:
            del raw[rng.randrange(len(raw)) :]
        case 2:
            at = rng.randrange(len(raw))
            raw[at:at] = raw[at : at + rng.randint(1, 400)]
        case _:
            at = rng.randrange(len(raw))
            raw[at:at] = rng.randbytes(rng.randint(1, 64))
    return bytes(raw)
