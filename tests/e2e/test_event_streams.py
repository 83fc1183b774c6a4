"""Server-sent events, call defaults and the client's own state on real calls, each event held against the document."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator

from cc_tts.processes.tasks import cancel_all
from lab.configured import server_with, ua_pid, until_readyz
from lab.server_under_test import Json, Server
from lab.softphone import SoftphoneProcess
from lab.waiting import PATIENCE_S
from tests.support.event_source import EventSource

pytestmark = pytest.mark.e2e

CONNECT_TIMEOUT_S = 10.0
LONG_TEXT = "The weather is fine today and the queue is short, so please do not hang up. " * 3


class Reader:
    """A client that takes one event a connection and comes again after it, over and over."""

    def __init__(self, server: Server, asyncapi: Json) -> None:
        self._server = server
        self._asyncapi = asyncapi
        self._last_id = ""
        self.events: list[Json] = []
        self._changed = asyncio.Event()
        self.is_connected = asyncio.Event()

    async def read(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)) as session:
            with contextlib.suppress(aiohttp.ClientConnectionError):  # the server has stopped
                while True:
                    headers = {"Accept": "text/event-stream", "Last-Event-ID": self._last_id}
                    async with session.get(self._server.url + "/v1/events", headers=headers) as response:
                        assert response.status == 200, await response.text()
                        self.is_connected.set()
                        source = EventSource(response, timeout_s=None)
                        if (event := await source.next()) is not None:
                            self.take(event)
                        self._last_id = source.last_id

    def take(self, event: Json) -> None:
        payload = self._asyncapi["components"]["messages"][event["type"]]["payload"]
        Draft202012Validator({**payload, "components": self._asyncapi["components"]}).validate(event)
        self.events.append(event)
        self._changed.set()

    async def wait(self, kind: str, **data: Any) -> Json:
        """The first event of this type whose data holds these values."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for event in self.events:
                    if event["type"] == kind and data.items() <= event["data"].items():
                        return event
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def reading(server: Server) -> AsyncIterator[Reader]:
    status, asyncapi = await server.get("/v1/asyncapi.json")
    assert status == 200
    reader = Reader(server, asyncapi)
    task = asyncio.create_task(reader.read())
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await reader.is_connected.wait()
        yield reader
        assert not task.done() or task.exception() is None, task
    finally:
        await cancel_all(task)


async def test_a_call_from_its_first_to_its_last_event(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log, reading(server) as reader:
        await phone.dial(server.uri("silent"))
        call_id = (await reader.wait("call.established"))["call_id"]
        path = f"/v1/calls/{call_id}"
        status, call = await server.patch(path, {"barge_in": {"dtmf": False}, "metadata": {"customer": "4711"}})
        assert (status, call["barge_in"], call["metadata"]) == (
            200, {"dtmf": False, "speech": None}, {"customer": "4711"},
        )  # fmt: skip
        assert (await server.post(f"{path}/speak", {"text": "Protected by the call.", "client_state": "one"}))[0] == 201
        await reader.wait("speak.started", client_state="one")
        await phone.dtmf("5")
        key = await reader.wait("call.dtmf", digit="5")
        assert key["data"]["metadata"] == {"customer": "4711"}
        complete = await reader.wait("speak.complete", client_state="one")
        assert complete["data"]["completion_cause"] == "normal"

        assert (await server.patch(path, {"barge_in": None, "client_state": "of the call"}))[0] == 200
        assert (await server.post(f"{path}/speak", {"text": LONG_TEXT, "client_state": "two"}))[0] == 201
        await reader.wait("speak.started", client_state="two")
        await phone.dtmf("6")
        assert (await reader.wait("call.dtmf", digit="6"))["data"]["client_state"] == "of the call"
        complete = await reader.wait("speak.complete", client_state="two")
        assert complete["data"]["completion_cause"] == "barge_in"

        assert (await server.post(f"{path}/hangup", {"client_state": "the end"}))[0] == 200
        terminated = await reader.wait("call.terminated", client_state="the end")
        assert terminated["data"]["metadata"] == {"customer": "4711"}
        await log.wait("call.terminated")
        assert [event["id"] for event in reader.events] == [event["id"] for event in log.events]
        assert [event["seq"] for event in reader.events] == list(range(1, len(reader.events) + 1))


async def test_a_call_that_is_placed_carries_its_state_until_its_user_agent_dies(server: Server) -> None:
    body = {"to": server.uri("long"), "client_state": "ticket", "metadata": {"a": "b"}, "speak": LONG_TEXT}
    async with reading(server) as reader:
        status, call = await server.post("/v1/calls", body)
        assert (status, call["client_state"], call["metadata"]) == (201, "ticket", {"a": "b"})
        await reader.wait("speak.started", client_state="ticket")
        os.kill(ua_pid(server), signal.SIGKILL)
        complete = await reader.wait("speak.complete", client_state="ticket")
        terminated = await reader.wait("call.terminated", client_state="ticket", metadata={"a": "b"})
        assert terminated["data"]["ending"]["reason"] == "ua_process_died"
        assert complete["seq"] < terminated["seq"]
        own = [event for event in reader.events if event["call_id"] == call["id"]]
        assert {event["data"].get("client_state") for event in own} == {"ticket"}
        assert [event["seq"] for event in own] == list(range(1, len(own) + 1))
        status, problem = await server.patch(f"/v1/calls/{call['id']}", {"metadata": {}})
        assert (status, problem["code"]) == (409, "wrong_state")
    await until_readyz(server, 200)


async def test_a_drain_reaches_who_listens_and_another_run_is_410(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with server_with(tmp_path, calls__drain_timeout_s="0.5") as first, reading(first) as reader:
        await phone.dial(first.uri("silent"))
        await reader.wait("call.established")
        os.kill(first.pid, signal.SIGTERM)
        assert (await reader.wait("server.draining"))["data"] == {"calls": 1}
        last = await reader.wait("call.terminated")
        assert last["data"]["ending"]["reason"] == "draining"
    status, problem = await server.get(f"/v1/events?since={last['id']}")
    assert (status, problem["code"]) == (426, "upgrade_required")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last["id"]}
    async with aiohttp.ClientSession() as session, session.get(server.url + "/v1/events", headers=headers) as gone:
        assert (gone.status, (await gone.json(content_type=None))["code"]) == (410, "events_gone")
