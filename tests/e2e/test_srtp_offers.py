"""SRTP by the key of an offer, without TLS: which offers are taken, and what packets without the key do."""

import asyncio
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from cc_tts.media import g711
from lab import audio_match
from lab.audio_match import samples
from lab.configured import Lend, ua_pid
from lab.ports import HOST
from lab.raw_sip import RawCaller, RtpEar
from lab.server_under_test import GREETING, engine_pcm, entries
from lab.tls_peer import CRYPTO, UNUSABLE, offer
from lab.waiting import until
from tests.e2e.signals import through_ulaw

pytestmark = pytest.mark.e2e


async def test_srtp_required(lend: Lend, tmp_path: Path) -> None:
    reference = through_ulaw(await engine_pcm(GREETING, tmp_path))
    async with lend(rtp__srtp="required") as server, RtpEar() as ear, RtpEar() as stranger:
        await until(lambda: entries(server.whole_log, "srtp_keys_in_clear"))  # said after /readyz
        async with RawCaller("greet", server.sip_port) as caller:
            caller.send("INVITE", body=offer("RTP/AVP", rtp_port=ear.port))
            await caller.acknowledge(488)
        async with RawCaller("greet", server.sip_port) as caller, server.events() as log:
            caller.send("INVITE", body=offer("RTP/SAVP", CRYPTO, rtp_port=ear.port))
            answer = await caller.final()
            caller.ack()
            media = re.search(r"^m=audio (\d+) (\S+) ", answer.text, re.MULTILINE)
            assert media is not None
            assert media[2] == "RTP/SAVP"
            assert re.search(r"^a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:(?!AQIDBAUG)", answer.text, re.MULTILINE)
            await log.wait("speak.started")
            await plain_and_forged_rtp(stranger, int(media[1]))
            await log.wait("speak.complete")
            call = await server.only_call()
            digits = [event for event in log.events if event["type"] == "call.dtmf"]
            assert (await caller.bye()).status == 200
        ended = await server.until_terminated()
        assert call["srtp"] is True
        assert digits == []
        assert ended["quality"]["packets_received"] == 0
        assert stranger.packets == []
        heard = samples(g711.ulaw_decode(b"".join(payload[:160] for payload in ear.payloads)))
        assert {len(payload) for payload in ear.payloads} >= {
            170
        }  # 160 bytes of audio and an authentication tag of 80 bits
        assert len(heard) >= len(reference)
        assert audio_match.find(reference, heard).corr < 0.2


async def plain_and_forged_rtp(sender: RtpEar, port: int) -> None:
    """A key pressed in the clear, the same with random bytes where SRTP has its tag, and noise."""
    rng = np.random.default_rng(2)
    for number in range(50):
        header = struct.pack("!BBHII", 0x80, 101, number, 160, 4711)
        event = struct.pack("!BBH", 5, 0x8A if number % 10 > 6 else 0x0A, 160 * (number % 10 + 1))
        for packet in (header + event, header + event + rng.bytes(10), header[:1] + rng.bytes(180)):
            sender.transmit(packet, (HOST, port))
        await asyncio.sleep(0.005)


async def test_srtp_optional_and_offers_that_cannot_be_answered(lend: Lend) -> None:
    async with lend(rtp__srtp="optional") as server:
        first_pid = ua_pid(server)
        for profile, crypto, is_secure in (("RTP/AVP", (), False), ("RTP/SAVP", (CRYPTO,), True)):
            async with RawCaller("silent", server.sip_port) as caller:
                caller.send("INVITE", body=offer(profile, *crypto))
                answer = await caller.final()
                caller.ack()
                assert answer.status == 200
                assert f" {profile} 0" in answer.text
                assert ("a=crypto:1 " in answer.text) is is_secure
                call = await server.until_call(lambda call: call["state"] == "established")
                assert (call["transport"], call["srtp"]) == ("udp", is_secure)
                await caller.bye()
                await server.until_terminated()
        for name, sdp in UNUSABLE.items():
            async with RawCaller("silent", server.sip_port) as caller:
                caller.send("INVITE", body=sdp)
                answer = await caller.final()
                caller.ack()
                assert answer.status == 488, name
                assert (answer.header("Warning") or "").startswith("399 "), name
        assert ua_pid(server) == first_pid


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_offers_inside_a_call_that_cannot_be_answered(lend: Lend, method: str) -> None:
    async with lend(rtp__srtp="optional") as server, RawCaller("silent", server.sip_port) as caller:
        first_pid = ua_pid(server)
        caller.send("INVITE", body=offer("RTP/SAVP", CRYPTO))
        await caller.acknowledge(200)
        too_many = offer("RTP/SAVP", *(f"{1_000_000 + number}{CRYPTO[1:]}" for number in range(33)))
        for name, sdp in (UNUSABLE | {"33 good keys": too_many}).items():
            caller.send(method, body=sdp)
            answer = await caller.final()
            if method == "INVITE":
                caller.ack()
            assert answer.status == 488, name
            assert (answer.header("Warning") or "").startswith("399 "), name
        caller.send(method, body=offer("RTP/SAVP", CRYPTO))
        answer = await caller.final()
        if method == "INVITE":
            caller.ack()
        assert answer.status == 200
        await server.until_call(lambda call: (call["state"], call["srtp"]) == ("established", True))
        assert (await caller.bye()).status == 200
        await server.until_terminated()
        assert ua_pid(server) == first_pid
