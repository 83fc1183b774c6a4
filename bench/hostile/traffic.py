"""Which hostile message comes next, and the honest ones between them, which must be answered."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import aiohttp

from bench.hostile.media import OWN, bad_rtcp, bad_rtp, info_body, json_body, mutate_sdp, offer, rtp
from bench.hostile.peer import Dialog, Peer
from bench.hostile.sip import METHODS, Sip, mutate, spoil
from lab.ports import HOST
from lab.server_under_test import Json, Server

ANSWER_TIMEOUT_S: Final = 10.0
RESEND_S: Final = 0.5
PROBE_EVERY: Final = 10
TCP_SHARE: Final = 0.15
KINDS: Final = {"invite": 26, "request": 12, "within": 20, "media": 25, "answer": 5, "rest": 8, "originate": 8}
"""Of a hundred turns, about. A registrar's answers come besides, whenever the server registers."""
REST_PATHS: Final = ("answer", "ring", "hangup", "hold", "unhold", "dtmf", "speak", "play", "stop", "pause", "resume")
WITHIN: Final = (
    "INFO", "INFO", "INVITE", "INVITE", "UPDATE", "OPTIONS", "MESSAGE", "REFER", "NOTIFY", "SUBSCRIBE", "PRACK",
    "ACK", "CANCEL",
    "BYE", "REGISTER",
)  # fmt: skip


