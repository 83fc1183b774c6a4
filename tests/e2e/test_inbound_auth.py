"""Who may call: passwords, peers that are listened to, and how much one source may ask."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from lab.asterisk import NODES, Asterisk, require_asterisk
from lab.baresip import Baresip
from lab.configured import Lend, logged, server_with
from lab.peers import Sipp
from lab.ports import HOST
from lab.raw_sip import Answer, RawCaller, RawPeer, authorization, options
from lab.server_under_test import Server
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

PASSWORD = 'open "sesame"'
USERS = "[{username = 'pbx', password = '" + PASSWORD + "'}, {username = 'phone', password = 'sesame-open'}]"
STRANGER = "127.0.0.2"
FRIEND = "127.0.0.3"
GUESSER = "127.0.0.4"
"""Who guesses passwords is kept out for a while, whoever shares the server."""
ASTERISK_ENDPOINT = """
[locked](tts-node)
aors=locked
outbound_auth=locked
[locked]
type=aor
contact=sip:{address}:{port}
[locked]
type=auth
auth_type=userpass
username=pbx
password={password}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def locked(lend: Lend) -> AsyncIterator[Server]:
    async with lend(auth__users=USERS) as server:
        yield server


async def call(server: Server, headers: bytes = b"", *, source: str = HOST, user: str = "silent") -> Answer:
    """The answer to one INVITE; hangs up if it was taken."""
    async with RawCaller(user, server.sip_port, source=source) as caller:
        caller.invite(headers=headers)
        answer = await caller.final()
        caller.ack()
        if answer.status == 200:
            await caller.bye()
        return answer


async def challenges(server: Server, *, source: str = HOST) -> list[str]:
    async with RawCaller("silent", server.sip_port, source=source) as caller:
        return await caller.challenges()


async def num_refused(server: Server, cause: str) -> int:
    """How many requests ``/metrics`` says were refused for this cause."""
    _, text = await server.get_text("/metrics")
    found = re.search(rf'^cctts_sip_refused_total\{{cause="{cause}"\}} (\d+)', text, re.MULTILINE)
    return int(found[1]) if found is not None else 0


async def until_refused(server: Server, cause: str, wanted: int) -> None:
    """Wait until so many were; there must not be more by then."""
    async with asyncio.timeout(PATIENCE_S):
        while await num_refused(server, cause) < wanted:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)
    assert await num_refused(server, cause) == wanted


async def test_the_right_password_is_good_for_one_call(locked: Server) -> None:
    assert (await options(locked.sip_port)).status == 200, "OPTIONS is how a PBX asks whether we are there"
    async with RawCaller("silent", locked.sip_port) as caller:
        sha, md5 = await caller.challenges()
        assert "algorithm=SHA-256" in sha
        assert "algorithm=MD5" in md5
        assert "stale" not in sha + md5
        line = authorization(sha, password=PASSWORD)
        caller.invite(headers=line)
        assert (await caller.final()).status == 200, "the ACK of the 401 was answered by nothing before this"
        caller.ack()
        caller.send("OPTIONS")
        inside = await caller.final()
        assert (inside.status, inside.header("Accept")) == (200, "application/sdp")
        caller.invite()
        assert (await caller.final()).status == 200, "the dialog is known"
        caller.ack()
        assert (await caller.bye()).status == 200
        caller.to = f"<sip:silent@{HOST}>;tag=of-no-dialog"
        caller.send("OPTIONS")
        assert (await caller.final()).status == 481
    replayed = await call(locked, line)
    assert replayed.status == 401
    assert all("stale=true" in each for each in replayed.headers("WWW-Authenticate"))
    assert (await call(locked, authorization(sha, password=PASSWORD, nc=2))).status == 200
    assert (await call(locked, authorization(md5, password=PASSWORD, nc=3))).status == 200
    elsewhere = await call(locked, authorization(md5, password=PASSWORD, nc=4), source=FRIEND)
    assert "stale=true" in (elsewhere.header("WWW-Authenticate") or "")
    assert elsewhere.status == 401
    assert len(await locked.calls()) == 3, "what was refused never became a call"


