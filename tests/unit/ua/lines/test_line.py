"""One line, with a connection that remembers what it was asked for."""

import pytest

from cc_tts.config.schema import Config, RtpConfig
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.media.quality import Levels
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.client import settings_of_lines
from cc_tts.ua.lines.invite import incoming_call
from cc_tts.ua.lines.line import Line
from cc_tts.ua.lines.playout import QueueSink
from cc_tts.ua.quality.level_meter import LOOK_MS
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

INACTIVE_S = 10


class FakeLink:
    """Asterisk takes everything and says nothing."""

    transport = "asterisk_ws"
    encoding = "PCMU"
    queue: QueueSink | None = None

    def __init__(self) -> None:
        self.is_up = True

    def answer(self) -> None: ...

    def send(self, pcm: bytes) -> None: ...

    def hang_up(self) -> None:
        self.is_up = False


def invite_with(variables: dict[str, str]) -> messages.IncomingCall:
    return incoming_call(
        "call_1",
        channel_id="1700000000.7",
        source="127.0.0.1",
        transport="asterisk_ws",
        default_route="asterisk",
        variables=variables,
        parameters={},
    )


def line_of(clock: FakeClock, told: list[Message]) -> Line:
    config = Config(asterisk=AsteriskConfig(websocket_port=9091), rtp=RtpConfig(inactivity_timeout_s=INACTIVE_S))
    settings = settings_of_lines(config)
    assert settings is not None
    return Line(FakeLink(), invite_with({}), settings, clock=clock, send=told.append, on_over=lambda _line: None)


def ends(told: list[Message]) -> list[str]:
    return [each.ended_by for each in told if isinstance(each, messages.CallEnded)]


def test_a_caller_who_was_silent_before_a_late_answer_is_not_gone() -> None:
    clock, told = FakeClock(), list[Message]()
    line = line_of(clock, told)
    clock.advance(3 * INACTIVE_S * 1000)
    line.command(messages.Answer(call_id="call_1"))
    line.watch(clock.now_ns())
    assert ends(told) == []
    clock.advance(INACTIVE_S * 1000 + 1)
    line.watch(clock.now_ns())
    assert ends(told) == ["rtp_inactivity"]


def test_how_loud_a_line_is_while_somebody_looks() -> None:
    clock, told = FakeClock(), list[Message]()
    line = line_of(clock, told)
    line.command(messages.Answer(call_id="call_1"))

    def measured() -> Levels | None:
        clock.advance(20)
        line.media.receive(b"\x00\x40" * 160)
        line.media.tick(clock.now_ns())
        line.watch(clock.now_ns())
        report = told[-1]
        assert isinstance(report, messages.QualityReport)
        return report.levels

    assert measured() is None
    line.command(messages.MeasureLevels(call_id="call_1"))
    assert measured() == Levels(received_dbov=-6, sent_dbov=-127)
    clock.advance(LOOK_MS)
    assert measured() is None


def test_instructions_of_a_channel_are_those_of_an_invite() -> None:
    """Percent-encoded, as SIP has no other letters."""
    invite = invite_with({"TTS_INSTRUCTIONS": "用四川话说"})
    assert invite.headers == {"X-TTS-Instructions": "%E7%94%A8%E5%9B%9B%E5%B7%9D%E8%AF%9D%E8%AF%B4"}
