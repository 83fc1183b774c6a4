"""HEPv3 as an independent decoder reads it, and RTCP as JSON."""

import json
import struct
from typing import Any

import pytest

from cc_tts.config.sections.hep import hep_address
from cc_tts.errors import ConfigError
from cc_tts.ua.trace import hep
from cc_tts.ua.trace.rtcp import as_json
from tests.support.hep_decoder import decode

pytestmark = pytest.mark.unit

ONE: dict[str, Any] = {
    "kind": hep.SIP,
    "transport": "tls",
    "source": ("192.0.2.1", 5061),
    "target": ("198.51.100.2", 40_000),
    "at_ns": 1_700_000_000_123_456_789,
    "capture_id": 0xFFFF_FFFF,
    "correlation_id": "a84b4c76@pc33",
}


def test_a_message_is_read_as_it_was_written() -> None:
    packet = hep.packet(b"INVITE sip:a@b SIP/2.0\r\n\r\n", **ONE)
    assert packet is not None
    assert decode(packet).chunks == {
        "family": 2,
        "protocol": 6,
        "source": "192.0.2.1",
        "target": "198.51.100.2",
        "source_port": 5061,
        "target_port": 40_000,
        "seconds": 1_700_000_000,
        "microseconds": 123_456,
        "kind": 1,
        "capture_id": 0xFFFF_FFFF,
        "correlation_id": "a84b4c76@pc33",
        "payload": b"INVITE sip:a@b SIP/2.0\r\n\r\n",
    }


def test_figures_are_chunks() -> None:
    packet = hep.packet(b"{}", **ONE | {"kind": hep.QUALITY, "transport": "udp"}, mos=4.38, jitter_ms=12.6)
    assert packet is not None
    found = decode(packet)
    assert (found.number("kind"), found.number("protocol")) == (35, 17)
    assert (found.number("mos"), found.number("jitter")) == (438, 13)


@pytest.mark.parametrize("target", ["2001:db8::2", "192.0.2.7"])
def test_ipv6(target: str) -> None:
    packet = hep.packet(b"x", **ONE | {"source": ("2001:db8::1", 5060), "target": (target, 5060)})
    assert packet is not None
    found = decode(packet)
    assert (found.number("family"), found.text("source")) == (10, "2001:db8::1")
    assert found.text("target") == (target if ":" in target else f"::ffff:{target}")


def test_what_does_not_fit_into_a_datagram_is_no_packet() -> None:
    assert hep.packet(b"x" * 64_000, **ONE) is not None
    assert hep.packet(b"x" * 65_500, **ONE) is None
    assert hep.packet(b"x" * 100_000, **ONE) is None


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="pbx"):
        hep.packet(b"x", **ONE | {"source": ("pbx", 5060)})


SR = bytes.fromhex("81c80012 00000001") + struct.pack("!5I", 2, 3, 4, 5, 6)
BLOCK = struct.pack("!6I", 7, (64 << 24) | 0xFFFFFF, 9, 10, 11, 12)


def test_a_sender_report() -> None:
    report = as_json(SR + BLOCK + b"\x81\xca\0\0")
    assert report is not None
    assert json.loads(report) == {
        "type": 200,
        "ssrc": 1,
        "report_count": 1,
        "sender_information": {
            "ntp_timestamp_sec": 2,
            "ntp_timestamp_usec": 3,
            "rtp_timestamp": 4,
            "packets": 5,
            "octets": 6,
        },
        "report_blocks": [
            {
                "source_ssrc": 7,
                "fraction_lost": 64,
                "packets_lost": -1,
                "highest_seq_no": 9,
                "ia_jitter": 10,
                "lsr": 11,
                "dlsr": 12,
            }
        ],
    }


def test_a_receiver_report() -> None:
    report = as_json(bytes.fromhex("81c90007 00000001") + BLOCK)
    assert report is not None
    assert (json.loads(report)["type"], len(json.loads(report)["report_blocks"])) == (201, 1)


@pytest.mark.parametrize("packet", [b"", b"\x80", SR, SR + BLOCK[:-1], b"\x81\xcb\0\1\0\0\0\1", bytes(100)])
def test_what_is_no_report(packet: bytes) -> None:
    assert as_json(packet) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [("", None), ("udp:homer:9060", ("homer", 9060)), ("udp:[2001:db8::1]:1", ("2001:db8::1", 1))],
)
def test_addresses_of_capture_servers(text: str, address: tuple[str, int] | None) -> None:
    assert hep_address(text) == address


@pytest.mark.parametrize(
    "text", ["homer:9060", "tcp:homer:9060", "udp:homer", "udp:homer:0", "udp:homer:70000", "udp::1"]
)
def test_what_is_no_address_of_a_capture_server(text: str) -> None:
    with pytest.raises(ConfigError, match="udp:HOST:PORT"):
        hep_address(text)
