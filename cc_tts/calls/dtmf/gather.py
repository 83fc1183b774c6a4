"""Collecting keys that the caller presses (DTMF). One gather runs on a call at a time. Runs on: the event loop.

::

    start ─▸ the prompt is said ─▸ keys are collected ─▸ valid, or no try is left ─▸ complete
                  ▲                        │
                  └── the invalid prompt ◂─┘ not valid

The timers begin where the prompt ends. A key that may interrupt the prompt does so and is the first digit; keys during a
protected prompt wait for its end. Timers stand still while the call is not established, on hold, or a key is down.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, UtteranceError
from cc_tts.calls.timer import CallTimer
from cc_tts.clock import Clock, ms_between
from cc_tts.errors import CcTtsError
from cc_tts.speech.prompt import Prompt, Then

MAX_DIGITS: Final = 128  # unmeasured
MAX_TRIES: Final = 10  # unmeasured
MAX_TIMEOUT_MS: Final = 3_600_000  # unmeasured
DEFAULT_TIMEOUT_MS: Final = 5000
"""The bounds of a request, and the default timeouts. All four are unmeasured."""

GatherResult = Literal["finish_key", "max_digits", "timeout", "cancelled", "call_ended", "server_restarted"]
"""The reason why a gather ended. ``valid`` says whether its digits can be used."""
TimedOut = Literal["initial", "inter_digit", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsTo:
    """The recipient of the digits of a sensitive gather: a connection that reads events, or the name of a webhook."""

    connection: str = ""
    webhook: str = ""


NOBODY: Final = DigitsTo()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRequest:
    """A request to collect keys. A timeout of ``None`` never expires. ``initial_timeout_ms`` is for the first key,
    ``inter_digit_timeout_ms`` for each later one, ``timeout_ms`` for all keys, counted from the end of the first prompt.
    ``invalid_prompt`` is said before another try, else ``prompt`` again. The digits of a ``sensitive`` gather go to
    ``digits_to``, and to readers of events that may see digits. ``then`` is what happens to the call afterwards.
    """

    gather_id: str | None = None
    min_digits: int = 1
    max_digits: int = MAX_DIGITS
    finish_on_key: str = "#"
    valid_digits: str = "0123456789*#"
    initial_timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    inter_digit_timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    timeout_ms: int | None = None
    prompt: Prompt | None = None
    invalid_prompt: Prompt | None = None
    max_tries: int = 1
    flush_buffer: bool = False
    sensitive: bool = False
    digits_to: DigitsTo = NOBODY
    client_state: str | None = None
    then: Then = "stay"


class Gather:
    """One gather: its request and its progress. ``result`` is ``None`` while it runs. ``say`` queues a prompt, or raises if
    it cannot be spoken now; ``silence`` cuts a prompt with a cause; ``on_complete`` is called once.
    """

    def __init__(
        self,
        call_id: str,
        gather_id: str,
        request: GatherRequest,
        clock: Clock,
        *,
        say: Callable[[Prompt], Utterance],
        silence: Callable[[Utterance, CompletionCause], object],
        on_complete: Callable[["Gather"], None],
    ) -> None:
        self.id = gather_id
        self.request = request
        self.digits = ""
        self.terminator: str | None = None
        self.timed_out: TimedOut | None = None
        self.result: GatherResult | None = None
        self.tries = 1
        self.ended_ns: int | None = None
        self._clock = clock
        self._say, self._silence, self._on_complete = say, silence, on_complete
        self._started_ns = clock.now_ns()
        self._prompt: Utterance | None = None
        self._asked: Utterance | CcTtsError | None = None
        """The last prompt, or why it was refused."""
        self._waiting_keys: deque[str] = deque()
        """Keys that were pressed during a prompt that they may not interrupt."""
        self._key_timer = PausableTimer(call_id, clock)
        self._total_timer = PausableTimer(call_id, clock)

    @property
    def valid(self) -> bool:
        """Whether the digits can be used: there are enough, and all are allowed."""
        return len(self.digits) >= self.request.min_digits and set(self.digits) <= set(self.request.valid_digits)

    @property
    def prompt_error(self) -> str | None:
        """The error code of the last prompt, if it failed. The caller may then not know the question."""
        match self._asked:
            case CcTtsError(code=code):
                return code
            case Utterance(completion_cause=CompletionCause.ERROR, error=UtteranceError(code=code)):
                return code
        return None

    @property
    def duration_ms(self) -> float:
        return ms_between(self._started_ns, self.ended_ns or self._clock.now_ns())

    def start(self, prompt: Utterance | None, typed_ahead: list[str]) -> None:
        """Begin. ``prompt`` is the queued prompt of the request; ``typed_ahead`` are keys that were pressed earlier."""
        self._total_timer.pause("prompt")
        self._total_timer.set(self.request.timeout_ms, partial(self._end_try, "timeout", "total"))
        self._waiting_keys.extend(typed_ahead)
        if prompt is not None and typed_ahead and prompt.barge_in_dtmf:
            self._silence(prompt, CompletionCause.BARGE_IN)
            prompt = None
        self._await(prompt)

    def run_timers(self, *, running: bool) -> None:
        """Run the timers, or stop them while the call is held or not established."""
        for timer in (self._key_timer, self._total_timer):
            if running:
                timer.resume("call")
            else:
                timer.pause("call")

    def key_down(self) -> None:
        """A key is pressed, so this time is not silence. :meth:`key_up` follows."""
        self._key_timer.pause("key")

    def key_up(self) -> None:
        self._key_timer.resume("key")

    def key_pressed(self, key: str) -> None:
        if self._prompt is not None and not self._prompt.barge_in_dtmf:
            self._waiting_keys.append(key)
            return
        if self._prompt is not None:
            self._silence(self._prompt, CompletionCause.BARGE_IN)
            self._prompt = None
        self._take(key)

    def prompt_complete(self, utterance: Utterance) -> None:
        """An utterance of the call is complete. If the gather waited for it, keys count from now on."""
        if utterance is self._prompt:
            self._collect()

    def cancel(self, result: Literal["cancelled", "call_ended"]) -> None:
        """End the gather without another try; does nothing if it is over."""
        if self.result is None:
            self._complete(result)

    def unused_keys(self) -> list[str]:
        """Keys that were pressed during a protected prompt and were not needed."""
        return list(self._waiting_keys)

    def is_ended_by(self, key: str) -> bool:
        """Whether ``key`` would end the gather without digits although digits are required."""
        return key in self.request.finish_on_key and not self.digits and self.request.min_digits > 0

    def _await(self, prompt: Utterance | None) -> None:
        self._prompt = prompt
        self._asked = prompt or self._asked
        if prompt is None or prompt.is_complete:
            self._collect()

    def _collect(self) -> None:
        self._prompt = None
        self._total_timer.resume("prompt")
        self._wait_for_key("initial", self.request.initial_timeout_ms)
        while self._waiting_keys and self._prompt is None and self.result is None:
            self._take(self._waiting_keys.popleft())

    def _take(self, key: str) -> None:
        self._total_timer.resume("prompt")
        if key in self.request.finish_on_key:
            self.terminator = key
            self._end_try("finish_key")
            return
        self.digits += key
        if len(self.digits) >= self.request.max_digits:
            self._end_try("max_digits")
        else:
            self._wait_for_key("inter_digit", self.request.inter_digit_timeout_ms)

    def _wait_for_key(self, timed_out: TimedOut, timeout_ms: int | None) -> None:
        self._key_timer.set(timeout_ms, partial(self._end_try, "timeout", timed_out))

    def _end_try(self, result: GatherResult, timed_out: TimedOut | None = None) -> None:
        self._key_timer.clear()
        self.timed_out = timed_out
        if self.valid or self.tries >= self.request.max_tries or timed_out == "total":
            self._complete(result)
            return
        self.tries += 1
        self.digits, self.terminator, self.timed_out = "", None, None
        self._waiting_keys.clear()
        again = self.request.invalid_prompt or self.request.prompt
        try:
            prompt = None if again is None else self._say(again)
        except CcTtsError as error:  # the try begins without it
            prompt, self._asked = None, error
        self._await(prompt)

    def _complete(self, result: GatherResult) -> None:
        self._key_timer.clear()
        self._total_timer.clear()
        self.result, self.ended_ns = result, self._clock.now_ns()
        if self._prompt is not None and result != "call_ended":
            self._silence(self._prompt, CompletionCause.CANCELLED)
        self._prompt = None
        self._on_complete(self)


class PausableTimer:
    """A timer that can be paused, for several reasons at once. It runs its action once, and only while no reason is left."""

    def __init__(self, call_id: str, clock: Clock) -> None:
        self._timer = CallTimer(call_id)
        self._clock = clock
        self._action: Callable[[], None] | None = None
        self._left_ms = 0.0
        self._since_ns = 0
        self._paused_by: set[str] = set()

    def set(self, timeout_ms: float | None, action: Callable[[], None]) -> None:
        """Replace the action and its time; with ``None`` it never runs."""
        self.clear()
        if timeout_ms is not None:
            self._left_ms, self._action = timeout_ms, action
            self._go_on()

    def clear(self) -> None:
        self._timer.cancel()
        self._action = None

    def pause(self, reason: str) -> None:
        self._paused_by.add(reason)
        if self._timer.is_set:
            self._left_ms -= ms_between(self._since_ns, self._clock.now_ns())
            self._timer.cancel()

    def resume(self, reason: str) -> None:
        self._paused_by.discard(reason)
        self._go_on()

    def _go_on(self) -> None:
        if self._action is not None and not self._timer.is_set and not self._paused_by:
            self._since_ns = self._clock.now_ns()
            self._timer.set(max(0.0, self._left_ms) / 1000, self._fire)

    def _fire(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()
