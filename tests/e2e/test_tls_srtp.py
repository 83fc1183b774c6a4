"""SIP over TLS and SRTP against third parties: baresip, Python's TLS, and packets by hand."""

import asyncio
import re
import ssl
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from cc_tts.ua import pjsua2_build
from lab import audio_match
from lab.baresip import MODULES, Baresip
from lab.certificates import Authority, Pair
from lab.configured import Lend, ua_starts
from lab.ports import HOST, free_ports
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.tls_peer import ask, client_context, is_turned_away, tls_settings
from lab.waiting import PATIENCE_S
from tests.e2e.signals import through_ulaw

pytestmark = pytest.mark.e2e

QUIET = np.zeros(8000, np.int16)
NUM_SILENT_PEERS = 50


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="session")
def only_tls(authority: Authority) -> dict[str, str]:
    """Settings of a server that takes SIP over TLS only, with SRTP or none of it."""
    return {
        "sip__transports": '["tls"]',
        "rtp__srtp": "required",
        **tls_settings(authority, authority.issue("server"), free_ports()),
    }


@pytest.fixture(scope="session")
def other_port() -> int:
    return free_ports()


@pytest_asyncio.fixture(loop_scope="session")
async def tls(server_build: None, lend: Lend, only_tls: dict[str, str]) -> AsyncIterator[tuple[Server, int]]:
    """Such a server, and its port."""
    async with lend(**only_tls) as server:
        yield server, int(only_tls["sip__tls_port"])


@pytest_asyncio.fixture(loop_scope="session")
async def mutual_tls(
    server_build: None, lend: Lend, only_tls: dict[str, str], other_port: int
) -> AsyncIterator[tuple[Server, int]]:
    """One that asks clients for certificates, and logs all that PJSIP does."""
    more = {"sip__tls_port": str(other_port), "tls__verify_client": "true", "log__pjsip_level": "5"}
    async with lend(**(only_tls | more)) as server:
        yield server, other_port


async def start_baresip(folder: Path, authority: Authority, pair: Pair, *, answers: bool = False) -> Baresip:
    return await Baresip.start(
        folder,
        user="bot",
        audio=QUIET,
        answers=answers,
        account_more=";mediaenc=srtp-mand",
        config_more=f"sip_certificate {pair.together()}\nsip_cafile {authority.certificate}",
        modules=(*MODULES, "srtp"),
    )


async def originate(server: Server, to: str) -> str:
    call = await server.create("/v1/calls", {"to": to})
    return str(call["id"])


