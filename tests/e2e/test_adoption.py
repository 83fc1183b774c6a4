"""The server is killed under calls: its UA process keeps them, and the next server takes them up."""

import signal
from pathlib import Path

import pytest

from bench.softphone import SoftphoneProcess
from tests.e2e.configured import server_with
from tests.e2e.server_under_test import Server

pytestmark = pytest.mark.e2e

TIMEOUT_S = 100.0


async def speak(server: Server, call_id: str, text: str, **more: object) -> str:
    status, answer = await server.post(f"/v1/calls/{call_id}/speak", {"text": text, **more})
    assert status == 201, answer
    utterance_id: str = answer["id"]
    return utterance_id


async def test_an_established_call_outlives_the_server_and_speaks_again(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    async with server_with(tmp_path) as server:
        async with server.events() as log:
            await phone.dial(server.uri("long"))
            await log.wait("speak.started", timeout_s=TIMEOUT_S)
        before = await server.only_call()
        assert await server.replace(signal.SIGKILL) == -signal.SIGKILL
        after = await server.only_call()
        same = ("id", "direction", "state", "caller", "callee", "sip_call_id", "codec", "utterances", "created_at")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        async with server.events() as log:
            utterance_id = await speak(server, after["id"], "I am back.")
            await log.wait("speak.complete", timeout_s=TIMEOUT_S, utterance_id=utterance_id, completion_cause="normal")
            await phone.hangup()
            await log.wait("call.terminated", timeout_s=TIMEOUT_S)
