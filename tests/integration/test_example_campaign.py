"""The campaign of the tutorial against servers that are full for a while or refuse its words, here played by the test."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.example_campaign import run_campaign

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TIMES_FULL = 2
ANN = "sip:ann@127.0.0.1,Ann,Monday"


class FullServer:
    """Answers each command on a call with 503 for some times, and then obeys."""

    def __init__(self, result: str = "human", cause: str = "short_greeting") -> None:
        self.asked: list[str] = []
        self.answered = {"result": result, "cause": cause}
        self.num_placed = 0
        self._events: dict[str, web.WebSocketResponse] = {}
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
        socket = self._events[request.query["call_id"]] = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    async def _tell(self, kind: str, call_id: str, **data: Any) -> None:
        await self._events[call_id].send_json({"id": "1", "type": kind, "call_id": call_id, "data": data})

    async def _place(self, request: web.Request) -> web.Response:
        assert (await request.json())["amd"] == {}
        self.num_placed += 1
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
        await self._tell("call.gather_complete", call_id, valid=True, prompt_error=None)

    async def _hang_up(self, request: web.Request) -> web.Response:
        self.asked.append("hangup")
        await self._tell("call.terminated", request.match_info["id"], ending={"reason": "local_hangup"})
        return web.json_response({})


class MachineServer(FullServer):
    async def _place(self, request: web.Request) -> web.Response:
        response = await super()._place(request)
        await self._tell("call.machine_greeting_ended", (await request.json())["call_id"], by="beep")
        return response


class BusyServer(FullServer):
    """The call ends before anybody answers, ``times``; then somebody does."""

    def __init__(self, reason: str, times: int) -> None:
        super().__init__()
        self.reason, self.times = reason, times

    async def _place(self, request: web.Request) -> web.Response:
        if self.num_placed >= self.times:
            return await super()._place(request)
        self.num_placed += 1
        call_id = (await request.json())["call_id"]
        await self._tell("call.machine_detected", call_id, result="unknown", cause="call_ended")
        await self._tell("call.terminated", call_id, ending={"reason": self.reason})
        return web.json_response({}, status=201)


class RefusingServer(FullServer):
    async def _answer(self, action: str, call_id: str) -> web.Response:
        if action == "gather":
            return web.json_response({"code": "language_unsupported"}, status=422)
        await self._tell("call.terminated", call_id, ending={"reason": "prompt_finished"})
        return web.json_response({}, status=201)


class MuteServer(FullServer):
    """Accepts the question, of which nothing is heard, and no key is pressed."""

    async def _gathered(self, call_id: str) -> None:
        await self._tell("call.gather_complete", call_id, valid=False, prompt_error="no_audio")


async def results_of(server: FullServer, folder: Path) -> list[str]:
    async with TestServer(server.app) as running:
        rows = await run_campaign(str(running.make_url("/")), f"{ANN}\n", folder)
    assert [",".join(who) for *who, _ in rows] == [ANN]
    return [result for *_, result in rows]


async def test_a_person_is_not_hung_up_on_by_a_server_that_is_full(tmp_path: Path) -> None:
    server = FullServer()
    assert await results_of(server, tmp_path) == ["confirmed"]
    assert server.asked == ["gather"] * (TIMES_FULL + 1) + ["speak"] * (TIMES_FULL + 1)


async def test_a_machine_is_left_a_message_after_its_beep_and_asked_nothing(tmp_path: Path) -> None:
    server = MachineServer("machine", "long_greeting")
    assert await results_of(server, tmp_path) == ["message_left"]
    assert set(server.asked) == {"speak"}


@pytest.mark.parametrize("result", ["fax", "ivr", "unavailable"])
async def test_what_is_no_person_is_asked_nothing(result: str, tmp_path: Path) -> None:
    server = FullServer(result, "fax_tone")
    assert await results_of(server, tmp_path) == [result]
    assert set(server.asked) == {"speak"}  # the goodbye, which hangs up


@pytest.mark.parametrize(
    ("reason", "times", "result", "num_placed"),
    [
        pytest.param("busy", 2, "confirmed", 3, id="busy twice"),
        pytest.param("no_answer", 9, "no_answer", 3, id="never there"),
        pytest.param("declined", 9, "declined", 1, id="does not want to be called"),
    ],
)
async def test_who_is_busy_or_away_is_called_again(
    reason: str, times: int, result: str, num_placed: int, tmp_path: Path
) -> None:
    server = BusyServer(reason, times)
    assert await results_of(server, tmp_path) == [result]
    assert server.num_placed == num_placed
    assert bool(server.asked) == (result == "confirmed")


async def test_nobody_is_called_outside_the_calling_hours(tmp_path: Path) -> None:
    server = FullServer()
    async with TestServer(server.app) as running:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await run_campaign(str(running.make_url("/")), f"{ANN}\n", tmp_path, hours=(24, 24))
    assert server.num_placed == 0


async def test_a_person_whose_question_is_refused_hears_a_goodbye_and_the_result_says_why(tmp_path: Path) -> None:
    server = RefusingServer()
    assert await results_of(server, tmp_path) == ["language_unsupported"]
    assert server.asked == ["gather", "speak"]


async def test_a_person_who_heard_nothing_was_not_reminded(tmp_path: Path) -> None:
    assert await results_of(MuteServer(), tmp_path) == ["no_audio"]
