"""The ears of many callers: a socket a leg, packets timed by the kernel, one packet of silence sent back for each.

``python -m bench.rtp_crowd N`` prints a line of JSON with its N ports, then takes words on standard input: ``start`` begins
to count anew, ``report`` ends it and prints what was seen. A process of its own, so that nothing else delays it; when it is
late all the same, the times are the kernel's, and what its sockets dropped is told apart from what was never sent.
"""

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

HOST: Final = "127.0.0.1"
HEADER_BYTES: Final = 12
FRAME_BYTES: Final = 160
FRAME_TICKS: Final = 160
SILENCE: Final = b"\xff" * FRAME_BYTES
SO_TIMESTAMPNS: Final = 35
RCVBUF_BYTES: Final = 256 * 1024
MAX_PACKETS_A_TURN: Final = 8
GAP_LIMITS_MS: Final = (30, 40, 60, 100)

Json = dict[str, Any]


class Tally:
    """What was heard on one leg since it began to count."""

    def __init__(self) -> None:
        self.gaps_ns: list[int] = []
        self.num_packets = self.num_speech = self.num_lost = self.num_disordered = 0
        self._last_ns = 0
        self._last_seq = -1

    def count(self, packet: bytes, at_ns: int) -> None:
        """One RTP packet (RFC 3550 §5.1) and when it came."""
        (seq,) = struct.unpack_from("!H", packet, 2)
        self.num_packets += 1
        self.num_speech += packet[HEADER_BYTES:] != SILENCE
        if self._last_seq >= 0:
            step = (seq - self._last_seq) & 0xFFFF
            if step == 0 or step > 0x8000:
                self.num_disordered += 1
                return
            self.num_lost += step - 1
            self.gaps_ns.append(at_ns - self._last_ns)
        self._last_seq, self._last_ns = seq, at_ns


class Ear:
    """One leg's socket at the caller's side."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF_BYTES)
        self.socket.bind((HOST, 0))
        self.socket.settimeout(0)
        self.port: int = self.socket.getsockname()[1]
        self.tally = Tally()
        self._sent = 0

    def hear(self) -> None:
        """Take the packets that wait, a few at a time, and answer each."""
        for _ in range(MAX_PACKETS_A_TURN):
            try:
                data, ancillary, _, source = self.socket.recvmsg(2048, 64)
            except BlockingIOError:
                return
            if len(data) < HEADER_BYTES:
                continue
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            self.tally.count(data, seconds * 1_000_000_000 + nanoseconds)
            self._sent += 1
            ticks = self._sent * FRAME_TICKS & 0xFFFFFFFF
            header = struct.pack("!BBHII", 0x80, 0, self._sent & 0xFFFF, ticks, self.port)
            with contextlib.suppress(OSError):  # the other side may be gone
                self.socket.sendto(header + SILENCE, source)


def dropped_by_sockets(ports: set[int]) -> int:
    """Packets that came and found no room in our sockets since they were opened."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if int(row[1].rpartition(":")[2], 16) in ports)


def summary(tallies: Sequence[Tally], *, window_s: float, dropped: int) -> Json:
    """What was heard in ``window_s``. Gaps in ms between packets of one leg, over all legs."""
    gaps_ms = np.array([gap for tally in tallies for gap in tally.gaps_ns], dtype=np.float64) / 1e6
    heard = [tally for tally in tallies if tally.num_packets]
    wobble = [float(np.mean(np.abs(np.diff(tally.gaps_ns)))) / 1e6 for tally in heard if len(tally.gaps_ns) > 1]
    p50, p99, p999 = np.percentile(gaps_ms, [50, 99, 99.9]) if gaps_ms.size else (0.0, 0.0, 0.0)
    return {
        "window_s": round(window_s, 2),
        "legs_heard": len(heard),
        "packets": sum(tally.num_packets for tally in tallies),
        "packets_due": round(len(tallies) * window_s * 50),
        "speech_share": round(
            sum(tally.num_speech for tally in tallies) / max(1, sum(tally.num_packets for tally in tallies)), 4
        ),
        "lost": sum(tally.num_lost for tally in tallies) - dropped,
        "dropped_at_caller": dropped,
        "disordered": sum(tally.num_disordered for tally in tallies),
        "gap_ms": {
            "p50": round(float(p50), 2),
            "p99": round(float(p99), 2),
            "p999": round(float(p999), 2),
            "max": round(float(gaps_ms.max()), 2) if gaps_ms.size else 0.0,
            **{f"over_{limit}": int((gaps_ms > limit).sum()) for limit in GAP_LIMITS_MS},
        },
        "mean_change_of_gap_ms": round(float(np.mean(wobble)), 2) if wobble else 0.0,
    }


def _lines(fd: int, poller: select.epoll, ears: dict[int, Ear]) -> Iterator[str]:
    """Words from standard input; hears meanwhile."""
    text = b""
    while True:
        for ready, _ in poller.poll(1.0, 512):
            if ready != fd:
                ears[ready].hear()
                continue
            more = os.read(fd, 4096)
            if not more:
                return
            text += more
            *lines, text = text.split(b"\n")
            yield from (line.decode() for line in lines)


def main() -> None:
    """Serve until standard input ends."""
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # what is late here says nothing about the server
    ears = [Ear() for _ in range(int(sys.argv[1]))]
    ports = {ear.port for ear in ears}
    poller = select.epoll()
    by_fd = {ear.socket.fileno(): ear for ear in ears}
    for fd in (sys.stdin.fileno(), *by_fd):
        poller.register(fd, select.EPOLLIN)
    print(json.dumps({"ports": [ear.port for ear in ears]}), flush=True)
    begun, dropped = time.monotonic(), 0
    for word in _lines(sys.stdin.fileno(), poller, by_fd):
        if word == "start":
            begun, dropped = time.monotonic(), dropped_by_sockets(ports)
            for ear in ears:
                ear.tally = Tally()
        elif word == "report":
            window_s = time.monotonic() - begun
            answer = summary(
                [ear.tally for ear in ears], window_s=window_s, dropped=dropped_by_sockets(ports) - dropped
            )
            print(json.dumps(answer), flush=True)
        elif word == "heard":
            print(json.dumps({"legs_heard": sum(ear.tally.num_packets > 0 for ear in ears)}), flush=True)


if __name__ == "__main__":
    main()
