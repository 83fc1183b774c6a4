"""The timeline of what is heard, and the speech in it by a made-up model: a loud window is speech."""

from typing import Any, cast

import numpy as np
import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.softphone.probe.ear import LEAD_MS, PAUSE_MS, Ear, TimelineGap
from cc_tts.softphone.rtp.receiver import Packet
from cc_tts.vad.detector import VoiceDetector
from cc_tts.vad.silero import WINDOW_MS, Floats, Memory

pytestmark = pytest.mark.unit

T0_NS = 10**12
FRAME_NS = 20 * NS_PER_MS
LEAD = LEAD_MS * 8
LOUD, SILENT = b"\x00\x20" * 160, bytes(320)


class LoudnessModel:
    def probabilities(self, windows: list[tuple[Memory, Floats]]) -> list[float]:
        return [float(np.abs(samples).max() > 0.1) for _, samples in windows]


class Sender:
    """One who sends a packet each 20 ms."""

    def __init__(self) -> None:
        self.ear = Ear(VoiceDetector(cast("Any", LoudnessModel()), 8000))
        self.sequence, self.timestamp, self.now_ns = 0, (1 << 32) - 320, T0_NS

    def send(self, ms: int, pcm: bytes, *, late_ms: int = 0) -> None:
        for _ in range(ms // 20):
            arrival_ns = self.now_ns + late_ms * NS_PER_MS
            self.ear.hear(Packet(1, self.sequence, self.timestamp, arrival_ns, pcm))
            self.ear.pass_time(arrival_ns)
            self.go_on(1)

    def go_on(self, packets: int, *, is_numbered: bool = True) -> None:
        """Time passes; the packets of it are lost, or were none (silence suppression)."""
        self.sequence += packets * is_numbered
        self.timestamp = (self.timestamp + packets * 160) % (1 << 32)
        self.now_ns += packets * FRAME_NS

    def at_ms(self, ns: int | None) -> float:
        assert ns is not None
        return (ns - T0_NS) / NS_PER_MS


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_speech_is_found_where_it_is(sender: Sender) -> None:
    sender.send(1000, SILENT)
    sender.send(800, LOUD)
    assert sender.ear.is_speaking
    sender.send(PAUSE_MS + 100, SILENT)
    assert not sender.ear.is_speaking
    (speech,) = sender.ear.speech
    assert sender.at_ms(speech.begin_ns) == pytest.approx(1000, abs=WINDOW_MS)
    assert sender.at_ms(speech.end_ns) == pytest.approx(1800, abs=WINDOW_MS)
    assert sender.ear.begun_ns == speech.begin_ns


SOFT, NOISE = b"\x00\x04" * 160, b"\x00\x02" * 160
"""Softer than the model takes for speech."""


def test_a_soft_beginning_is_part_of_speech(sender: Sender) -> None:
    sender.send(1000, SILENT)
    for pcm, ms in ((SOFT, 200), (SILENT, 60), (SOFT, 40), (LOUD, 600)):
        sender.send(ms, pcm)
    assert sender.at_ms(sender.ear.speech[0].begin_ns) == pytest.approx(1000, abs=10)


def test_noise_before_speech_is_no_part_of_it(sender: Sender) -> None:
    sender.send(2000, NOISE)
    sender.send(600, LOUD)
    assert sender.at_ms(sender.ear.speech[0].begin_ns) == pytest.approx(2000, abs=WINDOW_MS)


def test_a_pause_is_part_of_speech_and_a_longer_one_ends_it(sender: Sender) -> None:
    for pause_ms in (PAUSE_MS - 60, PAUSE_MS + 60):
        sender.send(600, LOUD)
        sender.send(pause_ms, SILENT)
    assert [each.end_ns is None for each in sender.ear.speech] == [False]
    sender.send(600, LOUD)
    assert len(sender.ear.speech) == 2


def test_lost_packets_leave_a_gap_and_what_follows_stays_in_its_place(sender: Sender) -> None:
    sender.send(400, LOUD)
    sender.go_on(3)
    sender.send(400, LOUD)
    assert sender.ear.gaps == [TimelineGap(LEAD + 3200, 480, "lost")]
    assert len(sender.ear.pcm) == 2 * (LEAD + 3200 + 480 + 3200)


def test_silence_that_is_not_sent_is_no_gap(sender: Sender) -> None:
    sender.send(400, LOUD)
    sender.go_on(100, is_numbered=False)
    sender.send(400, LOUD)
    assert sender.ear.gaps == []
    assert len(sender.ear.pcm) == 2 * (LEAD + 3200 + 16_000 + 3200)


@pytest.mark.parametrize(("late_ms", "gaps"), [(80, []), (400, [TimelineGap(LEAD + 3200, 3200, "late")])])
def test_what_no_jitter_buffer_waits_for_is_heard_late(sender: Sender, late_ms: int, gaps: list[TimelineGap]) -> None:
    sender.send(400, LOUD)
    sender.send(400, LOUD, late_ms=late_ms)
    assert sender.ear.gaps == gaps


def test_a_delay_is_made_up_for_in_the_next_silence(sender: Sender) -> None:
    sender.send(400, LOUD)
    sender.ear.pass_time(sender.now_ns + 800 * NS_PER_MS)  # this process was late, the packets were not
    sender.send(600, LOUD)
    sender.send(1400, SILENT)
    sender.send(400, LOUD)
    sender.ear.finish()
    late, in_time = sender.ear.speech
    assert sender.ear.gaps == []
    assert sender.at_ms(late.begin_ns) == pytest.approx(0, abs=10)
    assert sender.at_ms(in_time.begin_ns) == pytest.approx(2400, abs=30)


def test_a_packet_whose_place_is_over_is_not_heard(sender: Sender) -> None:
    sender.send(400, LOUD)
    num_bytes = len(sender.ear.pcm)
    sender.ear.hear(Packet(1, sender.sequence - 2, sender.timestamp - 320, sender.now_ns, LOUD))
    assert len(sender.ear.pcm) == num_bytes


def test_another_source_goes_on_where_it_arrives(sender: Sender) -> None:
    sender.send(400, LOUD)
    sender.ear.hear(Packet(2, 60_000, 5, sender.now_ns, LOUD))
    assert sender.ear.gaps == []
    assert len(sender.ear.pcm) == 2 * (LEAD + 3200 + 160)


@pytest.mark.parametrize("call_ends", [True, False])
def test_speech_ends_with_the_call_or_when_an_agent_stops_sending(sender: Sender, *, call_ends: bool) -> None:
    sender.send(1000, LOUD)
    if call_ends:
        sender.ear.finish()
        assert len(sender.ear.pcm) == 2 * (LEAD + 8000)
    for _ in range(0 if call_ends else 100):
        sender.now_ns += FRAME_NS
        sender.ear.pass_time(sender.now_ns)
    assert not sender.ear.is_speaking
    assert sender.at_ms(sender.ear.speech[0].end_ns) == pytest.approx(1000, abs=WINDOW_MS)


def test_a_sender_whose_clock_is_too_fast_does_not_stretch_the_timeline(sender: Sender) -> None:
    for _ in range(250):
        sender.send(20, LOUD)
        sender.timestamp = (sender.timestamp + 8000) % (1 << 32)
    assert len(sender.ear.pcm) / 16_000 < 5 + 3, "5 s, a lead, and the longest jump"
