"""Messages that were kept when something broke, and how they are sent again."""

import asyncio
import json
import os
import random
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.hostile.answers import Here, reply
from bench.hostile.peer import Peer, Response, repeated
from bench.hostile.traffic import Traffic
from bench.hostile.watch import staged
from bench.report import RESULTS
from lab.ports import HOST
from lab.server_under_test import Json

REPLAY_GAP_S: Final = 0.02


def write_dump(peer: Peer, seed: int, reason: str, number: int) -> Path:
    """The last messages, the oldest first, and the server's tags they hold."""
    RESULTS.mkdir(exist_ok=True)
    build = os.environ.get("CC_TTS_PJSUA2", "wheel").rpartition("/")[2]
    path = RESULTS / f"hostile_crash_{build}_{seed}_{number}.json"
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
    peer = AnswersAgain(dump)
    async with staged(peer, settings, seed=int(dump["seed"]), num_kept=0) as stage:
        traffic, watch = stage.traffic, stage.watch
        peer.hostile = True
        crash, sent = "", 0
        for message in dump["messages"]:
            peer.sweep()
            if message["via"] != "answer":
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
        return {
            "sent": sent,
            "of": len(dump["messages"]),
            "crash": crash,
            "assertions": dict(watch.log.assertions),
            "log": watch.log.examples,
        }


class AnswersAgain(Peer):
    """A peer that responds to the server's requests, in their order, as it was done before: to the first new INVITE what
    went back to the first INVITE of the dump, and so on. Requests the dump has nothing for get an ordinary response.
    """

    def __init__(self, dump: Json) -> None:
        super().__init__(random.Random(0))
        self._ports = dump["ports"]
        self._transactions: dict[str, list[Json]] = {}
        for message in dump["messages"]:
            if message["via"] == "answer":
                self._transactions.setdefault(message["request"]["branch"], []).append(message)
        self._taken: set[str] = set()
        self.now: dict[str, dict[str, str]] = {}
        """For a Call-ID of the server in the dump: Call-ID and tag of the call that stands for it."""

    def _responses(self, method: str, request: str) -> list[Response]:
        ours = repeated(request)
        if ours["branch"] in self._taken:  # sent again
            return []
        branch = next((key for key, each in self._transactions.items() if each[0]["request"]["method"] == method), None)
        if branch is None:
            sip = reply(request, "200 OK", Here(HOST, self.port, self.rtp_port))
            return [Response("good", sip.render(), 0)]
        self._taken.add(ours["branch"])
        messages = self._transactions.pop(branch)
        then = messages[0]["request"]
        self.now[then["call_id"]] = {then["call_id"]: ours["call_id"], then["tag"]: ours["tag"]}
        responses = []
        for message in messages:
            data = b64decode(message["data"])
            for name, old in message["request"].items():
                if old.strip() and name != "method":
                    data = data.replace(old.encode("latin-1"), ours[name].encode("latin-1"))
            data = data.replace(f"{HOST}:{self._ports['peer']}".encode(), f"{HOST}:{self.port}".encode())
            responses.append(Response(message["kind"], data, REPLAY_GAP_S))
        return responses


def _substitutes(dump: Json, peer: AnswersAgain, call_id: str) -> dict[bytes, bytes]:
    pairs = {
        f"127.0.0.1:{dump['ports']['server']}": f"127.0.0.1:{peer.server_port}",
        f"127.0.0.1:{dump['ports']['peer']}": f"127.0.0.1:{peer.port}",
    }
    if call_id in dump["tags"] and call_id in peer.ledger.tags:
        pairs[dump["tags"][call_id]] = peer.ledger.tags[call_id]
    pairs.update(peer.now.get(call_id, {}))
    return {old.encode("latin-1"): new.encode("latin-1") for old, new in pairs.items() if old}


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
            call_id = message["call"].encode("latin-1")
            dialog = traffic.peer.dialogs.get(substitutes.get(call_id, call_id).decode("latin-1"))
            if dialog is not None and dialog.rtp_port:
                traffic.peer.send_media(data, dialog.rtp_port + message["offset"])
