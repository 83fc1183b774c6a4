"""Tells a service manager the server's state over the socket in ``NOTIFY_SOCKET`` (sd_notify(3)).

Runs on: the event loop.

Nothing is sent where there is no such socket.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock

INTERVAL_S: Final = 1.0
"""The interval of :meth:`Notifier.update`; a watchdog of less than three times this shortens it (unmeasured)."""
EXTENSION_S: Final = 30.0
"""During start and stop the manager waits this long for the next update, whatever its own timeout is (unmeasured)."""
MAX_STATUS_CHARS: Final = 500  # unmeasured

log = logs.get(__name__)


class Notifier:
    """Reports readiness, reloads, the end, a status line and watchdog pings."""

    def __init__(self, send: Callable[[str], bool] | None, *, clock: Clock, watchdog_s: float = 0.0) -> None:
        self._send = send
        self._clock = clock
        self._status = ""
        self._has_watchdog = watchdog_s > 0
        self._is_ready = False
        self._is_stopping = False
        self.interval_s = min(INTERVAL_S, watchdog_s / 3) if self._has_watchdog else INTERVAL_S

    @property
    def is_on(self) -> bool:
        """Whether a service manager listens."""
        return self._send is not None

    def update(self, *, not_ready_because: str | None, num_calls: int) -> None:
        """Every ``interval_s``: a watchdog ping and, if they have changed, the status and the readiness."""
        lines = ["WATCHDOG=1"] if self._has_watchdog else []
        is_ready = self._is_ready or (not_ready_because is None and not self._is_stopping)
        if is_ready and not self._is_ready:
            lines.append("READY=1")
        if self._is_stopping or not is_ready:
            lines.append(f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}")
        status = _status(not_ready_because, num_calls)
        if status != self._status:
            lines.append(f"STATUS={status}")
        if self._tell(*lines):  # otherwise the next call sends it again
            self._is_ready, self._status = is_ready, status

    def reloading(self) -> None:
        """The configuration is being read again; :meth:`reloaded` follows, whatever the outcome."""
        if self._is_ready and not self._is_stopping:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={self._clock.now_ns() // 1000}")

    def reloaded(self) -> None:
        if self._is_ready and not self._is_stopping:
            self._tell("READY=1")

    def stopping(self) -> None:
        self._is_stopping = True
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}")

    def _tell(self, *lines: str) -> bool:
        """Send this; return whether it was sent."""
        return self._send is not None and (not lines or self._send("\n".join(lines)))


def notifier(environ: Mapping[str, str], *, clock: Clock) -> Notifier:
    """The notifier of this process, by ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return Notifier(None, clock=clock)
    if address[0] not in "/@":
        log.warning("notify_socket_unknown", consequence="the service manager is told nothing")
        return Notifier(None, clock=clock)
    microseconds = environ.get("WATCHDOG_USEC", "0")
    is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    watchdog_s = int(microseconds) / 1e6 if is_ours and microseconds.isascii() and microseconds.isdigit() else 0.0
    return Notifier(_sender(address), clock=clock, watchdog_s=watchdog_s)


def _sender(address: str) -> Callable[[str], bool]:
    path = "\0" + address[1:] if address[0] == "@" else address  # "@": an abstract name (unix(7))

    def send(message: str) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
                notify.settimeout(0)
                notify.sendto(message.encode(), path)
        except OSError as error:
            log.warning("notify_failed", detail=str(error))
            return False
        return True

    return send


def _status(not_ready_because: str | None, num_calls: int) -> str:
    calls = "1 call" if num_calls == 1 else f"{num_calls} calls"
    status = calls if not_ready_because is None else f"{calls}; not ready: {not_ready_because}"
    return " ".join(status.split())[:MAX_STATUS_CHARS]
