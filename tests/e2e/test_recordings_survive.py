"""Recordings of real calls whose processes are killed, whose line changes, whose disk is full, and many at once."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts.media.g711 import alaw_decode, ulaw_decode
from lab.configured import ua_pid
from lab.crowd import Crowd
from lab.load import Sipp, loaded_server
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawCaller
from lab.server_under_test import EventLog, Json, Server, pids_under
from lab.waiting import until
from tests.e2e.test_call_audio import missing_in, noise, renegotiate, say, talking
from tests.e2e.test_recording import audio, channels, saved

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(180)]

TIMEOUT_S = 60.0
MOST_LOST_S = 5.0
"""A kill may cost no more of a recording."""
RECORDED_S = 7.0


@contextlib.asynccontextmanager
async def recorded(server: Server, log: EventLog, **wanted: object) -> AsyncIterator[tuple[str, str]]:
    """A call that is recorded: its id, and that of the recording."""
    async with RtpPeer() as phone, talking(server, phone) as (_, _, call):
        yield call["id"], await begun(server, log, call["id"], **wanted)


async def begun(server: Server, log: EventLog, call_id: str, **wanted: object) -> str:
    recording = await server.create(f"/v1/calls/{call_id}/record", wanted)
    await log.wait("call.recording", TIMEOUT_S, state="started", recording_id=recording["recording_id"])
    return str(recording["recording_id"])


def last_words(log: EventLog, recording_id: str) -> list[str]:
    return [
        each["data"]["reason"]
        for each in log.events
        if each["type"] == "call.recording"
        and each["data"]["recording_id"] == recording_id
        and each["data"]["state"] in ("saved", "failed")
    ]


async def complete(server: Server, recording_id: str) -> Json:
    found: Json = {}
    async with asyncio.timeout(TIMEOUT_S):
        while found.get("state") not in ("saved", "failed"):
            await asyncio.sleep(0.1)
            _, found = await server.get(f"/v1/recordings/{recording_id}")
    return found


async def test_a_recorder_that_is_killed_loses_seconds_and_no_call(server: Server, tmp_path: Path) -> None:
    async with server.events() as log, recorded(server, log, channels="dual") as (call_id, recording_id):
        await asyncio.sleep(RECORDED_S)
        (recorder,) = pids_under(server.ua_pid(), "cc_tts.recorder")
        os.kill(recorder, signal.SIGKILL)
        done = await saved(log, recording_id)
        again = await begun(server, log, call_id)
        assert (await server.delete(f"/v1/calls/{call_id}/record"))[0] == 200
        assert (await saved(log, again))["reason"] == "stopped"
        assert last_words(log, recording_id) == ["recovered"]
    assert done["duration_ms"] >= (RECORDED_S - MOST_LOST_S) * 1000
    left, _ = channels(await audio(server, recording_id, tmp_path), 2)
    assert len(left) == done["duration_ms"] * 8


async def test_a_user_agent_that_is_killed_leaves_a_whole_file(server: Server, tmp_path: Path) -> None:
    async with server.events() as log, RtpPeer() as phone:
        async with RawCaller("silent", server.sip_port) as caller:
            await caller.establish(rtp_port=phone.port)
            call = await server.until_call(lambda call: call["state"] == "established")
            recording_id = await begun(server, log, call["id"])
            await asyncio.sleep(RECORDED_S)
            os.kill(ua_pid(server), signal.SIGKILL)
            done = (await log.wait("call.recording", TIMEOUT_S, state="saved", recording_id=recording_id))["data"]
        assert done["reason"] in ("user_agent_died", "recovered")
        assert done["duration_ms"] >= (RECORDED_S - MOST_LOST_S) * 1000
        (samples,) = channels(await audio(server, recording_id, tmp_path), 1)
        assert len(samples) == done["duration_ms"] * 8
        assert len(last_words(log, recording_id)) == 1


async def test_a_recording_goes_on_in_one_file_when_the_server_is_killed(server: Server) -> None:
    loop = asyncio.get_running_loop()
    async with (
        RtpPeer() as phone,
        talking(server, phone) as (_, _, call),
    ):
        async with server.events() as earlier:
            recording_id = await begun(server, earlier, call["id"], client_state="ticket")
            begun_s = loop.time()
        await server.replace(signal.SIGKILL)
        async with server.events(after=earlier) as log:
            await log.wait("call.adopted", TIMEOUT_S)
            status, running = await server.get(f"/v1/calls/{call['id']}/record")
            assert (status, running["state"], running["recording_id"]) == (200, "recording", recording_id)
            assert (await server.delete(f"/v1/calls/{call['id']}/record"))[0] == 200
            lasted_s = loop.time() - begun_s
            done = await saved(log, recording_id)
            assert last_words(log, recording_id) == ["stopped"]
    assert done["client_state"] == "ticket"
    assert abs(done["duration_ms"] / 1000 - lasted_s) < 1.0


async def test_what_ended_without_a_server_is_told_by_the_next_one(server: Server) -> None:
    async with RtpPeer() as phone:
        async with server.events() as earlier, RawCaller("silent", server.sip_port) as caller:
            await caller.establish(rtp_port=phone.port)
            call = await server.until_call(lambda call: call["state"] == "established")
            recording_id = await begun(server, earlier, call["id"])
            await asyncio.sleep(1)
            server.signal(signal.SIGKILL)
            await asyncio.sleep(1)
            assert (await caller.bye()).status == 200
        await server.replace(None)
        found = await complete(server, recording_id)
        assert (found["state"], found["reason"]) in (("saved", "call_ended"), ("saved", "recovered"))
        assert found["duration_ms"] >= 1500


async def test_hold_another_port_and_another_codec_shift_nothing(server: Server, tmp_path: Path) -> None:
    before, after = noise(60, seed=7), noise(60, seed=8)
    async with server.events() as log, RtpPeer() as phone, RtpPeer() as other:
        async with talking(server, phone) as (caller, to, call):
            begun_s = asyncio.get_running_loop().time()
            recording_id = await begun(server, log, call["id"], channels="dual", encoding="pcm16")
            await say(phone, to, before)
            await renegotiate(caller, phone.port, version=2, mode="inactive")
            await log.wait("call.held")
            await asyncio.sleep(1)
            to_other = await renegotiate(caller, other.port, version=3, formats="8 101")
            await log.wait("call.unheld")
            await say(other, to_other, after, payload_type=8)
            await asyncio.sleep(0.2)
            lasted_s = asyncio.get_running_loop().time() - begun_s
        done = await saved(log, recording_id)
    assert abs(done["duration_ms"] / 1000 - lasted_s) < 0.5
    left, right = channels(await audio(server, recording_id, tmp_path), 2)
    assert len(left) == len(right) == done["duration_ms"] * 8
    missing_in(left.tobytes(), [ulaw_decode(each) for each in before])
    missing_in(left.tobytes(), [alaw_decode(each) for each in after])


@pytest.mark.parametrize("state", ["recording", "paused", "skipping", "waiting", "beep", "gather"])
async def test_a_call_that_is_hung_up_has_one_last_word_of_its_recording(server: Server, state: str) -> None:
    async with server.events() as log, RtpPeer() as phone:
        async with talking(server, phone) as (caller, _, call):
            record = f"/v1/calls/{call['id']}/record"
            wanted = {"beep": state == "beep"} | ({"consent": "required"} if state == "waiting" else {})
            recording = await server.create(record, wanted)
            if state != "waiting":
                await log.wait("call.recording", state="started")
            if state in ("paused", "skipping"):
                assert (await server.post(f"{record}/pause", {"skip": state == "skipping"}))[0] == 200
            if state == "gather":
                assert (await server.post(f"/v1/calls/{call['id']}/gather", {"sensitive": True}))[0] == 201
            assert (await caller.bye()).status == 200
            await log.wait("call.terminated")
        wanted_word = ("failed", "no_consent") if state == "waiting" else ("saved", "call_ended")
        done = await log.wait("call.recording", state=wanted_word[0])
        await asyncio.sleep(0.3)
        assert done["data"]["reason"] == wanted_word[1]
        told = [each["data"]["state"] for each in log.events if each["type"] == "call.recording"]
        assert told[-1] == wanted_word[0]
        assert "resumed" not in told
        assert len(last_words(log, recording["recording_id"])) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[str, ...]:
    folder = tmp_path / "recordings"
    folder.mkdir()
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=200k none "$0" && exec "$@"', str(folder))
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    return mount


async def test_a_full_disk_ends_a_recording_and_no_call(tmp_path: Path, small_disk: tuple[str, ...]) -> None:
    server = await Server.start(tmp_path, prefix=small_disk)
    try:
        async with server.events() as log, RtpPeer() as phone, talking(server, phone) as (_, to, call):
            recording_id = await begun(server, log, call["id"], channels="dual", encoding="pcm16")
            failed = (await log.wait("call.recording", TIMEOUT_S, state="failed"))["data"]
            assert (failed["reason"], failed["recording_id"]) == ("disk_full", recording_id)
            assert failed["duration_ms"] > 1000
            assert (await server.get(f"/v1/calls/{call['id']}"))[1]["state"] == "established"
            heard = await phone.num_heard()
            await say(phone, to, noise(25))
            assert await phone.num_heard() - heard > 15
            assert last_words(log, recording_id) == ["disk_full"]
    finally:
        assert await server.end() == 0, server.log[-4000:]


@pytest.mark.slow
async def test_a_hundred_calls_are_recorded_at_once(tmp_path: Path, server_build: None) -> None:
    num_calls, stay_s = 100, 12.0
    settings = [f'record.dir="{tmp_path}"', "record.min_free_bytes=0", "sip.max_media_lateness_ms=0"]
    settings += ["routes.load.record=dual"]
    async with loaded_server(num_calls + 20, *settings) as (server, _, _), contextlib.AsyncExitStack() as stack:
        crowd = await stack.enter_async_context(Crowd.of(num_calls))
        folder = tmp_path / "sipp"
        folder.mkdir()
        async with server.events() as log:
            sipp = await Sipp.start(server, crowd.ports, folder, rate=25, stay_s=stay_s)
            await asyncio.wait_for(sipp.process.wait(), TIMEOUT_S)
            await until(lambda: len(ended(log)) >= num_calls)
    assert len(ended(log)) == num_calls
    for each in ended(log):
        assert (each["state"], each["reason"], each["lost_ms"]) == ("saved", "call_ended", 0)
        assert each["duration_ms"] == pytest.approx(stay_s * 1000, abs=500)


def ended(log: EventLog) -> list[Json]:
    data = [each["data"] for each in log.events if each["type"] == "call.recording"]
    return [each for each in data if each["state"] in ("saved", "failed")]
