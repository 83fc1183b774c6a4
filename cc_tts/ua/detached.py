"""The UA process without a server: what it keeps for the next one, and the channels of both.

::

    server gone ─▸ Detached: no new calls, prompts play what is there, ends of calls are kept ─┬─ Adopt ─▸ snapshots, go on
                                                                                          └─ grace over ─▸ BYE, a file, exit
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.errors import ProcessFailed
from cc_tts.media.playout_events import PlayoutFinished
from cc_tts.processes import child
from cc_tts.processes.adoption import Adopt, AdoptionSocket
from cc_tts.processes.channel import ChildChannel, Message
from cc_tts.ua import messages

MAX_UNNOTED_ENDS: Final = 5000
"""A server ends fewer in the time that it takes to write them down, unless its disk is full; unmeasured."""

log = logs.get(__name__)


class UnnotedEnds:
    """Calls that have ended, until a server has noted that: one that dies meanwhile may not have read it, or not written it
    down. ``snapshot`` is asked for a call that ends. Runs on: the SIP thread.
    """

    def __init__(self, snapshot: Callable[[str], messages.CallSnapshot | None]) -> None:
        self._snapshot = snapshot
        self._ends: dict[str, tuple[messages.CallSnapshot, messages.CallEnded]] = {}

    def keep(self, ended: messages.CallEnded) -> None:
        """A call has ended; of more than :data:`MAX_UNNOTED_ENDS` the oldest is forgotten."""
        if ended.call_id in self._ends or (snapshot := self._snapshot(ended.call_id)) is None:
            return
        self._ends[ended.call_id] = snapshot, ended
        if len(self._ends) > MAX_UNNOTED_ENDS:
            del self._ends[next(iter(self._ends))]

    def forget(self, call_id: str) -> None:
        self._ends.pop(call_id, None)

    def __iter__(self) -> Iterator[tuple[messages.CallSnapshot, messages.CallEnded]]:
        return iter(tuple(self._ends.values()))


class Detached:
    """The reports that no server gets are kept here for the next one. Runs on: the SIP thread."""

    def __init__(self, ends: UnnotedEnds) -> None:
        self._ends = ends
        self._finished: dict[str, list[messages.PlayoutReport]] = {}

    def keep(self, message: Message) -> None:
        """Take a report that no server gets. A snapshot has what the others say."""
        if isinstance(message, messages.PlayoutReport) and isinstance(message.event, PlayoutFinished):
            self._finished.setdefault(message.call_id, []).append(message)

    def reports(self, live_calls: Iterable[messages.CallSnapshot]) -> Iterator[Message]:
        """Return what the next server is told; ``live_calls`` have not ended."""
        for snapshot, ended in self._ends:
            yield from self._call(snapshot)
            yield ended
        for snapshot in live_calls:
            yield from self._call(snapshot)
        yield messages.SnapshotComplete()

    def _call(self, snapshot: messages.CallSnapshot) -> Iterator[Message]:
        finished = self._finished.get(snapshot.call_id, [])
        over = {each.event.utterance_id: _played_ms(each) for each in finished}
        yield msgspec.structs.replace(snapshot, utterances=tuple((over | dict(snapshot.utterances)).items()))
        yield from finished


def _played_ms(report: messages.PlayoutReport) -> float:
    return report.event.played_ms if isinstance(report.event, PlayoutFinished) else 0.0


@dataclass(frozen=True, slots=True)
class ServerGone:
    """The channel to the server has ended; every command that came by it stands before this."""


@dataclass(frozen=True, slots=True)
class Successor:
    """A server that wants to adopt this process. ``decided`` is set once it is the server."""

    channel: ChildChannel
    request: Adopt
    decided: threading.Event = field(default_factory=threading.Event)


class ServerLink:
    """The channel to the server that this process has now, or had last.

    Runs on: the SIP thread, except :meth:`read`.
    """

    def __init__(self, channel: ChildChannel, media: Callable[[Message, bytes], bool]) -> None:
        self.channel = channel
        self.commands: deque[Message | ServerGone | Successor] = deque()
        self.detached: Detached | None = None
        self._media = media
        self._socket: AdoptionSocket | None = None

    def listen(self, path: str) -> None:
        """Have a socket for the next server; none if ``path`` is empty or it cannot be made."""
        if path:
            try:
                self._socket = AdoptionSocket(Path(path))
            except ProcessFailed as error:
                log.warning("calls_are_not_kept", detail=error.detail)

    @property
    def outlives_server(self) -> bool:
        """Whether another server could adopt this process."""
        return self._socket is not None

    def read(self) -> None:
        """Read from the server, and from each that follows it. Runs on: the reader thread."""
        channel = self.channel
        while True:
            child.read(channel, self._on_record)
            self.commands.append(ServerGone())
            if self._socket is None:
                return
            try:
                successor = Successor(*self._socket.accept(messages.TO_UA))
            except OSError:  # it was closed
                return
            self.commands.append(successor)
            successor.decided.wait()
            channel = successor.channel

    def _on_record(self, message: Message, payload: bytes) -> None:
        if not self._media(message, payload):
            self.commands.append(message)

    def close(self) -> None:
        self.channel.close()
        if self._socket is not None:
            self._socket.close()
