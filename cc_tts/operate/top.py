"""``cc-tts top``: servers and their calls, redrawn until q or Ctrl-C. The worst-sounding calls come first."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cc_tts.clock import Clock
from cc_tts.operate import tables
from cc_tts.operate.find import is_live
from cc_tts.operate.servers import RunningServer

_BEGIN: Final = "\x1b[?1049h\x1b[?25l"
"""The other screen of a terminal, without a cursor (xterm control sequences)."""
_END: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"

Answer = tuple[Any, list[dict[str, Any]]]
"""The status of a server and its calls, or the reason why there are none."""


async def top(
    servers: Sequence[RunningServer],
    ask: Callable[[RunningServer], Awaitable[Answer]],
    *,
    interval_s: float,
    clock: Clock,
) -> None:
    """Draw until a key or a signal ends it, even if a server does not answer."""
    drawing = asyncio.ensure_future(_draw(servers, ask, interval_s, clock))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, drawing.cancel)
    with _screen(), _keys(drawing.cancel), contextlib.suppress(asyncio.CancelledError):
        await drawing


async def _draw(
    servers: Sequence[RunningServer], ask: Callable[[RunningServer], Awaitable[Answer]], interval_s: float, clock: Clock
) -> None:
    while True:
        answers = await asyncio.gather(*(ask(each) for each in servers))
        size = shutil.get_terminal_size()
        lines = frame(list(zip([each.url for each in servers], answers, strict=True)), size, clock.wall_s())
        sys.stdout.write(_HOME + f"{_REST_OF_LINE}\r\n".join(lines) + _REST_OF_LINE + _REST_OF_SCREEN)
        sys.stdout.flush()
        await asyncio.sleep(interval_s)


def frame(answers: Sequence[tuple[str, Answer]], size: tuple[int, int], now_s: float) -> list[str]:
    """Return the lines of one picture that fit on the terminal."""
    columns, rows = size
    o_clock = f"{datetime.fromtimestamp(now_s, UTC).astimezone():%H:%M:%S}"
    lines = [f"cc-tts top  {o_clock}  q ends", *(_server_line(url, status) for url, (status, _) in answers), ""]
    calls = sorted((call for _, (_, found) in answers for call in found if is_live(call)), key=_by_quality)
    if calls:
        lines += tables.table(tables.CALL_COLUMNS, [tables.call_row(call, now_s) for call in calls])
    elif not any(
        isinstance(status, str) for _, (status, _) in answers
    ):  # calls may outlive a server that does not answer
        lines.append("no calls are up")
    if len(lines) > rows:
        hidden = len(lines) - rows + 1
        lines = [*lines[: rows - 1], f"… {hidden} more"]
    return [tables.cut(line, columns) for line in lines]


def _by_quality(call: dict[str, Any]) -> tuple[float, float]:
    score = call["quality"]["mos"]
    return (0.0 if tables.is_unheard(call) else 5.0 if score is None else score, call["created_at"])


def _server_line(url: str, status: Any) -> str:
    if isinstance(status, str):
        return tables.plain(f"{url}  {status}")
    workers = status["workers"]
    speaking = sum(each["streams"] or 0 for each in workers)
    up = sum(each["state"] == "ready" for each in workers)
    late = f"media late {status['media_lateness_ms']:g} ms"
    return tables.plain(
        f"{url}  {tables.readiness(status)}  calls {status['calls']}/{status['max_calls']}  workers {up}/{len(workers)}  "
        f"speaking {speaking}  {late}"
    )


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.write(_BEGIN)
    try:
        yield
    finally:
        sys.stdout.write(_END)
        sys.stdout.flush()


@contextlib.contextmanager
def _keys(end: Callable[[], object]) -> Iterator[None]:
    """Read single keys, if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if os.read(descriptor, 1) in (b"q", b"Q", b""):
            end()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
