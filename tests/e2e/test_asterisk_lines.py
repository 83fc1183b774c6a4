"""Asterisk 22 brings calls without a SIP trunk: by its WebSocket channel and by AudioSocket, with the files of
``dialplans/asterisk/``. The phone is our softphone, so each call is phone - Asterisk - line.
"""

import asyncio
import contextlib
import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from lab import audio_match
from lab.asterisk import NODES, Asterisk, require_asterisk
from lab.configured import Lend, of_kind
from lab.ports import free_ports
from lab.server_under_test import LONG_GREETING, EventLog, Json, Server, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.asterisk_lab import MOST, RECORDING_SLIP_MS, asterisk_for, numbering_plan, reference

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

BALANCE = "Your balance is 12 dollars."
BOTH = (("521", "asterisk_ws"), ("522", "audiosocket"))
"""A number of the dialplan whose call stays up, and how that comes."""
SETTLED_MS = 400.0
"""After a key that interrupts the phone hears nothing new: the way of the key, our ticks, and the phone's buffer."""


@functools.cache
def places() -> tuple[str, str]:
    """Where Asterisk connects to by WebSocket and by AudioSocket."""
    return f"{NODES[0]}:{free_ports()}", f"{NODES[0]}:{free_ports()}"


@pytest_asyncio.fixture(loop_scope="session")
async def server(lend: Lend) -> AsyncIterator[Server]:
    require_asterisk()
    by_websocket, by_audiosocket = (place.rpartition(":")[2] for place in places())
    settings = {
        "asterisk__host": NODES[0],
        "asterisk__websocket_port": by_websocket,
        "asterisk__audiosocket_port": by_audiosocket,
        "asterisk__username": "asterisk",
        "asterisk__password": "change-me-please",
        "asterisk__route": "agent",
    }
    async with lend(**numbering_plan(), sip__host=NODES[0], **settings) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[[Server], Awaitable[Asterisk]]]:
    """Gives Asterisk, which is started beside the first server and knows the others by their lines."""
    running: list[Asterisk] = []
    async with contextlib.AsyncExitStack() as stack:

        async def start(server: Server) -> Asterisk:
            if not running:
                folder = tmp_path_factory.mktemp("lines")
                running.append(await stack.enter_async_context(asterisk_for(folder, server, lines=places())))
                running[0].share()
            return running[0]

        yield start


@pytest_asyncio.fixture(loop_scope="session")
async def pbx(
    started: Callable[[Server], Awaitable[Asterisk]], server: Server, nothing_is_left_running: None
) -> Asterisk:
    running = await started(server)
    await running.begin()
    return running


async def up(server: Server, pbx: Asterisk, phone: SoftphoneProcess, number: str, record: Path | str = "") -> Json:
    await phone.dial(pbx.uri(number), record=record)
    return await server.until_call(lambda call: call["state"] == "established")


async def spoken_to(server: Server, call: Json, log: EventLog) -> None:
    await server.ask(f"/v1/calls/{call['id']}/speak", {"text": LONG_GREETING})
    await log.wait("speak.started")


