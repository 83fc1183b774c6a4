"""``cc-tts drain``: it returns when the server has ended, and not while a call is up."""

import asyncio
import contextlib
import sys
from pathlib import Path

import aiohttp
import pytest

from lab.children import Child
from lab.configured import server_with
from lab.ports import free_ports
from lab.raw_sip import RawCaller, invite_once, options
from lab.server_under_test import Server
from lab.waiting import until
from tests.e2e.test_streamed_answers import stream_of

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0
TOKENS = '[{token = "may-only-read", scopes = ["read"]}, {token = "may-do-everything"}]'


async def drain(folder: Path, *arguments: str) -> Child:
    argv = [sys.executable, "-m", "cc_tts.cli", "drain", *arguments]
    return await Child.start(argv, log_path=folder / "drain.log")


async def test_it_waits_for_the_last_call_and_for_speech_that_a_client_gets_over_http(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, calls__drain_timeout_s="600") as server,
        server.events() as log,
        RawCaller("silent", server.sip_port) as caller,
        contextlib.AsyncExitStack() as sockets,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}/v1/speak?model=en-us&encoding=mulaw&sample_rate=8000") as socket,
    ):
        await caller.establish()
        call = await server.until_call(lambda call: call["state"] == "established")
        answer = await sockets.enter_async_context(stream_of(server, call))
        await answer.write("We are closing now. ", every_s=0.005)
        await socket.send_json({"type": "Speak", "text": "One moment please. "})
        assert (await socket.receive()).type is aiohttp.WSMsgType.TEXT
        child = await drain(tmp_path, "--config", str(server.config))
        await until(lambda: "draining: no new calls" in child.log)
        assert (await log.wait("server.draining"))["data"] == {"calls": 1}
        assert await server.post("/v1/admin/drain", {}) == (202, {"draining": True, "already": True})
        for refusal in (await invite_once("silent", server.sip_port), await options(server.sip_port)):
            assert (refusal.status, refusal.header("Retry-After")) == (503, "7")
        status, problem = await server.get("/readyz")
        assert (status, problem["reason"]) == (503, "draining")
        status, problem = await server.post("/v1/calls", {"to": "sip:x@127.0.0.1:9"})
        assert (status, problem["code"]) == (503, "draining")
        await asyncio.sleep(
            2.5
        )  # longer than an HTTP server waits that is told to stop, or the command between two looks
        assert child.returncode is None
        await answer.write("Thank you for calling. ", every_s=0.005)
        await answer.send("end")
        complete = await answer.wait("speak.complete")
        assert complete["spoken_text"] == "We are closing now. Thank you for calling. "
        await socket.send_json({"type": "Speak", "text": "Here is the rest of it."})
        await socket.send_json({"type": "Flush"})
        async with asyncio.timeout(TIMEOUT_S):
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
        assert "Flushed" in message.data
        assert child.returncode is None
        caller.send("BYE")
        await caller.final()
        assert await child.wait(TIMEOUT_S) == 0
        assert child.log.splitlines() == ["draining: no new calls", "drained"]
        assert await server.ended(TIMEOUT_S) == 0


async def test_it_uses_the_token_that_may(tmp_path: Path) -> None:
    port = free_ports()
    config = tmp_path / "serve.toml"
    config.write_text(
        f'[http]\nport = {port}\ntokens = {TOKENS}\n[sip]\nport = {free_ports(2)}\n[tts]\nengine = "espeak"\n'
    )
    serving = await Child.start(
        [sys.executable, "-m", "cc_tts.cli", "serve", "--config", str(config)], log_path=tmp_path / "server.log"
    )
    await until(lambda: '"serving"' in serving.log)
    child = await drain(tmp_path, "--config", str(config))
    assert await child.wait(TIMEOUT_S) == 0, child.log
    assert await serving.wait(TIMEOUT_S) == 0


async def test_what_keeps_it_from_draining(server: Server, tmp_path: Path) -> None:
    nobody = await drain(tmp_path, "--set", f"http.port={free_ports()}")
    assert await nobody.wait(TIMEOUT_S) == 1
    assert "nobody answers at http://127.0.0.1:" in nobody.log
    unable = await drain(tmp_path, "--set", 'http.tokens=[{token = "may-only-read", scopes = ["read"]}]')
    assert await unable.wait(TIMEOUT_S) == 2
    assert "http.tokens: none has the scope admin" in unable.log
    other = await drain(tmp_path, "--config", str(server.config), "--set", "http.port=" + str(server.sip_port))
    assert await other.wait(TIMEOUT_S) == 1
    assert "Traceback" not in other.log
    assert (await server.get("/readyz"))[0] == 200
