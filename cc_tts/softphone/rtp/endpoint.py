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
from typing import Final

from cc_tts import logs
from cc_tts.audio import PTIME_NS
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.errors import ProcessFailed
from cc_tts.softphone.rtp import rtcp
from cc_tts.softphone.rtp.packets import Keypress, OutgoingStream
from cc_tts.softphone.rtp.receiver import Interval, KeyRecord, ReportEvent, RtpReceiver
from cc_tts.softphone.sdp import RemoteAudio

log = logs.get(__name__)

_CATCH_UP_TICKS: Final = 5
"""Up to 100 ms behind, packets are sent late; further behind, the time is skipped rather than sent as a burst."""
_SO_TIMESTAMPNS: Final = 35
"""``SO_TIMESTAMPNS`` of Linux (asm-generic/socket.h); the control message has the same number. See socket(7)."""
_TIMESPEC: Final = struct.Struct("@ll")
_MAX_DATAGRAM: Final = 2048  # unmeasured
_RECEIVE_BUFFER_BYTES: Final = 1 << 20
_EXPEDITED_FORWARDING: Final = 46 << 2
"""DSCP EF in the TOS octet, the mark of voice (RFC 4594 §4.1)."""
_CLOSE_TIMEOUT_S: Final = 2.0  # unmeasured
_REPORT_INTERVAL_NS: Final = 5_000_000_000
"""RFC 3550 §6.2, the minimum between regular reports."""
_FIRST_REPORT_NS: Final = NS_PER_S
"""The time until the first report, which may come at once (§6.2), and between a report and one that answers a report of the
far side, which measures the round trip with it.
"""