async def test_the_dialplan_has_a_text_spoken_and_goes_on(
    server: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with server.events() as log:
        await phone.dial(pbx.uri("520"), record=tmp_path / "phone.wav")
        report = await phone.report()
        complete = await log.wait("speak.complete")
    assert (complete["data"]["completion_cause"], complete["data"]["spoken_text"]) == ("normal", BALANCE)
    line = await pbx.event("UserEvent", UserEvent="TtsLine")
    assert line["Status"] == "ANSWER"
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
    call = await server.only_call()
    assert (call["transport"], call["codec"], call["srtp"]) == ("asterisk_ws", "PCMU", False)
    assert call["ending"] == {"result": "completed", "reason": "prompt_finished", "sip_code": 200}
    assert call["headers"]["X-Call-Ref"]
    heard, _ = audio_match.read_wav(tmp_path / "phone.wav")
    wanted = await reference(BALANCE, tmp_path)
    assert audio_match.share_heard(wanted, heard, slip_ms=RECORDING_SLIP_MS) >= MOST


async def test_the_dialplan_knows_that_a_call_was_refused(server: Server, pbx: Asterisk) -> None:
    local = {"Channel": "Local/520@from-phone/n", "Application": "Wait", "Data": "5", "Async": "true"}
    async with server.events() as log:
        await pbx.action("Originate", Variable="__TTS_VOICE=nobody", **local)
        ended = await log.wait("call.terminated")
    assert ended["data"]["ending"] == {"result": "rejected", "reason": "unknown_voice", "sip_code": 400}
    assert (await pbx.event("UserEvent", UserEvent="TtsLine"))["Status"] == "NOANSWER"


@pytest.mark.parametrize(("number", "transport"), BOTH)
async def test_a_key_interrupts_and_a_gather_collects(
    server: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path, number: str, transport: str
) -> None:
    async with server.events() as log:
        call = await up(server, pbx, phone, number, record=tmp_path / "phone.wav")
        assert call["transport"] == transport
        await server.ask(f"/v1/calls/{call['id']}/record", {"tracks": "agent", "encoding": "pcm16"})
        await spoken_to(server, call, log)
        await asyncio.sleep(1.0)  # some words
        pressed_ns = (await phone.dtmf("5"))["at_ns"]
        key = await log.wait("call.dtmf", digit="5")
        complete = await log.wait("speak.complete")
        await server.ask(f"/v1/calls/{call['id']}/gather", {"prompt": {"text": "Your number."}, "max_digits": 4})
        await phone.dtmf("123")
        gathered = await log.wait("call.gather_complete")
        await asyncio.sleep(0.5)
        report = await phone.hangup()
        ended = await log.wait("call.terminated")
        recorded = await log.wait("call.recording", state="saved")
    assert key["data"]["method"] == "line"
    assert complete["data"]["completion_cause"] == "barge_in"
    assert 0 < len(complete["data"]["spoken_text"]) < len(LONG_GREETING)
    assert (gathered["data"]["digits"], gathered["data"]["valid"]) == ("5123", True), (
        "the key that interrupted was typed ahead"
    )
    assert ended["data"]["ending"]["reason"] == "remote_hangup"
    said_ms = (pressed_ns - report["first_speech_at_ns"]) / 1e6
    assert complete["data"]["played_ms"] <= said_ms + SETTLED_MS
    path = f"/v1/recordings/{recorded['data']['recording_id']}"
    seconds = (await server.read(path))["duration_ms"] / 1000
    assert seconds == pytest.approx((report["ended_at_ns"] - report["answered_at_ns"]) / 1e9, abs=1.0)
    (tmp_path / "sent.wav").write_bytes((await server.get_bytes(f"{path}/audio"))[1])
    sent, heard = (audio_match.read_wav(tmp_path / name)[0] for name in ("sent.wav", "phone.wav"))
    spoken = sent[np.abs(sent).argmax() - 800 :][:4000]
    assert audio_match.share_heard(spoken, heard, slip_ms=RECORDING_SLIP_MS) >= MOST, "it has what the caller heard"
    assert not log_faults(server)


def log_faults(server: Server) -> list[Json]:
    return [
        line for event in ("media_refused", "report_failed", "line_malformed") for line in entries(server.log, event)
    ]


@pytest.mark.parametrize(("number", "transport"), BOTH)
async def test_what_a_line_cannot_do_is_refused_and_the_call_goes_on(
    server: Server, pbx: Asterisk, phone: SoftphoneProcess, number: str, transport: str
) -> None:
    call = await up(server, pbx, phone, number)
    path = f"/v1/calls/{call['id']}"
    for command, body in (
        ("hold", {}),
        ("transfer", {"to": "sip:1600@127.0.0.1:5060"}),
        ("dtmf", {"digits": "1"}),
    ):
        status, answer = await server.post(f"{path}/{command}", body)
        assert status == 409, answer
        assert answer["code"] in ("line_unsupported", "dtmf_unsupported"), answer
        assert transport in answer["detail"]
    assert (await server.only_call())["state"] == "established"
    await server.ask(f"{path}/hangup", {})
    report = await phone.report()
    assert report["ending"]["by"] == "them"


async def test_an_application_knows_an_audiosocket_call_by_its_uuid(
    server: Server, pbx: Asterisk, phone: SoftphoneProcess
) -> None:
    call = await up(server, pbx, phone, "522")
    assert call["id"] == "call_" + call["sip_call_id"].replace("-", "")
    await phone.hangup()


async def test_twenty_calls_at_once(server: Server, pbx: Asterisk) -> None:
    async with server.events() as log:
        for _ in range(10):
            for number in ("520", "522"):
                local = {
                    "Channel": f"Local/{number}@from-phone/n",
                    "Application": "Wait",
                    "Data": "20",
                    "Async": "true",
                }
                await pbx.action("Originate", **local)
        await until(lambda: len(of_kind(log.events, "call.established")) == 20)
        by_socket = [call for call in await server.calls() if call["transport"] == "audiosocket"]
        for call in by_socket:
            await server.ask(f"/v1/calls/{call['id']}/speak", {"text": BALANCE, "then": "hangup"})
        complete = await log.several("speak.complete", 20)
        await log.several("call.terminated", 20)
    assert {each["data"]["completion_cause"] for each in complete} == {"normal"}
    assert sum(each["data"]["underruns"] for each in complete) == 0
    assert not log_faults(server)


async def test_calls_end_when_asterisk_dies(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        running = await Asterisk.start(tmp_path, server, lines=places())
        for number, _ in BOTH:
            local = {"Channel": f"Local/{number}@from-phone/n", "Application": "Wait", "Data": "60", "Async": "true"}
            await running.action("Originate", **local)
        await log.several("call.established", 2)
        await running.kill()
        ended = await log.several("call.terminated", 2)
    assert {each["data"]["ending"]["reason"] for each in ended} == {"remote_hangup"}


async def test_calls_end_with_the_process_of_their_lines_which_is_started_again(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    pbx = await Asterisk.start(tmp_path, server, lines=places())  # it logs an error when its connection breaks
    async with server.events() as log:
        await up(server, pbx, phone, "521")
        (pid,) = server.pids_of("cc_tts.ua.lines")
        server.signal(signal.SIGKILL, pid=pid)
        ended = await log.wait("call.terminated")
        assert ended["data"]["ending"] == {"result": "failed", "reason": "ua_process_died", "sip_code": None}
        assert (await phone.report())["ending"]["by"] == "them", "Asterisk sees that nobody is there"
        ready = {"child": "lines"}.items()
        await until(lambda: any(ready <= each.items() for each in entries(server.log, "child_ready")))
        await phone.dial(pbx.uri("520"), call="2")
        assert (await phone.report(call="2"))["ending"]["result"] == "completed"
    assert await pbx.end() == 0


async def test_a_call_outlives_the_server(server: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call = await up(server, pbx, phone, "521")
        await spoken_to(server, call, log)
    await server.replace(signal.SIGKILL)
    adopted = await server.read(f"/v1/calls/{call['id']}")
    assert (adopted["state"], adopted["transport"]) == ("established", "asterisk_ws")
    assert adopted["headers"] == call["headers"]
    async with server.events() as log:
        await server.ask(f"/v1/calls/{call['id']}/speak", {"text": BALANCE, "queue": "replace", "then": "hangup"})
        complete = await log.wait("speak.complete", completion_cause="normal")
        assert complete["data"]["spoken_text"] == BALANCE
        assert (await phone.report())["ending"]["by"] == "them"