async def test_baresip_hears_the_prompt_over_mutual_tls_and_srtp(
    mutual_tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    server, port = mutual_tls
    reference = through_ulaw(await engine_pcm(GREETING, tmp_path))
    caller = await start_baresip(tmp_path / "baresip", authority, authority.issue("alice"))
    try:
        async with server.events() as log:
            await caller.dial(f"sip:greet@{HOST}:{port};transport=tls")
            call = await server.until_call(lambda call: call["state"] == "established")
            await log.wait("speak.complete")
            await asyncio.sleep(0.5)  # what is still on its way through baresip's jitter buffer
            await caller.press("7")
            await log.wait("call.dtmf", digit="7")
    finally:
        await caller.end()
    assert (call["transport"], call["srtp"]) == ("tls", True)
    assert audio_match.find(reference, caller.heard()).corr > 0.99
    # the log of PJMEDIA has the keys at this level
    assert "key=" in server.log
    assert not re.search(r"key=[A-Za-z0-9+/]{8}", server.log)


async def test_a_call_to_a_peer_that_is_believed_and_to_one_that_is_not(
    tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    server, _ = tls
    stranger = Authority.create(tmp_path / "stranger", "Another CA")
    pairs = {
        "believed": authority.issue("bot"),
        "another-ca": stranger.issue("bot"),
        "another-name": authority.issue("name", san="DNS:pbx.example.com"),
    }
    for name, pair in pairs.items():
        bot = await start_baresip(tmp_path / name, authority, pair, answers=True)
        try:
            # neither scheme nor parameter says TLS: no other transport is configured
            call_id = await originate(server, f"sip:bot@{HOST}:{bot.sip_port + 1}")
            wanted = "established" if name == "believed" else "terminated"
            call = await server.until_call(lambda call, wanted=wanted: call["state"] == wanted)  # type: ignore[misc]
            assert call["id"] == call_id
            if name == "believed":
                assert (call["transport"], call["srtp"]) == ("tls", True)
                await server.post(f"/v1/calls/{call_id}/hangup", {})
                await server.until_terminated()
            else:
                assert call["ending"]["result"] == "failed", name
        finally:
            await bot.end()
    assert len(ua_starts(server)) == 1  # never restarted


async def test_only_suites_with_authenticated_encryption_are_spoken(
    tls: tuple[Server, int], authority: Authority
) -> None:
    _, port = tls

    def client(suites: str, version: ssl.TLSVersion) -> ssl.SSLContext:
        context = client_context(authority)
        context.minimum_version = context.maximum_version = version
        if suites:
            context.set_ciphers(suites)
        return context

    for suites in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES256-SHA"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(port, client(suites, ssl.TLSVersion.TLSv1_2))
    for suites in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
        assert (await ask(port, client(suites, ssl.TLSVersion.TLSv1_2))).status == 200
    assert (await ask(port, client("", ssl.TLSVersion.TLSv1_3))).status == 200


async def test_only_clients_of_our_authority_are_served(
    mutual_tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    _, port = mutual_tls
    stranger = Authority.create(tmp_path / "stranger", "Another CA")
    ours = client_context(authority, authority.issue("client"))
    assert (await ask(port, ours)).status == 200
    assert await is_turned_away(port, client_context(authority))
    assert await is_turned_away(port, client_context(authority, stranger.issue("client")))
    assert await is_turned_away(port, client_context(authority, authority.issue("expired", days=-1)))
    assert (await ask(port, ours)).status == 200


async def test_bad_handshakes_leave_other_calls_alone(
    tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    server, port = tls
    stranger = Authority.create(tmp_path / "stranger", "Another CA")
    old = client_context(authority)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        await ask(port, old)
    with pytest.raises(ssl.SSLCertVerificationError):  # a peer that does not believe us
        await ask(port, client_context(stranger))
    caller = await start_baresip(tmp_path / "baresip", authority, authority.issue("alice"))
    silent = [await asyncio.open_connection(HOST, port) for _ in range(NUM_SILENT_PEERS)]
    garbage = [await asyncio.open_connection(HOST, port) for _ in range(NUM_SILENT_PEERS)]
    try:
        for _, writer in garbage:
            writer.write(np.random.default_rng(1).bytes(4096))
        async with server.events() as log:
            await caller.dial(f"sip:greet@{HOST}:{port};transport=tls")
            complete = await log.wait("speak.complete")
        ends = [asyncio.wait_for(reader.read(), PATIENCE_S) for reader, _ in (*silent, *garbage)]
        seen = await asyncio.gather(*ends, return_exceptions=True)
    finally:
        for _, writer in (*silent, *garbage):
            writer.transport.abort()
        await caller.end()
    assert complete["data"]["completion_cause"] == "normal"
    call = await server.until_call(lambda call: call["utterances"])
    assert (await server.utterance(call))["underruns"] == 0
    # every one was dropped: by an alert, by a reset, or when its handshake took too long
    assert not [each for each in seen if isinstance(each, TimeoutError)]


async def test_the_wheel_refuses_tls(only_tls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pjsua2_build.VARIABLE, "wheel")
    with pytest.raises(RuntimeError, match="cc-tts pjsua2 build"):
        await Server.start(tmp_path, only_tls)
