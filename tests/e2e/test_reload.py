"""SIGHUP: the configuration is read again while calls are up."""

import asyncio
import signal
import ssl
from pathlib import Path

import aiohttp
import pytest

from lab.certificates import Authority
from lab.configured import is_running, logged, server_with, ua_pid, ua_starts
from lab.ports import HOST
from lab.raw_sip import RawCaller
from lab.server_under_test import Json, Server
from lab.tls_peer import client_context, tls_server
from lab.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e


async def reload(server: Server) -> Json:
    """Send SIGHUP; the line that says what came of it."""
    before = len(logged(server, "reloaded")) + len(logged(server, "reload_failed"))
    server.signal(signal.SIGHUP)

    def lines() -> list[Json]:
        return logged(server, "reloaded") + logged(server, "reload_failed")

    await until(lambda: len(lines()) > before)
    return max(lines(), key=lambda line: str(line["time"]))


def change(server: Server, old: str, new: str) -> None:
    text = server.config.read_text()
    assert old in text
    server.config.write_text(text.replace(old, new, 1))


async def status_of_invite(server: Server, user: str, timeout_s: float = 10.0) -> int:
    async with RawCaller(user, server.sip_port) as caller:
        caller.invite()
        answer = await caller.final(timeout_s)
        caller.ack()
        if answer.status == 200:
            caller.send("BYE")
            await caller.final()
        return answer.status


async def test_calls_go_on_and_everything_that_can_be_is_taken_over(tmp_path: Path) -> None:
    async with server_with(tmp_path) as server:
        agent = ua_pid(server)
        async with RawCaller("long", server.sip_port) as caller:
            await caller.establish()
            call = await server.until_call(lambda call: call["state"] == "established")

            change(server, "[routes.silent]", '[routes.new]\ngreeting = "New."\n\n[routes.silent]')
            change(server, "retry_after_s = 7", 'retry_after_s = 8\nallowed_peers = ["192.0.2.7"]')
            server.config.write_text(
                server.config.read_text()
                + '\n[log]\nlevel = "debug"\n[auth]\nusers = [{username = "pbx", password = "change-me-1"}]\n'
            )
            change(server, "[http]", '[http]\ntokens = ["a-new-token"]')
            async with server.events() as events:
                line = await reload(server)
                assert line["event"] == "reloaded", line
                assert set(line["changed"]) == {
                    "http.tokens",
                    "log.level",
                    "routes.new",
                    "sip.allowed_peers",
                    "auth.users",
                }
                assert line["needs_restart"] == ["sip.retry_after_s", "log.level of the engine's workers"]
                assert "a-new-token" not in server.log
                assert "change-me-1" not in server.log
                await asyncio.wait_for(events.closed.wait(), PATIENCE_S)  # who may read is asked anew

            # the tokens
            assert (await server.get("/v1/calls"))[0] == 401
            headers = {"Authorization": "Bearer a-new-token"}
            async with aiohttp.ClientSession(headers=headers) as session:
                async with session.get(f"{server.url}/v1/calls/{call['id']}") as found:
                    assert (await found.json())["state"] == "established"
                # the allow-list: this stranger hears nothing any more
                with pytest.raises(TimeoutError):
                    await status_of_invite(server, "silent", 2.0)
                change(server, 'allowed_peers = ["192.0.2.7"]', "allowed_peers = []")
                assert (await reload(server))["changed"] == ["sip.allowed_peers"]
                assert await status_of_invite(server, "new") == 401
                change(server, 'users = [{username = "pbx", password = "change-me-1"}]', "users = []")
                assert (await reload(server))["changed"] == ["auth.users"]
                assert await status_of_invite(server, "new") == 200
                assert logged(server, "http_request")
                async with session.post(f"{server.url}/v1/calls/{call['id']}/hangup", json={}) as ended:
                    assert ended.status == 200
        assert ua_pid(server) == agent
        assert is_running(agent)

        change(server, "allowed_peers = []", 'allowed_peers = ["192.0.2.7"]')
        assert (await reload(server))["changed"] == ["sip.allowed_peers"]
        server.signal(signal.SIGKILL, pid=agent)
        await until(lambda: len(ua_starts(server)) == 2)
        with pytest.raises(TimeoutError):  # a UA process that is started again has what was taken over
            await status_of_invite(server, "silent", 2.0)


WRONG = (
    ("[http]", "[htpt]", "did you mean http"),
    ("[http]", "[http", "server.toml"),
    ("[routes.silent]", '[routes.silent]\nvoice = "nobody"', "nobody"),
    ("[tts]", '[tls]\ncertificate_file = "/nowhere.pem"\nprivate_key_file = "/nowhere.key"\n\n[tts]', "/nowhere.pem"),
    ("[http]", "[sip2]\n[http]", "sip2"),
)


async def test_a_new_file_that_is_wrong_changes_nothing(server: Server) -> None:
    change(server, "[routes.silent]", '[routes.new]\ngreeting = "New."\n\n[routes.silent]')
    right = server.config.read_text()
    for old, new, named in WRONG:
        server.config.write_text(right)
        change(server, old, new)
        line = await reload(server)
        assert line["event"] == "reload_failed", named
        assert line["consequence"] == "nothing has changed"
        assert named in line["detail"]
        assert await status_of_invite(server, "new") == 404, named
    server.config.unlink()
    assert (await reload(server))["event"] == "reload_failed"
    server.config.write_text(right)
    assert await status_of_invite(server, "silent") == 200
    assert (await server.get("/readyz"))[0] == 200


@pytest.mark.usefixtures("server_build")
async def test_a_renewed_certificate_is_served_and_calls_over_tls_go_on(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    pair = authority.issue("server")
    async with tls_server(tmp_path, authority, pair=pair) as (server, port):

        async def served() -> bytes:
            _, writer = await asyncio.open_connection(HOST, port, ssl=client_context(authority))
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return bytes(certificate)

        def on_disk() -> bytes:
            return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())

        assert await served() == on_disk()
        _, kept = await asyncio.open_connection(HOST, port, ssl=client_context(authority))
        authority.issue("server")  # anew, in the same files
        assert await served() != on_disk()
        assert (await reload(server))["changed"] == ["the files of tls"]
        assert await served() == on_disk()
        assert not kept.is_closing()
        pair.certificate.write_text("damaged")
        assert (await reload(server))["event"] == "reload_failed"
        assert await served() != b""
