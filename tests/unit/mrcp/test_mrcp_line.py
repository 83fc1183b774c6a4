"""The RTP of a session, tick by tick: what is sent when, and when all was heard."""

import errno
import socket
import struct
from typing import Any, cast

import pytest

from cc_tts.audio import PTIME_MS
from cc_tts.clock import NS_PER_MS, MonotonicClock
from cc_tts.mrcp.rtp.codecs import STATIC, Codec
from cc_tts.mrcp.rtp.line import RtpLine, RtpTarget
from cc_tts.mrcp.rtp.pacer import Pacer
from lab.waiting import until

pytestmark = pytest.mark.unit

TICK_NS = PTIME_MS * NS_PER_MS
LOUD = struct.pack("<h", 8000)
SILENCE = b"\xff" * 160
"""A frame of PCMU."""


class FakeSocket:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, tuple[str, int]]] = []
        self.error: OSError | None = None

    def settimeout(self, _timeout_s: float) -> None: ...

    def setsockopt(self, *_option: int) -> None: ...

    def sendto(self, data: bytes, to: tuple[str, int]) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((data, to))

    def close(self) -> None: ...


class Bench:
    def __init__(self, codec: Codec = STATIC[0], *, delay_ms: int = 100) -> None:
        self.socket = FakeSocket()
        self.played: list[int] = []
        self.unsent: list[str] = []
        self.progress: list[tuple[int, float, float]] = []
        self.now_ns = 10**12
        self.line = RtpLine(
            cast("socket.socket", self.socket),
            MonotonicClock(),
            complete_delay_ms=delay_ms,
            start_threshold_ms=40,
            tell_progress=lambda *told: self.progress.append(cast("Any", told)),
            on_played=self._note_played,
            on_begun=lambda: None,
        )
        self.line.target = RtpTarget("192.0.2.1", 4000, codec)

    def _note_played(self, unsent: str) -> None:
        self.played.append(len(self.socket.sent))
        self.unsent.append(unsent)

    def tick(self, num: int) -> None:
        for _ in range(num):
            if self.line.is_busy:
                self.line.tick(self.now_ns)
            self.now_ns += TICK_NS

    def speak(self, milliseconds: int, *, speech_id: int = 1, at_ms: float = 0.0) -> None:
        """Give it all of a request."""
        self.line.begin(speech_id, at_ms)
        self.line.write(pcm(milliseconds, self.line.rate_hz or 0))
        self.line.finish()

    def heads(self) -> list[tuple[int, int, int]]:
        """The second octet, the sequence number, and the timestamp of each packet."""
        return [struct.unpack(">xBHI", data[:8]) for data, _ in self.socket.sent]


