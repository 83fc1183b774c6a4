"""A call that is spoken to by workers on other machines, here other processes, which die one after the other."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from lab.children import Child
from lab.configured import logged, of_kind, server_with
from lab.ports import HOST, free_ports
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.test_reload import change, reload

pytest.importorskip("grpc")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

TEXT = "Thank you for calling, please hold the line."
# Each sentence is a segment: the first is short enough to be said first, any two of the others are too long for one.
LONG_TEXT = "Number 1 of the things that we have to tell you is this. " + " ".join(
    f"Number {number} of the many things that we have to tell you today, and that you may want to write down, is this."
    for number in range(2, 9)
)
OLD, NEW = "0.9.0", "0.10.0"
START_TIMEOUT_S = 90.0
SPEAK_TIMEOUT_S = 90.0


async def start_worker(folder: Path, number: int, generation: str) -> tuple[Child, str]:
    address = f"{HOST}:{free_ports()}"
    argv = [sys.executable, "-m", "cc_tts.cli", "worker", "--listen", address, "--set", "tts.engine=onnx"]
    argv += ["--set", "tts.first_audio_target_ms=60000", "--generation", generation]
    child = await Child.start(argv, log_path=folder / f"worker-{number}.log")
    await until(lambda: "worker_listens" in child.log, START_TIMEOUT_S)
    return child, f"grpc://{address}"


async def speaking(server: Server, addresses: list[str]) -> int:
    async with asyncio.timeout(SPEAK_TIMEOUT_S):
        while True:
            metrics = (await server.get_text("/metrics"))[1]
            for number, address in enumerate(addresses):
                if f'cctts_engine_streams{{worker="{address}"}} 1.0' in metrics:
                    return number
            await asyncio.sleep(0.02)


async def shown_workers(server: Server, num_workers: int) -> dict[str, str]:
    async with asyncio.timeout(START_TIMEOUT_S):
        while len(workers := (await server.get("/v1/cluster"))[1]["workers"]) < num_workers:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.05)
    return {worker["address"]: worker["generation"] for worker in workers}


async def test_workers_die_one_after_the_other_and_the_call_is_spoken_to(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    generations = (OLD, NEW)
    started = await asyncio.gather(*(start_worker(tmp_path, *each) for each in enumerate(generations)))
    children, addresses = [child for child, _ in started], [address for _, address in started]
    settings = {
        "tts__engine": "onnx",
        "tts__devices": "[]",
        "tts__workers": json.dumps(addresses),
        "tts__voice": "",
        "tts__fallback_engine": "espeak",
        "cache__enabled": "false",
    }
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        _, body = await server.get("/v1/voices")
        assert [(voice["id"], voice["engine"]) for voice in body["voices"]] == [("hibari-heart", "onnx")]
        await until(lambda: len(logged(server, "worker_connected")) == 2, START_TIMEOUT_S)
        assert await shown_workers(server, 2) == dict(zip(addresses, generations, strict=True))
        change(server, "[tts]", f'[tts]\ngenerations = {{"{OLD}" = 1.0}}')
        assert (await reload(server))["changed"] == ["tts.generations"]
        call_id = await phone.establish(server.uri("silent"), log)
        spoken = await server.create(f"/v1/calls/{call_id}/speak", {"text": LONG_TEXT})
        await log.wait("speak.started", timeout_s=SPEAK_TIMEOUT_S)
        first = await speaking(server, addresses)
        assert generations[first] == OLD
        os.kill(children[first].pid, signal.SIGKILL)
        complete = await log.wait("speak.complete", timeout_s=SPEAK_TIMEOUT_S)
        assert complete["data"]["completion_cause"] == "normal", server.log[-3000:]
        (recovered,) = of_kind(log.events, "speak.recovered")
        assert recovered["data"].items() >= {"utterance_id": spoken["id"], "reason": "worker_lost"}.items()
        assert LONG_TEXT[recovered["data"]["char_start"] :].startswith("Number "), recovered
        assert LONG_TEXT[: recovered["data"]["char_start"]].count("Number ") == recovered["data"]["text_chunk"]
        assert "cctts_engine_resumed_total 1.0" in (await server.get_text("/metrics"))[1]
        assert (await server.get("/readyz"))[0] == 200

        os.kill(children[1 - first].pid, signal.SIGKILL)
        await until(lambda: logged(server, "speech_degraded"), START_TIMEOUT_S)
        assert (await server.get("/readyz"))[0] == 200
        answer = await server.create(f"/v1/calls/{call_id}/speak", {"text": TEXT})
        after = await log.wait("speak.complete", utterance_id=answer["id"], timeout_s=SPEAK_TIMEOUT_S)
        assert after["data"]["completion_cause"] == "normal", server.log[-3000:]
        assert (await server.only_call())["state"] == "established"
        await phone.hangup()
