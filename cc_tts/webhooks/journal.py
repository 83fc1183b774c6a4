"""The events that must not be lost, in a file: a line of JSON when one is to be delivered, another when that is over.

The next server reads what is left over. Each write waits for the disk, so that an event survives a power cut from
:data:`.line_writer.INTERVAL_S` after it on, or from the write of the disk that takes longer. What has waited for delivery
longest is still in memory while the file cannot be written. The file is of one server alone. Runs on: the event loop.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.errors import UNREADABLE, ConfigError
from cc_tts.metrics import Metrics
from cc_tts.processes.line_writer import LineWriter

MIN_LINES_TO_COMPACT: Final = 4096
"""The file is rewritten when it has this many lines and few of them are unsettled (unmeasured)."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that is to be delivered. ``url`` and ``secret`` are the call's; ``at_s`` is on the wall clock."""

    webhook: str
    id: str
    type: str
    call_id: str | None
    seq: int
    at_s: float
    body: str
    url: str = ""
    secret: str = ""

    @property
    def key(self) -> str:
        return f"{self.webhook} {self.id}"


class JournalLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line: an event, or the key of an event that was accepted or given up."""

    keep: Kept | None = None
    settled: str = ""


log = logs.get(__name__)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(JournalLine)


class Journal:
    """``file`` ``None``: events are kept in memory only."""

    def __init__(self, file: Path | None, metrics: Metrics) -> None:
        self._file = file
        self._left: dict[str, bytes] = {}
        """The lines of unsettled events, by key."""
        self._writer: LineWriter | None = None
        if file:
            self._writer = LineWriter(
                file,
                "webhook_events",
                sync=True,
                on_lost=metrics.webhooks_dropped.labels(reason="not_kept").inc,
                unwritable=metrics.file_unwritable.labels(key="webhooks.file"),
                anew=self._compacted,
            )

    async def start(self) -> list[Kept]:
        """Begin; return the unsettled events of an earlier server. Raises ``ConfigError`` if the file cannot be used."""
        if self._file is None or self._writer is None:
            return []
        try:
            found = await asyncio.to_thread(_left_over, self._file)
            self._left = {kept.key: _line(JournalLine(keep=kept)) for kept in found}
            await self._writer.start(tuple(self._left.values()))
        except OSError as error:
            raise ConfigError(f"webhooks.file: {self._file}: {error.strerror}") from None
        return found

    async def stop(self) -> None:
        """Write the waiting lines, for some seconds at most."""
        if self._writer is not None:
            await self._writer.stop()

    def keep(self, kept: Kept) -> None:
        if self._writer is not None:
            self._left[kept.key] = line = _line(JournalLine(keep=kept))
            self._writer.add(line)

    def settle(self, key: str) -> None:
        if self._writer is not None and self._left.pop(key, None) is not None:
            self._writer.add(_line(JournalLine(settled=key)))

    def _compacted(self) -> Sequence[bytes] | None:
        """Return the unsettled lines, once most lines of the file are settled."""
        assert self._writer is not None
        num_lines = self._writer.num_lines
        is_worth_it = num_lines > MIN_LINES_TO_COMPACT and num_lines > 4 * len(self._left)
        return tuple(self._left.values()) if is_worth_it else None


def _line(line: JournalLine) -> bytes:
    return _ENCODER.encode(line) + b"\n"


def _left_over(file: Path) -> list[Kept]:
    """Read the unsettled events, oldest first. An incomplete last line is ignored. Raises ``ConfigError`` if no line is of
    events, since the file is rewritten. Runs on: a thread.
    """
    found: dict[str, Kept] = {}
    try:
        *lines, _ = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    num_unreadable = 0
    for each in lines:
        try:
            line = _DECODER.decode(each)
        except UNREADABLE:
            num_unreadable += 1
            continue
        if line.keep is not None:
            found[line.keep.key] = line.keep
        else:
            found.pop(line.settled, None)
    if lines and num_unreadable == len(lines):
        raise ConfigError(f"webhooks.file: {file} is not a file of events; name one that this server alone writes")
    if num_unreadable:
        log.warning("events_unreadable", file=str(file), lines=num_unreadable, consequence="they are not sent")
    return list(found.values())
