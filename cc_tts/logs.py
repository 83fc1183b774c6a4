"""Structured logs: one JSON object a line (or coloured text on a terminal) on standard error.

``call_id`` and ``utterance_id`` are bound where they are known. Prompt text, instructions, tokens and passwords are never
logged: log ``text_chars`` instead. A processor drops the keys in :data:`NEVER_LOGGED` should one slip through.

What libraries log by :mod:`logging`, and exceptions that nobody caught, become lines of the same form.
"""

import contextlib
import functools
import json
import logging
import select
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from cc_tts.clock import NS_PER_S, Clock, MonotonicClock

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

Line = dict[str, Any]
"""The fields of one line, ``event`` among them."""

_context: ContextVar[Mapping[str, Any]] = ContextVar("log fields", default=MappingProxyType({}))


class RepeatLimit:
    """Limits repeated lines to :data:`MAX_REPEATS` in each window of :data:`REPEATS_WINDOW_S`.

    Below ``warning`` a kind is the whole line, so that the lines of a thousand calls all pass. From ``warning`` on it is
    the event and its call: a fault that repeats often repeats with another address or number in it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._ends_ns = 0

    def admit(self, level: str, line: Line) -> tuple[bool, list[tuple[str, int]]]:
        """Count one line; return whether it may be written, and the events suppressed in the window that has just ended,
        with their numbers.
        """
        kind = _kind(level, line)
        with self._lock:
            now_ns = self._clock.now_ns()
            suppressed: list[tuple[str, int]] = []
            if now_ns >= self._ends_ns or len(self._counts) >= MAX_KINDS:
                suppressed = [(key[0], n - MAX_REPEATS) for key, n in self._counts.items() if n > MAX_REPEATS]
                self._counts.clear()
                self._ends_ns = now_ns + round(REPEATS_WINDOW_S * NS_PER_S)
            self._counts[kind] += 1
            return self._counts[kind] <= MAX_REPEATS, suppressed


class Logger:
    """Writes lines with its own fields and those that are bound to the context (:func:`bind`)."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def bind(self, **fields: object) -> "Logger":
        """Return a logger whose lines carry these fields besides."""
        return Logger(**{**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write("error", event, {"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: Line) -> None:
        write(level, {**_context.get(), **self._fields, **fields, "event": event})


class _Pipeline:
    """Filters, renders and writes lines."""

    def __init__(self, *, level: str, json: bool, process: str, clock: Clock) -> None:
        self.level = _number(level)
        self._render = _fitting_json if json else _text
        self._process = process
        self._clock = clock
        self._repeats = RepeatLimit(clock)
        self._file = sys.stderr
        self._lock = threading.Lock()

    def write(self, level: str, line: Line) -> None:
        if _number(level) < self.level:
            return
        line.setdefault("process", self._process)
        may_pass, suppressed = self._repeats.admit(level, line)
        for name, count in suppressed[:_KINDS_REPORTED]:
            summary = {"of": name, "count": count, "event": "lines_suppressed", "process": self._process}
            self._finish("warning", summary)
        if may_pass:
            self._finish(level, line)

    def _finish(self, level: str, line: Line) -> None:
        for key in NEVER_LOGGED & line.keys():
            line[key] = "(not logged)"
        line |= {"level": level, "time": self._now()}
        if failure := _failure(line.pop("exc_info", None)):
            line["exception"] = "".join(traceback.format_exception(failure)).rstrip()
        text = self._render(line)
        with self._lock, contextlib.suppress(OSError, ValueError):  # a log that cannot be written stops nobody's work
            self._file.write(text + "\n")
            self._file.flush()

    def _now(self) -> str:
        return f"{datetime.fromtimestamp(self._clock.wall_s(), UTC).replace(tzinfo=None).isoformat()}Z"


class _FromLogging(logging.Handler):
    """Passes on the lines of libraries, only from ``warning`` on: lower levels may hold text to be spoken."""

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
    """Send this process's log to standard error. ``process`` is in every line."""
    global _pipeline  # noqa: PLW0603 - a process has one log
    _pipeline = _Pipeline(level=level, json=json, process=process, clock=MonotonicClock())
    logging.basicConfig(handlers=[_FromLogging()], level=max(logging.WARNING, _pipeline.level), force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda *exc_info: _uncaught(exc_info)
    sys.unraisablehook = lambda found: _uncaught((found.exc_type, found.exc_value, found.exc_traceback))
    threading.excepthook = lambda found: _uncaught((found.exc_type, found.exc_value, found.exc_traceback))


def set_level(level: str) -> None:
    """Change the log level from now on, also of existing loggers."""
    if _pipeline is not None:
        _pipeline.level = _number(level)
        logging.getLogger().setLevel(max(logging.WARNING, _pipeline.level))


def get(name: str) -> Logger:
    """Return a logger whose lines have ``module=name``."""
    return Logger(module=name)


def write(level: str, line: Line) -> None:
    """Write a line, unless its level or its repetition prevents it."""
    (_pipeline or _before_configured()).write(level, line)


@functools.cache
def _before_configured() -> _Pipeline:
    """Return the log of a process that has none yet, so that its warnings and errors are not lost."""
    return _Pipeline(level="warning", json=False, process="cc-tts", clock=MonotonicClock())


def bind(**fields: object) -> None:
    """Bind fields to every line that is written in this context from now on."""
    _context.set({**_context.get(), **fields})


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _failure(exc_info: Any) -> BaseException | None:
    """Return the exception that is meant: an exception, the result of :func:`sys.exc_info`, or ``True`` for
    the handled one.
    """
    if exc_info is True:
        return sys.exception()
    found = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    return found if isinstance(found, BaseException) else None


def _kind(level: str, line: Line) -> tuple[str, ...]:
    name = str(line.get("event"))
    if _number(level) >= logging.WARNING:
        return name, str(line.get("module")), str(line.get("call_id"))
    return name, *(f"{key}={value}" for key, value in line.items())


def _uncaught(exc_info: Any) -> None:
    if issubclass(exc_info[0], KeyboardInterrupt):
        return
    get("python").error("uncaught_exception", exc_info=exc_info)
    if _pipeline is not None and _pipeline.level > logging.ERROR:  # a command that logs nothing
        sys.__excepthook__(*exc_info)


def _text(line: Line) -> str:
    exception = line.pop("exception", "")
    time, level, event = line.pop("time"), line.pop("level"), line.pop("event")
    fields = " ".join(f"{name}={value}" for name, value in sorted(line.items()))
    return f"{time} {level:8} {event:30} {fields}" + (f"\n{exception}" if exception else "")


def _fitting_json(line: Line) -> str:
    """JSON of at most :data:`MAX_LINE_BYTES` with its line end; the longest texts are cut in their middle."""
    while len(text := json.dumps(line, default=repr)) >= MAX_LINE_BYTES:  # ASCII: a character is a byte
        key = max(line, key=lambda name: len(str(line[name])))
        value = str(line[key])
        if len(value) <= _MIN_VALUE_CHARS:
            return text[: MAX_LINE_BYTES - 1]
        keep = len(value) // 3
        line[key] = f"{value[:keep]} … {value[-keep:]}"
    return text
