"""The UA process without a server: the reports that it keeps for the next server, and the channels to both.

::

    server gone ─▸ detached: no new calls, prompts play what is there, ends of calls are kept ─┬─ Adopt ─▸ snapshots, go on
                                                                                          └─ grace over ─▸ BYE, a file, exit
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""A server writes down more ends than this in the time it takes, unless its disk is full; unmeasured."""

log = logs.get(__name__)


class KeptReports:
    """Keeps reports for the next server: ended calls until a server has confirmed the end, since one that dies may not have
    read or recorded it, and the utterances that are over while there is no server. ``snapshot`` returns the snapshot of a
    call that ends. Runs on: the SIP thread.
    """

    def __init__(self, snapshot: Callable[[str], messages.CallSnapshot | None]) -> None:
        self._snapshot = snapshot
        self._ends: dict[str, tuple[messages.CallSnapshot, messages.CallEnded]] = {}
        self._finished: dict[str, list[messages.PlayoutReport]] = {}

    def keep_end(self, ended: messages.CallEnded) -> None:
        """Keep the end of a call. Beyond :data:`MAX_UNNOTED_ENDS` the oldest is forgotten."""
        if ended.call_id in self._ends or (snapshot := self._snapshot(ended.call_id)) is None:
            return
        self._ends[ended.call_id] = snapshot, ended
        if len(self._ends) > MAX_UNNOTED_ENDS:
            del self._ends[next(iter(self._ends))]

    def forget_end(self, call_id: str) -> None:
        self._ends.pop(call_id, None)

    def keep(self, message: Message) -> None:
        """Keep a report that no server gets. Some are not needed, since a snapshot contains their information."""
        if isinstance(message, messages.PlayoutReport) and isinstance(message.event, PlayoutFinished):
            self._finished.setdefault(message.call_id, []).append(message)

    def reports(self, live_calls: Iterable[messages.CallSnapshot]) -> Iterator[Message]:
        """Return the reports for the next server; ``live_calls`` have not ended."""
        finished, self._finished = self._finished, {}
        for snapshot, ended in tuple(self._ends.values()):
            yield from _told(snapshot, finished)
            yield ended
        for snapshot in live_calls:
            yield from _told(snapshot, finished)
        yield messages.SnapshotComplete()


def _told(
    snapshot: messages.CallSnapshot, finished: Mapping[str, list[messages.PlayoutReport]]
) -> Iterator[messages.CallReport]:
    """Return a call with its utterances that are over, which are reported after it."""
    reports = finished.get(snapshot.call_id, [])
    over = {
        each.event.utterance_id: each.event.played_ms for each in reports if isinstance(each.event, PlayoutFinished)
    }
    yield msgspec.structs.replace(snapshot, utterances=tuple((over | dict(snapshot.utterances)).items()))
    yield from reports


@dataclass(frozen=True, slots=True)
class Successor:
    """A server that wants to adopt this process. ``decided`` is set once it is our server."""

    channel: ChildChannel
    request: Adopt
    decided: threading.Event = field(default_factory=threading.Event)


class ServerLink:
    """The channel to the present or last server.

    Runs on: the SIP thread, except :meth:`read`.
    """

    def __init__(self, channel: ChildChannel) -> None:
        self.channel = channel
        self.commands: deque[Message | Successor | None] = deque()
        """The commands of all servers, in order. ``None``: the channel to one has ended, after all its commands."""
        self.is_detached = False
        self._socket: AdoptionSocket | None = None

    def listen(self, path: str) -> None:
        """Open a socket for the next server; none if ``path`` is empty or it cannot be made."""
        if path:
            try:
                self._socket = AdoptionSocket(Path(path))
            except ProcessFailed as error:
                log.warning("calls_are_not_kept", detail=error.detail)

    @property
    def outlives_server(self) -> bool:
        """Whether another server could adopt this process."""
        return self._socket is not None

    def read(self, take_media: Callable[[Message, bytes], bool], wake: Callable[[], None]) -> None:
        """Read from the server, and from each server after it. ``take_media`` carries out a command and returns true if it
        is about media; all others become :attr:`commands`, for which ``wake`` ends the wait of the loop. Runs on: the reader
        thread.
        """

        def on_record(message: Message, payload: bytes) -> None:
            if not take_media(message, payload):
                self.commands.append(message)
                wake()

        channel = self.channel
        while True:
            child.read(channel, on_record)
            self.commands.append(None)
            if self._socket is None:
                return
            try:
                successor = Successor(*self._socket.accept(messages.TO_UA))
            except OSError:  # the socket was closed
                return
            self.commands.append(successor)
            successor.decided.wait()
            channel = successor.channel

    def close(self) -> None:
        self.channel.close()
        if self._socket is not None:
            self._socket.close()
