"""The softphone's RTP socket: kernel receive times, a silence packet every 20 ms, keys when they are due.

Runs on: its own thread, one a call. The SIP thread reaches it through the methods of :class:`RtpEndpoint` only. No
jitter buffer stands between the wire and the figures, and Python being late does not make a packet late:
the kernel stamps it.
"""

import contextlib
import secrets
import select
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cc_tts import logs
from cc_tts.audio import PTIME_MS
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.errors import ProcessFailed
from cc_tts.softphone.rtp.packets import RATE_HZ, Keypress, SilenceStream
from cc_tts.softphone.rtp.receiver import RtpReceiver
from cc_tts.ua.rtp import rtcp

log = logs.get(__name__)

_TICK_NS: Final = PTIME_MS * NS_PER_MS
_CATCH_UP_TICKS: Final = 5
"""Up to 100 ms behind, packets are sent late; further behind, the time is skipped rather than sent as a burst."""
_SO_TIMESTAMPNS: Final = 35
"""``SO_TIMESTAMPNS`` of Linux (asm-generic/socket.h); the control message has the same number. See socket(7)."""
_TIMESPEC: Final = struct.Struct("@ll")
_MAX_DATAGRAM: Final = 2048
_RESYNC_NS: Final = 1_000_000_000
_RECEIVE_BUFFER_BYTES: Final = 1 << 20
_EXPEDITED_FORWARDING: Final = 46 << 2
"""DSCP EF in the TOS octet, what voice is marked with (RFC 4594 §4.1)."""
_CLOSE_TIMEOUT_S: Final = 2.0
_REPORT_INTERVAL_NS: Final = 5_000_000_000
"""RFC 3550 §6.2, the minimum between regular reports."""
_FIRST_REPORT_NS: Final = 1_000_000_000
"""Until the first report, which may come at once (§6.2), and between one and another that answers a report of the far side,
which measures the round trip by it.
"""


class WallToMonotonic:
    """Turns the kernel's wall-clock stamps into instants on CLOCK_MONOTONIC by sampling both clocks side by side."""

    _SAMPLES = 5

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = 0
        self._sampled_ns = 0
        self._sample()

    def _sample(self) -> None:
        best: int | None = None
        for _ in range(self._SAMPLES):
            before_ns = self._clock.now_ns()
            wall_ns = int(self._clock.wall_s() * 1e9)
            after_ns = self._clock.now_ns()
            if best is None or after_ns - before_ns < best:
                best = after_ns - before_ns
                self._offset_ns = (before_ns + after_ns) // 2 - wall_ns
                self._sampled_ns = after_ns

    def convert(self, wall_ns: int, now_ns: int) -> int:
        """Instant on CLOCK_MONOTONIC. Never after ``now_ns``: a step of the wall clock must not make a future."""
        if now_ns - self._sampled_ns > _RESYNC_NS:
            self._sample()
        return min(wall_ns + self._offset_ns, now_ns)


@dataclass(frozen=True, slots=True)
class RtpTarget:
    """Where and how to send, as negotiated."""

    address: str
    port: int
    payload_type: int
    event_payload_type: int | None
    is_sending: bool


def open_socket(address: str, port: int) -> socket.socket:
    """A UDP socket for RTP with kernel receive timestamps; port 0 takes a free even one (RFC 3550 §11)."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _EXPEDITED_FORWARDING)
        sock.setblocking(False)  # noqa: FBT003 - the socket API
        if port:
            sock.bind((address, port))
            return sock
        for _ in range(50):
            candidate = 20_000 + 2 * secrets.randbelow(6000)  # below Linux's ephemeral ports
            with contextlib.suppress(OSError):
                sock.bind((address, candidate))
                return sock
        sock.bind((address, 0))
    except OSError as error:
        sock.close()
        raise ProcessFailed(f"RTP port {address}:{port} cannot be opened: {error.strerror}") from error
    return sock


def open_rtcp_socket(address: str, port: int) -> socket.socket | None:
    """A UDP socket for RTCP, one above RTP's port (RFC 3550 §11); ``None`` if that port is in use: RTCP is optional."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)  # noqa: FBT003 - the socket API
        sock.bind((address, port))
    except (OSError, OverflowError):
        sock.close()
        log.warning("no_rtcp_port", port=port, consequence="no RTCP")
        return None
    return sock


