"""The ears of many callers: packets timed by the kernel, one packet of silence sent back for each.

``python -m lab.rtp_crowd N`` prints a line of JSON with a port for each of N legs, then takes words on standard input:
``start`` begins to count anew, ``report`` ends it and prints what was seen, ``silences`` prints when each leg was silent (by
the kernel's clock of the day). A process of its own, so that nothing else delays it; when it is late all the same, the times
are the kernel's, and what its sockets dropped is told apart from what was never sent.

It must not be what the machine is busy with, so the legs share a few sockets, and are told apart by the port they send from:
every few ms it takes what has come, many packets a system call (recvmmsg, sendmmsg), and only counts when asked.
"""

import ctypes
import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.clock import NS_PER_MS, NS_PER_S
from lab.lines import CommandLines

HOST: Final = "127.0.0.1"
LEGS_A_SOCKET: Final = 50
HEADER_BYTES: Final = 12
FRAME_BYTES: Final = 160
SILENCE_BYTE: Final = 0xFF
PCMU: Final = 0
RTCP_TYPES: Final = range(200, 208)
SO_RCVBUFFORCE: Final = 33
SO_TIMESTAMPNS: Final = 35
RCVBUF_BYTES: Final = 4 * 1024 * 1024
TURN_MS: Final = 4
BATCH: Final = 256
MAX_PACKET_BYTES: Final = 256
NAME_BYTES: Final = 16
CONTROL_BYTES: Final = 64
GAP_LIMITS_MS: Final = (30, 40, 60, 100)
FRAME_MS: Final = 20
MIN_SILENCE_MS: Final = 20
"""Less is jitter."""

Json = dict[str, Any]
Ints = npt.NDArray[np.int64]

# struct mmsghdr and struct iovec of Linux on 64-bit machines (recvmmsg(2))
_MMSGHDR: Final = np.dtype(
    [
        ("name", "u8"),
        ("name_bytes", "u4"),
        ("_pad1", "u4"),
        ("iov", "u8"),
        ("num_iov", "u8"),
        ("control", "u8"),
        ("control_bytes", "u8"),
        ("flags", "i4"),
        ("_pad2", "u4"),
        ("num_bytes", "u4"),
        ("_pad3", "u4"),
    ]
)
_IOVEC: Final = np.dtype([("base", "u8"), ("num_bytes", "u8")])
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Tally:
    num_packets: int
    num_speech: int
    num_lost: int
    num_disordered: int
    gaps_ns: Ints


def tally_of(seqs: Ints, at_ns: Ints, speech: npt.NDArray[np.bool_]) -> Tally:
    """Tally one leg's packets (RFC 3550 §5.1), in the order in which they came."""
    in_order = np.ones(len(seqs), dtype=bool)
    last = -1
    if not np.all(_steps(seqs) <= 0x8000) or not np.all(_steps(seqs)):
        for index, seq in enumerate(seqs.tolist()):
            step = (seq - last) & 0xFFFF
            if last >= 0 and (step == 0 or step > 0x8000):
                in_order[index] = False
            else:
                last = seq
    lost = int((_steps(seqs[in_order]) - 1).sum())
    return Tally(len(seqs), int(speech.sum()), lost, int((~in_order).sum()), np.diff(at_ns[in_order]))


def _steps(seqs: Ints) -> Ints:
    return np.diff(seqs) & 0xFFFF


def silences_of(speech_ns: Ints) -> Json:
    """From when to when speech was heard, and what was silent between: instant and length, ms, of everything over
    :data:`MIN_SILENCE_MS`. Packets that are missing and packets of silence are the same to an ear.
    """
    gaps_ms = np.diff(speech_ns) / NS_PER_MS - FRAME_MS
    found = np.flatnonzero(gaps_ms > MIN_SILENCE_MS)
    return {
        "from_ns": int(speech_ns[0]),
        "to_ns": int(speech_ns[-1]),
        "silences": [[int(speech_ns[index]), round(float(gaps_ms[index]), 1)] for index in found],
    }


