"""The campaign of the tutorial against servers that are full for a while or refuse its words, here played by the test, and
with files as spreadsheets and people leave them.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lab.waiting import until
from tests.support.example_campaign import HEADER, SCRIPT, campaign, results_in, run_campaign
from tests.support.served_app import served

pytestmark = pytest.mark.integration

TIMES_FULL = 2
ANN = "sip:ann@127.0.0.1,Ann,Monday"


class FullServer:
    """Answers each command on a call with 503 for some times, and then obeys."""

    def __init__(self, result: str = "human", cause: str = "short_greeting") -> None:
        self.asked: list[str] = []
        self.answered = {"result": result, "cause": cause}
        self.placed: list[str] = []
        """Who was called, in order."""
        self._live: set[str] = set()
        self._events: dict[str, web.WebSocketResponse] = {}
        self.app = web.Application()
        self.app.add_routes(
            [
                web.get("/readyz", self._say_ready),
                web.get("/v1/events", self._follow),
                web.post("/v1/calls", self._place),
                web.post("/v1/calls/{id}/{action}", self._command),
                web.delete("/v1/calls/{id}", self._hang_up),
            ]
        )

    @property
    def num_placed(self) -> int:
        return len(self.placed)

    async def _say_ready(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _follow(self, request: web.Request) -> web.WebSocketResponse:
        socket = self._events[request.query["call_id"]] = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    async def _tell(self, kind: str, call_id: str, **data: Any) -> None:
        (self._live.discard if kind == "call.terminated" else self._live.add)(call_id)
        await self._events[call_id].send_json({"id": "1", "type": kind, "call_id": call_id, "data": data})

    async def _place(self, request: web.Request) -> web.Response:
        assert (await request.json())["amd"] == {}
        self.placed.append((await request.json())["to"])
        await self._tell("call.machine_detected", (await request.json())["call_id"], **self.answered)
        return web.json_response({}, status=201)

    async def _command(self, request: web.Request) -> web.Response:
        self.asked.append(request.match_info["action"])
        return await self._answer(request.match_info["action"], request.match_info["id"])

    async def _answer(self, action: str, call_id: str) -> web.Response:
        if self.asked.count(action) <= TIMES_FULL:
            return web.json_response(
                {"code": "engine_overloaded", "detail": "full"}, status=503, headers={"Retry-After": "0"}
            )
        if action == "gather":
            await self._gathered(call_id)
        else:
            await self._tell("call.terminated", call_id, ending={"reason": "prompt_finished"})
        return web.json_response({}, status=201)

    async def _gathered(self, call_id: str) -> None:
        await self._tell("call.gather_complete", call_id, valid=True, prompt_error=None)

    async def _hang_up(self, request: web.Request) -> web.Response:
        if request.match_info["id"] not in self._live:
            return web.json_response({})
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
        self.placed.append((await request.json())["to"])
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


@contextlib.asynccontextmanager
async def calling(
    server: FullServer, people: bytes, folder: Path, **how: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    async with (
        served(server.app) as port,
        campaign(f"http://127.0.0.1:{port}/", people, folder, **how) as process,
    ):
        yield process


async def results_of(server: FullServer, folder: Path) -> list[str]:
    async with served(server.app) as port:
        rows = await run_campaign(f"http://127.0.0.1:{port}/", f"{ANN}\n", folder)
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
    async with served(server.app) as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await run_campaign(f"http://127.0.0.1:{port}/", f"{ANN}\n", tmp_path, hours=(24, 24))
    assert server.num_placed == 0


async def test_a_person_whose_question_is_refused_hears_a_goodbye_and_the_result_says_why(tmp_path: Path) -> None:
    server = RefusingServer()
    assert await results_of(server, tmp_path) == ["language_unsupported"]
    assert server.asked == ["gather", "speak"]


async def test_a_person_who_heard_nothing_was_not_reminded(tmp_path: Path) -> None:
    assert await results_of(MuteServer(), tmp_path) == ["no_audio"]


class QuickServer(FullServer):
    """Answers at once, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[str] = []

    async def _command(self, request: web.Request) -> web.Response:
        if request.match_info["action"] == "gather":
            self.questions.append((await request.json())["prompt"]["text"])
        return await super()._command(request)

    async def _answer(self, action: str, call_id: str) -> web.Response:
        self.asked += [action] * TIMES_FULL  # it is never full
        return await super()._answer(action, call_id)


@pytest.mark.parametrize(
    ("people", "placed", "said"),
    [
        pytest.param(f"\ufeff{HEADER}{ANN}\n", 1, "Hello Ann. You have an appointment on Monday.", id="BOM"),
        pytest.param(f"{HEADER}{ANN}".replace("\n", "\r\n"), 1, "on Monday.", id="CRLF, no last line end"),
        pytest.param(f"{HEADER}{ANN}\n".replace(",", ";"), 1, "Hello Ann.", id="semicolons"),
        pytest.param("to, name, when\nsip:ann@h, Ann, Monday\n", 1, "Hello Ann. You", id="blanks behind commas"),
        pytest.param(f'{HEADER}+4930123,"Ann,\n""Annie""",Monday\n', 1, 'Hello Ann,\n"Annie".', id="quotes over lines"),
        pytest.param(f"{HEADER}{ANN}\n\n,,\n{ANN}\n", 1, "Hello Ann.", id="rows of empty cells, and one row twice"),
        pytest.param(
            f"{HEADER}10086,王小明,周一\n10086,王小明,周二\n", 2, "Hello 王小明.", id="Chinese, a number twice"
        ),
    ],
)
async def test_people_are_called_as_a_spreadsheet_has_them(people: str, placed: int, said: str, tmp_path: Path) -> None:
    server = QuickServer()
    async with calling(server, people.encode(), tmp_path) as process:
        await process.communicate()
    assert [row[-1] for row in results_in(tmp_path)] == ["confirmed"] * placed
    assert server.num_placed == placed
    assert all(said in question for question in server.questions)


