"""A client sends text or audio into a call: it is played as any prompt is, utterance by utterance.

::

    text or audio · mark · end ──▸ source of the open utterance ──▸ the call's player
    clear ──▸ discard                  └─▸ on_started · on_progress · on_complete ──▸ messages to the client

An utterance is open from its first text or audio to ``end``. What follows of one that was interrupted from outside (a key,
``stop``, another prompt) is dropped, though the client still sends it for a moment: up to the next ``end`` or ``clear``, or
until nothing has come for :data:`INTERRUPTED_QUIET_S`.

Runs on: the event loop.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cc_tts.calls.follower import CallView
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, UtteranceWatcher
from cc_tts.errors import WrongState
from cc_tts.speech.incremental.source import IncrementalSource
from cc_tts.speech.prompt import Prompt
from cc_tts.speech.timing.spans import SpokenSpan

INTERRUPTED_QUIET_S: Final = 0.5
"""Tokens of an LLM come at most 200 ms apart, and the next answer takes longer than this. Both are unmeasured."""
RESUMED_SHARE: Final = 4
"""The client may resume when no more than this share of the allowed amount still waits; unmeasured."""
MAX_MARKS: Final = 1000
"""The most marks of one utterance that may wait to be reached; unmeasured."""

Source = TypeVar("Source", bound=IncrementalSource)
Message = TypeVar("Message")


@dataclass(slots=True)
class LiveUtterance(Generic[Source]):
    """An utterance of a client that is not complete."""

    utterance: Utterance
    source: Source
    marks: list[str] = field(default_factory=list)
    """Marks that have not been reached, in order."""


class InputStream(UtteranceWatcher, ABC, Generic[Source, Message]):
    """``max_pending`` characters or milliseconds may wait; above ``pause_at`` the client is asked to pause. ``send`` gets
    the messages for the client and must only queue them.
    """

    def __init__(
        self,
        call: CallView,
        *,
        send: Callable[[Message], None],
        max_pending: float,
        pause_at: float,
        discards_at_most_s: float = math.inf,
    ) -> None:
        self._call = call
        self._send = send
        self._max_pending = max_pending
        self._pause_at = pause_at
        self._discards_at_most_s = discards_at_most_s
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, LiveUtterance[Source]] = {}
        """Utterances of this client that are not complete, by id, in order."""
        self._open: LiveUtterance[Source] | None = None
        self._is_paused = self._is_full = False
        """Full: nothing more is accepted until the client may resume."""
        self._discards_until_s = self._discards_at_most_until_s = 0.0

    @property
    def num_pending(self) -> float:
        """Characters of text, or milliseconds of audio, that wait to be spoken."""
        return sum(live.source.num_pending for live in self._live.values())

    def mark(self, name: str) -> None:
        """Set a mark behind the input so far. It is reported when playback reaches it, at once if nothing waits.

        Raises:
            WrongState: too many marks wait to be reached.
        """
        live = self._open_now or next(reversed(self._live.values()), None)
        if live is None:
            self._tell_mark(name, 0.0, None)
            return
        if len(live.marks) >= MAX_MARKS:
            raise WrongState(f"{MAX_MARKS} marks of utterance {live.utterance.id} wait to be reached")
        live.marks.append(name)
        if live.source.is_over:
            live.utterance.spans.append(SpokenSpan("", live.utterance.fed_ms, marks=[(0.0, name)]))
        else:
            live.source.mark(name)

    def end(self) -> None:
        """End the open utterance; further input opens another one."""
        if (live := self._open_now) is not None:
            live.source.end()
        self._open = None
        self._discards_until_s = 0.0

    def clear(self) -> None:
        """Drop the parts of this client's utterances that were not played. Further input opens a new utterance."""
        self.end()
        for live in reversed(tuple(self._live.values())):
            self._call.player.discard(live.utterance, CompletionCause.CANCELLED, by="clear")
        self._update_pause()

    # --- of the utterances -------------------------------------------------------------------------------------------

    def on_progress(self, utterance: Utterance, marks: Sequence[tuple[str, float]]) -> None:
        waiting = self._live[utterance.id].marks
        for name, at_ms in marks:
            if name in waiting:  # unless it was cleared
                waiting.remove(name)
                self._tell_mark(name, at_ms, utterance)

    def on_complete(self, utterance: Utterance) -> None:
        """Tell the client how its utterance ended. Further input of an interrupted utterance is dropped."""
        live, utterance.watcher = self._live.pop(utterance.id), None
        if live is self._open:
            self._open = None
            if not live.source.has_ended:
                now_s = self._loop.time()
                self._discards_until_s = now_s + INTERRUPTED_QUIET_S
                self._discards_at_most_until_s = now_s + self._discards_at_most_s
        self._tell_end(live)
        self._update_pause()

    # --- what text and audio do each in its way ----------------------------------------------------------------------

    @abstractmethod
    def _tell_pause(self, *, is_paused: bool) -> None:
        """Ask the client to pause or to resume."""

    @abstractmethod
    def _tell_mark(self, name: str, at_ms: float, utterance: Utterance | None) -> None:
        """Tell the client that a mark was reached. It has no utterance if nothing waited."""

    @abstractmethod
    def _tell_end(self, live: LiveUtterance[Source]) -> None:
        """Tell the client how its utterance ended."""

    def _begin(self, prompt: Prompt, source: Source) -> LiveUtterance[Source]:
        """Open an utterance with the content of ``source``."""
        utterance = self._call.speak(prompt)
        utterance.watcher = self
        self._open = self._live[utterance.id] = live = LiveUtterance(utterance, source)
        return live

    # -----------------------------------------------------------------------------------------------------------------

    @property
    def _open_now(self) -> LiveUtterance[Source] | None:
        """Return the open utterance, unless it has ended because nothing came."""
        if self._open is not None and self._open.source.has_ended:
            self._open = None
        return self._open

    def _is_discarding(self) -> bool:
        """Whether the current input belongs to an utterance that was interrupted."""
        now_s = self._loop.time()
        if now_s >= self._discards_until_s:
            return False
        self._discards_until_s = min(now_s + INTERRUPTED_QUIET_S, self._discards_at_most_until_s)
        return True

    def _update_pause(self) -> None:
        num_pending = self.num_pending
        if not self._is_paused and num_pending >= self._pause_at:
            self._is_paused = True
            self._tell_pause(is_paused=True)
        elif self._is_paused and num_pending <= self._max_pending / RESUMED_SHARE:
            self._is_paused = self._is_full = False
            self._tell_pause(is_paused=False)