def wall_offset_ns(clock: Clock) -> int:
    """Return the difference that turns a wall-clock time into an instant on CLOCK_MONOTONIC: the most exact of several pairs
    of readings.
    """
    readings = []
    for _ in range(5):
        before_ns, wall_s, after_ns = clock.now_ns(), clock.wall_s(), clock.now_ns()
        readings.append((after_ns - before_ns, (before_ns + after_ns) // 2 - int(wall_s * NS_PER_S)))
    return min(readings)[1]


def open_socket(address: str, port: int) -> socket.socket:
    """Open a UDP socket for RTP with kernel receive timestamps; port 0 takes a free even one (RFC 3550 §11)."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)  # noqa: FBT003 - the socket API
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _EXPEDITED_FORWARDING)
    below_ephemeral = [20_000 + 2 * secrets.randbelow(6000) for _ in range(50)]
    reason: str | None = None
    for candidate in [port] if port else [*below_ephemeral, 0]:
        try:
            sock.bind((address, candidate))
        except OSError as error:
            reason = error.strerror
        else:
            return sock
    sock.close()
    raise ProcessFailed(f"RTP port {address}:{port} cannot be opened: {reason}")


def open_rtcp_socket(address: str, port: int) -> socket.socket | None:
    """Open a UDP socket for RTCP, one above the port of RTP (RFC 3550 §11); ``None`` if that port is in use: RTCP is
    optional.
    """
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
    """Receives into a :class:`RtpReceiver`, sends an :class:`OutgoingStream`, and reports on both by RTCP, until closed."""

    def __init__(
        self, sock: socket.socket, payload_type: int, receiver: RtpReceiver, clock: Clock, report_event: ReportEvent
    ) -> None:
        self._sock = sock
        self._receiver = receiver
        self._clock = clock
        self._report_event = report_event
        self._lock = threading.Lock()
        self._remote: RemoteAudio | None = None
        self._is_sending = False
        self._stream = OutgoingStream(
            payload_type, ssrc=secrets.randbits(32), sequence=secrets.randbits(16), timestamp=secrets.randbits(32)
        )
        address, self.local_port = sock.getsockname()
        self._rtcp_sock = open_rtcp_socket(address, self.local_port + 1)
        self._sockets = [each for each in (sock, self._rtcp_sock) if each is not None]
        self._cname = f"{secrets.token_hex(6)}@{address}"
        self._last_report_ns = 0
        self._heard_report: tuple[int, int, int] | None = None  # SSRC, middle of its NTP timestamp, arrival
        self._answers_report = False
        self._octets_sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="softphone-rtp", daemon=True)
        self._next_tick_ns = clock.now_ns() + PTIME_NS
        self.packets_sent = 0
        self.keys_sent: list[KeyRecord] = []
        self.said: list[Interval] = []
        self.round_trip_ms: float | None = None
        """The last one from the far side's reports (RFC 3550 §6.4.1)."""
        self._thread.start()

    @property
    def can_press(self) -> bool:
        """Return whether the far side accepts telephone-events and packets are being sent."""
        with self._lock:
            return self._is_sending and self._remote is not None and self._remote.event_payload_type is not None

    def set_remote(self, remote: RemoteAudio, *, is_sending: bool) -> None:
        """Begin, redirect or suspend sending (hold, re-INVITE)."""
        with self._lock:
            self._remote, self._is_sending = remote, is_sending

    def press(self, key: Keypress) -> None:
        with self._lock:
            self._stream.press(key)

    def say(self, octets: bytes, *, after_ms: float = 0.0) -> None:
        """Send audio in the codec's own bytes, after the audio that is still to be sent and not before ``after_ms`` are
        over.
        """
        with self._lock:
            self._stream.say(octets, after_ms=after_ms)

    def close(self) -> None:
        """Stop the thread and close the sockets, after reading what the kernel still holds."""
        self._stopping.set()
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
        """One round: wait for a datagram or the next tick, read all datagrams, send the packets that are due."""
        select.select(self._sockets, [], [], max(0, self._next_tick_ns - self._clock.now_ns()) / NS_PER_S)
        looked_ns = self._clock.now_ns()
        self._drain()
        now_ns = self._clock.now_ns()
        while now_ns >= self._next_tick_ns:
            behind = (now_ns - self._next_tick_ns) // PTIME_NS
            if behind > _CATCH_UP_TICKS:
                with self._lock:
                    self._stream.skip(behind)
                self._next_tick_ns += behind * PTIME_NS
            self._tick(now_ns)
            self._next_tick_ns += PTIME_NS
        self._receiver.detector.poll(looked_ns)  # up to then all packets have been read
        if self._rtcp_sock is not None:
            self._drain_reports(self._rtcp_sock)
            self._report(self._rtcp_sock, now_ns)

    def _tick(self, now_ns: int) -> None:
        with self._lock:
            remote, was_saying = self._remote, self._stream.is_saying
            if remote is None or not self._is_sending:
                self._stream.skip()
                return
            packet, key, begins_to_say = self._stream.tick(now_ns, event_payload_type=remote.event_payload_type)
        sent_ns = self._clock.now_ns()
        with contextlib.suppress(OSError):  # an ICMP error of an earlier packet, or no route; for the peer it is lost
            self._sock.sendto(packet.to_bytes(), (remote.address, remote.port))
            self.packets_sent += 1
            self._octets_sent += len(packet.payload)
        if was_saying and not self._stream.is_saying:
            self.said[-1].end_ns = sent_ns
        if begins_to_say:
            self.said.append(Interval(sent_ns))
            self._report_event("saying", sent_ns)
        if key is not None:
            self.keys_sent.append(KeyRecord(key.digit, sent_ns, key.duration_ms))
            self._report_event("dtmf_sent", sent_ns, digit=key.digit, duration_ms=key.duration_ms)

    def _drain_reports(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # as in _drain
            while True:
                data = sock.recv(_MAX_DATAGRAM)
                if (heard := rtcp.last_sender_report(data)) is not None:
                    self._heard_report = (*heard, self._clock.now_ns())
                    self._answers_report = True
                round_trip_ms = rtcp.round_trip_ms(data, self._stream.ssrc, self._clock.wall_s())
                self.round_trip_ms = self.round_trip_ms if round_trip_ms is None else round_trip_ms

    def _report(self, sock: socket.socket, now_ns: int) -> None:
        with self._lock:
            remote, timestamp = self._remote, self._stream.timestamp
        if remote is None or not remote.port:
            return
        if not self._last_report_ns:
            self._last_report_ns = now_ns - _REPORT_INTERVAL_NS + _FIRST_REPORT_NS
        since_ns = now_ns - self._last_report_ns
        if since_ns < _FIRST_REPORT_NS or (since_ns < _REPORT_INTERVAL_NS and not self._answers_report):
            return
        self._last_report_ns, self._answers_report = now_ns, False
        sender = b""
        if self.packets_sent:
            sender = rtcp.sender_info(self._clock.wall_s(), timestamp, self.packets_sent, self._octets_sent)
        report = rtcp.compound(self._stream.ssrc, self._cname, sender, self._block(now_ns))
        with contextlib.suppress(OSError, OverflowError):
            sock.sendto(report, (remote.address, remote.port + 1))

    def _block(self, now_ns: int) -> bytes:
        """Return the report block for the latest source."""
        if not self._receiver.sources:
            return b""
        source = self._receiver.sources[-1]
        lsr = dlsr = 0
        if self._heard_report is not None and self._heard_report[0] == source.ssrc:
            lsr = self._heard_report[1]
            dlsr = max(1, (now_ns - self._heard_report[2]) * 65_536 // NS_PER_S)
        return rtcp.report_block(
            source.ssrc,
            fraction_lost=source.fraction_lost(),
            lost=source.lost,
            highest=source.highest,
            jitter_ticks=int(source.jitter_ticks),
            lsr=lsr,
            dlsr=dlsr,
        )

    def _drain(self) -> None:
        offset_ns = wall_offset_ns(self._clock)
        with contextlib.suppress(OSError):  # none is left, or an ICMP error of an earlier packet is cleared
            while True:
                data, control, _flags, source = self._sock.recvmsg(_MAX_DATAGRAM, 64)
                arrival_ns = now_ns = self._clock.now_ns()
                for level, kind, value in control:
                    if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
                        seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                        # not after now: a step of the wall clock must not put the packet into the future
                        arrival_ns = min(seconds * NS_PER_S + nanoseconds + offset_ns, now_ns)
                self._receiver.datagram(data, arrival_ns, f"{source[0]}:{source[1]}")
