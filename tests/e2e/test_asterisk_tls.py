"""Asterisk 22 and a node with TLS on both sides and SRTP, with ``dialplans/asterisk/pjsip-tls.conf``."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.asterisk import ADDRESS, NODES, Asterisk, require_asterisk
from lab.certificates import Authority, Pair
from lab.configured import logged
from lab.ports import free_ports
from lab.server_under_test import GREETING, LONG_GREETING, Server
from lab.softphone import SoftphoneProcess
from lab.tls_peer import tls_settings
from tests.e2e.asterisk_lab import asterisk_for, heard_at_asterisk, node

pytestmark = pytest.mark.e2e

BALANCE = "Your balance is 12 dollars."


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    require_asterisk()
    return Authority.create(tmp_path_factory.mktemp("tls") / "ca")


def keys_of_asterisk(folder: Path, believed: Authority, pair: Pair) -> Path:
    """What ``TLS_KEYS`` of run.sh wants."""
    folder.mkdir()
    shutil.copy(pair.certificate, folder / "asterisk.pem")
    shutil.copy(pair.key, folder / "asterisk.key")
    shutil.copy(believed.certificate, folder / "ca.pem")
    return folder


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def node_by_tls(
    built: None, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, int]]:
    """Node 1, which takes SIP over TLS of those the authority knows, and SRTP; its TLS port besides."""
    pair, port = authority.issue("node", san=f"IP:{NODES[0]}"), free_ports()
    async with node(
        tmp_path_factory.mktemp("tls"),
        1,
        pjsua2="server",
        sip__transports='["tls"]',
        tls__verify_client="true",
        rtp__srtp="required",
        cache__enabled="false",
        **tls_settings(authority, pair, port),
    ) as server:
        server.share()
        yield server, port


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def both(
    authority: Authority, node_by_tls: tuple[Server, int], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, Asterisk]]:
    """The node, and Asterisk that it believes and that believes it."""
    server, port = node_by_tls
    folder = tmp_path_factory.mktemp("tls")
    keys = keys_of_asterisk(folder / "keys", authority, authority.issue("asterisk", san=f"IP:{ADDRESS}"))
    async with asterisk_for(folder, server, tls_keys=keys, tls_port=port) as running:
        running.share()
        yield server, running


async def test_the_dialplan_speaks_over_tls_and_srtp(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with first.events() as log:
        await phone.dial(pbx.uri("500"))
        report = await phone.report()
        await log.several("speak.complete", 2)
        assert report["ending"]["result"] == "completed"
        calls = await first.calls()
        assert [(call["transport"], call["srtp"]) for call in calls] == [("tls", True)] * 2
        await heard_at_asterisk(pbx, "500-tts-1", BALANCE, tmp_path)


async def test_keys_and_hold_pass_srtp(first: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with first.events() as log:
        await phone.dial(pbx.uri("503"))
        established = await log.wait("call.established")
        status, body = await first.post(f"/v1/calls/{established['call_id']}/speak", {"text": LONG_GREETING})
        assert status == 201, body
        await log.wait("speak.started")
        await phone.hold()
        await log.wait("call.held")
        await phone.unhold()
        await log.wait("call.unheld")
        assert (await first.only_call())["srtp"] is True, "after a re-INVITE too"
        await phone.dtmf("5")
        await log.wait("call.dtmf", digit="5")
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "barge_in"
        await phone.hangup()
        await first.until_terminated()


async def test_a_call_that_we_place_over_tls(first: Server, pbx: Asterisk, tmp_path: Path) -> None:
    async with first.events() as log:
        body = {"to": pbx.secure_uri("1600"), "speak": {"text": GREETING, "then": "hangup"}}
        assert (await first.post("/v1/calls", body))[0] == 201
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        ended = await first.until_terminated()
        assert (ended["transport"], ended["srtp"]) == ("tls", True)
        await pbx.event("Hangup", Exten="1600")
        await heard_at_asterisk(pbx, "1600", GREETING, tmp_path)


@pytest.mark.parametrize("side", ["node", "Asterisk"])
async def test_a_certificate_of_another_authority_keeps_them_apart(
    first: Server,
    node_by_tls: tuple[Server, int],
    authority: Authority,
    phone: SoftphoneProcess,
    tmp_path: Path,
    side: str,
) -> None:
    """One of the two does not believe the other: Asterisk calls nobody, and goes on in its dialplan."""
    stranger = Authority.create(tmp_path / "stranger", "Another CA")
    signer, believed = (stranger, authority) if side == "Asterisk" else (authority, stranger)
    keys = keys_of_asterisk(tmp_path / "keys", believed, signer.issue("asterisk", san=f"IP:{ADDRESS}"))
    _, port = node_by_tls
    async with asterisk_for(tmp_path, first, tls_keys=keys, tls_port=port, first_is="Unavail") as pbx:
        await phone.dial(pbx.uri("502"))
        await phone.report()
        legs = await pbx.several("UserEvent", 2, UserEvent="TtsLeg")
        assert (legs[0]["Node"], legs[0]["Status"]) == ("tts-1", "CHANUNAVAIL")
        assert await first.calls() == []
        if side == "node":
            assert "The certificate is untrusted" in pbx.log
        assert logged(first, "call_incoming") == []
