"""Which transport a call goes over."""

import pytest

from cc_tts.ua.guard.limits import PeerList
from cc_tts.ua.sip.uri import fault_of_target, is_trusted_target, may_redirect, with_transport

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("uri", "transports", "sent"),
    [
        ("sip:a@h", ("udp", "tcp", "tls"), "sip:a@h"),
        ("sip:a@h", ("tls",), "sip:a@h;transport=tls"),
        ("sip:a@h:5061", ("tcp", "tls"), "sip:a@h:5061;transport=tls"),
        ("sip:a@h", ("tcp",), "sip:a@h;transport=tcp"),
        ("sip:a@h;x=1", ("tls",), "sip:a@h;x=1;transport=tls"),
        ("sip:a@h;Transport=TCP", ("tls",), "sip:a@h;Transport=TCP"),
        ("sips:a@h", ("tls",), "sips:a@h"),
        ("SIPS:a@h", ("tls",), "SIPS:a@h"),
    ],
)
def test_a_transport_that_is_served(uri: str, transports: tuple[str, ...], sent: str) -> None:
    assert with_transport(uri, transports) == sent


BOTH = ("udp", "tcp")


@pytest.mark.parametrize(
    ("uri", "transports", "said"),
    [
        ("sip:a@h", BOTH, ""),
        ("sip:a@10.0.0.1:5080;transport=TCP;lr", BOTH, ""),
        ("sips:a@h", ("tls",), ""),
        ("sip:a@h;transport=tls", ("udp", "tls"), ""),
        ("sips:a@h", BOTH, "needs TLS"),
        ("SIPS:a@h", BOTH, "needs TLS"),
        ("sip:a@h;transport=tls", BOTH, "no transport 'tls'"),
        ("sip:a@h;Transport=ws", BOTH, "no transport 'ws'"),
        ("sip:a@h;tr%61nsport=s%63tp", BOTH, "no transport 'sctp'"),
        ("sip:a@h;transport=tcp", ("udp",), "no transport 'tcp'"),
        ("sip:a@[2001:db8::1]:5060", BOTH, "IPv4 only"),
        ("sip:[::1]", BOTH, "IPv4 only"),
        ("sip:a@h;maddr=[::1]", BOTH, "IPv4 only"),
        ("tel:+49", BOTH, "write a sip"),
    ],
)
def test_targets_that_cannot_be_reached(uri: str, transports: tuple[str, ...], said: str) -> None:
    fault = fault_of_target(uri, transports)
    assert said in fault
    assert bool(said) == bool(fault)


@pytest.mark.parametrize(
    ("uri", "trusted"),
    [
        ("sip:a@10.0.0.7:5080", True),
        ("sip:10.0.0.7", True),
        ("sip:a@11.0.0.7", False),
        ("sip:a@10.0.0.7;maddr=11.0.0.7", False),
        ("sip:10.0.0.7@11.0.0.7", False),
        ("sip:a@PBX.example.com", True),
        ("sip:a@other.example.com", False),
        ("tel:+49", False),
    ],
)
@pytest.mark.parametrize("registrar", ["pbx.example.com", "sips:pbx.example.com:5061;transport=tls"])
def test_identities_are_asserted_to_trusted_peers_and_to_the_registrar(
    uri: str, registrar: str, *, trusted: bool
) -> None:
    assert is_trusted_target(uri, peers=PeerList(("10.0.0.0/8",)), registrar=registrar) is trusted
    assert not is_trusted_target("sip:a@", peers=PeerList(()), registrar="")


@pytest.mark.parametrize(
    ("first", "target", "transports", "may"),
    [
        ("sip:a@h", "sip:b@i", BOTH, True),
        ("sip:a@h", "sips:b@i", ("udp", "tls"), True),
        ("sips:a@h", "sip:b@i;transport=tls", ("udp", "tls"), False),
        ("sip:a@h", "sip:b@i?X-A=1", BOTH, False),
        ("sip:a@h", "sip:b@[::1]", BOTH, False),
        ("sip:a@h", "sip:b@i", ("tcp",), False),
        ("sip:a@h", "tel:+49", BOTH, False),
    ],
)
def test_where_a_call_may_be_redirected(first: str, target: str, transports: tuple[str, ...], *, may: bool) -> None:
    assert may_redirect(first, target, transports) is may
