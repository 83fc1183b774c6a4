"""Sessions: what another offer changes while a text is spoken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import SipConfig, TlsConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.mrcp import MrcpConfig
from cc_tts.mrcp.control.connections import Control
from cc_tts.mrcp.control.message import Request
from cc_tts.mrcp.messages import MrcpSettings, OpenSpeech, Taken
from cc_tts.mrcp.mrcp_calls import MrcpCall, MrcpCalls
from cc_tts.mrcp.sip.request import SipRefusal
from cc_tts.processes.channel import Message
from lab.ports import free_ports
from tests.support.captured_logs import capture_logs
from tests.support.mrcp_client import channel_of, ports_of

pytestmark = pytest.mark.unit

HEAD = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
CONTROL = "m=application 9 TCP/MRCPv2 1\r\na=setup:active\r\na=resource:speechsynth\r\na=cmid:1\r\n"
PCMU = "m=audio 4000 RTP/AVP 0\r\na=recvonly\r\na=mid:1\r\n"
WIDE = "m=audio 4000 RTP/AVP 97\r\na=rtpmap:97 L16/16000\r\na=recvonly\r\na=mid:1\r\n"
NONE = "m=audio 0 RTP/AVP 0\r\na=mid:1\r\n"
TAKEN_AWAY = (
    "m=application 0 TCP/MRCPv2 1\r\na=resource:speechsynth\r\na=cmid:1\r\nm=audio 0 RTP/AVP 19\r\na=mid:1\r\n"
    "m=application 0 TCP/MRCPv2 1\r\na=resource:speechrecog\r\na=cmid:2\r\nm=audio 0 RTP/AVP 19\r\na=mid:0\r\n"
)
ADDED = (
    "m=application 9 TCP/MRCPv2 1\r\na=setup:active\r\na=connection:existing\r\na=resource:speechsynth\r\na=cmid:3\r\n"
    "m=audio 4008 RTP/AVP 0 8 9 96 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:9 G722/8000\r\na=rtpmap:96 L16/8000\r\n"
    "a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=recvonly\r\na=ptime:20\r\na=mid:3\r\n"
)
"""UniMRCP 1.8.0 writes so when its application removes its channels, and adds one later."""


class FakeDialog:
    call_id = "c1"
    modify: Any = None
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
        self.calls.control_ports = {False: 1544, True: 0}
        dialog = FakeDialog()
        self.calls.begin(HEAD + CONTROL + PCMU, cast("Any", dialog))
        self.call: MrcpCall = dialog.modify.__self__

    def ask(self, method: str, body: bytes = b"", **headers: str) -> None:
        assert self.call.synthesizer is not None
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self.call.synthesizer.handle(Request(method, 1 + len(self.told), named, body))

    def speak(self) -> None:
        self.ask("SPEAK", b"Hello.", Content_Type="text/plain")
        (opened,) = [each for each in self.told if isinstance(each, OpenSpeech)]
        self.calls.take(Taken(opened.speech_id), b"")


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
    except SipRefusal as refusal:
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


async def test_a_synthesiser_that_comes_back_has_the_channel_of_before_which_unimrcp_writes_for_all_of_a_session(
    bench: Bench,
) -> None:
    before = bench.call.channel_id
    assert ports_of(bench.call.modify(HEAD + TAKEN_AWAY)) == [0, 0, 0, 0]
    answer = bench.call.modify(HEAD + TAKEN_AWAY + ADDED)
    assert ports_of(answer) == [0, 0, 0, 0, 1544, bench.call.line.port]
    assert channel_of(answer) == before


async def test_a_recogniser_that_is_refused_names_the_session_of_a_synthesiser_that_comes_later(bench: Bench) -> None:
    recogniser = CONTROL.replace("speechsynth", "speechrecog")
    session, _, resource = channel_of(bench.call.modify(HEAD + recogniser + PCMU)).partition("@")
    assert resource == "speechrecog"
    answer = bench.call.modify(HEAD + recogniser + NONE + ADDED)
    assert ports_of(answer)[:3] == [0, 0, 1544]
    assert f"a=channel:{session}@speechsynth\r\n" in answer


async def test_a_session_that_there_is_no_place_for_is_refused_until_later_and_logged(bench: Bench) -> None:
    bench.calls.is_accepting = False
    with capture_logs() as lines, pytest.raises(SipRefusal) as refusal:
        bench.calls.begin(HEAD + CONTROL + PCMU, cast("Any", FakeDialog()))
    assert (refusal.value.status, dict(refusal.value.headers)) == (503, {"Retry-After": "5"})
    assert [(each["event"], each["reason"], each["sip_call_id"]) for each in lines] == [
        ("mrcp_session_refused", "Draining", "c1")
    ]