async def test_wrong_passwords_are_counted_and_end_in_403(locked: Server) -> None:
    before = {cause: await num_refused(locked, cause) for cause in ("credentials", "attempts", "malformed")}
    (nonce, _) = await challenges(locked, source=GUESSER)
    for broken in (b"Digest nonsense", b'Digest username="pbx", username="pbx"', b'Digest qop="auth-int", nc=00000001'):
        assert (await call(locked, b"Authorization: " + broken + b"\r\n", source=GUESSER)).status == 400
    for number, user in enumerate(("nobody", *["pbx"] * 10)):
        guess = authorization(nonce, username=user, password="a guess", nc=number + 1)
        answer = await call(locked, guess, source=GUESSER)
        assert answer.status == 401
        assert "stale" not in (answer.header("WWW-Authenticate") or "")
    assert (await call(locked, authorization(nonce, password=PASSWORD, nc=20), source=GUESSER)).status == 403
    (theirs, _) = await challenges(locked, source=FRIEND)
    assert (await call(locked, authorization(theirs, password=PASSWORD), source=FRIEND)).status == 200
    for cause, number in (("credentials", 11), ("attempts", 1), ("malformed", 3)):
        await until_refused(locked, cause, before[cause] + number)
    assert {"credentials", "attempts"} <= {line["cause"] for line in logged(locked, "requests_refused")}
    assert "sesame" not in locked.log
    assert "guess" not in locked.log


async def test_md5_alone_for_sipp_and_baresip_a_stale_challenge_exempt_peers(lend: Lend, tmp_path: Path) -> None:
    settings = {
        "auth__users": USERS,
        "auth__algorithms": '["MD5"]',
        "auth__nonce_lifetime_s": "3",
        "auth__exempt_peers": json.dumps([FRIEND]),
    }
    async with lend(**settings) as server:
        sipp = await Sipp.call(
            "auth",
            folder=tmp_path,
            target_port=server.sip_port,
            service="silent",
            pause_ms=100,
            credentials=("phone", "sesame-open"),
        )
        await sipp.passed()
        for password in ("sesame-open", "sesame-shut"):
            phone = await Baresip.start(
                tmp_path / password,
                audio=np.zeros(800, np.int16),
                account_more=f";auth_user=phone;auth_pass={password}",
            )
            await phone.command("dial", server.uri("silent"))
            if password == "sesame-open":
                await phone.wait_event("CALL_ESTABLISHED", 10)
            else:
                assert "401" in (await phone.wait_event("CALL_CLOSED", 10))["param"]
            await phone.end()
        assert len(await server.calls()) == 2
        (nonce,) = await challenges(server)
        assert (await call(server, source=FRIEND)).status == 200
        await asyncio.sleep(3.2)  # the lifetime is over
        answer = await call(server, authorization(nonce, password=PASSWORD))
        assert answer.status == 401
        assert "stale=true" in (answer.header("WWW-Authenticate") or "")


async def test_asterisk_knows_the_password(tmp_path: Path) -> None:
    require_asterisk()
    plain = "open sesame"
    users = "[{username = 'pbx', password = '" + plain + "'}]"
    async with server_with(tmp_path, auth__users=users, sip__host=NODES[0]) as server, server.events() as log:
        (tmp_path / "pbx").mkdir()
        asterisk = await Asterisk.start(tmp_path / "pbx", server)
        for password, response in ((plain, "Success"), ("sesame", "Failure")):
            path = tmp_path / "pbx" / "asterisk" / "etc" / "cc-tts" / "pjsip.conf"
            more = ASTERISK_ENDPOINT.format(address=NODES[0], port=server.sip_port, password=password)
            path.write_text(path.read_text().partition("\n[locked]")[0] + more)
            await asterisk.command("module reload res_pjsip.so")
            await asterisk.action("ModuleLoad", Module="res_pjsip_outbound_authenticator_digest.so", LoadType="load")
            action = f"call-{response}"
            await asterisk.action(
                "Originate", Channel="PJSIP/silent@locked", Application="Wait", Data="1", Async="true", Account=action
            )
            await asterisk.event("OriginateResponse", Response=response)
        await log.wait("call.established")
        await asterisk.end()
        assert len(await server.calls()) == 1


