"""The calls of the process of lines without SIP. Runs on: the thread of the loop.

The thread runs asyncio for some milliseconds at a time, so that the loop of the process is the same as that of SIP.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cc_tts import logs, port_owner
from cc_tts.audio import PTIME_NS
from cc_tts.clock import NS_PER_MS, NS_PER_S, Clock
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.lines import audiosocket, websocket
from cc_tts.ua.lines.line import Line, LineLink
from cc_tts.ua.lines.switchboard import Switchboard
from cc_tts.ua.process.agent import Agent

POLL_MS: Final = 4
"""The longest delay of a command, as in the SIP process; unmeasured."""
WATCH_SLOTS: Final = 50
"""Each line is watched once in this many ticks, one second."""
MAX_CATCH_UP: Final = 5
"""After a delay the clock catches up at most this many ticks; more are skipped and counted as late; unmeasured."""
STOP_TIMEOUT_S: Final = 2.0
"""The time that the last messages may take; unmeasured."""

log = logs.get(__name__)


class LineAgent(Agent[Line]):
    """Connects the channel to the server with Asterisk."""

    def __init__(self, settings: messages.UaSettings, *, clock: Clock, send: Callable[[Message], None]) -> None:
        assert settings.asterisk is not None
        super().__init__(settings, clock, send)
        self._config = settings.asterisk
        self._over: list[str] = []
        self._next_tick_ns = 0
        self._num_ticks = 0
        self._loop = asyncio.new_event_loop()
        self._board = Switchboard(settings, self._config, clock=clock, refusal=self._refusal, take=self._take)
        self._stop_listening: list[Callable[[], Awaitable[None]]] = []

    # --- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> dict[str, str]:
        """Open the listeners that are configured.

        Raises:
            RuntimeError: a port is taken.
        """
        asyncio.set_event_loop(self._loop)
        config = self._config
        for module, port in ((websocket, config.websocket_port), (audiosocket, config.audiosocket_port)):
            if not port:
                continue
            try:
                self._stop_listening.append(self._loop.run_until_complete(module.listen(self._board)))
            except OSError as error:
                why = port_owner.reason("tcp", port, str(error.strerror or error))
                raise RuntimeError(f"asterisk: {config.host}:{port}: {why}") from None
        self._next_tick_ns = self._clock.now_ns() + PTIME_NS
        number = str(config.max_calls)
        return {"max_calls": number, "build_max_calls": number}

    def poll(self) -> None:
        """Let asyncio work until the next tick, at most :data:`POLL_MS`."""
        wait_ns = min(POLL_MS * NS_PER_MS, self._next_tick_ns - self._clock.now_ns())
        self._loop.call_later(max(0.0, wait_ns / NS_PER_S), self._loop.stop)
        self._loop.run_forever()
        self._tick()
        self._end_tails()
        for call_id in self._over:
            self._forget(call_id)
        self._over.clear()
        self._recordings.flush()

    def _tick(self) -> None:
        now_ns = self._clock.now_ns()
        late = max(0, (now_ns - self._next_tick_ns) // PTIME_NS - MAX_CATCH_UP)
        if late:
            self._next_tick_ns += late * PTIME_NS
        while self._next_tick_ns <= now_ns:
            self._next_tick_ns += PTIME_NS
            self._num_ticks += 1
            for line in self._live_calls():
                line.media.num_late += late
                line.media.tick(now_ns)
            late = 0
            slot = self._num_ticks % WATCH_SLOTS
            for line in self._live_calls()[slot::WATCH_SLOTS]:
                line.watch(now_ns)
            self._recordings.tick()

    def stop(self) -> None:
        self._accepting = False
        for line in self._live_calls():
            line.hang_up(messages.Hangup(call_id=line.call_id, sip_code=503))
        for stop in self._stop_listening:
            try:
                self._loop.run_until_complete(asyncio.wait_for(stop(), STOP_TIMEOUT_S))
            except TimeoutError:
                log.warning("listener_does_not_stop")
        self._recordings.close()

    # --- the server ----------------------------------------------------------------------------------------------------

    def _execute_other(self, message: Message) -> None:
        match message:
            case messages.ApplySettings(settings=settings):
                logs.set_level(settings.log.level)
                self._send(messages.SettingsApplied(refused={}))
            case messages.Bridge(call_id=call_id, other_call_id=other_call_id, bridge_id=bridge_id):
                for each in (call_id, other_call_id):
                    self._send(messages.Unbridged(each, bridge_id, "failed"))
            case _:
                super()._execute_other(message)

    def _execute(self, call: Line, message: messages.CallCommand) -> None:
        call.command(message)

    def _detach(self, call: Line) -> None:
        call.media.detach_server()

    # --- lines ---------------------------------------------------------------------------------------------------------

    @property
    def num_calls(self) -> int:
        return len(self._live_calls())

    def _refusal(self, source: str) -> int | None:
        """Return Retry-After, s, if no call is accepted now, and report the refusal."""
        is_full = self.num_calls >= self._config.max_calls
        if self._accepting and not self._server_silent and not is_full:
            return None
        log.warning("line_refused", source=source, reason="overload")
        self._send(messages.InviteRefused())
        return self._retry_after_s

    def _take(self, link: LineLink, invite: messages.IncomingCall) -> Line | None:
        """Make a line from a connection; ``None`` hangs it up."""
        is_known = invite.call_id in self._calls
        if is_known:
            log.warning("line_refused", source=invite.source, reason="the call is up already")
        if is_known or self._refusal(invite.source) is not None:
            link.hang_up()
            return None
        line = Line(link, invite, self._settings, clock=self._clock, send=self._send, on_over=self._on_over)
        self._calls[invite.call_id] = line
        self._unanswered.add(invite.call_id)
        self._send(invite)
        return line

    def _on_over(self, line: Line) -> None:
        self._recordings.stop(line.call_id, "call_ended")
        self._over.append(line.call_id)
