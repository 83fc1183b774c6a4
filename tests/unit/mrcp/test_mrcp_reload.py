"""What a running MRCP process takes over of a configuration that was read again, and how it ends."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cc_tts.config.schema import SipConfig, TlsConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.mrcp import MrcpConfig
from cc_tts.mrcp.__main__ import MrcpServer
from cc_tts.mrcp.messages import MrcpSettings, Renew
from cc_tts.mrcp.sip.request import SipRefusal
from lab.certificates import Authority
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

DIALOG = SimpleNamespace(call_id="c1", flow=SimpleNamespace(peer=("127.0.0.1", 5070)))


@contextlib.asynccontextmanager
async def running(tls: TlsConfig, *transports: Any) -> AsyncIterator[tuple[MrcpServer, dict[str, str]]]:
    config = MrcpConfig(
        enabled=True, transports=transports, sip_port=0, sip_tls_port=0, control_port=0, control_tls_port=0
    )
    settings = MrcpSettings(log=LogConfig(), sip=SipConfig(), tls=tls, mrcp=config)
    server = MrcpServer(settings, lambda *_message: None)
    try:
        yield server, await server.start()
    finally:
        await server.stop()


def files_of(authority: Authority, name: str) -> TlsConfig:
    pair = authority.issue(name)
    return TlsConfig(certificate_file=str(pair.certificate), private_key_file=str(pair.key))


async def subject_at(port: str, context: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", int(port), ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subject"][0][0][1])


async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    async with running(files_of(authority, "first"), "tls") as (server, ports):
        names = ("sip_tls", "control_tls")
        assert [await subject_at(ports[name], context) for name in names] == ["first", "first"]
        server.take(Renew(("127.0.0.0/8",), files_of(authority, "second")), b"")
        assert [await subject_at(ports[name], context) for name in names] == ["second", "second"]
        server.take(Renew(("127.0.0.0/8",), TlsConfig(certificate_file="/nowhere", private_key_file="/nowhere")), b"")
        assert await subject_at(ports["sip_tls"], context) == "second"


async def test_who_may_connect_changes_at_once() -> None:
    async with running(TlsConfig(), "udp", "tcp") as (server, ports):
        assert ports["sip_udp"] == ports["sip_tcp"]
        server.take(Renew(("192.0.2.0/24",), TlsConfig()), b"")
        with capture_logs() as lines:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(ports["control"]))
                async with asyncio.timeout(2):
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
        (told,) = lines
        assert (told["event"], told["source"]) == ("mrcp_peer_refused", "127.0.0.1")


async def test_no_session_begins_while_the_process_ends() -> None:
    async with running(TlsConfig(), "udp") as (server, _):
        await server.stop()
        with pytest.raises(SipRefusal, match="Draining"):
            server.calls.begin("v=0", cast("Any", DIALOG))
