"""Calls that are spoken to all the time by the neural engine, over SIP: do listeners run dry, does anything grow?

python -m bench.engine.calls [--calls 4] [--minutes 30]
CC_TTS_PJSUA2=server python -m bench.engine.calls --calls 8 --workers 2 --start-ms 2000 --name engine_calls_8

A small model of rule-filled weights, on the CPU; the caller is on the same machine. The speech means nothing, its amount and
its timing do.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.growth import footprint
from bench.report import machine, percentiles, save
from cc_tts.ua.pjsua2_build import chosen
from lab.server_under_test import EventLog, Json, Server
from lab.softphone import SoftphoneProcess

TEXTS = (
    "hello and welcome to the service line.",
    "your call is important to us, please hold the line.",
    "thank you for calling, goodbye.",
)
SAMPLES = 20
MAX_ASKED = 60
CALLS_A_PHONE = 4
SETTINGS = (
    'tts.engine="cosyvoice2"',
    "tts.num_threads=1",
    "tts.first_audio_target_ms=5000",
    "tts.overload_wait_ms=5000",
    "cache.enabled=false",
    "calls.max_duration_s=0",
    "http.event_queue_size=10000",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is held up for how long."""

    num_calls: int
    minutes: float
    num_workers: int
    start_ms: int
    """Least audio with which a prompt begins; a processor that others use, too, is late by hundreds of ms now and then."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Of the server."""
        devices = ", ".join(['"cpu"'] * self.num_workers)
        return (
            *SETTINGS,
            f"tts.devices=[{devices}]",
            f"playout.start_threshold_min_ms={self.start_ms}",
            f"playout.start_threshold_max_ms={2 * self.start_ms}",
            f"playout.window_ms={4 * self.start_ms}",
        )


