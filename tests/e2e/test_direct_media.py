"""Asterisk with ``direct_media=yes``: it bridges by re-INVITE, and RTP goes between the phone and us.

Until the phone has answered its re-INVITE, it sends to Asterisk, which passes that on to us though our media has moved.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.asterisk import ADDRESS, NODES, Asterisk
from lab.configured import of_kind
from lab.ports import HOST
from lab.raw_rtp import Address, RtpPeer
from lab.raw_sip import SDP, RawPeer
from lab.server_under_test import LONG_GREETING, Server
from lab.waiting import PATIENCE_S
from tests.e2e.asterisk_lab import asterisk_for, node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.usefixtures("server_build")]


@pytest_asyncio.fixture(loop_scope="session")
async def first(tmp_path: Path, server_build: None, nothing_is_left_running: None) -> AsyncIterator[Server]:
    async with node(tmp_path, 1) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def pbx(tmp_path: Path, first: Server) -> AsyncIterator[Asterisk]:
    async with asterisk_for(tmp_path, first, direct_media=True) as running:
        yield running


class Phone(RawPeer):
    """Calls Asterisk, and answers each re-INVITE after ``delay_s``; then its RTP goes where that says."""

    def __init__(self, rtp: RtpPeer, *, delay_s: float) -> None:
        super().__init__()
        self._rtp = rtp
        self._delay_s = delay_s
        self._dialog = ""
        self._to_pbx: Address = ("", 0)
        self.media_to: Address = ("", 0)
        self.moved = asyncio.Event()

    async def dial(self, uri: str) -> None:
        """Call; returns when the call is answered."""
        host, _, port = uri.partition("@")[2].partition(":")
        self._to_pbx = (host, int(port))
        self._request("INVITE", uri, to=f"<{uri}>", body=self._sdp)
        async with asyncio.timeout(PATIENCE_S):
            while not (text := (await self.received.get())[0]).startswith("SIP/2.0 200"):
                assert text.startswith("SIP/2.0 1"), text
        to = re.search(r"^To: (.*)\r$", text, re.MULTILINE)
        assert to is not None
        self._dialog = to[1]
        self.media_to = media_address(text)
        self._request("ACK", uri, to=self._dialog)

    async def follow(self) -> None:
        while True:
            request = await self.expect("INVITE")
            await asyncio.sleep(self._delay_s)
            self.answer("200 OK", body=self._sdp)
            self.media_to = media_address(request)
            if self.media_to[0] != ADDRESS:
                self.moved.set()

    async def talk(self) -> None:
        while True:
            await self._rtp.say(self.media_to, 1)

    def hang_up(self, uri: str) -> None:
        self._request("BYE", uri, to=self._dialog)

    @property
    def _sdp(self) -> str:
        return SDP.format(port=self._rtp.port, formats="0 101")

    def _request(self, method: str, uri: str, *, to: str, body: str = "") -> None:
        number = 2 if method == "BYE" else 1
        kind = "Content-Type: application/sdp\r\n" if body else ""
        head = (
            f"{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {self.own};rport;branch=z9hG4bK-{self.port}-{method}\r\n"
            f"From: <sip:phone@{HOST}>;tag=phone\r\nTo: {to}\r\nCall-ID: direct-{self.port}\r\n"
            f"CSeq: {number} {method}\r\nContact: <sip:phone@{self.own}>\r\nMax-Forwards: 70\r\n{kind}"
        )
        self.transmit(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode(), self._to_pbx)


def media_address(message: str) -> Address:
    host, port = (
        re.search(r"^c=IN IP4 (\S+)", message, re.MULTILINE),
        re.search(r"^m=audio (\d+)", message, re.MULTILINE),
    )
    assert host is not None
    assert port is not None, message
    return host[1], int(port[1])


async def test_speech_and_keys_go_on_when_media_goes_directly(first: Server, pbx: Asterisk) -> None:
    for delay_ms in (0, 50, 200):
        await first.begin()
        await media_goes_directly(first, pbx, delay_ms)


async def media_goes_directly(first: Server, pbx: Asterisk, delay_ms: int) -> None:
    async with first.events() as events, RtpPeer() as rtp, Phone(rtp, delay_s=delay_ms / 1000) as phone:
        await phone.dial(pbx.uri("603"))
        tasks = [asyncio.create_task(phone.follow()), asyncio.create_task(phone.talk())]
        established = await events.wait("call.established")
        assert (await first.post(f"/v1/calls/{established['call_id']}/speak", {"text": LONG_GREETING}))[0] == 201
        await events.wait("speak.started")
        async with asyncio.timeout(PATIENCE_S):
            await phone.moved.wait()
        assert phone.media_to[0] == NODES[0]
        await rtp.hears(100)
        received = (await first.only_call())["quality"]["packets_received"]
        await first.until_call(lambda call: call["quality"]["packets_received"] > received + 50)
        tasks[1].cancel()
        await rtp.press(phone.media_to, "5")
        key = await events.wait("call.dtmf", digit="5")
        assert key["data"]["method"] == "rfc4733"
        assert (await events.wait("speak.complete"))["data"]["completion_cause"] == "barge_in"
        assert len(of_kind(events.events, "call.dtmf")) == 1
        tasks[0].cancel()
        phone.hang_up(pbx.uri("603"))
        await first.until_terminated()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
