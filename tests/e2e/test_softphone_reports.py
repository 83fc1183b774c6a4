"""What the softphone of ``cc-tts call`` tells a newcomer."""

import pytest

from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


async def test_the_server_knows_the_round_trip_to_the_softphone_and_the_mos(
    server: Server, phone: SoftphoneProcess
) -> None:
    await phone.dial(server.uri("long"))
    call = await server.until_call(lambda call: call["quality"]["mos"] is not None, 20)
    assert call["quality"]["mos"] > 4
    assert 0 <= call["quality"]["round_trip_ms"] < 1000
    report = await phone.hangup()
    assert report["answer_to_first_rtp_ms"] >= 0
    assert report["answer_to_first_speech_ms"] >= 0
    ended = await server.until_terminated()
    assert ended["quality"]["mos"] is not None
    assert ended["quality"]["packets_lost"] == 0
