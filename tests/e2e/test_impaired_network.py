"""Calls over a network that loses, disorders and repeats packets of SIP and RTP."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cc_tts.softphone.rtp.packets import SAMPLES_PER_PACKET
from lab.configured import Lend
from lab.impairer import Impairment, Network
from lab.ports import HOST
from lab.server_under_test import LONG_GREETING, Server
from lab.softphone import SoftphoneProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

SIP_TIMEOUT_S = 45.0
"""More than 64 * T1, when SIP gives up (RFC 3261 §17.1.1.2), and a greeting."""
BAD = Impairment(loss=0.1, reordering=0.1, duplication=0.05, jitter_ms=10)
WORSE = Impairment(loss=0.3, reordering=0.2, duplication=0.1, jitter_ms=20)


@pytest_asyncio.fixture(loop_scope="session")
async def server(lend: Lend) -> AsyncIterator[Server]:
    """RTP does not wait for the ACK, which this network may lose more than once."""
    async with lend(rtp__unacked_ms="32000") as running:
        yield running


@pytest.mark.parametrize("impairment", [BAD, WORSE], ids=["tenth", "third"])
async def test_a_call_runs_its_course(server: Server, phone: SoftphoneProcess, impairment: Impairment) -> None:
    async with Network(server.sip_port, impairment) as network, server.events() as events:
        await phone.dial(f"sip:greet@{HOST}:{network.sip_port}", timeout_s=SIP_TIMEOUT_S)
        greeting = await events.wait("speak.complete")
        assert greeting["data"]["completion_cause"] == "normal"
        assert greeting["data"]["underruns"] == 0
        call = await server.only_call()
        said = await server.utterance(call)
        assert said["played_ms"] == greeting["data"]["played_ms"] > 1000

        more = await server.create(f"/v1/calls/{call['id']}/speak", {"text": LONG_GREETING})
        await events.wait("speak.started", utterance_id=more["id"])
        await phone.dtmf("5", duration_ms=200)
        key = await events.wait("call.dtmf")
        assert key["data"]["digit"] == "5"
        interrupted = await events.wait("speak.complete", utterance_id=more["id"])
        assert interrupted["data"]["completion_cause"] == "barge_in"

        report = await phone.hangup()
        over = await events.wait("call.terminated")
        assert over["data"]["ending"]["result"] == "completed"
        (sent,) = network.sent
        assert sent.holes == 0
        assert set(sent.steps()) == {SAMPLES_PER_PACKET}
        assert len(sent.packets) >= said["played_ms"] / 20
        assert network.counts["lost"] >= network.counts["sent"] * impairment.loss / 2
        assert report["rtp"]["lost"] > 0
        assert report["rtp"]["reordered"] > 0
    assert (await server.only_call())["state"] == "terminated"
    status, metrics = await server.get_text("/metrics")
    assert status == 200
    assert "cctts_calls_active 0.0" in metrics
