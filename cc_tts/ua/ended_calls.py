"""A file with the calls whose end no server has heard of. The next server reads it and accounts for them.

It lies beside the socket at which the process waited, is written as the process exits, and has the reports that a server
would have got, as they are on the channel. Neither texts nor digits are in it. Instants are those of the monotonic clock of
the machine that wrote it; the first record says what time of day that was, so that they are right after a reboot too.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import Decoder, Message, encode
from cc_tts.ua import messages

SUFFIX: Final = ".ended"

log = logs.get(__name__)


class Written(Message, frozen=True):
    """The first record: both clocks at the same moment."""

    at_ns: int
    wall_s: float


_KINDS: Final = (Written, messages.CallSnapshot, messages.PlayoutReport, messages.CallEnded)


def leave(socket: Path, reports: Iterable[Message], clock: Clock) -> None:
    """Write the reports for the next server; nothing if no call has ended."""
    told = [_without_texts(each) for each in reports if isinstance(each, _KINDS)]
    num_calls = sum(isinstance(each, messages.CallEnded) for each in told)
    if not num_calls:
        return
    written = Written(at_ns=clock.now_ns(), wall_s=clock.wall_s())
    try:
        atomic_file.write(socket.with_suffix(SUFFIX), b"".join(map(encode, (written, *told))), sync=False)
    except OSError as error:
        log.error("calls_not_accounted", calls=num_calls, detail=error.strerror)
    else:
        log.info("ended_calls_left", calls=num_calls)


def take(socket: Path, clock: Clock) -> list[Message]:
    """Read and remove the file of an earlier process; instants are converted to this machine's clock."""
    path = socket.with_suffix(SUFFIX)
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return []
    except OSError as error:
        log.error("ended_calls_unreadable", detail=error.strerror)
        return []
    try:
        written, *told = (message for message, _ in Decoder(_KINDS).feed(data))
    except (ProcessFailed, ValueError) as error:
        log.error("ended_calls_unreadable", detail=str(error))
        return []
    if not isinstance(written, Written):
        log.error("ended_calls_unreadable", detail="the time of writing is missing")
        return []
    log.info("ended_calls_found", calls=sum(isinstance(each, messages.CallEnded) for each in told))
    later_ns = round((clock.wall_s() - written.wall_s) * NS_PER_S)
    shift_ns = clock.now_ns() - later_ns - written.at_ns
    return [_shifted(each, shift_ns) for each in told]


def _without_texts(message: Message) -> Message:
    """Return a report of an INVITE without prompt texts in its headers and its Request-URI; the record has the rest."""
    if not isinstance(message, messages.CallSnapshot) or message.invite is None:
        return message
    bare = msgspec.structs.replace(
        message.invite,
        headers={},
        identity={},
        request_uri=message.invite.request_uri.partition(";")[0].partition("?")[0],
    )
    return msgspec.structs.replace(message, invite=None if message.record else bare)


def _shifted(message: Message, by_ns: int) -> Message:
    if isinstance(message, messages.CallSnapshot):
        return msgspec.structs.replace(message, established_ns=message.established_ns + by_ns)
    if isinstance(message, messages.CallEnded) and message.at_ns:
        return msgspec.structs.replace(message, at_ns=message.at_ns + by_ns)
    return message
