"""The server is killed under calls: its UA process keeps them, and the next server takes them up."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts.config import load as config
from cc_tts.processes.adoption import Adopt, adopt
from cc_tts.processes.channel import PROTOCOL_VERSION
from cc_tts.ua.client import settings_of
from lab.configured import Lend, is_running, logged, of_kind, server_with, ua_pid, until_readyz
from lab.ports import free_ports
from lab.raw_sip import RawCaller, RawPeer, RtpEar, invite_once
from lab.server_under_test import EventLog, Json, Server, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.test_registration import place
from tests.e2e.test_ua_processes import TWO, pids, until_both

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(300)]

TIMEOUT_S = 100.0
LONG_TEXT = "This is a long sentence that says nothing, and it goes on for quite a while. " * 4
KILLED = -signal.SIGKILL


async def speak(server: Server, call_id: str, text: str, **more: object) -> str:
    answer = await server.create(f"/v1/calls/{call_id}/speak", {"text": text, **more})
    return str(answer["id"])


async def dialled(server: Server, phone: SoftphoneProcess, log: EventLog, user: str, *, call: str = "1") -> str:
    """A call to a route, once it is established or rings; returns its id."""
    event = await phone.dial(server.uri(user), call=call)
    wanted = "call.early" if user == "ring" else "call.established"

    def found() -> list[Json]:
        ids = {each["call_id"] for each in of_kind(log.events, wanted)}
        return [
            each
            for each in of_kind(log.events, "call.incoming")
            if each["data"]["sip_call_id"] == event["sip_call_id"] and each["call_id"] in ids
        ]

    await until(found, TIMEOUT_S)
    return str(found()[0]["call_id"])


def kinds_of(log: EventLog, call_id: str) -> list[str]:
    return [event["type"] for event in log.events if event["call_id"] == call_id]


def times_orphaned(server: Server) -> int:
    """How often a UA process has outlived its server; other children say ``server_gone``, too, as they end."""
    return sum(each["module"] == "cc_tts.ua" for each in logged(server, "server_gone"))


async def has_come(log: EventLog, kind: str, call_id: str) -> Json:
    def found() -> list[Json]:
        return of_kind(log.events, kind, lambda event: event["call_id"] == call_id)

    await until(found, TIMEOUT_S)
    return found()[0]


async def test_an_established_call_outlives_the_server_and_speaks_again_and_a_hand_over_but_not_its_user_agent(
    lend: Lend, phone: SoftphoneProcess
) -> None:
    async with lend() as server:
        async with server.events() as earlier:
            await phone.dial(server.uri("long"))
            spoken = (await earlier.wait("speak.started", timeout_s=TIMEOUT_S))["data"]["utterance_id"]
        before = await server.only_call()
        assert await server.replace(signal.SIGKILL) == KILLED
        after = await server.only_call()
        same = ("id", "direction", "state", "caller", "callee", "sip_call_id", "codec", "utterances", "created_at")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        assert after["answered_at"] == pytest.approx(before["answered_at"], abs=0.5)
        async with server.events(after=earlier) as log:
            adopted = (await log.wait("call.adopted", timeout_s=TIMEOUT_S))["data"]
            assert (adopted["state"], adopted["sip_call_id"]) == ("established", before["sip_call_id"])
            broken_off = (await log.wait("speak.complete", timeout_s=TIMEOUT_S, utterance_id=spoken))["data"]
            assert (broken_off["completion_cause"], broken_off["error"]) == ("error", "server_restarted")
            assert broken_off["played_ms"] > 0
            back_ns = time.monotonic_ns()
            utterance_id = await speak(server, after["id"], "I am back.")
            await log.wait("speak.complete", timeout_s=TIMEOUT_S, utterance_id=utterance_id, completion_cause="normal")
            report = await phone.hangup()
            ending = (await log.wait("call.terminated", timeout_s=TIMEOUT_S))["data"]["ending"]
        assert ending == {"result": "completed", "reason": "remote_hangup", "sip_code": 200}
        assert report["talkspurts"][-1]["end_at_ns"] > back_ns
        assert (report["rtp"]["lost"], report["rtp"]["ssrc_changes"]) == (0, 0), "RTP went on without a gap"
        assert times_orphaned(server) == 1

        async with server.events() as earlier:
            call_id = await dialled(server, phone, earlier, "silent", call="2")
        agent = ua_pid(server)
        assert await server.replace(signal.SIGUSR2) == 0
        assert ua_pid(server) == agent
        async with server.events(after=earlier) as log:
            await has_come(log, "call.adopted", call_id)
            server.signal(signal.SIGKILL, pid=agent)
            ended = (await has_come(log, "call.terminated", call_id))["data"]["ending"]
            assert ended == {"result": "failed", "reason": "ua_process_died", "sip_code": None}
            await until(lambda: ua_pid(server) != agent, TIMEOUT_S)
            await until_readyz(server, 200)
            await phone.hangup(call="2")
            await phone.dial(server.uri("greet"), call="3")
            await log.wait("speak.complete", timeout_s=TIMEOUT_S, completion_cause="normal")
            await phone.hangup(call="3")


async def test_calls_of_a_drain_are_handed_over(lend: Lend, phone: SoftphoneProcess) -> None:
    async with lend() as server:
        async with server.events() as earlier:
            call_id = await dialled(server, phone, earlier, "silent")
        assert (await server.ask("/v1/admin/drain"))["draining"]
        assert await server.replace(signal.SIGUSR2) == 0
        async with server.events(after=earlier) as log:
            await has_come(log, "call.adopted", call_id)
            await until_readyz(server, 200)
            await phone.hangup()
            assert (await has_come(log, "call.terminated", call_id))["data"]["ending"]["reason"] == "remote_hangup"


async def test_calls_in_every_state_are_taken_up(server: Server, phone: SoftphoneProcess) -> None:
    """Ringing, idle with its own defaults, with a gather under its prompt, and dialling."""
    async with RawPeer() as peer:
        async with server.events() as earlier:
            ringing = await dialled(server, phone, earlier, "ring", call="1")
            idle = await dialled(server, phone, earlier, "silent", call="2")
            asked = await dialled(server, phone, earlier, "silent", call="3")
            changes = {"metadata": {"customer": "4711"}, "client_state": "of the call", "barge_in": {"dtmf": False}}
            assert (await server.patch(f"/v1/calls/{idle}", changes))[0] == 200
            body = {"gather_id": "pin", "prompt": {"text": LONG_TEXT}, "sensitive": True, "client_state": "asked"}
            assert (await server.post(f"/v1/calls/{asked}/gather", body))[0] == 201
            waiting = await speak(server, asked, "Never said.")
            await earlier.wait("speak.started", timeout_s=TIMEOUT_S)
            dialling = (await place(server, peer))["id"]
            await peer.expect("INVITE", TIMEOUT_S)
            peer.answer("180 Ringing")
            await has_come(earlier, "call.early", dialling)
            before = {call["id"]: call for call in await server.calls()}
        assert await server.replace(signal.SIGKILL) == KILLED
        async with server.events(after=earlier) as log:
            for call_id, state in (
                (ringing, "early"), (idle, "established"), (asked, "established"), (dialling, "early"),
            ):  # fmt: skip
                assert (await has_come(log, "call.adopted", call_id))["data"]["state"] == state
            after = {call["id"]: call for call in await server.calls()}
            assert after.keys() == before.keys()
            for name in ("state", "metadata", "client_state", "barge_in", "caller", "callee", "direction"):
                assert {each: after[each][name] for each in after} == {each: before[each][name] for each in before}

            # the route of the call that rings is decided anew, and it can be answered
            await has_come(log, "call.incoming", ringing)
            assert (await server.post(f"/v1/calls/{ringing}/answer", {}))[0] == 200
            await has_come(log, "call.established", ringing)

            gathered = (await has_come(log, "call.gather_complete", asked))["data"]
            assert (gathered["gather_id"], gathered["result"], gathered["client_state"]) == (
                "pin", "server_restarted", "asked",
            )  # fmt: skip
            assert gathered["digits"] == ""
            never = (await log.wait("speak.complete", timeout_s=TIMEOUT_S, utterance_id=waiting))["data"]
            assert (never["error"], never["played_ms"]) == ("server_restarted", 0.0)
            await phone.dtmf("7", call="3")
            assert (await has_come(log, "call.dtmf", asked))["data"]["digit"] == "x", "perhaps still of the PIN"
            assert (await server.post(f"/v1/calls/{asked}/gather", {"max_digits": 1, "flush_buffer": True}))[0] == 201
            await phone.dtmf("8", call="3")
            await log.wait("call.gather_complete", timeout_s=TIMEOUT_S, digits="8")

            peer.answer("200 OK", formats="0 101")
            await peer.expect("ACK", TIMEOUT_S)
            await has_come(log, "call.established", dialling)
            for call_id in (idle, dialling):
                utterance_id = await speak(server, call_id, "I am back.")
                await log.wait(
                    "speak.complete", timeout_s=TIMEOUT_S, utterance_id=utterance_id, completion_cause="normal"
                )
            assert (await server.post(f"/v1/calls/{dialling}/hangup", {}))[0] == 200
            await peer.expect("BYE", TIMEOUT_S)
            peer.answer("200 OK")
            for call in ("1", "2", "3"):
                assert (await phone.hangup(call=call))["ending"]["by"] == "us"


async def test_what_happens_in_the_gap(lend: Lend, phone: SoftphoneProcess) -> None:
    """A caller hangs up, a prompt that is to be the last ends, a hang-up is due; new calls go elsewhere."""
    async with lend(calls__hangup_tail_ms="2000") as server, RawPeer() as peer:
        async with server.events() as earlier:
            leaving = await dialled(server, phone, earlier, "silent", call="1")
            last = await dialled(server, phone, earlier, "silent", call="2")
            held = await dialled(server, phone, earlier, "silent", call="3")
            await phone.hold(call="3")
            await has_come(earlier, "call.held", held)
            ending = (await place(server, peer))["id"]
            await peer.expect("INVITE", TIMEOUT_S)
            peer.answer("200 OK", formats="0 101")
            await peer.expect("ACK", TIMEOUT_S)
            await speak(server, ending, "Bye.", then="hangup")
            await has_come(earlier, "speak.complete", ending)
            await speak(server, last, LONG_TEXT, then="hangup")
            await has_come(earlier, "speak.started", last)
            agent = ua_pid(server)
            server.signal(signal.SIGKILL)
            await until(lambda: logged(server, "server_gone"), TIMEOUT_S)
            refused = await invite_once("silent", server.sip_port)
            assert (refused.status, refused.header("Retry-After")) == (503, "7")
            await peer.expect("BYE", TIMEOUT_S)
            peer.answer("200 OK")
            assert (await phone.hangup(call="1"))["ending"]["result"] == "completed"
        assert await server.replace(None) == KILLED
        assert ua_pid(server) == agent
        async with server.events(after=earlier) as log:
            gone = (await has_come(log, "call.terminated", leaving))["data"]["ending"]
            assert (gone["result"], gone["reason"]) == ("completed", "remote_hangup")
            over = (await has_come(log, "call.terminated", last))["data"]["ending"]
            assert (over["result"], over["reason"]) == ("failed", "prompt_failed"), "its text was not said to the end"
            assert (await phone.report(call="2", timeout_s=TIMEOUT_S))["ending"]["by"] == "them"
            done = (await has_come(log, "call.terminated", ending))["data"]["ending"]
            assert (done["result"], done["reason"]) == ("completed", "prompt_finished")
            assert (await server.get(f"/v1/calls/{held}"))[1]["held"] is True
            await phone.unhold(call="3")
            await has_come(log, "call.unheld", held)
            assert (await invite_once("nobody", server.sip_port)).status == 404, "calls are taken again"
            await phone.hangup(call="3")


async def test_the_grace_runs_out_and_the_next_server_accounts_for_the_calls(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    """One caller hangs up while there is no server, the other is hung up on; no server adopts their process."""
    file = tmp_path / "accounting.jsonl"
    async with server_with(tmp_path, ua__orphan_grace_ms="4000", accounting__file=str(file)) as server:
        async with server.events() as log:
            leaving = await dialled(server, phone, log, "silent", call="1")
            staying = await dialled(server, phone, log, "silent", call="2")
            asked = await speak(server, staying, LONG_TEXT)
            await log.wait("speak.started", timeout_s=TIMEOUT_S)
        names = {call["id"]: call["sip_call_id"] for call in await server.calls()}
        agent = ua_pid(server)
        server.signal(signal.SIGKILL)
        await phone.hangup(call="1")
        report = await phone.report(call="2", timeout_s=TIMEOUT_S)
        assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
        await until(lambda: not is_running(agent), TIMEOUT_S)
        assert await server.replace(None) == KILLED
        assert ua_pid(server) != agent

        def lines(kind: str) -> list[Json]:
            found = [json.loads(line) for line in file.read_text().splitlines()]
            return [each for each in found if each["type"] == kind]

        await until(lambda: len(lines("call")) == 2, TIMEOUT_S)
        calls = {each["call_id"]: each for each in lines("call")}
        assert {each: calls[each]["sip_call_id"] for each in calls} == names
        assert (calls[leaving]["result"], calls[leaving]["reason"]) == ("completed", "remote_hangup")
        assert (calls[staying]["result"], calls[staying]["reason"]) == ("completed", "server_gone")
        assert calls[staying]["duration_ms"] - calls[leaving]["duration_ms"] > 2000, "each until it ended"
        assert calls[leaving]["quality"]["packets_sent"] > 0
        assert [each["utterance_id"] for each in lines("utterance")] == [asked]
        await until_readyz(server, 200)


async def test_without_a_grace_calls_end_with_their_server(tmp_path: Path, phone: SoftphoneProcess) -> None:
    server = await Server.start(tmp_path, {"ua__orphan_grace_ms": "0"})
    async with server.events() as log:
        await dialled(server, phone, log, "silent")
    agent = ua_pid(server)
    server.signal(signal.SIGKILL)
    assert (await phone.report(timeout_s=TIMEOUT_S))["ending"]["by"] == "them"
    await until(lambda: not is_running(agent), TIMEOUT_S)
    await server.end()


async def test_a_stranger_at_the_socket_and_a_server_of_another_protocol(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    server = await Server.start(tmp_path)
    async with server.events() as log:
        await dialled(server, phone, log, "silent")
    agent = ua_pid(server)
    server.signal(signal.SIGKILL)
    await until(lambda: logged(server, "server_gone"), TIMEOUT_S)
    (settings,) = settings_of(config.load(server.config))
    path = Path(settings.adoption_socket)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    assert is_running(agent)
    other = Adopt(protocol=PROTOCOL_VERSION + 1, version="9.9", settings=settings.fingerprint)
    assert await adopt(path, other) is None
    assert not is_running(agent)
    assert (await phone.report(timeout_s=TIMEOUT_S))["ending"]["by"] == "them"
    await until(lambda: not path.exists(), TIMEOUT_S)
    await server.end()


async def test_a_call_is_one_servers_the_next_ones_that_starts_and_nobodys_with_other_settings(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    async with server_with(tmp_path) as server:
        async with server.events() as log:
            call_id = await dialled(server, phone, log, "silent")
            agent = ua_pid(server)
            server.signal(signal.SIGSTOP)
            try:
                second = await server.start_beside(http__port=str(free_ports()))
                assert await second.wait(TIMEOUT_S) == 1
                (failed,) = entries(second.log, "cannot_start")
                address = f"port {server.sip_port} of 127.0.0.1"
                assert f"{address} is served by a running cc-tts, pid {server.pid}" in failed["detail"]
            finally:
                server.signal(signal.SIGCONT)
            await until_readyz(server, 200)
            utterance_id = await speak(server, call_id, "Still here.")
            await log.wait("speak.complete", timeout_s=TIMEOUT_S, utterance_id=utterance_id, completion_cause="normal")
            assert ua_pid(server) == agent

        with pytest.raises(RuntimeError, match="ended with 1"):
            await server.replace(signal.SIGKILL, tts__voice="no-such-voice")
        assert is_running(agent)
        assert await server.replace(None) == 1
        assert [call["id"] for call in await server.calls("established")] == [call_id]
        assert times_orphaned(server) >= 2

        assert await server.replace(signal.SIGKILL, rtp__inactivity_timeout_s="77") == KILLED
        assert (await phone.report(timeout_s=TIMEOUT_S))["ending"]["by"] == "them"
        assert ua_pid(server) != agent
        assert not is_running(agent)
        (ended,) = await server.calls()
        assert (ended["state"], ended["ending"]["reason"]) == ("terminated", "server_gone")
        refused = logged(server, "not_adopted")[-1]
        assert "others than this process was started with" in refused["detail"]


async def test_several_user_agents_are_adopted(lend: Lend) -> None:
    async with lend(**TWO) as server:
        await until_both(server)
        agents = [pids(server)[name] for name in ("ua-1", "ua-2")]
        async with talking(server, 4) as made:
            before = {call["id"] for call in await server.calls()}
            assert await server.replace(signal.SIGKILL) == KILLED
            assert {call["id"] for call in await server.calls("established")} == before
            assert [pids(server)[name] for name in ("ua-1", "ua-2")] == agents, "none was started anew"
            for caller, _ in made:
                assert (await caller.bye()).status == 200
            await server.until_all_terminated(TIMEOUT_S)


@contextlib.asynccontextmanager
async def talking(server: Server, number: int, user: str = "silent") -> AsyncIterator[list[tuple[RawCaller, RtpEar]]]:
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            caller = await stack.enter_async_context(RawCaller(user, server.sip_port))
            ear = await stack.enter_async_context(RtpEar())
            caller.invite(rtp_port=ear.port)
            answer = await caller.final(TIMEOUT_S)
            assert answer.status == 200, answer.text
            caller.ack()
            made.append((caller, ear))
        async with asyncio.timeout(TIMEOUT_S):
            while len(await server.calls("established")) < number:  # noqa: ASYNC110 - no event tells of all
                await asyncio.sleep(0.05)
        yield made


@pytest.mark.usefixtures("server_build")
async def test_fifty_calls_are_kept(tmp_path: Path) -> None:
    settings = {"rtp__inactivity_timeout_s": "0", "rtp__port_min": "20000", "rtp__port_max": "20199"}
    async with server_with(tmp_path, **settings) as server, talking(server, 50, "long") as made:
        before = {call["id"] for call in await server.calls("established")}
        assert await server.replace(signal.SIGKILL) == KILLED
        assert {call["id"] for call in await server.calls("established")} == before
        async with server.events() as log:
            said = [await speak(server, call_id, "I am back.") for call_id in sorted(before)]
            for utterance_id in said:
                await log.wait(
                    "speak.complete", timeout_s=TIMEOUT_S, utterance_id=utterance_id, completion_cause="normal"
                )
        for caller, ear in made:
            heard = [packet for packet in ear.packets if packet[1] & 0x7F == 0]  # RTCP of a neighbour may come, too
            numbers = [int.from_bytes(packet[2:4], "big") for packet in heard]
            assert numbers == [(numbers[0] + each) % 65536 for each in range(len(numbers))], "RTP without a gap"
            assert len({packet[8:12] for packet in heard}) == 1
            assert (await caller.bye()).status == 200
        ended = await server.until_all_terminated(TIMEOUT_S)
        assert [call["ending"]["reason"] for call in ended] == ["remote_hangup"] * 50