async def test_strangers_hear_nothing_and_allowed_peers_everything(lend: Lend) -> None:
    async with lend(sip__allowed_peers=json.dumps([HOST])) as server:
        before = await num_refused(server, "peer")
        async with RawCaller("silent", server.sip_port, source=STRANGER) as stranger:
            for method in ("INVITE", "OPTIONS", "REGISTER", "BYE", "CANCEL", "TELEPORT"):
                stranger.send(method)
            stranger.to += ";tag=guessed"
            for method in ("INVITE", "OPTIONS", "BYE"):
                stranger.send(method)
            assert (await options(server.sip_port)).status == 200
            assert (await call(server)).status == 200
            await until_refused(server, "peer", before + 9)
            assert stranger.received.empty()
        assert logged(server, "requests_refused")[0]["some_sources"] == [STRANGER]
        assert len(await server.calls()) == 1


async def test_one_source_cannot_take_what_others_need(lend: Lend) -> None:
    settings = {"auth__users": USERS, "sip__trusted_peers": "[]", "sip__max_requests_per_source_s": "10"}
    async with (
        lend(**settings) as server,
        RawCaller("x", server.sip_port, source=STRANGER) as stranger,
    ):
        sent = 0
        before = await num_refused(server, "rate")

        async def flood() -> None:
            nonlocal sent
            while True:
                for method in ("INVITE", "REGISTER") * 2:
                    stranger.send(method)
                    sent += 1
                await asyncio.sleep(0.02)  # the kernel's queue must not drop what others send

        flooding = asyncio.create_task(flood())
        async with asyncio.timeout(PATIENCE_S):
            while await num_refused(server, "rate") < before + 200:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.05)
        (nonce, _) = await challenges(server, source=FRIEND)
        assert (await call(server, authorization(nonce, password=PASSWORD), source=FRIEND)).status == 200
        flooding.cancel()
        stranger.send("OPTIONS")
        answers = [Answer(stranger.received.get_nowait()) for _ in range(stranger.received.qsize())]
        codes = [answer.status for answer in answers]
        assert sent > 240
        assert set(codes) == {401, 405, 503}
        assert len(codes) < sent / 3, "not every refusal is worth an answer"
        refusals = [answer for answer in answers if answer.status == 503]
        assert all("INVITE" in (answer.header("CSeq") or "") for answer in refusals)
        assert {answer.header("Retry-After") for answer in refusals} == {"7"}


async def test_an_unsolicited_challenge_does_not_get_our_password(tmp_path: Path) -> None:
    async with RawPeer() as registrar:
        settings = {
            "registration__registrar": f"sip:{HOST}:{registrar.port}",
            "registration__username": "greet",
            "registration__password": PASSWORD,
            "sip__trusted_peers": "[]",
        }
        async with server_with(tmp_path, **settings) as server:
            await registrar.expect("REGISTER")
            registrar.answer("401 Unauthorized", headers='WWW-Authenticate: Digest realm="pbx", nonce="abc"\r\n')
            assert "Authorization: Digest" in await registrar.expect("REGISTER"), "the registrar may ask"
            registrar.answer("200 OK", headers=f"Contact: <sip:greet@{HOST}:{server.sip_port}>;expires=60\r\n")
            async with RawCaller("silent", server.sip_port) as caller:
                await caller.establish()
                call_id = (await server.only_call())["id"]
                assert (await server.post(f"/v1/calls/{call_id}/hangup", {}))[0] == 200
                challenge = 'WWW-Authenticate: Digest realm="pbx", nonce="abc", algorithm=MD5\r\n'
                await caller.request("BYE", status="401 Unauthorized", headers=challenge)
                assert "Authorization" not in await caller.request("BYE"), "the BYE again, as if nobody had answered"
                await until_refused(server, "unsolicited_challenge", 1)
