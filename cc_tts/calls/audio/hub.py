"""The listeners of a call. The UA process is asked for the directions that any of them wants. Runs on: the event loop."""

from collections.abc import Callable
from functools import partial
from typing import Final, get_args

from cc_tts import logs
from cc_tts.calls.call_info import CallInfo
from cc_tts.errors import UserAgentUnavailable
from cc_tts.ua import messages
from cc_tts.ua.messages import AudioDirection

DIRECTIONS: Final[tuple[AudioDirection, ...]] = get_args(AudioDirection)

log = logs.get(__name__)


Listener = Callable[[messages.CallAudio, bytes], None]
"""Receives whole frames of 20 ms of one direction, at ``rtp.clock_rate_hz``. It must not block and must not raise."""


class AudioHub:
    """The listeners of one call. They are called in the order in which they subscribed."""

    def __init__(self, call: CallInfo) -> None:
        self._call_id = call.id
        self._ua = call.services.ua
        self._metrics = call.services.metrics
        self._listeners: dict[object, tuple[frozenset[AudioDirection], Listener]] = {}
        self._asked: tuple[AudioDirection, ...] = ()

    def subscribe(self, directions: tuple[AudioDirection, ...], listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with the audio of these directions. Returns a function that ends this; it may be called twice.

        Raises:
            UserAgentUnavailable: the UA process is not up.
        """
        key = object()
        self._listeners[key] = (frozenset(directions), listener)
        try:
            self._ask(self._ua.send)
        except UserAgentUnavailable:
            del self._listeners[key]
            raise
        return partial(self._forget, key)

    def deliver(self, audio: messages.CallAudio, pcm: bytes) -> None:
        if audio.num_dropped:
            self._metrics.call_audio_dropped.labels(where="ua").inc(audio.num_dropped)
        for key, (directions, listener) in tuple(self._listeners.items()):
            if audio.direction not in directions:
                continue
            try:
                listener(audio, pcm)
            except Exception:
                log.exception("listener_failed", call_id=self._call_id)
                self._forget(key)

    def measure_levels(self) -> None:
        """Have the UA process measure the volume of the call for the next seconds."""
        self._ua.tell(messages.MeasureLevels(self._call_id))

    def ask_again(self) -> None:
        """Ask a new leg of the call for what the old leg was asked for."""
        if self._asked:
            self._asked = ()
            self._ask(self._ua.tell)

    def _forget(self, key: object) -> None:
        if self._listeners.pop(key, None) is not None:
            self._ask(self._ua.tell)

    def _ask(self, send: Callable[[messages.SetListening], None]) -> None:
        wanted = tuple(each for each in DIRECTIONS if any(each in those for those, _ in self._listeners.values()))
        if wanted != self._asked:
            send(messages.SetListening(self._call_id, wanted))
            self._asked = wanted
