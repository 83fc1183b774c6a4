"""One or two nodes behind Asterisk, with the files of ``sip/peers/asterisk/`` and ``dialplans/asterisk/``.

What a node said is judged by Asterisk's own recording of its leg to the node.
"""

import contextlib
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

from lab import audio_match
from lab.asterisk import NODES, Asterisk, require_asterisk
from lab.audio_match import Match, Samples
from lab.configured import server_with
from lab.peers import ROOT
from lab.server_under_test import Server, engine_pcm
from tests.e2e.signals import through_ulaw

RECORDING_SLIP_MS = 400.0
"""MixMonitor throws away what it has when one direction comes in a burst, and what comes after it is as much earlier."""
MOST = 0.6
"""Share of a prompt that must have been heard: all of it, but for the places where a mixer lost or put in a frame."""


def numbering_plan() -> dict[str, str]:
    """Routes of the numbering plan, as ``server_with`` wants them."""
    readme = (ROOT / "dialplans" / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    routes = tomllib.loads(block)["routes"]
    return {f"routes__{user}__{key}": value for user, route in routes.items() for key, value in route.items()}


@contextlib.asynccontextmanager
async def node(folder: Path, number: int, **settings: str) -> AsyncIterator[Server]:
    """Node 1 or 2 at its address, with the routes of the numbering plan."""
    require_asterisk()
    own = folder / f"node{number}"
    own.mkdir()
    async with server_with(own, **numbering_plan(), sip__host=NODES[number - 1], **settings) as server:
        yield server


@contextlib.asynccontextmanager
async def asterisk_for(
    folder: Path,
    first: Server,
    second: Server | None = None,
    *,
    tls_keys: Path | None = None,
    tls_port: int = 0,
    first_is: str = "Avail",
    direct_media: bool = False,
    lines: tuple[str, str] | None = None,
) -> AsyncIterator[Asterisk]:
    """Asterisk that has asked each node by OPTIONS, the first by TLS if there are keys.

    It must end with status 0, and log no error but what a node that is away makes.
    """
    running = await Asterisk.start(
        folder, first, second, tls_keys=tls_keys, tls_port=tls_port, direct_media=direct_media, lines=lines
    )
    try:
        await running.until_contact(1, first_is)
        if second is not None:
            await running.until_contact(2, "Avail")
        yield running
    finally:
        code = await running.end()
    assert code == 0, running.log[-4000:]
    harmless = re.compile(r"'tts-1'.* invalid URI|outgoing session to .*'tts-1'")
    errors = [line for line in running.log.splitlines() if "ERROR[" in line and not harmless.search(line)]
    assert first_is != "Avail" or errors == []


async def reference(text: str, folder: Path) -> Samples:
    """What the far end hears of a text through G.711."""
    return through_ulaw(await engine_pcm(text, folder))


async def heard_at_asterisk(pbx: Asterisk, name: str, text: str, folder: Path) -> Match:
    """Where the text is in Asterisk's recording of its first leg of this name; it must be all of it.

    The text must be the node's first: espeak-ng says a later one with other details than ``cc-tts say``.
    """
    wanted, recorded = await reference(text, folder), pbx.recordings(name)[0]
    match = audio_match.find(wanted, recorded)
    heard = audio_match.pieces_heard(wanted, recorded, slip_ms=RECORDING_SLIP_MS)
    assert sum(heard) >= MOST * len(heard) > 0, match
    assert any(heard[:3]), "from the first word"
    assert any(heard[-3:]), "to the last"
    return match