def pcm(milliseconds: int, rate_hz: int = 8000) -> bytes:
    return LOUD * (rate_hz * milliseconds // 1000)


@pytest.mark.parametrize(("delay_ms", "num_silent"), [(100, 5), (90, 5), (0, 1)])
def test_all_was_heard_when_the_silence_behind_it_was_sent(delay_ms: int, num_silent: int) -> None:
    bench = Bench(delay_ms=delay_ms)
    bench.speak(200)
    bench.tick(50)
    assert bench.played == [10 + num_silent]
    assert len(bench.socket.sent) == bench.played[0]
    assert not bench.line.is_busy
    assert bench.line.played_ms == 200


def test_the_clock_of_rtp_goes_on_between_requests_and_the_first_packet_has_the_marker() -> None:
    bench = Bench()
    for speech_id in (1, 2):
        bench.speak(100, speech_id=speech_id)
        bench.tick(50)
    markers = [at for at, (second, _, _) in enumerate(bench.heads()) if second & 0x80]
    assert len(markers) == 2
    first, second = (bench.heads()[at] for at in markers)
    assert (second[1] - first[1]) & 0xFFFF == markers[1]
    assert (second[2] - first[2]) & 0xFFFFFFFF == 50 * 160


def test_silence_is_sent_until_there_is_audio_and_while_it_is_paused() -> None:
    bench = Bench()
    bench.line.begin(1)
    bench.tick(5)
    assert [data[12:] for data, _ in bench.socket.sent] == [SILENCE] * 5
    bench.line.write(pcm(500))
    bench.tick(2)
    bench.line.pause()
    bench.tick(2)
    assert bench.socket.sent[-1][0][12:] == SILENCE
    bench.line.resume()
    bench.tick(2)
    assert bench.socket.sent[-1][0][12:] != SILENCE


def test_what_is_cut_fades_out_at_once_and_is_not_heard_when_the_next_request_begins() -> None:
    bench = Bench()
    bench.line.begin(1)
    bench.line.write(pcm(1000))
    bench.tick(10)
    bench.line.cut()
    bench.tick(10)
    assert len(bench.socket.sent) == 11
    last = bench.socket.sent[-1][0][12:]
    assert last != SILENCE
    assert last.endswith(SILENCE[:120])
    bench.line.begin(2)
    bench.tick(1)
    assert bench.socket.sent[-1][0][12:] == SILENCE


def test_requests_that_are_stopped_before_a_frame_leave_nothing_behind() -> None:
    bench = Bench()
    for speech_id in range(200):
        bench.line.begin(speech_id)
        bench.line.write(pcm(100))
        bench.line.cut()
    assert not bench.line.is_busy
    bench.speak(200, speech_id=200)
    bench.tick(50)
    assert bench.played == [15]


def test_a_jump_counts_from_its_place() -> None:
    bench = Bench()
    bench.line.begin(1)
    bench.line.write(pcm(1000))
    bench.tick(10)
    bench.line.cut()
    bench.speak(200, at_ms=3000.0)
    bench.tick(30)
    assert bench.line.played_ms == 3200
    assert bench.progress[-1][:2] == (1, 3200.0)
    assert len(bench.played) == 1


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Codec("PCMA", 8000, 8), 160),
        (Codec("L16", 8000, 96), 320),
        (Codec("L16", 16000, 97), 640),
    ],
)
def test_frames_are_those_of_the_codec(codec: Codec, payload: int) -> None:
    bench = Bench(codec)
    bench.speak(100)
    bench.tick(3)
    data, to = bench.socket.sent[1]
    assert (len(data) - 12, data[1] & 0x7F, to) == (payload, codec.payload_type, ("192.0.2.1", 4000))
    if codec.name == "L16":
        assert data[12:].endswith(struct.pack(">h", 8000))


def test_a_client_that_holds_its_audio_gets_no_packets_and_the_text_goes_on() -> None:
    bench = Bench()
    bench.line.target = RtpTarget("192.0.2.1", 4000, STATIC[0], is_active=False)
    bench.speak(100)
    bench.tick(20)
    assert not bench.socket.sent
    assert (bench.played, bench.unsent) == ([0], [""])


@pytest.mark.parametrize(("num_lost", "unsent"), [(5, ""), (50, "Network is unreachable")])
def test_it_is_told_that_no_packet_of_a_request_could_be_sent(num_lost: int, unsent: str) -> None:
    bench = Bench()
    bench.speak(200)
    bench.socket.error = OSError(errno.ENETUNREACH, "Network is unreachable")
    bench.tick(num_lost)
    bench.socket.error = None
    bench.tick(50)
    assert bench.unsent == [unsent]


async def test_a_speech_of_which_no_frame_can_be_made_is_over() -> None:
    """Its client waits for SPEAK-COMPLETE."""
    bench = Bench(Codec("OPUS", 8000, 96))
    bench.speak(200)
    pacer = Pacer(lambda: [bench.line], MonotonicClock())
    pacer.wake()
    await until(lambda: bench.unsent and not bench.line.is_busy, 2)
    assert bench.unsent == ["KeyError"]
