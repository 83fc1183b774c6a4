"""A UA process whose legs have real playout buffers, and a media clock of the event loop's time."""

import asyncio
from collections import deque
from typing import Any, cast

from cc_tts.audio import AudioFormat
from cc_tts.clock import Clock
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import PlayoutEvent, PlayoutUnderrun
from cc_tts.processes.channel import Message
from cc_tts.processes.tasks import cancel_all
from cc_tts.ua import messages
from cc_tts.ua.process.agent import MEDIA_COMMANDS
from tests.fakes.fake_ua import FakeUa

FORMAT = AudioFormat(8000)
TICK_S = 0.02


class PlayingLeg:
    """The line of one call: ``heard`` is what went out, ``said`` the frames that are still to come in."""

    def __init__(self) -> None:
        self.events: deque[PlayoutEvent] = deque()
        self.buffer = PlayoutBuffer(FORMAT, max_buffered_ms=5000, events=self.events.append, is_open=False)
        self.heard = bytearray()
        self.underruns = 0
        self.is_held = False
        self.paused_by: set[str] = set()
        self.said: deque[bytes] = deque()
        self.directions: tuple[messages.AudioDirection, ...] = ()

    def cut(self, utterance_id: str | None) -> None:
        self.buffer.cut(utterance_id)

    def set_paused(self, reason: str, *, paused: bool, restart: tuple[str, float] | None = None) -> None:
        (self.paused_by.add if paused else self.paused_by.discard)(reason)
        if self.paused_by:
            self.buffer.pause()
        else:
            self.buffer.resume(restart=restart)


class PlayingUa(FakeUa):
    """See :class:`tests.fakes.fake_ua.FakeUa`. :meth:`start` the clock once the loop runs."""

    def __init__(self, clock: Clock, *, max_calls: int = 4) -> None:
        super().__init__(max_calls=max_calls)
        self._clock = clock
        self.legs: dict[str, PlayingLeg] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._tick_all())

    async def stop(self) -> None:
        await cancel_all(self._task)

    def send(self, message: Any, payload: bytes = b"") -> None:
        super().send(message, payload)
        leg = self.legs.setdefault(message.call_id, PlayingLeg())
        if (feed := MEDIA_COMMANDS.get(type(message))) is not None:
            feed(cast("Any", leg), message, payload)  # it is not recorded, and nobody listens
        elif isinstance(message, messages.SetListening):
            leg.directions = message.directions

    def report(self, message: Message) -> None:
        if isinstance(message, messages.CallEstablished):
            self.legs.setdefault(message.call_id, PlayingLeg()).buffer.open()
        super().report(message)

    async def _tick_all(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for call_id, leg in tuple(self.legs.items()):
                if call_id in self.active_calls:
                    self._tick(call_id, leg)

    def _tick(self, call_id: str, leg: PlayingLeg) -> None:
        now_ns = self._clock.now_ns()
        sent = bytes(FORMAT.frame_bytes)
        if not leg.is_held:
            sent = leg.buffer.read_frame(now_ns)
            leg.heard += sent
        received = leg.said.popleft() if leg.said else bytes(FORMAT.frame_bytes)
        for direction in leg.directions:
            self.audio(call_id, received if direction == "in" else sent, direction, at_ns=now_ns)
        while leg.events:
            event = leg.events.popleft()
            leg.underruns += isinstance(event, PlayoutUnderrun)
            self.report(messages.PlayoutReport(call_id=call_id, event=event))
