"""First audio of a speech worker behind gRPC beside one of this machine, while many utterances are under way.

    python -m bench.remote_worker [--streams 64] [--probes 150] [--rounds 5]

Both are the engine of the CPU voices with the same settings and a voice that costs next to nothing, so that what differs is
the way there and back; the remote one is a ``cc-tts worker`` on loopback. They take turns: for each round ``--streams``
listeners hear speech all the time, at the pace of a call, and probes are spoken beside them, one every 50 ms. First audio is
from the opening of an utterance, with its text, to the first piece of audio.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.report import machine, percentiles, save, show
from cc_tts import logs
from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.processes.tasks import cancel_all
from lab.cluster import VOICES, Worker
from lab.server_under_test import Json

VOICE: Final = "tone"
TEXT: Final = "Thank you for calling, please hold the line, somebody will be with you shortly."
PROBE_TEXT: Final = "Your order has left our warehouse."
PROBE_INTERVAL_S: Final = 0.05
CHUNKS_EACH: Final = 3
WINDOW_S: Final = 1.0
SETTLE_S: Final = 5.0
START_TIMEOUT_S: Final = 60.0
SETTINGS: Final = TtsConfig(
    engine="onnx",
    voices_dir=str(VOICES),
    num_threads=1,
    max_utilisation=1.0,
    first_audio_target_ms=60_000.0,
    worker_start_timeout_s=START_TIMEOUT_S,
)


@contextlib.asynccontextmanager
async def running(folder: Path, *, is_remote: bool) -> AsyncIterator[WorkerEngine]:
    async with contextlib.AsyncExitStack() as stack:
        tts = SETTINGS
        if is_remote:
            worker = await stack.enter_async_context(await Worker.start(folder, 1))
            tts = replace(tts, devices=(), workers=(worker.address,))
        engine = make_engine(Config(tts=tts))
        stack.push_async_callback(engine.stop)
        await engine.start()
        yield engine


async def listen(engine: WorkerEngine, delay_s: float) -> None:
    """One listener: utterance after utterance, at the pace of a call."""
    await asyncio.sleep(delay_s)
    while True:
        await hear_one(engine)


async def hear_one(engine: WorkerEngine) -> None:
    stream = engine.open(VOICE)
    for index in range(CHUNKS_EACH):
        stream.push(TEXT, text_chunk_index=index)
    stream.end()
    given_s, began_s = 0.0, 0.0
    async for chunk in stream:
        now_s = time.monotonic()
        began_s = began_s or now_s
        given_s += chunk.duration_ms / 1000
        ahead_s = began_s + given_s - now_s
        stream.set_buffered_ms(max(0.0, ahead_s) * 1000)
        await asyncio.sleep(max(0.0, ahead_s - WINDOW_S))
    await asyncio.sleep(max(0.0, began_s + given_s - time.monotonic()))


async def first_audio_ms(engine: WorkerEngine) -> float:
    began_s = time.monotonic()
    stream = engine.open(VOICE)
    stream.push(PROBE_TEXT, text_chunk_index=0)
    stream.end()
    await anext(aiter(stream))
    took_ms = (time.monotonic() - began_s) * 1000
    await stream.cancel()
    return took_ms


async def measure(folder: Path, *, is_remote: bool, num_streams: int, num_probes: int) -> list[float]:
    async with running(folder, is_remote=is_remote) as engine:
        listeners = [
            asyncio.create_task(listen(engine, SETTLE_S * number / max(1, num_streams)))
            for number in range(num_streams)
        ]
        await asyncio.sleep(2 * SETTLE_S)
        found = []
        for _ in range(num_probes):
            found.append(await first_audio_ms(engine))
            await asyncio.sleep(PROBE_INTERVAL_S)
        broken = [task for task in listeners if task.done()]
        await cancel_all(*listeners)
    if broken:
        raise RuntimeError(f"{len(broken)} listeners broke off: {broken[0].exception()}")
    return found


def report(folder: Path, num_streams: int, num_probes: int, rounds: int) -> Json:
    found: dict[str, list[list[float]]] = {"local": [], "remote": []}
    for _ in range(rounds):
        for where, of_rounds in found.items():
            of_rounds.append(
                asyncio.run(
                    measure(folder, is_remote=where == "remote", num_streams=num_streams, num_probes=num_probes)
                )
            )
    table: Json = {}
    for where, of_rounds in found.items():
        p95_ms = [percentiles(each)["p95"] for each in of_rounds]
        table[where] = {
            "first_audio_ms": percentiles([value for each in of_rounds for value in each]),
            "p95_ms_of_rounds": p95_ms,
            "p95_ms_median": round(statistics.median(p95_ms), 2),
        }
    show(f"first audio, {num_streams} streams under way", [(where, table[where]["first_audio_ms"]) for where in table])
    for where, figures in table.items():
        print(f"{where}: p95 {figures['p95_ms_median']} ms, the median of {figures['p95_ms_of_rounds']}")
    return {"machine": machine(), "streams": num_streams, "probes": num_probes, "rounds": rounds, "first_audio": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--probes", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    logs.configure(level="error", json=False, process="bench")
    with tempfile.TemporaryDirectory() as folder:
        save("remote_worker", report(Path(folder), options.streams, options.probes, options.rounds))


if __name__ == "__main__":
    main()