class RtpEndpoint:
    """Receives into a :class:`RtpReceiver`, sends a :class:`SilenceStream`, and reports on both by RTCP."""

    def __init__(
        self,
        sock: socket.socket,
        receiver: RtpReceiver,
        clock: Clock,
        *,
        on_key_sent: Callable[[Keypress, int], None] | None = None,
    ) -> None:
        self._sock = sock
        self._receiver = receiver
        self._clock = clock
        self._on_key_sent = on_key_sent
        self._wall = WallToMonotonic(clock)
        self._lock = threading.Lock()
        self._target: RtpTarget | None = None
        self._ssrc = secrets.randbits(32)
        self._stream = SilenceStream(ssrc=self._ssrc, sequence=secrets.randbits(16), timestamp=secrets.randbits(32))
        address, port = sock.getsockname()
        self._rtcp_sock = open_rtcp_socket(address, port + 1)
        self._sockets = [each for each in (sock, self._rtcp_sock) if each is not None]
        self._cname = f"{secrets.token_hex(6)}@{address}"
        self._last_report_ns = 0
        self._heard_report: tuple[int, int, int] | None = None  # SSRC, middle of its NTP timestamp, arrival
        self._answers_report = False
        self._octets_sent = 0
        self._reported = (0, 0)  # expected and received packets at the last report
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="softphone-rtp", daemon=True)
        self._next_tick_ns = 0
        self.packets_sent = 0
        self.send_errors = 0

    @property
    def local_port(self) -> int:
        """Local UDP port, which our SDP names."""
        port: int = self._sock.getsockname()[1]
        return port

    @property
    def can_press(self) -> bool:
        """Whether the far side takes telephone-events and packets are being sent."""
        with self._lock:
            target = self._target
        return target is not None and target.is_sending and target.event_payload_type is not None

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def set_target(self, target: RtpTarget) -> None:
        """Begin, redirect or suspend sending (hold, re-INVITE)."""
        with self._lock:
            self._target = target

    def press(self, key: Keypress) -> None:
        """Queue a key."""
        with self._lock:
            self._stream.press(key)

    def close(self) -> None:
        """Stop the thread and close the socket. What the kernel still holds is taken in first."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)
        self._receiver.detector.finish()
        for sock in self._sockets:
            sock.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
            self._drain()
        except Exception:  # the thread's end must be visible in the log, whatever it was
            log.exception("rtp_thread_failed")

    def _turn(self) -> None:
        """One round: wait for a datagram or the next tick, take what came, send what is due."""
        now_ns = self._clock.now_ns()
        if self._next_tick_ns == 0:
            self._next_tick_ns = now_ns + _TICK_NS
        select.select(self._sockets, [], [], max(0, self._next_tick_ns - now_ns) / 1e9)
        looked_ns = self._clock.now_ns()
        self._drain()
        now_ns = self._clock.now_ns()
        while now_ns >= self._next_tick_ns:
            behind = (now_ns - self._next_tick_ns) // _TICK_NS
            if behind > _CATCH_UP_TICKS:
                with self._lock:
                    self._stream.skip(behind)
                self._next_tick_ns += behind * _TICK_NS
            self._tick(now_ns)
            self._next_tick_ns += _TICK_NS
        self._receiver.detector.poll(looked_ns)  # what came since then is still to be read
        if self._rtcp_sock is not None:
            self._drain_reports(self._rtcp_sock)
            self._report(self._rtcp_sock, now_ns)

    def _tick(self, now_ns: int) -> None:
        with self._lock:
            target = self._target
            if target is None or not target.is_sending:
                self._stream.skip()
                return
            packet, key = self._stream.tick(
                now_ns, payload_type=target.payload_type, event_payload_type=target.event_payload_type
            )
        sent_ns = self._clock.now_ns()
        try:
            self._sock.sendto(packet.to_bytes(), (target.address, target.port))
            self.packets_sent += 1
            self._octets_sent += len(packet.payload)
        except OSError:
            self.send_errors += 1
        if key is not None and self._on_key_sent is not None:
            self._on_key_sent(key, sent_ns)

    def _drain_reports(self, sock: socket.socket) -> None:
        while True:
            try:
                data = sock.recv(_MAX_DATAGRAM)
            except OSError:  # as in _drain
                return
            if (heard := rtcp.last_sender_report(data)) is not None:
                self._heard_report = (*heard, self._clock.now_ns())
                self._answers_report = True

    def _report(self, sock: socket.socket, now_ns: int) -> None:
        """Send a report when one is due."""
        with self._lock:
            target, timestamp = self._target, self._stream.timestamp
        if target is None or not target.port:
            return
        if not self._last_report_ns:
            self._last_report_ns = now_ns - _REPORT_INTERVAL_NS + _FIRST_REPORT_NS
        since_ns = now_ns - self._last_report_ns
        if since_ns < _FIRST_REPORT_NS or (since_ns < _REPORT_INTERVAL_NS and not self._answers_report):
            return
        self._last_report_ns, self._answers_report = now_ns, False
        sender = None
        if self.packets_sent:
            ntp = rtcp.ntp_of(self._clock.wall_s())
            sender = rtcp.Sender(ntp, timestamp, self.packets_sent, self._octets_sent)
        with contextlib.suppress(OSError, OverflowError):
            sock.sendto(
                rtcp.compound(self._ssrc, self._cname, sender, self._block(now_ns)), (target.address, target.port + 1)
            )

    def _block(self, now_ns: int) -> rtcp.ReportBlock | None:
        """What was received of the latest source."""
        if not self._receiver.figures.ssrcs:
            return None
        ssrc, sequence = self._receiver.figures.ssrcs[-1], self._receiver.sequences[-1]
        expected_before, packets_before = self._reported if self._reported[0] <= sequence.expected else (0, 0)
        self._reported = (sequence.expected, sequence.packets)
        expected = sequence.expected - expected_before
        lost = expected - (sequence.packets - packets_before)
        lsr = dlsr = 0
        if self._heard_report is not None and self._heard_report[0] == ssrc:
            lsr = self._heard_report[1]
            dlsr = max(1, (now_ns - self._heard_report[2]) * 65_536 // 1_000_000_000)
        return rtcp.ReportBlock(
            ssrc,
            fraction_lost=256 * lost // expected if expected > 0 and lost > 0 else 0,
            lost=sequence.lost,
            highest_sequence=sequence.highest,
            jitter_ticks=int(self._receiver.jitter_ms * RATE_HZ / 1000),
            lsr=lsr,
            dlsr=dlsr,
        )

    def _drain(self) -> None:
        while True:
            try:
                data, control, _flags, source = self._sock.recvmsg(_MAX_DATAGRAM, 64)
            except OSError:  # nothing left, or an ICMP error of an earlier packet, which this call has cleared
                return
            now_ns = self._clock.now_ns()
            arrival_ns = now_ns
            for level, kind, value in control:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
                    seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                    arrival_ns = self._wall.convert(seconds * 1_000_000_000 + nanoseconds, now_ns)
            self._receiver.datagram(data, arrival_ns, f"{source[0]}:{source[1]}")
