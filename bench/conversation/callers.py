"""Callers with a telephone each, on one machine: RTP in and out, timed.

``python -m bench.conversation.callers N`` prints a line of JSON with a port for each of N calls, then takes commands, one
JSON object a line, and prints one for each that is answered::

    {"do": "press", "call": 3, "digit": "5"}     {"event": "pressed", "call": 3, "first_ns": …, "end_ns": …}
    {"do": "say", "call": 3, "file": "a.ulaw"}   {"event": "said", "call": 3, "first_ns": …}
    {"do": "echo", "db": -20}                    (null: no echo)
    {"do": "report"}                             {"event": "report", "heard": …, "sent_late_ms": …, "talkspurts": …}

Each telephone has a clock of its own, whose phase is drawn when the first packet comes, and sends a packet every 20 ms.
``first_ns`` is when the first packet was sent, ``end_ns`` when the first one with the end bit was (RFC 4733 §2.3). Packets
that arrive have the times of the kernel. All times are CLOCK_MONOTONIC. Telephones are not on the server's machine, so this
process has real-time priority where it may: it is not to be late because the machine is busy.
"""

import contextlib
import json
import os
import random
import select
import struct
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.report import percentiles
from cc_tts.audio import PTIME_MS
from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.media.levels import SPEECH_PEAK
from cc_tts.softphone.rtp.packets import (
    EVENT_PAYLOAD_TYPE,
    PAYLOAD_TYPES,
    SILENCE,
    Keypress,
    OutgoingStream,
    RtpPacket,
    TelephoneEvent,
    event_code,
    is_rtcp,
)
from lab.lines import CommandLines
from lab.rtp_crowd import dropped_by_sockets, even_socket, summary, tally_of

Json = dict[str, Any]

TURN_MS: Final = 2
PTIME_NS: Final = PTIME_MS * NS_PER_MS
MAX_BEHIND_NS: Final = 10 * PTIME_NS
"""A telephone that was not served for longer leaves packets out."""
PAUSE_NS: Final = 300 * NS_PER_MS
"""Speech is over when nothing audible has come for so long: pauses at commas do not end it."""
MAX_PACKET_BYTES: Final = 512
PCMU: Final = PAYLOAD_TYPES["pcmu"]
_CODES: Final = np.frombuffer(ulaw_decode(bytes(range(256))), "<i2").astype(np.float64)
INAUDIBLE: Final = bytes(np.flatnonzero(np.abs(_CODES) < SPEECH_PEAK).tolist())
_TIMESPEC: Final = struct.Struct("qq")


class Telephone:
    """One call's sound and keys."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket = even_socket()
        self.socket.settimeout(0.0)
        self.due_ns = 0
        self.echo: bytes | None = None
        self._peer: Any = None
        self._stream = OutgoingStream(
            PCMU, ssrc=number + 1, sequence=random.randrange(1 << 15), timestamp=random.randrange(1 << 31)
        )
        self._pressed_ns = 0
        self._heard = SILENCE[PCMU]
        self._seqs, self._at_ns, self._audible = array("q"), array("q"), array("b")
        self.late_ns = array("q")

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    def press(self, digit: str) -> None:
        """Press a key for 100 ms."""
        self._stream.press(Keypress(event_code(digit)))

    def say(self, octets: bytes) -> None:
        self._stream.say(octets)

    def take(self, realtime_ahead_ns: int) -> None:
        while True:
            try:
                data, control, _, peer = self.socket.recvmsg(MAX_PACKET_BYTES, 64)
            except BlockingIOError:
                return
            if is_rtcp(data) or len(data) < 12:
                continue
            seconds, ns = _TIMESPEC.unpack_from(control[0][2])
            payload = data[12:]
            self._seqs.append(data[2] << 8 | data[3])
            self._at_ns.append(seconds * NS_PER_S + ns - realtime_ahead_ns)
            self._audible.append(bool(payload.translate(None, INAUDIBLE)))
            self._heard = payload
            if self._peer is None:
                self.due_ns = time.monotonic_ns() + random.randrange(PTIME_NS)
            self._peer = peer

    def send_due(self, now_ns: int) -> Iterator[Json]:
        if self._peer is None:
            return
        if (num_behind := (now_ns - self.due_ns) // PTIME_NS) > MAX_BEHIND_NS // PTIME_NS:
            self._stream.skip(num_behind)
            self.due_ns += num_behind * PTIME_NS
        while self.due_ns <= now_ns:
            packet, key, begins_to_say = self._stream.tick(now_ns, event_payload_type=EVENT_PAYLOAD_TYPE)
            at_ns = time.monotonic_ns()
            self.late_ns.append(at_ns - self.due_ns)
            self.due_ns += PTIME_NS
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self.socket.sendto(self._echoed(packet).to_bytes(), self._peer)
            if begins_to_say:
                yield {"event": "said", "call": self.number, "first_ns": at_ns}
            if key is not None:
                self._pressed_ns = at_ns
            if (
                packet.payload_type == EVENT_PAYLOAD_TYPE
                and self._pressed_ns
                and TelephoneEvent.from_bytes(packet.payload).end
            ):
                yield {"event": "pressed", "call": self.number, "first_ns": self._pressed_ns, "end_ns": at_ns}
                self._pressed_ns = 0

    def _echoed(self, packet: RtpPacket) -> RtpPacket:
        """What comes back of the prompt takes the place of silence."""
        if self.echo is None or packet.payload is not SILENCE[PCMU]:
            return packet
        return RtpPacket(PCMU, packet.sequence, packet.timestamp, packet.ssrc, self._heard.translate(self.echo))

    def arrivals(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Sequence numbers, instants, and whether there was anything to hear, packet by packet."""
        return self._seqs, self._at_ns, self._audible


