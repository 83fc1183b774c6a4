"""Which transport a call goes over."""

import pytest

from cc_tts.ua.sip_uri import with_transport

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
