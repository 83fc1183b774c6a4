"""The real UA process, without a server around it."""

import asyncio
import dataclasses
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config, RegistrationConfig, RtpConfig, SipConfig
from cc_tts.config.sections.quality import QualityConfig
from cc_tts.errors import ProcessFailed, UserAgentUnavailable
from cc_tts.processes.channel import Message
from cc_tts.ua.client import UaClient
from cc_tts.ua.messages import Answer, CallEnded, CallEstablished, IncomingCall, Originate, RegistrationChanged
from lab.configured import is_running
from lab.ports import HOST, free_ports
from lab.raw_sip import RawCaller, RawPeer, options
from lab.waiting import until
from tests.support.captured_logs import capture_logs

pytestmark = [pytest.mark.integration, pytest.mark.both_builds]

IDLE_POLL_MS = 100
"""That of ``cc_tts.ua.endpoint``, which needs pjsua2."""


class Listener:
    """Writes down what the UA process says."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def until(self, kind: type[Message]) -> Any:
        found: Callable[[], list[Any]] = lambda: [each for each in self.told if isinstance(each, kind)]  # noqa: E731
        await until(lambda: bool(found()))
        return found()[0]

    def on_ua_ready(self, build: Mapping[str, str]) -> None:
        assert build
        self.told.append("ready")

    def on_ua_down(self, reason: str, call_ids: Collection[str]) -> None:
        assert not call_ids
        self.told.append(reason)

    def on_ua_message(self, message: Message, payload: bytes = b"") -> None:
        self.told.append(message)


def config_for(port: int) -> Config:
    rtp = free_ports(20)
    return Config(sip=SipConfig(port=port), rtp=RtpConfig(port_min=rtp, port_max=rtp + 19))


@pytest.fixture
async def ua() -> AsyncIterator[tuple[UaClient, Listener]]:
    client, listener = UaClient(config_for(free_ports(2)), clock=MonotonicClock()), Listener()
    client.listener = listener
    yield client, listener
    await client.stop()


async def test_it_starts_and_stops(ua: tuple[UaClient, Listener]) -> None:
    client, listener = ua
    with pytest.raises(UserAgentUnavailable):
        client.send(Answer(call_id="nobody"))
    await client.start()
    assert client.is_ready
    assert client.max_calls >= 1
    pid = client.supervisors[0].pid
    assert pid is not None
    client.send(Answer(call_id="nobody"))  # a call that ended meanwhile
    client.set_accepting(accepting=False)
    await client.stop()
    assert not is_running(pid)
    assert listener.told == ["ready", "stopped"]
    assert client.supervisors[0].num_restarts == 0


async def test_it_says_when_it_has_read_whether_to_let_calls_in() -> None:
    port = free_ports(2)
    client = UaClient(config_for(port), clock=MonotonicClock())
    client.listener = Listener()
    await client.start()
    try:
        client.set_accepting(accepting=False)
        await until(lambda: not client.lets_calls_in)
        assert (await options(port)).status == 503
        client.set_accepting(accepting=True)
        await until(lambda: client.lets_calls_in)
        assert (await options(port)).status == 200
    finally:
        await client.stop()


async def test_reloads_at_the_same_time_are_all_answered(ua: tuple[UaClient, Listener]) -> None:
    client, _ = ua
    await client.start()
    config = config_for(free_ports(2))
    refused = await asyncio.gather(*(client.reload(config, renew_tls=False) for _ in range(3)))
    assert refused == [{}, {}, {}]


async def test_an_idle_process_sleeps_and_is_woken_by_each_command(ua: tuple[UaClient, Listener]) -> None:
    client, _ = ua
    config = config_for(free_ports(2))
    await client.start()
    pid, loop = client.supervisors[0].pid, asyncio.get_running_loop()
    begun_s, begun = loop.time(), num_waits(pid)
    await asyncio.sleep(2)
    assert (num_waits(pid) - begun) / (loop.time() - begun_s) < 30
    begun_s = loop.time()
    for _ in range(20):
        await client.reload(config, renew_tls=False)
    assert loop.time() - begun_s < 20 * IDLE_POLL_MS / 1000 / 2


def num_waits(pid: int | None) -> int:
    """How often the first thread of a process has waited."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


async def one_call(client: UaClient, listener: Listener, port: int) -> None:
    async with RawCaller("greet", port) as caller:
        caller.invite()
        client.send(Answer(call_id=(await listener.until(IncomingCall)).call_id))
        await caller.acknowledge(200)
        await listener.until(CallEstablished)
        await caller.bye()
    await listener.until(CallEnded)


async def test_a_report_that_cannot_be_sent_costs_no_other_call() -> None:
    """From a socket of the loopback nothing goes elsewhere, which the kernel says at once."""
    port = free_ports(2)
    config = dataclasses.replace(config_for(port), quality=QualityConfig(collector="sip:vq@192.0.2.1"))
    client, listener = UaClient(config, clock=MonotonicClock()), Listener()
    client.listener = listener
    await client.start()
    await one_call(client, listener, port)
    assert await client.reload(config, renew_tls=False) == {}, "it lives"
    await client.stop()
    assert [each for each in listener.told if isinstance(each, str)] == ["ready", "stopped"]


@pytest.mark.parametrize("is_registered", [False, True])
async def test_it_stops_in_good_order_while_a_report_of_a_call_has_no_answer(*, is_registered: bool) -> None:
    port = free_ports(2)
    async with RawPeer() as far_side:
        at_far_side = f"{HOST}:{far_side.port}"
        config = dataclasses.replace(
            config_for(port),
            quality=QualityConfig(collector=f"sip:vq@{at_far_side}"),
            registration=RegistrationConfig(registrar=f"sip:{at_far_side}" if is_registered else "", username="greet"),
        )
        client, listener = UaClient(config, clock=MonotonicClock()), Listener()
        client.listener = listener
        await client.start()
        if is_registered:
            await far_side.expect("REGISTER")
            far_side.answer("200 OK", headers=f"Contact: <sip:greet@{HOST}:{port}>;expires=300\r\n")
            assert (await listener.until(RegistrationChanged)).registered
        await one_call(client, listener, port)
        await far_side.expect("PUBLISH")
        with capture_logs() as lines:
            await client.stop()
        assert not [line for line in lines if line["event"] == "child_does_not_end"]
        if is_registered:
            assert "\r\nExpires: 0\r\n" in await far_side.expect("REGISTER")


async def test_the_port_is_taken() -> None:
    port = free_ports(2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        client = UaClient(config_for(port), clock=MonotonicClock())
        client.listener = Listener()
        with pytest.raises(ProcessFailed, match=f"127.0.0.1:{port}/udp"):
            await client.start()
    assert client.supervisors[0].pid is None


async def test_the_server_hears_of_a_call_that_cannot_be_placed(ua: tuple[UaClient, Listener]) -> None:
    client, listener = ua
    await client.start()
    client.originate(Originate(call_id="mine", to="sip:x@[", from_="", headers={}))
    await until(lambda: any(getattr(each, "call_id", "") == "mine" for each in listener.told))
    (ended,) = [each for each in listener.told if getattr(each, "call_id", "") == "mine"]
    assert (type(ended).__name__, ended.ended_by) == ("CallEnded", "failure")
    assert os.getpid() != client.supervisors[0].pid
