"""The accounting file: a line of JSON for each utterance that is complete and each call that is over.

A line has what bills are made of, and what finds the call in the records of others. It has no text, no digit and no number
of a caller. Runs on: the event loop.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.processes.line_writer import LineWriter

FILE_MODE: Final = 0o640


class UtteranceLine(msgspec.Struct, frozen=True, kw_only=True, tag="utterance"):
    """An utterance on a call, or a response of ``/v1/audio/speech``, which has no ``call_id``. ``characters`` of its text;
    ``played_ms``: what was heard of it, or sent; ``cached``: no engine was needed; ``reason``: why it is complete.
    """

    time: float = 0.0
    node: str = ""
    tenant: str
    call_id: str | None
    utterance_id: str
    characters: int
    played_ms: int
    cached: bool
    voice: str
    engine: str
    reason: str
    error: str | None


class CallLine(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A call. ``started``, ``answered`` and ``ended`` are seconds since the Unix epoch; ``duration_ms``: from the answer to
    the end. ``route`` is the key of ``[routes]`` that took it, empty for a call that was placed. ``recordings``: the id and
    the consent of each. ``disclosed``: when the caller had heard that a machine speaks.
    """

    time: float = 0.0
    node: str = ""
    tenant: str
    call_id: str
    sip_call_id: str
    direction: str
    route: str
    started: float
    answered: float | None
    ended: float
    duration_ms: int
    result: str
    reason: str
    sip_code: int | None
    q850_cause: int | None
    codec: str | None
    quality: Mapping[str, Any]
    recordings: Sequence[Mapping[str, str]] = ()
    disclosed: float | None = None


Line = UtteranceLine | CallLine
_ENCODER: Final = msgspec.json.Encoder()


class AccountingLog:
    """``file`` ``None``: nothing is written. ``node``: the server's name in each line."""

    def __init__(
        self, file: Path | None = None, *, node: str = "", clock: Clock | None = None, metrics: Metrics | None = None
    ) -> None:
        self._file = file
        self._node = node
        self._clock = clock or MonotonicClock()
        self._writer: LineWriter | None = None
        if file:
            metrics = metrics or Metrics()
            self._writer = LineWriter(
                file,
                "accounting",
                mode=FILE_MODE,
                on_lost=metrics.accounting_lost.inc,
                unwritable=metrics.file_unwritable.labels(key="accounting.file"),
            )

    async def start(self) -> None:
        """Begin to write; raises ``ConfigError`` if the file cannot be."""
        if self._writer is not None:
            try:
                await self._writer.start()
            except OSError as error:
                raise ConfigError(f"accounting.file: {self._file}: {error.strerror}") from None

    async def stop(self) -> None:
        """Write the waiting lines, for some seconds at most. Safe to call twice."""
        if self._writer is not None:
            await self._writer.stop()

    def add(self, line: Line, on_written: Callable[[], None] = lambda: None) -> None:
        """Write a line soon, and then call ``on_written``; at once if there is no file."""
        if self._writer is None:
            on_written()
            return
        stamped = msgspec.structs.replace(line, time=round(self._clock.wall_s(), 3), node=self._node)
        self._writer.add(_ENCODER.encode(stamped) + b"\n", on_written)
