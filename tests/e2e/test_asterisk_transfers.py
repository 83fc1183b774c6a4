"""Transfers by REFER to Asterisk 22, whose targets ring and answer, are busy, decline or do not answer: phone - Asterisk -
node. The targets are those of ``sip/peers/asterisk/extensions.conf``: 18 and 19 with a port are somebody at that port.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lab.asterisk import ADDRESS, Asterisk
from lab.configured import of_kind
from lab.raw_sip import RawPeer
from lab.server_under_test import EventLog, Server
from lab.softphone import SoftphoneProcess
from tests.e2e.asterisk_lab import asterisk_for, node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

CONNECTING = "One moment, I am connecting you."
NOBODY = "Nobody can take your call now. Please call again later."


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, Asterisk]]:
    """A node and Asterisk, for all tests of this module."""
    folder = tmp_path_factory.mktemp("transfers")
    async with node(folder, 1, transfer__allowed=f'["sip:1*@{ADDRESS}:*"]') as server:
        server.share()
        async with asterisk_for(folder, server) as running:
            running.share()
            yield server, running


@pytest_asyncio.fixture(loop_scope="session")
async def first(both: tuple[Server, Asterisk], nothing_is_left_running: None) -> Server:
    server, _ = both
    await server.begin()
    return server


class Caller:
    def __init__(self, first: Server, pbx: Asterisk, phone: SoftphoneProcess, log: EventLog, name: str) -> None:
        self.first, self.pbx, self.phone, self.log, self.name = first, pbx, phone, log, name

    async def transfer(self, **body: Any) -> None:
        await self.phone.dial(self.pbx.uri("503"), call=self.name)
        call = await self.first.until_call(lambda call: call["state"] == "established")
        path = f"/v1/calls/{call['id']}/transfer"
        status, answer = await self.first.post(path, {"transfer_id": self.name, "timeout_ms": 10_000} | body)
        assert status == 202, answer

    async def outcome(self, state: str) -> list[tuple[Any, ...]]:
        await self.log.wait("call.transfer", transfer_id=self.name, state=state)
        told = [each["data"] for each in of_kind(self.log.events, "call.transfer")]
        return [(each["state"], each["sip_code"]) for each in told if each["transfer_id"] == self.name]

    async def is_over(self) -> str:
        report = await self.phone.report(call=self.name)
        return str(report["ending"]["by"])


async def test_what_asterisk_tells_of_its_targets(first: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with first.events() as log, RawPeer() as target:
        answering = Caller(first, pbx, phone, log, "answering")
        await answering.transfer(to=pbx.uri(f"18{target.port}"))
        await target.expect("INVITE")
        target.answer("180 Ringing")
        target.answer("200 OK", formats="0 101")
        begun = [("requested", None), ("accepted", 202), ("trying", 100)]
        assert await answering.outcome("succeeded") == [*begun, ("ringing", 180), ("succeeded", 200)]
        await first.until_all_terminated()
        assert {call["ending"]["reason"] for call in await first.calls()} == {"transferred"}
        await target.request_inside("BYE", 9)
        assert await answering.is_over() == "them", "the phone was with the target until then"

        for name, refusal in (("busy", "486 Busy Here"), ("declining", "603 Decline")):
            caller = Caller(first, pbx, phone, log, name)
            await caller.transfer(to=pbx.uri(f"18{target.port}"))
            await target.expect("INVITE")
            target.answer(refusal)
            assert await caller.outcome("failed") == [*begun, ("failed", 503)], "whatever the target says"
            assert await caller.is_over() == "them", "Asterisk has let the caller go"
            await first.until_all_terminated()

        silent = Caller(first, pbx, phone, log, "silent")
        await silent.transfer(to=pbx.uri(f"19{target.port}"))
        await target.expect("INVITE")
        target.answer("180 Ringing")
        # the caller hears Asterisk's ringing tone, which it takes for an answer
        assert await silent.outcome("succeeded") == [*begun, ("ringing", 180), ("succeeded", 200)]
        said = await log.wait("speak.complete")
        assert (said["data"]["spoken_text"], said["data"]["completion_cause"]) == (NOBODY, "normal")
        assert await silent.is_over() == "them"


async def test_an_attended_transfer(first: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with first.events() as log:
        status, consult = await first.post("/v1/calls", {"to": pbx.uri("1600")})
        assert status == 201
        await log.wait("call.established")
        await phone.dial(pbx.uri("503"), call="1")
        caller = await first.until_call(lambda call: call["state"] == "established" and call["id"] != consult["id"])
        body = {"mode": "attended", "consult_call_id": consult["id"]}
        status, answer = await first.post(f"/v1/calls/{caller['id']}/transfer", body)
        assert status == 202, answer
        await log.wait("call.transfer", state="succeeded")
        ended = {call["id"]: call["ending"]["reason"] for call in await first.until_all_terminated()}
        assert ended[caller["id"]] == "transferred"
        assert ended[consult["id"]] in ("transferred", "remote_hangup"), "Asterisk ends the one that was replaced"
        channels = (await pbx.command("core show channels concise")).splitlines()
        assert [line.split("!")[5] for line in channels if line.startswith("PJSIP/1001-")] == ["Wait"], channels
        assert (await phone.hangup())["ending"]["by"] == "us"


async def test_the_dialplan_hands_a_caller_over(first: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with first.events() as log, RawPeer() as target:
        await phone.dial(pbx.uri(f"50618{target.port}"))
        await target.expect("INVITE")
        target.answer("200 OK", formats="0 101")
        said = await log.wait("speak.complete")
        assert (said["data"]["spoken_text"], said["data"]["completion_cause"]) == (CONNECTING, "normal")
        ended = await log.wait("call.terminated")
        assert ended["data"]["ending"]["reason"] == "transferred"
        await target.request_inside("BYE", 9)
        assert (await phone.report())["ending"]["by"] == "them"


async def test_a_caller_whom_nobody_takes_over_is_told_so(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess
) -> None:
    async with first.events() as log:
        await phone.dial(pbx.uri("506"))  # to 1001, where nobody is
        await phone.report()
        said = [event["data"]["spoken_text"] for event in await log.several("speak.complete", 2)]
        assert said == [CONNECTING, NOBODY]