class Traffic:
    """Sends one message at a time."""

    def __init__(self, server: Server, peer: Peer, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> None:
        self._server = server
        self._kinds = {kind: KINDS[kind] for kind in kinds}
        self.peer = peer
        self._seed = seed
        self._tasks: set[asyncio.Task[None]] = set()
        self.probes: Counter[str] = Counter()
        self.rest: Counter[str] = Counter()
        self._placed = 0

    def tick(self, number: int) -> None:
        """Message ``number``; what it is depends on the seed and on the calls there are."""
        rng = self.peer.rng = random.Random(f"{self._seed}-{number}")
        self.peer.ledger.number = number
        self.peer.sweep()
        if number % PROBE_EVERY == 0:
            self._later(self._probe_call(number) if number % (5 * PROBE_EVERY) == 0 else self._probe_options(number))
            return
        match rng.choices(list(self._kinds), list(self._kinds.values()))[0]:
            case "invite":
                self._invite(rng, number)
            case "request":
                self._request(rng, number)
            case "within":
                self._within(rng, number)
            case "media":
                self._media(rng)
            case "answer":
                self._stray_answer(rng, number)
            case "rest":
                self._later(self._rest(rng))
            case _:
                self._later(self._originate(rng))

    async def settle(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2 * ANSWER_TIMEOUT_S)

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- honest -------------------------------------------------------------------------------------------------------

    async def ask(self, sip: Sip) -> tuple[int, str]:
        """Send it until there is a final answer; 0 if none comes."""
        call_id = sip.value("Call-ID")
        future: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.peer.waiting[call_id] = future
        data, deadline = sip.render(), time.monotonic() + ANSWER_TIMEOUT_S
        wait_s = RESEND_S
        while time.monotonic() < deadline:
            self.peer.send(data)
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(future), wait_s)
            wait_s *= 2
        self.peer.waiting.pop(call_id, None)
        return 0, ""

    def request(self, method: str, number: int | str, *, user: str = "load", body: str = "") -> Sip:
        """A good request outside a dialog."""
        port = self.peer.port
        headers = [
            ("Via", f"SIP/2.0/UDP {HOST}:{port};rport;branch=z9hG4bKh{self._seed}.{number}"),
            ("From", f'"hostile" <sip:hostile@{HOST}:{port}>;tag=h{number}'),
            ("To", f"<sip:{user}@{HOST}:{self._server.sip_port}>"),
            ("Call-ID", f"h{self._seed}.{number}@{HOST}"),
            ("CSeq", f"1 {method}"),
            ("Contact", f"<sip:hostile@{HOST}:{port}>"),
            ("Max-Forwards", "70"),
        ]
        if body:
            headers.append(("Content-Type", "application/sdp"))
        return Sip(f"{method} sip:{user}@{HOST}:{self._server.sip_port} SIP/2.0", headers, body)

    async def _probe_options(self, number: int) -> None:
        status, _ = await self.ask(self.request("OPTIONS", number))
        self.probes[f"OPTIONS {status}"] += 1

    async def _probe_call(self, number: int) -> None:
        sip = self.request("INVITE", number, user="probe", body=offer(self.peer.rtp_port))
        status, _ = await self.ask(sip)
        self.probes[f"INVITE {status}"] += 1
        dialog = self.peer.dialogs.get(sip.value("Call-ID"))
        if dialog is not None:
            status, _ = await self.ask(self.peer.within(dialog, "BYE"))
            self.probes[f"BYE {status}"] += 1

    async def call_to_keep(self, name: str, rtp_port: int, parameters: str) -> Dialog:
        """A call in progress, which stays.

        Raises:
            RuntimeError: it is not answered.
        """
        sip = self.request("INVITE", name, user="annc", body=offer(rtp_port))
        sip.start = f"INVITE sip:annc@{HOST}:{self._server.sip_port};{parameters} SIP/2.0"
        status, text = await self.ask(sip)
        dialog = self.peer.dialogs.get(sip.value("Call-ID"))
        if dialog is None:
            raise RuntimeError(f"the call to keep was answered {status}: {text[:300]}")
        dialog.kept = True
        return dialog

    # --- hostile ------------------------------------------------------------------------------------------------------

    def _out(self, rng: random.Random, kind: str, sip: Sip) -> None:
        data = spoil(rng, sip.render())
        tcp = rng.random() < TCP_SHARE
        self.peer.ledger.keep("tcp" if tcp else "udp", kind, data, sip.value("Call-ID"))
        if not tcp:
            self.peer.send(data)
        elif data:
            self.peer.send_tcp(data.replace(b"SIP/2.0/UDP", b"SIP/2.0/TCP"))

    def _invite(self, rng: random.Random, number: int) -> None:
        body = offer(self.peer.rtp_port, direction=rng.choice(("sendrecv", "sendrecv", "recvonly", "inactive")))
        fault = rng.random()
        sip = self.request("INVITE", number, body=mutate_sdp(rng, body) if fault < 0.4 else body)
        kind = "sdp" if fault < 0.35 else mutate(rng, sip, OWN)
        self._out(rng, f"INVITE {kind}", sip)
        if rng.random() < 0.05:  # it comes by another way too (RFC 3261 §8.2.2.2)
            branch = f"z9hG4bKfork{self._seed}.{number}"
            self._out(
                rng,
                "INVITE fork",
                replace(sip, headers=[("Via", f"SIP/2.0/UDP {HOST}:9;branch={branch}"), *sip.headers]),
            )
        if rng.random() < 0.1:  # CANCEL may cross the 200 (RFC 3261 §9.1)
            sip.start = sip.start.replace("INVITE", "CANCEL", 1)
            sip.put("CSeq", "1 CANCEL")
            self._out(rng, "CANCEL", Sip(sip.start, [each for each in sip.headers if each[0] != "Content-Type"]))

    def _request(self, rng: random.Random, number: int) -> None:
        method = rng.choice(METHODS)
        sip = self.request(method, number, body=rng.choice(("", "", "x", offer(9))))
        self._out(rng, f"request {mutate(rng, sip)}", sip)

    def _victim(self, rng: random.Random) -> Dialog | None:
        dialogs = [each for each in self.peer.dialogs.values() if not each.kept and not each.num_byes]
        return rng.choice(dialogs) if dialogs else None

    def _within(self, rng: random.Random, number: int) -> None:
        dialog = self._victim(rng)
        if dialog is None:
            self._invite(rng, number)
            return
        method, body, content_type = rng.choice(WITHIN), "", "application/sdp"
        if method == "INFO":
            content_type, body = info_body(rng)
        elif method in ("INVITE", "UPDATE", "ACK", "PRACK"):
            direction = rng.choice(("sendrecv", "sendonly", "recvonly", "inactive"))
            body = offer(self.peer.rtp_port, direction=direction, version=dialog.cseq + 1)
            body = mutate_sdp(rng, body) if rng.random() < 0.5 else rng.choice((body, body, ""))
        sip = self.peer.within(dialog, method, body, content_type)
        kind = mutate(rng, sip) if rng.random() < 0.6 else "good"
        self._out(rng, f"within {method} {kind}", sip)
        if method == "INVITE" and rng.random() < 0.3:  # glare: another before the first is answered
            self._out(rng, "within INVITE glare", self.peer.within(dialog, "INVITE", offer(self.peer.rtp_port)))

    def _media(self, rng: random.Random) -> None:
        dialog = self._victim(rng)
        if dialog is None or not dialog.rtp_port:
            return
        for _ in range(rng.choice((1, 3, 10))):
            dialog.seq += 1
            kind, data, offset = "rtp good", rtp(seq=dialog.seq, ssrc=dialog.ssrc), 0
            if rng.random() < 0.6:
                what, data = bad_rtp(rng, seq=dialog.seq, ssrc=dialog.ssrc)
                kind = f"rtp {what}"
            elif rng.random() < 0.5:
                what, data = bad_rtcp(rng, ssrc=dialog.ssrc)
                kind, offset = f"rtcp {what}", rng.choice((1, 1, 1, 0))
            self.peer.ledger.keep("media", kind, data, dialog.call_id, offset=offset)
            self.peer.send_media(data, dialog.rtp_port + offset)

    def _stray_answer(self, rng: random.Random, number: int) -> None:
        dialog = self._victim(rng)
        sip = self.request("INVITE", number) if dialog is None else self.peer.within(dialog, "BYE")
        sip.start = f"SIP/2.0 {rng.choice((100, 180, 200, 202, 302, 401, 407, 481, 500, 699))} x"
        self._out(rng, f"stray answer {mutate(rng, sip)}", sip)

    # --- the control API ------------------------------------------------------------------------------------------------

    async def rest_call(self, method: str, path: str, body: bytes) -> int:
        """One request to the control API; 0 if it broke."""
        self.peer.ledger.keep("rest", f"rest {path.rpartition('/')[2][:12]}", body, path=path, method=method)
        try:
            async with self._server.http.request(
                method, self._server.url + path, data=body, headers={"Content-Type": "application/json"}
            ) as response:
                await response.read()
                self.rest[f"{response.status}"] += 1
                return response.status
        except (aiohttp.ClientError, TimeoutError, ValueError):
            self.rest["broken"] += 1
            return 0

    async def _rest(self, rng: random.Random) -> None:
        call_id = f"placed-{self._seed}-{max(0, self._placed - rng.randrange(4))}"
        path = rng.choice(REST_PATHS)
        bodies: dict[str, Json] = {
            "speak": {"text": "Hello there.", "queue": "append"},
            "play": {"tone": "beep", "duration_ms": 200},
            "dtmf": {"digits": "12#"},
            "hangup": {},
        }
        await self.rest_call("POST", f"/v1/calls/{call_id}/{path}", json_body(rng, bodies.get(path) or {"x": 1}))

    async def _originate(self, rng: random.Random) -> None:
        self._placed += 1
        call_id = f"placed-{self._seed}-{self._placed}"
        transport = rng.choice(("", "", ";transport=udp"))
        good = {
            "to": f"sip:peer@{HOST}:{self.peer.port}{transport}",
            "call_id": call_id,
            "timeout_s": 2,
            "speak": "Hello.",
        }
        raw = json_body(rng, good) if rng.random() < 0.4 else json.dumps(good).encode()
        if await self.rest_call("POST", "/v1/calls", raw) == 201:
            await asyncio.sleep(rng.uniform(0.1, 3))
            await self.rest_call("POST", f"/v1/calls/{call_id}/hangup", b"{}")
