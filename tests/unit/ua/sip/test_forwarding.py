"""What the dispatcher writes into requests and takes out of responses."""

import time

import pytest

from cc_tts.ua.sip import forwarding

pytestmark = pytest.mark.unit

SOURCE = ("192.0.2.7", 40000)
VIA = ("127.0.0.1", 5060)


def request(via: str, *, method: str = "INVITE", headers: str = "") -> bytes:
    return (
        f"{method} sip:greet@192.0.2.1 SIP/2.0\r\n{headers}{via}\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:greet@192.0.2.1>\r\n"
        f"Call-ID: one\r\nCSeq: 7 {method}\r\nContent-Length: 4\r\n\r\nbody"
    ).encode()


def response_to(forwarded: bytes) -> bytes:
    """As PJSIP writes it: it adds received and rport to the first Via and puts its parameters in an order of its own."""
    lines = forwarded.split(b"\r\n")
    vias = [line for line in lines if line.lower().startswith((b"via", b"v:"))]
    address, _, parameters = vias[0].partition(b";")
    return b"\r\n".join([b"SIP/2.0 200 OK", address + b";received=127.0.0.1;" + parameters, *vias[1:], b"", b""])


def forwarded_by(via: str, *, method: str = "INVITE", source: tuple[str, int] = SOURCE) -> bytes:
    forwarded = forwarding.forwarded(request(via, method=method), source, VIA)
    assert forwarded is not None
    return forwarded


def branch_of(message: bytes) -> bytes:
    return message.split(b";branch=", 1)[1].split(b";", 1)[0]


def test_a_response_goes_back_to_where_the_request_came_from() -> None:
    forwarded = forwarded_by("Via: SIP/2.0/UDP 10.0.0.1:5080;branch=z9hG4bKx;rport")
    assert forwarded.endswith(b"\r\n\r\nbody")
    assert forwarding.source_of(forwarded.decode()) == SOURCE[0]
    returned = forwarding.returned(response_to(forwarded))
    assert returned is not None
    assert returned[1] == SOURCE
    assert returned[0].count(b"Via:") == 1
    assert b"Via: SIP/2.0/UDP 10.0.0.1:5080;branch=z9hG4bKx;rport=40000;received=192.0.2.7\r\n" in returned[0]


@pytest.mark.parametrize(
    ("via", "port"),
    [
        ("Via: SIP/2.0/UDP 10.0.0.1:5080;branch=z9hG4bKx", 5080),
        ("v:SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKx", 5060),
        ("VIA : SIP / 2.0\r\n /UDP\r\n   10.0.0.1 : 5090;branch=390skdjuw", 5090),
        ("Via: SIP/2.0/UDP 10.0.0.1:99999;branch=z9hG4bKx", 40000),
        ("Via: SIP/2.0/UDP 10.0.0.1:5080;rport;branch=z9hG4bKx, SIP/2.0/UDP 10.0.0.2:5081;branch=z9hG4bKy", 40000),
    ],
)
def test_without_rport_a_response_goes_to_the_port_of_the_via(via: str, port: int) -> None:
    returned = forwarding.returned(response_to(forwarded_by(via)))
    assert returned is not None
    assert returned[1] == (SOURCE[0], port)


def test_what_a_client_claims_of_its_source_is_replaced() -> None:
    forwarded = forwarded_by("Via: SIP/2.0/UDP 10.0.0.1;received=127.0.0.1;rport=1;branch=z9hG4bKx")
    assert b"received=127.0.0.1" not in forwarded
    assert forwarded.count(b";received=192.0.2.7") == 1
    assert b";rport=40000;" in forwarded
    forged = f"Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKx;{forwarding.SOURCE}=127.0.0.1;{forwarding.PORT}=9"
    assert forwarding.source_of(forwarded_by(forged).decode()) == SOURCE[0]