def echo_table(db: float) -> bytes:
    """μ-law codes for those that come, so much louder (softer: below 0)."""
    return ulaw_encode(np.rint(_CODES * 10 ** (db / 20)).astype("<i2").tobytes())


def talkspurts(at_ns: Sequence[int], audible: Sequence[int]) -> list[tuple[int, int]]:
    """Arrival of the first and of the last audible packet of each."""
    found: list[tuple[int, int]] = []
    for each_ns, is_audible in zip(at_ns, audible, strict=True):
        if not is_audible:
            continue
        if found and each_ns - found[-1][1] < PAUSE_NS:
            found[-1] = (found[-1][0], each_ns)
        else:
            found.append((each_ns, each_ns))
    return found


def report(telephones: Sequence[Telephone], window_s: float) -> Json:
    columns = [[np.array(each) for each in telephone.arrivals()] for telephone in telephones]
    tallies = [tally_of(seqs, at_ns, audible.astype(bool)) for seqs, at_ns, audible in columns if len(seqs)]
    dropped = dropped_by_sockets({telephone.port for telephone in telephones})
    late_ms = np.concatenate([np.zeros(0), *(np.array(telephone.late_ns) for telephone in telephones)]) / NS_PER_MS
    return {
        "event": "report",
        "sent_late_ms": percentiles(late_ms.tolist()),
        "heard": summary(tallies, num_legs=len(telephones), window_s=window_s, dropped=dropped),
        "talkspurts": [talkspurts(*telephone.arrivals()[1:]) for telephone in telephones],
    }


@cache
def _octets(file: str) -> bytes:
    return Path(file).read_bytes()


class Desk:
    """All telephones, and who tells them what to do."""

    def __init__(self, num_calls: int) -> None:
        self.telephones = [Telephone(number) for number in range(num_calls)]
        self._poller = select.epoll()
        self._by_fd = {telephone.socket.fileno(): telephone for telephone in self.telephones}
        for fd in self._by_fd:
            self._poller.register(fd, select.EPOLLIN)
        self._begun_s = time.monotonic()

    def tick(self) -> None:
        """Take what has come, send what is due."""
        realtime_ahead_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        for fd, _ in self._poller.poll(0):
            self._by_fd[fd].take(realtime_ahead_ns)
        now_ns = time.monotonic_ns()
        for telephone in self.telephones:
            if telephone.due_ns <= now_ns:
                for event in telephone.send_due(now_ns):
                    print(json.dumps(event), flush=True)

    def obey(self, command: Json) -> None:
        match command:
            case {"do": "press", "call": int(call), "digit": str(digit)}:
                self.telephones[call].press(digit)
            case {"do": "say", "call": int(call), "file": str(file)}:
                self.telephones[call].say(_octets(file))
            case {"do": "echo", "db": db}:
                for telephone in self.telephones:
                    telephone.echo = None if db is None else echo_table(db)
            case {"do": "report"}:
                print(json.dumps(report(self.telephones, time.monotonic() - self._begun_s)), flush=True)
            case _:
                raise SystemExit(f"no command: {command}")


def main() -> None:
    """Serve until standard input ends."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    desk = Desk(int(sys.argv[1]))
    print(json.dumps({"ports": [telephone.port for telephone in desk.telephones]}), flush=True)
    commands = CommandLines(sys.stdin.fileno())
    while (lines := commands.take(TURN_MS)) is not None:
        for line in lines:
            desk.obey(json.loads(line))
        desk.tick()


if __name__ == "__main__":
    main()
