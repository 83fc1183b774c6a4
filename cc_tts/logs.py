"""Structured logs: one JSON object a line (or coloured text on a terminal) on standard error.

``call_id`` and ``utterance_id`` are bound by whoever knows them. Prompt text, tokens and passwords are never logged:
log ``text_chars`` instead. A processor drops the keys in :data:`NEVER_LOGGED` should one slip through.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

NEVER_LOGGED = frozenset({"text", "ssml", "spoken_text", "token", "tokens", "password", "authorization", "x_tts_text"})


def _drop_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in NEVER_LOGGED & event.keys():
        event[key] = "(not logged)"
    return event


def configure(*, level: str = "info", json: bool = True, process: str = "server") -> None:
    """Send this process's log to standard error. ``process`` is bound to every line."""
    renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _drop_secrets,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)


def get(name: str) -> Any:
    """A logger whose lines carry ``module=name``."""
    return structlog.get_logger(module=name)
