"""A service of Pipecat, named by the second argument and pointed at the server of the first: what its pipeline gets, as JSON
objects.
"""

import asyncio
import json
import sys
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService

RATE_HZ = 8000
PATIENCE_S = 60.0
"""As in ``lab.waiting``, which the environment of the client packages does not have."""


class Sink(FrameProcessor):  # type: ignore[misc]  # which is checked in an environment without Pipecat
    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        self.words: list[str] = []
        self.has_heard = asyncio.Event()
        self.has_stopped = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            assert frame.sample_rate == RATE_HZ
            self.num_bytes += len(frame.audio)
            self.has_heard.set()
        elif isinstance(frame, TTSTextFrame):
            self.words.append(frame.text)
        elif isinstance(frame, TTSStoppedFrame):
            self.has_stopped.set()
        await self.push_frame(frame, direction)


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")
    sys.stdout.flush()


def service_of(name: str, url: str, voice: str) -> Any:
    if name == "elevenlabs":
        settings = ElevenLabsTTSService.Settings(voice=voice)
        return ElevenLabsTTSService(api_key="none", url=url, settings=settings, sample_rate=RATE_HZ)
    if name == "cartesia":
        settings = CartesiaTTSService.Settings(voice=voice)
        url = f"{url}/tts/websocket"
        return CartesiaTTSService(api_key="none", url=url, settings=settings, sample_rate=RATE_HZ)
    if name == "flux":
        url = f"{url}/v2/speak"
        flux_settings = DeepgramFluxTTSService.Settings(voice=voice)
        return DeepgramFluxTTSService(api_key="none", url=url, settings=flux_settings, sample_rate=RATE_HZ)
    settings = DeepgramTTSService.Settings(voice=voice)
    return DeepgramTTSService(api_key="none", base_url=url, settings=settings, sample_rate=RATE_HZ)


async def main(url: str, name: str) -> None:
    service = service_of(name, url, "en-us")
    sink = Sink()
    task = PipelineTask(Pipeline([service, sink]), params=PipelineParams(audio_out_sample_rate=RATE_HZ))
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    await task.queue_frame(TTSSpeakFrame("Your order has been shipped. It will arrive on Friday."))
    async with asyncio.timeout(PATIENCE_S):
        await sink.has_stopped.wait()
    await asyncio.sleep(sink.num_bytes / 2 / RATE_HZ + 0.5)
    show("whole", bytes=sink.num_bytes, words=" ".join(sink.words))
    sink.num_bytes = 0
    sink.has_heard.clear()
    await task.queue_frame(TTSSpeakFrame("word " * 200))
    async with asyncio.timeout(PATIENCE_S):
        await sink.has_heard.wait()
    await task.queue_frame(InterruptionFrame())
    await asyncio.sleep(0.5)
    begun = sink.num_bytes
    await asyncio.sleep(1.0)
    show("interrupted", bytes=begun, later=sink.num_bytes - begun)
    sink.num_bytes = 0
    sink.has_stopped.clear()
    await task.queue_frame(TTSSpeakFrame("Goodbye."))
    async with asyncio.timeout(PATIENCE_S):
        await sink.has_stopped.wait()
    show("afterwards", bytes=sink.num_bytes)
    await task.queue_frame(EndFrame())
    async with asyncio.timeout(PATIENCE_S):
        await running
    show("error", shown=await error_of(service_of(name, url, "nobody")))


async def error_of(service: Any) -> str:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = PipelineTask(Pipeline([service]), params=PipelineParams(audio_out_sample_rate=RATE_HZ))

    @task.event_handler("on_pipeline_error")  # type: ignore[untyped-decorator]
    async def _on_error(_task: Any, frame: Any) -> None:
        if not told.done():
            told.set_result(str(frame.error))

    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    await task.queue_frame(TTSSpeakFrame("Goodbye."))
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await told
    finally:
        await task.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await running


asyncio.run(main(*sys.argv[1:]))
