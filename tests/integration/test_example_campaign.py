"""The campaign of the tutorial against servers that are full for a while or refuse its words, here played by the test."""

import asyncio
import csv
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.architecture.state_tables import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TIMES_FULL = 2


class FullServer:
    """Answers each command on a call with 503 for some times, and then obeys."""

    def __init__(self, result: str = "human", cause: str = "short_greeting") -> None:
        self.asked: list[str] = []
        self.answered = {"result": result, "cause": cause}
        self._events: web.WebSocketResponse | None = None
        self.app = web.Application()
        self.app.add_routes(
            [
                web.get("/v1/events", self._follow),
                web.post("/v1/calls", self._place),
                web.post("/v1/calls/{id}/{action}", self._command),
                web.delete("/v1/calls/{id}", self._hang_up),
            ]
        )

    async def _follow(self, request: web.Request) -> web.WebSocketResponse:
        self._events = web.WebSocketResponse()
        await self._events.prepare(request)
        await self._events.receive()
        return self._events

    async def _tell(self, kind: str, call_id: str, **data: Any) -> None:
        assert self._events is not None
        await self._events.send_json({"id": "1", "type": kind, "call_id": call_id, "data": data})

    async def _place(self, request: web.Request) -> web.Response:
        assert (await request.json())["amd"] == {}
        await self._tell("call.machine_detected", (await request.json())["call_id"], **self.answered)
        return web.json_response({}, status=201)

    async def _command(self, request: web.Request) -> web.Response:
        self.asked.append(request.match_info["action"])
        return await self._answer(request.match_info["action"], request.match_info["id"])

    async def _answer(self, action: str, call_id: str) -> web.Response:
        if self.asked.count(action) <= TIMES_FULL:
            return web.json_response({"code": "engine_overloaded"}, status=503, headers={"Retry-After": "0"})
        if action == "gather":
            await self._gathered(call_id)
        else:
            await self._tell("call.terminated", call_id, ending={"reason": "prompt_finished"})
        return web.json_response({}, status=201)

    async def _gathered(self, call_id: str) -> None:
        await self._tell("call.gather_complete", call_id, valid=True)

    async def _hang_up(self, request: web.Request) -> web.Response:
        self.asked.append("hangup")
        await self._tell("call.terminated", request.match_info["id"], ending={"reason": "local_hangup"})
        return web.json_response({})


class MachineServer(FullServer):
    """A machine answers, and beeps."""

    async def _place(self, request: web.Request) -> web.Response:
        response = await super()._place(request)
        await self._tell("call.machine_greeting_ended", (await request.json())["call_id"], by="beep")
        return response


class BusyServer(FullServer):
    """The call ends before anybody answers."""

    async def _place(self, request: web.Request) -> web.Response:
        response = await super()._place(request)
        await self._tell("call.terminated", (await request.json())["call_id"], ending={"reason": "busy"})
        return response


class RefusingServer(FullServer):
    """Has no voice for the question."""

    async def _answer(self, action: str, call_id: str) -> web.Response:
        if action == "gather":
            return web.json_response({"code": "language_unsupported"}, status=422)
        await self._tell("call.terminated", call_id, ending={"reason": "prompt_finished"})
        return web.json_response({}, status=201)


class MuteServer(FullServer):
    """Accepts the question, of which nothing is heard, and no key is pressed."""

    async def _gathered(self, call_id: str) -> None:
        await self._tell("speak.complete", call_id, completion_cause="error", error="no_audio")
        await self._tell("call.gather_complete", call_id, valid=False)


async def results_of(server: FullServer, folder: Path) -> list[str]:
    """What the campaign writes of a call to one person."""
    people, results = folder / "people.csv", folder / "results.csv"
    people.write_text("to,name,when\nsip:ann@127.0.0.1,Ann,Monday\n")
    async with TestServer(server.app) as running:
        argv = [str(ROOT / "examples/campaign.py"), str(running.make_url("/")), str(people), str(results)]
        campaign = await asyncio.create_subprocess_exec(sys.executable, *argv)
        assert await campaign.wait() == 0
    with results.open(newline="") as file:
        return [row["result"] for row in csv.DictReader(file)]


async def test_a_person_is_not_hung_up_on_by_a_server_that_is_full(tmp_path: Path) -> None:
    server = FullServer()
    assert await results_of(server, tmp_path) == ["confirmed"]
    assert server.asked == ["gather"] * (TIMES_FULL + 1) + ["speak"] * (TIMES_FULL + 1)


async def test_a_machine_is_left_a_message_after_its_beep_and_asked_nothing(tmp_path: Path) -> None:
    server = MachineServer("machine", "long_greeting")
    assert await results_of(server, tmp_path) == ["message_left"]
    assert set(server.asked) == {"speak"}


@pytest.mark.parametrize("result", ["fax", "ivr", "unavailable"])
async def test_what_is_no_person_is_hung_up_on(result: str, tmp_path: Path) -> None:
    server = FullServer(result, "fax_tone")
    assert await results_of(server, tmp_path) == [result]
    assert server.asked == ["hangup"]


async def test_a_call_that_nobody_answers_is_asked_nothing(tmp_path: Path) -> None:
    server = BusyServer("unknown", "call_ended")
    assert await results_of(server, tmp_path) == ["busy"]
    assert server.asked == []


async def test_a_person_whose_question_is_refused_hears_a_goodbye_and_the_result_says_why(tmp_path: Path) -> None:
    server = RefusingServer()
    assert await results_of(server, tmp_path) == ["language_unsupported"]
    assert server.asked == ["gather", "speak"]


async def test_a_person_who_heard_nothing_was_not_reminded(tmp_path: Path) -> None:
    assert await results_of(MuteServer(), tmp_path) == ["no_audio"]