def summary(tallies: Sequence[Tally], *, num_legs: int, window_s: float, dropped: int) -> Json:
    """What was heard of ``num_legs`` in ``window_s``. Gaps in ms between packets of one leg, over all legs."""
    gaps_ms = np.concatenate([np.zeros(0), *(tally.gaps_ns for tally in tallies)]) / NS_PER_MS
    wobble = [float(np.mean(np.abs(np.diff(tally.gaps_ns)))) / NS_PER_MS for tally in tallies if len(tally.gaps_ns) > 1]
    p50, p99, p999 = np.percentile(gaps_ms, [50, 99, 99.9]) if gaps_ms.size else (0.0, 0.0, 0.0)
    num_packets = sum(tally.num_packets for tally in tallies)
    return {
        "window_s": round(window_s, 2),
        "legs_heard": len(tallies),
        "packets": num_packets,
        "packets_due": round(num_legs * window_s * 50),
        "speech_share": round(sum(tally.num_speech for tally in tallies) / max(1, num_packets), 4),
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


class Post:
    """Packets of many legs, in and out through shared sockets, a batch at a time."""

    def __init__(self, num_sockets: int) -> None:
        self.sockets = [even_socket() for _ in range(num_sockets)]
        self._arrivals: list[tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]] = []
        self._packets = np.zeros((BATCH, MAX_PACKET_BYTES), dtype=np.uint8)
        self._names = np.zeros((BATCH, NAME_BYTES), dtype=np.uint8)
        self._controls = np.zeros((BATCH, CONTROL_BYTES), dtype=np.uint8)
        self._answers = np.full((BATCH, HEADER_BYTES + FRAME_BYTES), SILENCE_BYTE, dtype=np.uint8)
        self._in, self._in_iovecs = _headers(self._names, self._packets, self._controls)
        self._out, self._out_iovecs = _headers(self._names, self._answers, None)

    def reset(self) -> None:
        self.take()
        self._arrivals.clear()

    def take(self) -> None:
        for sock in self.sockets:
            while self._take_batch(sock.fileno()) == BATCH:
                pass

    def _take_batch(self, fd: int) -> int:
        self._in["name_bytes"], self._in["control_bytes"] = NAME_BYTES, CONTROL_BYTES
        num: int = _libc.recvmmsg(fd, ctypes.c_void_p(self._in.ctypes.data), BATCH, socket.MSG_DONTWAIT, None)
        if num <= 0:
            return 0
        packets = self._packets[:num]
        is_rtp = (self._in["num_bytes"][:num] >= HEADER_BYTES) & ~np.isin(packets[:, 1], RTCP_TYPES)
        legs = self._names[:num, 2].astype(np.int64) << 8 | self._names[:num, 3]
        seqs = packets[:, 2].astype(np.int64) << 8 | packets[:, 3]
        times = self._controls[:num, 16:32].copy().view(np.int64)  # after struct cmsghdr
        at_ns = times[:, 0] * NS_PER_S + times[:, 1]
        speech = (packets[:, HEADER_BYTES : HEADER_BYTES + FRAME_BYTES] != SILENCE_BYTE).any(axis=1)
        self._arrivals.append((legs[is_rtp], seqs[is_rtp], at_ns[is_rtp], speech[is_rtp]))
        self._answer(fd, num)
        return num

    def _answer(self, fd: int, num: int) -> None:
        """The same sequence numbers and timestamps go back, with a source (SSRC) for each leg."""
        self._answers[:num, :8] = self._packets[:num, :8]
        self._answers[:num, 1] = PCMU
        self._answers[:num, 8:HEADER_BYTES] = self._names[:num, 0:4]
        done = 0
        while done < num:
            start = ctypes.c_void_p(self._out.ctypes.data + done * _MMSGHDR.itemsize)
            sent: int = _libc.sendmmsg(fd, start, num - done, 0)
            done += sent if sent > 0 else 1  # the other side of the first may be gone

    def tallies(self) -> list[Tally]:
        return [tally_of(seqs, at_ns, speech) for _, seqs, at_ns, speech in self._of_legs()]

    def silences(self) -> dict[int, Json]:
        return {leg: silences_of(at_ns[speech]) for leg, _, at_ns, speech in self._of_legs() if speech.any()}

    def _of_legs(self) -> Iterator[tuple[int, Ints, Ints, npt.NDArray[np.bool_]]]:
        if not self._arrivals:
            return
        legs, seqs, at_ns, speech = (np.concatenate(column) for column in zip(*self._arrivals, strict=True))
        order = np.argsort(legs, kind="stable")
        starts = np.flatnonzero(np.diff(legs[order])) + 1
        for part in np.split(order, starts):
            if len(part):
                yield int(legs[part[0]]), seqs[part], at_ns[part], speech[part]


def even_socket() -> socket.socket:
    """A socket on an even port: the one above may get RTCP (RFC 3550 §11)."""
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RCVBUF_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF_BYTES)
        sock.bind((HOST, 0))
        if sock.getsockname()[1] % 2 == 0:
            return sock
        sock.close()


def _headers(
    names: npt.NDArray[np.uint8], packets: npt.NDArray[np.uint8], controls: npt.NDArray[np.uint8] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """One ``mmsghdr`` for each row, and the ``iovec`` they point to, which must live as long."""
    rows = np.arange(BATCH, dtype=np.uint64)
    iovecs = np.zeros(BATCH, dtype=_IOVEC)
    iovecs["base"] = packets.ctypes.data + rows * packets.shape[1]
    iovecs["num_bytes"] = packets.shape[1]
    headers = np.zeros(BATCH, dtype=_MMSGHDR)
    headers["name"], headers["name_bytes"] = names.ctypes.data + rows * NAME_BYTES, NAME_BYTES
    headers["iov"], headers["num_iov"] = iovecs.ctypes.data + rows * _IOVEC.itemsize, 1
    if controls is not None:
        headers["control"] = controls.ctypes.data + rows * CONTROL_BYTES
    return headers, iovecs


def dropped_by_sockets(ports: set[int]) -> int:
    """Packets that came and found no room in our sockets since they were opened."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if int(row[1].rpartition(":")[2], 16) in ports)


def main() -> None:
    """Serve until standard input ends."""
    num_legs = int(sys.argv[1])
    post = Post(-(-num_legs // LEGS_A_SOCKET))
    ports = [sock.getsockname()[1] for sock in post.sockets]
    print(json.dumps({"ports": [ports[leg % len(ports)] for leg in range(num_legs)]}), flush=True)
    begun, dropped = time.monotonic(), 0
    commands = CommandLines(sys.stdin.fileno())
    while (words := commands.take(TURN_MS)) is not None:
        post.take()
        for word in words:
            if word == "start":
                post.reset()
                begun, dropped = time.monotonic(), dropped_by_sockets(set(ports))
            elif word == "report":
                window_s = time.monotonic() - begun
                now_dropped = dropped_by_sockets(set(ports)) - dropped
                answer = summary(post.tallies(), num_legs=num_legs, window_s=window_s, dropped=now_dropped)
                print(json.dumps(answer), flush=True)
            elif word == "silences":
                print(json.dumps(post.silences()), flush=True)


if __name__ == "__main__":
    main()