@pytest.mark.parametrize(
    ("people", "told"),
    [
        pytest.param(f"{HEADER}{ANN}\nsip:bob@h,Bob\n".encode(), "line 3: when is missing", id="a cell is missing"),
        pytest.param(b"to,name\nsip:bob@h,Bob\n", "when is missing", id="a column is missing"),
        pytest.param(f"{HEADER},Bob,Monday\n".encode(), "to is missing", id="a number is missing"),
        pytest.param(
            f"{HEADER}1.38E+10,Bob,Monday\n".encode(), "line 2: '1.38E+10' is no number", id="of a spreadsheet"
        ),
        pytest.param(f"{HEADER}sip:b@h,Bob, Bo,May 3\n".encode(), "more cells than the first", id="a comma in a name"),
        pytest.param(
            f'{HEADER}{ANN}\nsip:b@h,"Bob,May 3\n'.encode(), "behind line 2: unexpected end", id="an open quote"
        ),
        pytest.param(f"{HEADER}10086,王小明,周一\n".encode("gbk"), "is not UTF-8", id="GBK"),
        pytest.param(f"{HEADER}{ANN}\n".encode("utf-16"), "is not UTF-8", id="UTF-16"),
    ],
)
async def test_nobody_is_called_of_a_file_that_is_unclear(people: bytes, told: str, tmp_path: Path) -> None:
    server = QuickServer()
    async with calling(server, people, tmp_path) as process:
        _, error = await process.communicate()
    assert (process.returncode, server.num_placed) == (1, 0)
    assert told in error.decode()
    assert "Traceback" not in error.decode()


class WaitingServer(QuickServer):
    """Bob says nothing for as long as the call lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()

    async def _gathered(self, call_id: str) -> None:
        if "Bob" not in self.questions[-1]:
            await super()._gathered(call_id)
        else:
            self.waits.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_a_campaign_that_is_ended_goes_on_where_it_was(number: signal.Signals, tmp_path: Path) -> None:
    people = f"{HEADER}{ANN}\n10086,Bob,Monday\n".encode()
    server = WaitingServer()
    async with calling(server, people, tmp_path) as process:
        await server.waits.wait()
        await until(lambda: bool(results_in(tmp_path)))
        process.send_signal(number)
        await process.communicate()
    assert results_in(tmp_path) == [[*ANN.split(","), "confirmed"]]
    assert ("hangup" in server.asked) == (number == signal.SIGINT), "nobody is left on a line that says nothing"
    later = QuickServer()
    async with calling(later, people, tmp_path) as process:
        await process.communicate()
    assert later.placed == ["10086"]
    assert results_in(tmp_path)[1:] == [["10086", "Bob", "Monday", "confirmed"]]


class DroppingServer(QuickServer):
    """Drops the first connection on which a call is to be placed."""

    async def _place(self, request: web.Request) -> web.Response:
        if self.asked.count("drop") < 1:
            self.asked.append("drop")
            assert request.transport is not None
            request.transport.close()
        return await super()._place(request)


async def test_a_lost_connection_ends_no_campaign(tmp_path: Path) -> None:
    assert await results_of(DroppingServer(), tmp_path) == ["confirmed"]


class EveningServer(QuickServer):
    """The hours of the campaign are over when the first call is placed; ``clock`` has the hour."""

    def __init__(self, clock: Path) -> None:
        super().__init__()
        self.clock = clock

    async def _place(self, request: web.Request) -> web.Response:
        self.clock.write_text("20")
        return await super()._place(request)


AT_HOUR = """
import runpy, sys, time, types
from pathlib import Path
clock, script, *arguments = sys.argv[1:]
time.localtime = lambda: types.SimpleNamespace(tm_hour=int(Path(clock).read_text()))
sys.argv = [script, *arguments]
sys.path.insert(0, str(Path(script).parent))
runpy.run_path(script, run_name="__main__")
"""
"""Runs a program at the hour that a file has."""


async def test_who_waits_for_a_line_is_not_called_after_the_hours(tmp_path: Path) -> None:
    clock = tmp_path / "hour"
    clock.write_text("19")
    people = HEADER + "".join(f"{number},Ann,Monday\n" for number in range(10, 20))
    server = EveningServer(clock)
    argv = ("-c", AT_HOUR, str(clock), SCRIPT)
    async with calling(server, people.encode(), tmp_path, hours=(9, 19), argv=argv) as process:
        await until(lambda: len(results_in(tmp_path)) >= server.num_placed > 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 2)
    assert server.num_placed <= 3, "those that had a line before"
