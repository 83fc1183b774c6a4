"""Structured logs: one JSON object a line (or coloured text on a terminal) on standard error.

``call_id`` and ``utterance_id`` are bound by whoever knows them. Prompt text, instructions, tokens and passwords are never
logged: log ``text_chars`` instead. A processor drops the keys in :data:`NEVER_LOGGED` should one slip through.

What libraries log by :mod:`logging`, and exceptions that nobody caught, become lines of the same form.
"""

import contextlib
import logging
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import structlog

from cc_tts.clock import Clock, MonotonicClock

NEVER_LOGGED = frozenset(
    {"text", "ssml", "spoken_text", "instructions", "token", "tokens", "password", "authorization", "x_tts_text"}
)
MAX_LINE_BYTES: Final = select.PIPE_BUF
"""The processes of a server write to one pipe, which keeps lines of this length whole (POSIX, ``write``)."""
MAX_REPEATS: Final = 20
"""Lines of one kind in :data:`REPEATS_WINDOW_S`; what is more is counted and reported in one line (unmeasured)."""
REPEATS_WINDOW_S: Final = 10.0  # unmeasured
MAX_KINDS: Final = 5000
"""Kinds of lines that are counted at once; beyond it the window ends early (unmeasured)."""

_MIN_VALUE_CHARS: Final = 32  # unmeasured
_KINDS_REPORTED: Final = 20

Event = MutableMapping[str, Any]


class RepeatLimit:
    """Lets :data:`MAX_REPEATS` lines of one kind through in each window of :data:`REPEATS_WINDOW_S`.

    Below ``warning`` a kind is the whole line, so that the lines of a thousand calls all pass. From ``warning`` on it is
    the event and its call: a fault that repeats often repeats with another address or number in it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._ends_ns = 0

    def admit(self, method: str, event: Event) -> tuple[bool, list[tuple[str, int]]]:
        """Count one line: whether it may be written, and the events suppressed in the window just ended, with how often."""
        kind = _kind(method, event)
        with self._lock:
            now_ns = self._clock.now_ns()
            suppressed: list[tuple[str, int]] = []
            if now_ns >= self._ends_ns or len(self._counts) >= MAX_KINDS:
                suppressed = [(key[0], n - MAX_REPEATS) for key, n in self._counts.items() if n > MAX_REPEATS]
                self._counts.clear()
                self._ends_ns = now_ns + round(REPEATS_WINDOW_S * 1e9)
            self._counts[kind] += 1
            return self._counts[kind] <= MAX_REPEATS, suppressed


class _Lines:
    """Writes finished lines, each with one call. A log that cannot be written stops nobody's work."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._file.write(line + "\n")
            self._file.flush()

    log = debug = info = warning = error = critical = exception = msg


class _Pipeline:
    """Filters and renders one line."""

    def __init__(self, *, level: str, json: bool, repeats: RepeatLimit) -> None:
        self.level = _number(level)
        self._render: Callable[[Event], str] = _fitting_json if json else _text
        self._repeats = repeats
        self._stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")

    def __call__(self, lines: _Lines, method: str, event: Event) -> str:
        if _number(method) < self.level:
            raise structlog.DropEvent
        event = structlog.contextvars.merge_contextvars(lines, method, event)
        may_pass, suppressed = self._repeats.admit(method, event)
        for name, count in suppressed[:_KINDS_REPORTED]:
            summary: Event = {"of": name, "count": count, "event": "lines_suppressed"}
            summary = structlog.contextvars.merge_contextvars(lines, "warning", summary)
            lines.msg(self._finished(lines, "warning", summary))
        if not may_pass:
            raise structlog.DropEvent
        return self._finished(lines, method, event)

    def _finished(self, lines: _Lines, method: str, event: Event) -> str:
        for key in NEVER_LOGGED & event.keys():
            event[key] = "(not logged)"
        event = structlog.processors.add_log_level(lines, method, event)
        event = self._stamp(lines, method, event)
        event = structlog.processors.format_exc_info(lines, method, event)
        return self._render(event)


class _FromLogging(logging.Handler):
    """Lines of libraries. Only from ``warning`` on: what they say below it may hold text to be spoken."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write = get(record.name).error if record.levelno >= logging.ERROR else get(record.name).warning
            write("library_log", detail=record.getMessage(), exc_info=record.exc_info or None)
        except Exception:  # noqa: BLE001 - a line that cannot be written is nobody's failure
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging
        get(record.name).error("library_log", detail="a line that cannot be read")


_pipeline: _Pipeline | None = None


def configure(*, level: str = "info", json: bool = True, process: str = "server") -> None:
    """Send this process's log to standard error. ``process`` is bound to every line."""
    global _pipeline  # noqa: PLW0603 - a process has one log
    _pipeline = _Pipeline(level=level, json=json, repeats=RepeatLimit(MonotonicClock()))
    lines = _Lines(sys.stderr)
    structlog.configure(
        processors=[_pipeline],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)
    logging.basicConfig(handlers=[_FromLogging()], level=max(logging.WARNING, _pipeline.level), force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda *exc_info: _uncaught(exc_info)
    sys.unraisablehook = lambda found: _uncaught((found.exc_type, found.exc_value, found.exc_traceback))
    threading.excepthook = lambda found: _uncaught((found.exc_type, found.exc_value, found.exc_traceback))


def set_level(level: str) -> None:
    """Change what is logged from now on, by loggers that exist already too."""
    if _pipeline is not None:
        _pipeline.level = _number(level)
        logging.getLogger().setLevel(max(logging.WARNING, _pipeline.level))


def get(name: str) -> Any:
    """A logger whose lines carry ``module=name``."""
    return structlog.get_logger(module=name)


def _number(level: str) -> int:
    return logging.ERROR if level == "exception" else logging.getLevelNamesMapping()[level.upper()]


def _kind(method: str, event: Event) -> tuple[str, ...]:
    name = str(event.get("event"))
    if _number(method) >= logging.WARNING:
        return name, str(event.get("module")), str(event.get("call_id"))
    return name, *(f"{key}={value}" for key, value in event.items())


def _uncaught(exc_info: Any) -> None:
    if issubclass(exc_info[0], KeyboardInterrupt):
        return
    get("python").error("uncaught_exception", exc_info=exc_info)
    if _pipeline is not None and _pipeline.level > logging.ERROR:  # of a command, which says nothing else
        sys.__excepthook__(*exc_info)


def _text(event: Event) -> str:
    return str(structlog.dev.ConsoleRenderer(colors=False)(None, "", event))


def _fitting_json(event: Event) -> str:
    """JSON of at most :data:`MAX_LINE_BYTES` with its line end; the longest texts are cut in their middle."""
    render = structlog.processors.JSONRenderer()
    while len(line := str(render(None, "", dict(event)))) >= MAX_LINE_BYTES:  # ASCII: a character is a byte
        key = max(event, key=lambda name: len(str(event[name])))
        value = str(event[key])
        if len(value) <= _MIN_VALUE_CHARS:
            return line[: MAX_LINE_BYTES - 1]
        keep = len(value) // 3
        event[key] = f"{value[:keep]} … {value[-keep:]}"
    return line
