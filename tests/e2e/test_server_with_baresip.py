"""The server against baresip as the caller: what an independent phone hears and presses."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from lab import audio_match
from lab.baresip import Baresip
from lab.server_under_test import GREETING, Server, engine_pcm
from tests.e2e.signals import through_ulaw

pytestmark = pytest.mark.e2e

QUIET = np.zeros(8000, np.int16)


async def test_baresip_hears_what_the_engine_said(fresh_server: Server, tmp_path: Path) -> None:
    reference = through_ulaw(await engine_pcm(GREETING, tmp_path))
    caller = await Baresip.start(tmp_path / "baresip", user="alice", audio=QUIET)
    try:
        async with fresh_server.events() as log:
            await caller.dial(fresh_server.uri("greet"))
            complete = await log.wait("speak.complete")
            await asyncio.sleep(2.0)  # what is still on its way through baresip's jitter buffer
    finally:
        await caller.end()
    assert complete["data"]["completion_cause"] == "normal"
    heard = caller.heard()
    match = audio_match.find(reference, heard)
    assert match.corr > 0.99
    assert match.overlap_ms == pytest.approx(len(reference) / 8, abs=20)
    assert audio_match.find_gaps(reference, heard) == []
    call = await fresh_server.until_terminated()
    assert call["ending"]["reason"] == "remote_hangup"


async def test_a_key_of_baresip_interrupts_the_prompt(server: Server, tmp_path: Path) -> None:
    caller = await Baresip.start(tmp_path / "baresip", user="alice", audio=QUIET)
    try:
        async with server.events() as log:
            await caller.dial(server.uri("long"))
            await log.wait("speak.started")
            await asyncio.sleep(1.0)  # let it speak for a while
            await caller.press("5")
            key = await log.wait("call.dtmf", digit="5")
            complete = await log.wait("speak.complete")
    finally:
        await caller.end()
    assert key["data"]["method"] == "rfc4733"
    assert complete["data"]["completion_cause"] == "barge_in"
    call = await server.until_terminated()
    utterance = await server.utterance(call)
    assert 0 < utterance["played_ms"] < 6000
    assert utterance["spoken_text"]