def test_a_via_of_ours_counts_in_the_first_place_only() -> None:
    ours = f"Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKx;{forwarding.SOURCE}=127.0.0.1;{forwarding.PORT}=9"
    below = request(ours, headers="Via: SIP/2.0/UDP 10.0.0.1\r\n").decode()
    assert forwarding.source_of(below) == ""
    assert forwarding.source_of(request("From: x").decode()) == ""


def test_the_branch_is_that_of_the_transaction() -> None:
    via = "Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKx"
    same = {branch_of(forwarded_by(via, method=method)) for method in ("INVITE", "INVITE", "CANCEL", "ACK")}
    other, elsewhere = forwarded_by(via.replace("bKx", "bKy")), forwarded_by(via, source=("192.0.2.8", 5060))
    assert (len(same), len({*same, branch_of(other), branch_of(elsewhere)})) == (1, 3)


def test_without_a_via_nothing_can_be_answered() -> None:
    without = request("Subject: none")
    assert forwarding.forwarded(without, SOURCE, VIA) is None
    assert forwarding.refusal(without, SOURCE, retry_after_s=5) is None
    assert forwarding.returned(without) is None
    assert forwarding.forwarded(b"Via: SIP/2.0/UDP x", SOURCE, VIA) is None, "what begins with a Via is no request"


def test_a_refusal_is_a_whole_response() -> None:
    via = "Via: SIP/2.0/UDP 10.0.0.1:5080;branch=z9hG4bKx, SIP/2.0/UDP 10.0.0.2"
    refused = forwarding.refusal(request(via, headers="Via: SIP/2.0/UDP 10.0.0.0;rport\r\n"), SOURCE, retry_after_s=5)
    assert refused is not None
    text, target = refused
    assert target == SOURCE
    head, _, body = text.decode().partition("\r\n\r\n")
    assert body == ""
    lines = head.split("\r\n")
    assert lines[0] == "SIP/2.0 503 Service Unavailable"
    assert lines[1:3] == ["Via: SIP/2.0/UDP 10.0.0.0;rport=40000;received=192.0.2.7", via]
    assert {"Call-ID: one", "CSeq: 7 INVITE", "Retry-After: 5", "Content-Length: 0"} < set(lines)
    (to,) = (line for line in lines if line.startswith("To:"))
    assert ";tag=" in to
    folded = "Via: SIP/2.0/UDP 10.0.0.1:5080\r\n ;branch=z9hG4bKx"
    refused = forwarding.refusal(request(folded, headers="t:\r\n <sip:b@c>\r\n"), SOURCE, retry_after_s=5)
    assert refused is not None
    assert b"\r\nVia: SIP/2.0/UDP 10.0.0.1:5080\r\n ;branch=z9hG4bKx;received=192.0.2.7\r\n" in refused[0]
    assert b"\r\nt:\r\n <sip:b@c>;tag=" in refused[0]
    assert forwarding.refusal(request(via.replace(";", ";rport;", 1)), SOURCE, retry_after_s=5) is not None


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.7", "65536"), ("192.0.2.7", "9" * 30), ("192.0.2", "5060"), ("x", "1")]
)
def test_a_response_that_leads_to_no_address_is_dropped(host: str, port: str) -> None:
    via = f"Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKx;{forwarding.SOURCE}={host};{forwarding.PORT}={port}"
    assert forwarding.returned(f"SIP/2.0 200 OK\r\n{via}\r\n\r\n".encode()) is None


@pytest.mark.parametrize("filler", [" ", "\t", ";", "; ", ";rport ", ";received ", "a"])
def test_a_large_datagram_takes_no_longer_for_what_it_is_made_of(filler: str) -> None:
    datagram = request("Via: SIP/2.0/UDP x" + filler * (60_000 // len(filler)) + "x")
    begin_s = time.process_time()
    forwarding.forwarded(datagram, SOURCE, VIA)
    forwarding.refusal(datagram, SOURCE, retry_after_s=5)
    assert time.process_time() - begin_s < 1, "20 ms at most; it was 5 s for spaces"
