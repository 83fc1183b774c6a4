r"""Calls that are spoken to without a cache, on each engine: first audio, underruns, refusals, growth, a killed worker.

    python -m bench.spoken_calls [--calls 1 4 40] [--seconds 30] [--minutes 10] [--engines espeak onnx]
    python -m bench.spoken_calls --engines onnx --voices kokoro-zf_xiaobei [--set tts.voices_dir=DIR] --calls 1 4 16
    CC_TTS_PJSUA2=wheel python -m bench.spoken_calls --engines cosyvoice2 --calls 4 --minutes 30 --name engine_calls
    python -m bench.spoken_calls --engines cosyvoice2 --calls 8 --workers 2 --start-ms 2000 --minutes 30 \
        --name engine_calls_8

Each level first speaks prompts with pauses between them, each call at its own time, then on every call at the same instant
(``burst``), then all the time: the next prompt waits before one ends, so that the line never runs dry by itself. Time to
first audio is from the request to the first frame with speech. ``--minutes`` holds the largest level of the last engine
that long and looks at the memory; a worker of ``onnx`` is then killed once.

``--voices`` compares voices: each on a server of its own, with the lines of its language, and prompts with pauses alone.
They are added to ``bench/results/voices_on_calls.json``.

``cosyvoice2`` is a small model of rule-filled weights on the CPU: the speech means nothing, its amount and its timing do.
SIPp places the calls and ``lab.rtp_crowd`` hears them, on this machine; the server build of pjsua2 unless
``CC_TTS_PJSUA2`` says otherwise.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from bench.intelligibility.lines import language_of, lines_of
from bench.report import add_voice, machine, percentiles, save
from lab.crowd import Crowd
from lab.load import RTP_FIRST_PORT, Meter, Sipp, footprint, growth
from lab.server_under_test import Json, Server

SENTENCES = (
    "Your order number {} has left our warehouse and will reach you within two days.",
    "Thank you for holding, you are caller number {} in the line.",
    "The balance of the account that ends in {} is forty two dollars.",
    "Please write down your reference, it is {}, and have it ready for our agent.",
    "The appointment on the {} of next month is at three in the afternoon.",
)
WORDS_OF_SMALL_MODEL = (
    "hello and welcome to the service line.",
    "your call is important to us, please hold the line.",
    "thank you for calling, goodbye.",
)
PAUSE_S = 0.5
PROMPT_S = 5.0
"""About as long as a sentence is."""
BURSTS = 3
SETUP_RATE = 10.0
SETTLE_S = 2.0
PROMPT_TIMEOUT_S = 300.0
MEMORY_LOOKS = 20
REST_S = 15.0
"""What still waits has been spoken by then."""
RECOVERY_TIMEOUT_S = 30.0
WORKER = "cc_tts.engines.worker"
NUMBERS = itertools.count(1)
"""Of the prompts of all levels: a server takes the id of an utterance once."""


class Calls:
    """Calls that are up, and what becomes of the prompts spoken on them."""

    def __init__(self, server: Server, sentences: Sequence[str]) -> None:
        self.server = server
        self._sentences = sentences
        self.ids: set[str] = set()
        self.numbers = NUMBERS
        self.first_audio_ms: list[float] = []
        self.underruns = 0
        self.num_complete = 0
        self.errors: list[tuple[float, str]] = []
        self.refused: Counter[str] = Counter()
        """By the code of the refusal."""
        self._waiting: dict[tuple[str, str], asyncio.Future[Json]] = {}

    async def follow(self) -> None:
        """Read the events until cancelled."""
        timeout = aiohttp.ClientWSTimeout(ws_close=5)
        async with self.server.http.ws_connect(f"{self.server.url}/v1/events", timeout=timeout) as socket:
            async for message in socket:
                self._take(json.loads(message.data))

    def _take(self, event: Json) -> None:
        kind, data = event["type"], event["data"]
        match kind:
            case "call.established":
                self.ids.add(event["call_id"])
            case "call.terminated":
                self.ids.discard(event["call_id"])
            case "speak.complete":
                self.num_complete += 1
                self.underruns += data["underruns"]
                if data["error"]:
                    self.errors.append((time.monotonic(), data["error"]))
                elif data["time_to_first_audio_ms"] is not None:
                    self.first_audio_ms.append(data["time_to_first_audio_ms"])
        if kind in ("speak.started", "speak.complete"):
            for name in ("speak.started", "speak.complete") if kind == "speak.complete" else (kind,):
                future = self._waiting.pop((name, data["utterance_id"]), None)
                if future is not None and not future.done():
                    future.set_result(data)

    async def speak(self, call_id: str) -> str | None:
        """Speak the next sentence; the id of the utterance, or nothing if it was refused, after the wait that was named."""
        number = next(self.numbers)
        text = self._sentences[number % len(self._sentences)].format(number % 9000 + 1000)
        utterance_id = f"bench-{number}"
        for name in ("speak.started", "speak.complete"):
            self._waiting[name, utterance_id] = asyncio.get_running_loop().create_future()
        body = {"text": text, "utterance_id": utterance_id}
        async with self.server.http.post(f"{self.server.url}/v1/calls/{call_id}/speak", json=body) as response:
            if response.status == 201:
                return utterance_id
            self.refused[(await response.json())["code"]] += 1
            await asyncio.sleep(float(response.headers.get("Retry-After", PAUSE_S)))
        return None

    async def until(self, event: str, utterance_id: str) -> None:
        future = self._waiting.get((event, utterance_id))
        if future is not None:
            await asyncio.wait_for(future, PROMPT_TIMEOUT_S)

    async def with_pauses(self, call_id: str, until_s: float) -> None:
        """One prompt after the other, with a pause before each. Calls begin spread over the length of a prompt."""
        place = sorted(self.ids).index(call_id) / len(self.ids)
        await asyncio.sleep(PROMPT_S * place)
        while time.monotonic() < until_s:
            await asyncio.sleep(PAUSE_S)
            if (utterance_id := await self.speak(call_id)) is not None:
                await self.until("speak.complete", utterance_id)

    async def in_bursts(self, call_id: str, _until_s: float) -> None:
        """A prompt at the same instant on every call."""
        if (utterance_id := await self.speak(call_id)) is not None:
            await self.until("speak.complete", utterance_id)

    async def all_the_time(self, call_id: str, until_s: float) -> None:
        """The next prompt is sent when the one before it begins to play."""
        while time.monotonic() < until_s and call_id in self.ids:
            utterance_id = await self.speak(call_id)
            if utterance_id is not None:
                await self.until("speak.started", utterance_id)

    def first_audio(self) -> Json:
        """What came of the prompts since this was asked before."""
        result = {
            "time_to_first_audio_ms": percentiles(self.first_audio_ms),
            "refused": dict(self.refused),
            "errors": dict(Counter(code for _, code in self.errors)),
        }
        self.first_audio_ms.clear()
        self.refused.clear()
        self.errors.clear()
        return result

    async def all(self, work: Callable[[str, float], Any], seconds: float) -> None:
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(work(call_id, until_s) for call_id in tuple(self.ids)))


def processes(server: Server) -> dict[str, int]:
    """Process ids of what a prompt goes through."""
    pids = {"server": server.pid, "ua": server.ua_pid()}
    workers, text = server.pids_of(WORKER), server.pids_of("cc_tts.text.process")
    return pids | {f"worker_{place}": pid for place, pid in enumerate(workers)} | ({"text": text[0]} if text else {})


async def level(
    server: Server, engine: str, num_calls: int, seconds: float, minutes: float, lines: Sequence[str] = ()
) -> Json:
    """One number of calls: prompts with pauses, then, without lines that a voice is compared by, speech all the time."""
    async with contextlib.AsyncExitStack() as stack:
        crowd = await stack.enter_async_context(Crowd.of(num_calls))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        calls = Calls(server, lines or (WORDS_OF_SMALL_MODEL if engine == "cosyvoice2" else SENTENCES))
        follower = asyncio.create_task(calls.follow())
        stack.callback(follower.cancel)
        await asyncio.sleep(PAUSE_S)
        stay_s = (
            num_calls / SETUP_RATE
            + 6 * SETTLE_S
            + 2 * seconds
            + BURSTS * 3 * PROMPT_S
            + 60 * minutes
            + RECOVERY_TIMEOUT_S
            + PROMPT_TIMEOUT_S
        )
        sipp = await Sipp.start(server, crowd.ports, folder, rate=SETUP_RATE, stay_s=stay_s)
        try:
            await asyncio.sleep(num_calls / SETUP_RATE + SETTLE_S)
            result: Json = {"calls": len(calls.ids)}
            await calls.all(calls.with_pauses, seconds)
            result |= calls.first_audio()
            if not lines:
                result |= await without_pauses(calls, crowd, sipp, seconds)
            if minutes:
                result["for_long"] = await hold(calls, crowd, sipp, 60 * minutes)
            if minutes and engine == "onnx":
                result["worker_killed"] = await kill_worker(calls)
        finally:
            sipp.process.kill()
            await sipp.process.wait()
    await asyncio.sleep(SETTLE_S)
    for call in (await server.read("/v1/calls"))["calls"]:
        if call["state"] != "terminated":
            await server.ask(f"/v1/calls/{call['id']}/hangup")
    await asyncio.sleep(SETTLE_S)
    return result


async def without_pauses(calls: Calls, crowd: Crowd, sipp: Sipp, seconds: float) -> Json:
    """Prompts at the same instant, then speech all the time."""
    for _ in range(BURSTS):
        await calls.all(calls.in_bursts, 0)
        await asyncio.sleep(PAUSE_S)
    burst = calls.first_audio()
    return {"burst": burst, "all_the_time": await speak_on(calls, crowd, sipp, seconds)}


async def speak_on(calls: Calls, crowd: Crowd, sipp: Sipp, seconds: float) -> Json:
    """Speech all the time; what the callers heard and what it took."""
    calls.underruns = calls.num_complete = 0
    calls.first_audio()
    meter = Meter(**processes(calls.server), crowd=crowd.pid, sipp=sipp.process.pid, bench=os.getpid())
    crowd.tell("start")
    await calls.all(calls.all_the_time, seconds)
    heard = await crowd.ask("report")
    return {
        "seconds": round(seconds),
        "prompts": calls.num_complete,
        "underruns": calls.underruns,
        **calls.first_audio(),
        "cores": meter.cores(),
        "heard": heard,
    }


async def hold(calls: Calls, crowd: Crowd, sipp: Sipp, seconds: float) -> Json:
    """The same for long, with the footprint of every process as it goes."""
    looks: list[dict[str, Json]] = []

    async def poll() -> None:
        for _ in range(MEMORY_LOOKS):
            looks.append({name: footprint(pid) for name, pid in processes(calls.server).items()})
            print(json.dumps(looks[-1]), flush=True)
            await asyncio.sleep(seconds / MEMORY_LOOKS)

    looking = asyncio.create_task(poll())
    try:
        result = await speak_on(calls, crowd, sipp, seconds)
    finally:
        looking.cancel()
    return {**result, "growth": growth(looks[len(looks) // 5], looks[-1]), "looks": looks}


async def kill_worker(calls: Calls) -> Json:
    """kill -9 in the middle of speech: the errors, the calls, and when a prompt is spoken again."""
    await asyncio.sleep(REST_S)
    calls.errors.clear()
    num_calls, before = len(calls.ids), calls.num_complete
    speaking = asyncio.create_task(calls.all(calls.all_the_time, RECOVERY_TIMEOUT_S))
    await asyncio.sleep(SETTLE_S)
    killed_s = time.monotonic()
    os.kill(processes(calls.server)["worker_0"], signal.SIGKILL)
    back_s = None
    while back_s is None and time.monotonic() - killed_s < RECOVERY_TIMEOUT_S:
        await asyncio.sleep(0.05)
        async with calls.server.http.get(f"{calls.server.url}/readyz") as response:
            if response.status == 200 and time.monotonic() - killed_s > 0.3:
                back_s = time.monotonic() - killed_s
    await asyncio.gather(speaking, return_exceptions=True)
    codes = sorted({code for _, code in calls.errors})
    return {
        "errors": len(calls.errors),
        "codes": codes,
        "calls_before": num_calls,
        "calls_after": len(calls.ids),
        "ready_again_s": back_s and round(back_s, 2),
        "prompts_afterwards": calls.num_complete - before,
    }


def small_model(folder: Path, options: argparse.Namespace) -> Sequence[str]:
    """The neural engine with a model and an enrolled voice in this folder, on ``options.workers`` single threads."""
    from bench.engine.model import enrolled_voice, model_at

    model_at(folder / "model", "tiny")
    devices = ", ".join(['"cpu"'] * options.workers)
    return (
        f"tts.voice={enrolled_voice(folder / 'voices')}",
        f"tts.models.main.model_dir={folder / 'model'}",
        f"tts.voices_dir={folder / 'voices'}",
        f"tts.devices=[{devices}]",
        "tts.num_threads=1",
        "tts.first_audio_target_ms=5000",
        "tts.overload_wait_ms=5000",
        f"playout.start_threshold_min_ms={options.start_ms}",
        f"playout.start_threshold_max_ms={2 * options.start_ms}",
        f"playout.window_ms={4 * options.start_ms}",
    )


def settings_of(engine: str, options: argparse.Namespace) -> list[str]:
    most = max(options.calls)
    sip = [f"sip.max_calls={most + 10}"] if os.environ["CC_TTS_PJSUA2"] == "server" else []
    return [
        f"tts.engine={engine}",
        "cache.enabled=false",
        "calls.max_duration_s=0",
        "http.event_queue_size=10000",
        "sip.max_requests_per_source_s=0",
        f"rtp.port_min={RTP_FIRST_PORT}",
        f"rtp.port_max={RTP_FIRST_PORT + 2 * (most + 500)}",
        'routes.load.greeting=""',
        *sip,
        *options.set,
    ]


async def compare(options: argparse.Namespace) -> None:
    """Every voice on a server of its own, with the lines of its language; added to the results of other voices."""
    (engine,) = options.engines
    for voice in options.voices:
        async with await Server.with_settings(*settings_of(engine, options), f"tts.voice={voice}") as server:
            listed = (await server.read("/v1/voices"))["voices"]
            lines = lines_of(language_of(next(each["language"] for each in listed if each["id"] == voice)))
            levels = [await level(server, engine, number, options.seconds, 0.0, lines) for number in options.calls]
            worker_mib = max(footprint(pid)["rss_mib"] for pid in server.pids_of(WORKER))
        result = {"levels": levels, "worker_mib": worker_mib}
        print(json.dumps(result), add_voice("voices_on_calls", voice, result), flush=True)


async def run(options: argparse.Namespace, folder: Path) -> Json:
    """Every level on a server of its own for each engine."""
    most = max(options.calls)
    results: list[Json] = []
    for engine in options.engines:
        model = small_model(folder, options) if engine == "cosyvoice2" else ()
        async with await Server.with_settings(*settings_of(engine, options), *model) as server:
            for num_calls in options.calls:
                is_held = engine == options.engines[-1] and num_calls == most
                result = await level(server, engine, num_calls, options.seconds, options.minutes if is_held else 0.0)
                results.append({"engine": engine, **result})
                print(json.dumps(results[-1]), flush=True)
    return {
        "what": "calls that are spoken to without a cache, SIPp and the listening sockets on the same machine",
        "machine": machine(),
        "pjsua2": os.environ["CC_TTS_PJSUA2"],
        "levels": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["espeak", "onnx"], choices=("espeak", "onnx", "cosyvoice2"))
    parser.add_argument("--calls", type=int, nargs="+", default=[1, 4, 40], metavar="N")
    parser.add_argument("--voices", nargs="+", metavar="ID", help="of the one engine: compare them")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each half of a level")
    parser.add_argument("--minutes", type=float, default=0.0, help="for the largest level of the last engine")
    parser.add_argument("--workers", type=int, default=1, help="processes of cosyvoice2, of one thread each")
    parser.add_argument(
        "--start-ms", type=int, default=1000, help="least audio with which a prompt of cosyvoice2 begins"
    )
    parser.add_argument("--name", default="cpu_voices", help="of the file in bench/results")
    options = parser.parse_args()
    os.environ.setdefault("CC_TTS_PJSUA2", "server")
    if options.voices:
        asyncio.run(compare(options))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(save(options.name, asyncio.run(run(options, Path(folder)))))


if __name__ == "__main__":
    main()
