"""Which call the RTCP that a capture server gets belongs to; PJSIP is not there."""

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cc_tts.config import load as config
from cc_tts.ua import messages
from cc_tts.ua.client import settings_of
from cc_tts.ua.trace.tracer import SipTracer
from tests.fakes.fake_line import FakeClock
from tests.support.hep_decoder import decode

pytestmark = pytest.mark.unit

RECEIVER_REPORT = struct.pack("!BBHI", 0x80, 201, 1, 4711)
ADDRESSES = ("192.0.2.1:4001", "198.51.100.7:5001")


def leg(sip_call_id: str, stream: int) -> Any:
    media = SimpleNamespace(stream=stream, latest_stream=stream, rtcp_addresses=ADDRESSES)
    return SimpleNamespace(dialog=(sip_call_id, "tag"), media=media)


def settings_with(hep: str) -> messages.UaSettings:
    return settings_of(config.load(overrides=[f"sip.hep={hep}", "sip.trace_messages=0"]))[0]


class Bench:
    """A tracer, and the calls whose reports of RTCP the capture server has got."""

    def __init__(self, homer: socket.socket) -> None:
        self._homer = homer
        self.legs: dict[str, Any] = {}
        library: Any = SimpleNamespace(register_module=lambda *_, **__: None)
        settings = settings_with(f"udp:127.0.0.1:{homer.getsockname()[1]}")
        self.tracer = SipTracer(settings, library, FakeClock(), self.legs, lambda _: None)

    def call_of(self, stream: int) -> str:
        self.tracer.on_rtcp(stream, RECEIVER_REPORT, True)
        self.tracer.tick()
        return decode(self._homer.recv(65_535)).text("correlation_id")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as homer:
        homer.bind(("127.0.0.1", 0))
        homer.settimeout(30)
        bench = Bench(homer)
        yield bench
        bench.tracer.reload(settings_with(""))


def test_the_last_report_of_a_stream_is_of_its_call(bench: Bench) -> None:
    bench.legs["call_1"] = leg("first", 0x1000)
    assert bench.call_of(0x1000) == "first"
    bench.legs["call_1"].media.stream = 0
    assert bench.call_of(0x1000) == "first"


@pytest.mark.parametrize("before", ["call_1", "call_3"])
def test_a_stream_at_the_address_of_one_that_has_ended_is_of_another_call(bench: Bench, before: str) -> None:
    held = leg("held", 0x1000)
    bench.legs |= {"call_1": held} if before == "call_1" else {}
    bench.legs["call_2"] = leg("new", 0x2000)
    bench.legs |= {"call_3": held} if before == "call_3" else {}
    assert bench.call_of(0x1000) == "held"
    held.media.stream = 0
    bench.legs["call_2"].media.stream = bench.legs["call_2"].media.latest_stream = 0x1000
    assert bench.call_of(0x1000) == "new"
