"""Who answered a call that the server placed: SIPp answers and plays, real RTP, the real model."""

from pathlib import Path

import pytest

from cc_tts.media.g711 import ulaw_encode
from cc_tts.softphone.rtp.packets import SAMPLES_PER_PACKET, RtpPacket
from lab import needs
from lab.caller_audio import Samples, pcm_of, said, silence, sound
from lab.peers import Sipp
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawPeer
from lab.server_under_test import Json, Server
from tests.e2e.test_registration import place

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

GREETING = (
    "Hello, you have reached the voicemail of Anna Miller. I cannot take your call right now. Please leave a message."
)


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


def octets(folder: Path, *parts: Samples) -> Path:
    """A file for the peer to play; silence follows it."""
    path = folder / "answer.ulaw"
    path.write_bytes(b"".join(ulaw_encode(pcm_of(part)) for part in (*parts, silence(10_000))))
    return path


async def called(server: Server, folder: Path, *parts: Samples) -> list[Json]:
    """Call a peer that plays this; returns the events up to the last that is expected."""
    peer = await Sipp.answer("uas_play", folder=folder, audio=octets(folder, *parts))
    async with server.events() as log:
        call = await server.create("/v1/calls", {"to": f"sip:bob@{HOST}:{peer.port}", "amd": {}})
        detected = await log.wait("call.machine_detected")
        if detected["data"]["result"] == "machine":
            await log.wait("call.machine_greeting_ended")
        assert (await server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
        await log.wait("call.terminated")
        events = [event for event in log.events if event["type"].startswith("call.machine")]
    await peer.passed()
    assert [event["type"] for event in events].count("call.machine_detected") == 1
    return events


async def test_a_person_says_hello(server: Server, tmp_path: Path) -> None:
    (detected,) = await called(server, tmp_path, silence(500), said("Hello?"))
    assert (detected["data"]["result"], detected["data"]["words"]) == ("human", 1)
    assert 1500 < detected["data"]["after_ms"] < 2500
    _, metrics = await server.get_text("/metrics")
    assert 'cctts_machine_detections_total{result="human"}' in metrics


async def test_a_machine_beeps(server: Server, tmp_path: Path) -> None:
    beep = sound("!850/300", 300)
    detected, ended = await called(server, tmp_path, silence(500), said(GREETING), silence(700), beep)
    assert (detected["data"]["result"], ended["data"]["by"]) == ("machine", "beep")
    spoken_ms = len(said(GREETING)) / 8 + 500 + 700 + 300
    assert ended["data"]["at_ms"] == pytest.approx(spoken_ms + 130, abs=250)


@pytest.mark.usefixtures("server_build")
async def test_the_server_build_hears_a_machine_as_well(server: Server, tmp_path: Path) -> None:
    beep = sound("!1400/500", 500)
    detected, ended = await called(server, tmp_path, silence(300), said("Please leave a message."), silence(400), beep)
    assert (detected["data"]["result"], ended["data"]["by"]) == ("machine", "beep")


async def test_a_busy_tone_before_the_answer(server: Server) -> None:
    async with RawPeer() as peer, RtpPeer() as rtp, server.events() as log:
        await place(server, peer, amd={})
        invite = await peer.expect("INVITE")
        peer.answer("183 Session Progress", formats="0 101", rtp_port=rtp.port)
        rtp_port = int(invite.partition("m=audio ")[2].split()[0])
        octets = ulaw_encode(pcm_of(sound("busy", 4000)))
        parts = [octets[at : at + SAMPLES_PER_PACKET] for at in range(0, len(octets), SAMPLES_PER_PACKET)]
        packets = [RtpPacket(0, 0, SAMPLES_PER_PACKET * number, 0, part) for number, part in enumerate(parts)]
        await rtp.send((HOST, rtp_port), packets)
        early = await log.wait("call.early_media")
        peer.answer("486 Busy Here")
        await peer.expect("ACK")
        detected = await log.wait("call.machine_detected")
        await log.wait("call.terminated")
    assert early["data"]["sound"] == "busy"
    assert (detected["data"]["result"], detected["data"]["cause"]) == ("unavailable", "call_ended")
