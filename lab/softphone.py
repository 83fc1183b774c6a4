"""The softphone as a child process, for tests and benches: the other end of :mod:`lab.softphone_control`.

Its own process, so that neither the test's event loop nor its GIL stands between the wire and the figures.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from cc_tts.errors import ProcessFailed
from lab.lines import LineProcess
from lab.server_under_test import EventLog
from lab.waiting import PATIENCE_S

QUIT_TIMEOUT_S: Final = 10.0

Event = dict[str, Any]


class SoftphoneProcess(LineProcess):
    """One softphone process, up to four calls.

    Every event is kept in :attr:`events`; :meth:`wait_event` takes each event at most once.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.events: list[Event] = []
        self._taken: set[int] = set()
        self._changed = asyncio.Condition()
        self._is_over = False
        self._marks = 0
        self._reader = asyncio.create_task(self._follow(), name="softphone-driver")

    @classmethod
    async def start(cls, *, transport: str = "udp", log_path: Path | None = None) -> Self:  # type: ignore[override]
        """Start the child and wait until it is ready. Its standard error goes to ``log_path``."""
        phone = await super().start("lab.softphone_control", "--transport", transport, log_path=log_path)
        try:
            await phone.wait_event("ready")
        except BaseException:
            await phone.close()
            raise
        return phone

    async def hang_up_all(self) -> None:
        """A test is over: no call is up, and the next one finds no event of this one."""
        last = {each["call"]: each["event"] for each in self.events if each["event"] in ("dialing", "report")}
        self._taken.update(range(len(self.events)))
        up = [call for call, event in last.items() if event == "dialing"]
        for call in up:
            await self.hangup(call=call)
        for _ in (*up, "the mark"):
            with contextlib.suppress(ProcessFailed):  # a call had ended by itself when it was to be hung up
                await self.mark()
                break
        self.events.clear()
        self._taken.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def dial(self, uri: str, *, call: str = "1", timeout_s: float = 30.0, **options: Any) -> Event:
        """Send an INVITE and return the event ``dialing`` (``at_ns``, ``sip_call_id``, ``rtp_port``).

        Options: ``codec``, ``headers``, ``rtp_port``, ``record``, ``dtmf`` (a plan), ``max_talk_s``. ``timeout_s`` is
        for the answer. A call that ends at once gives the event ``ended``.
        """
        options = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
        await self.send({"cmd": "dial", "uri": uri, "call": call, "timeout_s": timeout_s, **options})
        return await self.wait_event("dialing", "ended", call=call)

    async def establish(self, uri: str, log: EventLog, **options: Any) -> str:
        """Call the server, and wait until it says that the call is established; returns its id there."""
        await self.dial(uri, **options)
        return str((await log.wait("call.established"))["call_id"])

    async def dtmf(self, digits: str, *, call: str = "1", duration_ms: int = 100) -> Event:
        """Press keys; returns the event ``dtmf_sent`` of the first one."""
        await self.send({"cmd": "dtmf", "call": call, "digits": digits, "duration_ms": duration_ms})
        return await self.wait_event("dtmf_sent", call=call)

    async def say(self, file: Path, *, call: str = "1") -> Event:
        """Send the octets of a file, in the codec of the call; returns the event ``saying`` of the first packet."""
        await self.send({"cmd": "say", "call": call, "file": str(file)})
        return await self.wait_event("saying", call=call)

    async def hold(self, *, call: str = "1") -> Event:
        """Put the far side on hold and wait for its answer."""
        await self.send({"cmd": "hold", "call": call})
        return await self.wait_event("held", call=call)

    async def unhold(self, *, call: str = "1") -> Event:
        """Take the far side off hold and wait for its answer."""
        await self.send({"cmd": "unhold", "call": call})
        return await self.wait_event("unheld", call=call)

    async def hangup(self, *, call: str = "1") -> Event:
        """Hang up and return the report."""
        await self.send({"cmd": "hangup", "call": call})
        return await self.report(call=call)

    async def report(self, *, call: str = "1", timeout_s: float = PATIENCE_S) -> Event:
        """Wait for the call to end, whoever ends it, and return its report."""
        event = await self.wait_event("report", call=call, timeout_s=timeout_s)
        report: Event = event["report"]
        return report

    async def mark(self) -> int:
        """Instant at which the child handled this request, ns."""
        self._marks += 1
        name = str(self._marks)
        await self.send({"cmd": "mark-now", "id": name})
        event = await self.wait_event("mark", where=lambda each: each["id"] == name)
        at_ns: int = event["at_ns"]
        return at_ns

    async def send(self, command: Event) -> None:
        self.tell(json.dumps(command))

    async def wait_event(
        self,
        *kinds: str,
        call: str | None = None,
        timeout_s: float = PATIENCE_S,
        after_ns: int = 0,
        where: Callable[[Event], bool] | None = None,
    ) -> Event:
        """The oldest event not yet taken of one of these kinds (and of this call, at or after ``after_ns``).

        Raises:
            TimeoutError: it did not come; the message lists what did.
            ProcessFailed: the child ended, or reported an error on this call.
        """

        def find() -> Event | None:
            for index, event in enumerate(self.events):
                is_error = event["event"] == "error"
                # an error without a call is about a command that could not be read
                is_ours = call is None or event.get("call") == call or (is_error and not event.get("call"))
                if index in self._taken or event["at_ns"] < after_ns or not is_ours:
                    continue
                if event["event"] in kinds and (where is None or where(event)):
                    self._taken.add(index)
                    return event
                if is_error:
                    self._taken.add(index)
                    raise ProcessFailed(f"softphone: {event['detail']}")
            return None

        async with self._changed:
            try:
                async with asyncio.timeout(timeout_s):
                    while (found := find()) is None:
                        if self._is_over:
                            raise ProcessFailed(f"the softphone ended while {' or '.join(kinds)} was awaited")
                        await self._changed.wait()
            except TimeoutError:
                seen = [event["event"] for event in self.events if call is None or event.get("call") == call]
                raise TimeoutError(f"no {' or '.join(kinds)} within {timeout_s} s; seen: {seen}") from None
        return found

    async def _follow(self) -> None:
        try:
            async for event in self.lines():
                async with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._is_over = True
                self._changed.notify_all()

    async def close(self) -> int:
        """Hang up politely and quit; kill the child only if it does not end by itself. Returns its exit status."""
        if self.returncode is None:
            await self.send({"cmd": "quit"})
            try:
                await self.ended(QUIT_TIMEOUT_S)
            except TimeoutError:
                await self.kill()
        await self._reader
        assert self.returncode is not None
        return self.returncode
