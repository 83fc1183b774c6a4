"""Sessions: what another offer changes while a text is spoken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import LogConfig, SipConfig, TlsConfig
from cc_tts.config.sections.mrcp import MrcpConfig
from cc_tts.mrcp.control.connections import Control
from cc_tts.mrcp.control.message import Request
from cc_tts.mrcp.messages import MrcpSettings, OpenSpeech, SpeechTaken
from cc_tts.mrcp.mrcp_calls import ControlPorts, MrcpCall, MrcpCalls
from cc_tts.mrcp.sip.server import Refusal
from cc_tts.processes.channel import Message
from lab.ports import free_ports

pytestmark = pytest.mark.unit

HEAD = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
CONTROL = "m=application 9 TCP/MRCPv2 1\r\na=setup:active\r\na=resource:speechsynth\r\na=cmid:1\r\n"
PCMU = "m=audio 4000 RTP/AVP 0\r\na=recvonly\r\na=mid:1\r\n"
WIDE = "m=audio 4000 RTP/AVP 97\r\na=rtpmap:97 L16/16000\r\na=recvonly\r\na=mid:1\r\n"
NONE = "m=audio 0 RTP/AVP 0\r\na=mid:1\r\n"


class FakeDialog:
    """A dialog over which nothing is sent."""

    call_id = "c1"
    flow = type("Flow", (), {"peer": ("127.0.0.1", 5070), "local_host": "127.0.0.1"})()


class Bench:
    def __init__(self) -> None:
        first = free_ports(4)
        config = MrcpConfig(enabled=True, rtp_port_min=first, rtp_port_max=first + 3)
        settings = MrcpSettings(log=LogConfig(), sip=SipConfig(), tls=TlsConfig(), mrcp=config)
        self.told: list[Message] = []
        self.calls = MrcpCalls(
            settings, Control(lambda _host: True), MonotonicClock(), lambda message, _payload: self.told.append(message)
        )
        self.calls.control_ports = ControlPorts(plain=1544)
        self.call, _ = self.calls.begin(HEAD + CONTROL + PCMU, cast("Any", FakeDialog()))

    def ask(self, method: str, body: bytes = b"", **headers: str) -> None:
        assert self.call.synthesizer is not None
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self.call.synthesizer.handle(Request(method, 1 + len(self.told), named, body))

    def speak(self) -> None:
        self.ask("SPEAK", b"Hello.", Content_Type="text/plain")
        (opened,) = [each for each in self.told if isinstance(each, OpenSpeech)]
        self.calls.take(SpeechTaken(opened.speech_id), b"")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    yield found
    found.call.end("hangup")
    await asyncio.sleep(0.05)  # the media clock sees that nothing plays


def status_of(call: MrcpCall, audio: str) -> int:
    """Offer this; 200 if it is taken."""
    try:
        call.modify(HEAD + CONTROL + audio)
    except Refusal as refusal:
        return refusal.status
    return 200


async def test_audio_that_was_taken_away_comes_back_while_a_text_is_spoken(bench: Bench) -> None:
    bench.speak()
    assert status_of(bench.call, NONE) == 200
    assert status_of(bench.call, PCMU) == 200


async def test_the_sample_rate_stays_until_the_last_text_is_over(bench: Bench) -> None:
    bench.speak()
    assert status_of(bench.call, WIDE) == 488
    bench.ask("CONTROL", Jump_Size="+1 Second")  # nothing plays until the server has answered
    assert status_of(bench.call, WIDE) == 488
    bench.ask("STOP")
    assert status_of(bench.call, WIDE) == 200