def worker_pids(server: Server) -> list[int]:
    """Process ids of the engine workers."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"cc_tts.engines.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def prepared(folder: Path) -> tuple[str, ...]:
    """A model and an enrolled voice, as settings."""
    from bench.engine.model import VOICE, model_at, voice
    from cc_tts.voices.embedding_cache import EnrolledVoice
    from cc_tts.voices.library import VoiceLibrary, VoiceRecord

    model_at(folder / "model", "tiny")
    speaker = voice(VOICE, "tiny")
    library = VoiceLibrary(folder / "voices")
    key = "0" * 64
    library.features.store(
        EnrolledVoice(
            key=key,
            transcript=speaker.prompt_text,
            fingerprint="bench",
            duration_s=len(speaker.flow_tokens) / 25,
            warnings=(),
            llm_tokens=speaker.llm_tokens,
            flow_tokens=speaker.flow_tokens,
            flow_mel=speaker.flow_mel,
            embedding=speaker.embedding,
        )
    )
    library.store(VoiceRecord(id=VOICE, language="en", mode="zero_shot", key=key))
    return f"tts.model_dir={folder / 'model'}", f"tts.voices_dir={folder / 'voices'}", f'tts.voice="{VOICE}"'


class Talk:
    """One call: the next prompt begins when the last one has ended."""

    def __init__(self, server: Server, log: EventLog, call_id: str) -> None:
        self._server = server
        self._log = log
        self._call_id = call_id
        self.first_audio_ms: list[float] = []
        self.num_underruns = 0
        self.num_refused = 0
        self.played_ms = 0.0
        self.failures: list[str] = []

    async def go_on(self, until: float) -> None:
        """Speak until then."""
        texts = self._texts()
        while time.monotonic() < until:
            asked = await self._ask(next(texts))
            done = await self._log.wait("speak.complete", timeout_s=300, utterance_id=asked["id"])
            self._log.events.clear()
            self._note(done["data"], await self._server.read(f"/v1/utterances/{asked['id']}"))

    async def _ask(self, text: str) -> Json:
        """Speak; a refusal for want of room is asked again after the time that it names, as a caller would."""
        for _ in range(MAX_ASKED):
            url = f"{self._server.url}/v1/calls/{self._call_id}/speak"
            async with self._server.http.post(url, json={"text": text}) as response:
                answer: Json = await response.json()
            if response.ok:
                return answer
            self.num_refused += 1
            await asyncio.sleep(float(response.headers["Retry-After"]))
        raise RuntimeError(f"refused {MAX_ASKED} times: {answer}")

    def _texts(self) -> Iterator[str]:
        while True:
            yield from TEXTS

    def _note(self, event: Json, utterance: Json) -> None:
        if event["completion_cause"] != "normal":
            self.failures.append(str(utterance.get("error") or event["completion_cause"]))
            return
        self.first_audio_ms.append(utterance["time_to_first_audio_ms"])
        self.num_underruns += utterance["underruns"]
        self.played_ms += utterance["played_ms"]


async def run(plan: Plan) -> Json:
    """Hold the calls and speak on all of them."""
    num_calls, minutes = plan.num_calls, plan.minutes
    samples: list[Json] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = (*plan.settings, *await asyncio.to_thread(prepared, Path(folder)))
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(await Server.with_settings(*settings))
            num_phones = -(-num_calls // CALLS_A_PHONE)
            phones = [await stack.enter_async_context(await SoftphoneProcess.start()) for _ in range(num_phones)]
            workers = {f"worker {number}": pid for number, pid in enumerate(worker_pids(server))}
            pids = {"server": server.pid, "ua": server.ua_pid(), **workers}
            begin = time.monotonic()
            end = begin + 60 * minutes
            async with asyncio.TaskGroup() as group:
                talks = []
                for number in range(num_calls):
                    phone = phones[number // CALLS_A_PHONE]
                    await phone.dial(server.uri("bench"), call=str(number))
                    answered = await phone.wait_event("answered", call=str(number), timeout_s=10)
                    call_id = await server.call_id(answered["sip_call_id"])
                    log = await _log_of(server, call_id, group)
                    talks.append(Talk(server, log, call_id))
                speaking = [group.create_task(talk.go_on(end)) for talk in talks]
                while not all(task.done() for task in speaking):
                    samples.append(
                        {
                            "minute": round((time.monotonic() - begin) / 60, 1),
                            **{name: footprint(pid) for name, pid in pids.items()},
                        }
                    )
                    print(samples[-1], flush=True)
                    await asyncio.wait(speaking, timeout=60 * minutes / SAMPLES)
                for follower in list(_followers):
                    follower.cancel()
            for number in range(num_calls):
                await phones[number // CALLS_A_PHONE].hangup(call=str(number))
    warm = samples[max(1, len(samples) // 5)]
    return {
        "bench": "engine_calls",
        "machine": machine(),
        "pjsua2": "server build" if chosen().folder else "wheel",
        "settings": plan.settings,
        "calls": num_calls,
        "minutes": minutes,
        "prompts": sum(len(talk.first_audio_ms) for talk in talks),
        "audio_s": round(sum(talk.played_ms for talk in talks) / 1000, 1),
        "refused_and_asked_again": sum(talk.num_refused for talk in talks),
        "underruns": sum(talk.num_underruns for talk in talks),
        "failures": [failure for talk in talks for failure in talk.failures],
        "first_audio_ms": percentiles([each for talk in talks for each in talk.first_audio_ms]),
        "growth_since_minute": warm["minute"],
        "growth": {
            name: {key: round(samples[-1][name][key] - warm[name][key], 1) for key in warm[name]} for name in pids
        },
        "samples": samples,
    }


_followers: set[asyncio.Task[None]] = set()


async def _log_of(server: Server, call_id: str, group: asyncio.TaskGroup) -> EventLog:
    """The events of one call, followed until the calls are over."""
    log, opened = EventLog(), asyncio.Event()

    async def follow() -> None:
        async with server.http.ws_connect(f"{server.url}/v1/events?call_id={call_id}") as socket:
            opened.set()
            await log.read(socket)

    task = group.create_task(follow())
    _followers.add(task)
    await opened.wait()
    return log


def main() -> None:
    """Run and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=1, help="processes of the engine, of one thread each")
    parser.add_argument("--start-ms", type=int, default=1000, help="least audio with which a prompt begins")
    parser.add_argument("--name", default="engine_calls", help="of the file in bench/results")
    arguments = parser.parse_args()
    plan = Plan(
        num_calls=arguments.calls,
        minutes=arguments.minutes,
        num_workers=arguments.workers,
        start_ms=arguments.start_ms,
    )
    result = asyncio.run(run(plan))
    print({key: value for key, value in result.items() if key not in ("samples", "machine")})
    print(f"saved {save(arguments.name, result)}")


if __name__ == "__main__":
    main()
