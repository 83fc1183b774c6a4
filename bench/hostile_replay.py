"""Messages that were kept when something broke, and how they are sent again."""

import asyncio
import json
import random
import tempfile
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

from bench.hostile_peer import Peer
from bench.hostile_traffic import Traffic
from bench.hostile_watch import LogTail, Watch
from bench.lab import RESULTS, Json, LabServer


def write_dump(peer: Peer, seed: int, reason: str, number: int) -> Path:
    """The last messages, the oldest first, and the server's tags they hold."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"hostile_crash_{seed}_{number}.json"
    content = {
        "reason": reason,
        "seed": seed,
        "ports": {"server": peer.server_port, "peer": peer.port},
        "tags": dict(peer.ledger.tags),
        "messages": list(peer.ledger.sent),
    }
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    return path


async def replay(dump: Json, settings: Sequence[str], *, rate: float) -> Json:
    """Send them to a new server. The ports and the server's tags are put where the old ones stood."""
    with tempfile.TemporaryDirectory() as folder:
        log_path = Path(folder) / "server.log"
        async with (
            await LabServer.start(*settings, log_path=log_path) as server,
            Peer(server.sip_port, random.Random(0)) as peer,
        ):
            traffic = Traffic(server, peer, int(dump["seed"]))
            watch = Watch(server, LogTail(log_path))
            crash, sent = "", 0
            for message in dump["messages"]:
                peer.sweep()
                await _send(traffic, message, _substitutes(dump, peer, message["call"]))
                sent += 1
                await asyncio.sleep(1 / rate)
                if crash := watch.crash():
                    break
            deadline = time.monotonic() + 10
            while not crash and time.monotonic() < deadline:
                await asyncio.sleep(0.5)
                crash = watch.crash()
            watch.log.read()
            return {"sent": sent, "of": len(dump["messages"]), "crash": crash, "log": watch.log.examples}


def _substitutes(dump: Json, peer: Peer, call_id: str) -> dict[bytes, bytes]:
    pairs = {
        f"127.0.0.1:{dump['ports']['server']}": f"127.0.0.1:{peer.server_port}",
        f"127.0.0.1:{dump['ports']['peer']}": f"127.0.0.1:{peer.port}",
    }
    if call_id in dump["tags"] and call_id in peer.ledger.tags:
        pairs[dump["tags"][call_id]] = peer.ledger.tags[call_id]
    return {old.encode("latin-1"): new.encode("latin-1") for old, new in pairs.items()}


async def _send(traffic: Traffic, message: Json, substitutes: dict[bytes, bytes]) -> None:
    data = b64decode(message["data"])
    for old, new in substitutes.items():
        data = data.replace(old, new)
    match message["via"]:
        case "udp":
            traffic.peer.send(data)
        case "tcp":
            traffic.peer.send_tcp(data)
        case "rest":
            await traffic.rest_call(message["method"], message["path"], data)
        case "media":
            dialog = traffic.peer.dialogs.get(message["call"])
            if dialog is not None and dialog.rtp_port:
                traffic.peer.send_media(data, dialog.rtp_port + message["offset"])
