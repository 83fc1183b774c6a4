"""The softphone against baresip: an independent phone hears our keys, and we hear its voice."""

from pathlib import Path

import numpy as np
import pytest

from lab import audio_match
from lab.baresip import Baresip
from lab.ports import HOST
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.quiet import until_quiet
from tests.e2e.signals import voice_like

pytestmark = pytest.mark.e2e

SPEECH = voice_like(2.0, seed=2)
LEAD = np.zeros(8000, np.int16)
SLIP_MS = 500.0


async def until_logged(phone: Baresip, texts: list[str]) -> None:
    try:
        await until(lambda: all(text in phone.log for text in texts))
    except TimeoutError:
        pytest.fail(f"baresip did not report {texts}:\n{phone.log[-3000:]}")


async def test_baresip_reports_our_keys_and_is_heard(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Baresip.start(tmp_path / "baresip", audio=np.concatenate((LEAD, SPEECH)), answers=True)
    try:
        record = tmp_path / "heard.wav"
        await phone.dial(f"sip:bot@{HOST}:{peer.sip_port}", record=record)
        await phone.wait_event("answered")
        await phone.wait_event("speech_start")
        for digit in "159*0#":
            await phone.dtmf(digit)
        await until_logged(peer, [f"received event: '{digit}' (end=1)" for digit in "159*0#"])
        await until_quiet(phone)
        report = await phone.hangup()
    finally:
        await peer.end()
    heard, _ = audio_match.read_wav(record)
    # a stall of baresip on a busy machine moves what follows, and what lies in it is no piece of its speech
    assert audio_match.share_heard(SPEECH, heard, slip_ms=SLIP_MS) > 0.8
    assert report["rtp"]["lost"] == 0
    assert report["ending"]["by"] == "us"
