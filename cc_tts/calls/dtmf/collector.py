"""Collecting the keys that the caller presses on one call (DTMF). Each key goes to the running gather, or waits a while for
the next one. One gather runs at a time.

::

    start ─▸ the prompt is said ─▸ keys are collected ─▸ valid, or no try is left ─▸ complete
                  ▲                        │
                  └── the invalid prompt ◂─┘ not valid

The timers begin where the prompt ends. A key that may interrupt the prompt does so and is the first digit; keys during a
protected prompt wait for its end. Timers stand still while the call is not established, on hold, or a key is down.

Runs on: the event loop.
"""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptGather
from cc_tts.calls.dtmf.gather import MAX_DIGITS, GatherRequest, GatherResult, TimedOut
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, UtteranceError
from cc_tts.calls.timer import PausableTimer
from cc_tts.clock import NS_PER_MS, ms_between
from cc_tts.errors import CcTtsError, GatherActive, GatherNotFound
from cc_tts.ua import messages

MAX_TYPED_AHEAD: Final = MAX_DIGITS
"""The most keys that wait for the next gather: as many as one gather takes."""
ECHO_NS: Final = 100 * NS_PER_MS
"""A key that arrives again within this time by another method (RFC 4733 and SIP INFO) is the same key; unmeasured."""

log = logs.get(__name__)


class Gather:
    """One gather: its request and its progress. ``result`` is ``None`` while it runs; ``on_complete`` is called once."""

    def __init__(self, call: CallView, request: GatherRequest, *, on_complete: Callable[["Gather"], None]) -> None:
        self.id = request.gather_id or f"gather_{secrets.token_hex(8)}"
        self.request = request
        self.digits = ""
        self.terminator: str | None = None
        self.timed_out: TimedOut | None = None
        self.result: GatherResult | None = None
        self.tries = 1
        self.ended_ns: int | None = None
        self._call = call
        self._clock = clock = call.services.clock
        self._silence = call.player.discard
        self._on_complete = on_complete
        self._started_ns = clock.now_ns()
        self._prompt: Utterance | None = None
        self._asked: Utterance | CcTtsError | None = None
        """The last prompt, or why it was refused."""
        self.waiting_keys: deque[str] = deque()
        """Keys that were pressed during a prompt that they may not interrupt. What is left is for the next gather."""
        self._key_timer = PausableTimer(call.id, clock)
        self._total_timer = PausableTimer(call.id, clock)

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
        self.waiting_keys.extend(typed_ahead)
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
            self.waiting_keys.append(key)
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
        while self.waiting_keys and self._prompt is None and self.result is None:
            self._take(self.waiting_keys.popleft())

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
        self.waiting_keys.clear()
        again = self.request.invalid_prompt or self.request.prompt
        try:
            prompt = None if again is None else self._call.speak(replace(again, utterance_id=None))
        except CcTtsError as error:  # the try begins without it
            log.warning("gather_prompt_failed", call_id=self._call.id, code=error.code, detail=error.detail)
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


class DtmfCollector:
    """Passes the keys of one call to its gathers. ``on_complete`` is called once for each gather. Timers do not run until
    :meth:`run_timers`.

    A finish key right after the last digit of a gather that ended by ``max_digits`` belongs to that gather: callers press it
    out of habit.
    """

    def __init__(self, call: CallView, *, on_complete: Callable[[Gather], None]) -> None:
        self._log = log.bind(call_id=call.id)
        self._call = call
        self._clock = call.services.clock
        self._player = call.player
        self._type_ahead_ns = call.services.config.gather.type_ahead_ms * NS_PER_MS
        self._on_complete = on_complete
        self._typed: deque[tuple[int, str]] = deque(maxlen=MAX_TYPED_AHEAD)
        self._down_ns: int | None = None
        self._last_heard: tuple[str, str, int] | None = None
        self._last: Gather | None = None
        self._runs_timers = False
        self._hides_keys = False  # a sensitive gather was broken off, and the caller may not know
        self.gather: Gather | None = None

    # --- gathers -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> Gather:
        """The gather that runs.

        Raises:
            GatherNotFound: none does.
        """
        if self.gather is None:
            raise GatherNotFound(f"no gather runs on call {self._call.id}")
        return self.gather

    @property
    def kept(self) -> KeptGather | None:
        """The part of the running gather that another server needs."""
        if (gather := self.gather) is None:
            return None
        request = gather.request
        return KeptGather(
            id=gather.id,
            tries=gather.tries,
            sensitive=request.sensitive,
            client_state=request.client_state,
            then=request.then,
        )

    def collect(self, request: GatherRequest) -> Gather:
        """Begin a gather with the keys that were typed ahead.

        Raises:
            GatherActive: one runs already.
            CcTtsError: as :meth:`.Call.speak`, of a prompt.
        """
        if self.gather is not None:
            raise GatherActive(f"gather {self.gather.id} runs on call {self._call.id}")
        if request.invalid_prompt is not None:
            self._call.services.checked(request.invalid_prompt, self._call.tenant, self._call.defaults)
        prompt = None if request.prompt is None else self._call.speak(request.prompt)
        gather = Gather(self._call, request, on_complete=self._complete)
        self._log.info("gather", gather_id=gather.id)
        typed_ahead = self._begin(gather)
        self._hides_keys = False
        gather.run_timers(running=self._may_run_timers)
        gather.start(prompt, typed_ahead)
        return gather

    def run_timers(self, *, running: bool) -> None:
        """Run the timers, or stop them while the call is held or not established."""
        self._runs_timers = running
        if self.gather is not None:
            self.gather.run_timers(running=self._may_run_timers)

    @property
    def _may_run_timers(self) -> bool:
        """Whether timers run. They do not during a disclosure, since the caller may be waiting for its end."""
        return self._runs_timers and not self._player.is_disclosing

    @property
    def hides_keys(self) -> bool:
        return self._hides_keys if self.gather is None else self.gather.request.sensitive

    def prompt_complete(self, utterance: Utterance) -> None:
        """An utterance of the call is complete. Keys that were pressed during a disclosure count from its end."""
        if utterance.is_disclosure:
            now_ns, began_ns = self._clock.now_ns(), utterance.first_speech_ns or self._clock.now_ns()
            typed = [(now_ns if at_ns >= began_ns else at_ns, key) for at_ns, key in self._typed]
            self._typed = deque(typed, maxlen=MAX_TYPED_AHEAD)
            self.run_timers(running=self._runs_timers)
        if self.gather is not None:
            self.gather.prompt_complete(utterance)

    def call_ended(self) -> None:
        """Complete the gather that runs, since the call is over."""
        if self.gather is not None:
            self.gather.cancel("call_ended")

    def break_off(self, kept: KeptGather) -> None:
        """Complete a gather of an earlier server. If it was sensitive, its keys stay hidden."""
        self._hides_keys = kept.sensitive
        self._call.publish(
            types.CallGatherComplete(
                client_state=UNSET if kept.client_state is None else kept.client_state,
                gather_id=kept.id,
                result="server_restarted",
                valid=False,
                digits="",
                terminator=None,
                timed_out=None,
                tries=kept.tries,
                duration_ms=0.0,
                prompt_error=None,
            )
        )

    def _complete(self, gather: Gather) -> None:
        self._end(gather)
        assert gather.result is not None
        request = gather.request
        complete = types.CallGatherComplete(
            client_state=UNSET if request.client_state is None else request.client_state,
            gather_id=gather.id,
            result=gather.result,
            valid=gather.valid,
            digits=gather.digits,
            terminator=gather.terminator,
            timed_out=gather.timed_out,
            tries=gather.tries,
            duration_ms=round(gather.duration_ms, 1),
            prompt_error=gather.prompt_error,
        )
        if request.sensitive:
            hidden = msgspec.structs.replace(complete, digits="x" * len(gather.digits), digits_withheld=True)
            self._call.publish(hidden, complete, request.digits_to)
        else:
            self._call.publish(complete)
        self._log.info("gather_complete", gather_id=gather.id, result=gather.result, tries=gather.tries)
        self._on_complete(gather)

    # --- keys --------------------------------------------------------------------------------------------------------

    def key_down(self, at_ns: int) -> None:
        """The caller presses a key: interrupt prompts that allow it. :meth:`key` follows when the key is released."""
        self._down_ns = at_ns
        self._player.barge_in(at_ns)
        if self.gather is not None:
            self.gather.key_down()

    def key(self, key: messages.DtmfReceived) -> None:
        """A key was pressed: publish it and pass it on."""
        if self._is_repeated(key):
            return
        gather = self.gather
        digit = "x" if self.hides_keys else key.digit
        self._call.publish(
            types.CallDtmf(
                digit=digit,
                duration_ms=key.duration_ms,
                method=key.method,
                gather_id=UNSET if gather is None else gather.id,
            )
        )
        self._call.followers.tell(lambda each: each.on_key(digit, key.duration_ms))
        self._pressed(key)

    def _is_repeated(self, key: messages.DtmfReceived) -> bool:
        """Whether it is a second report of the same key by another method. Only the first counts."""
        if key.method == "sip_info" and self._down_ns is not None:
            return True
        now_ns = self._clock.now_ns()
        last, self._last_heard = self._last_heard, (key.digit, key.method, now_ns)
        if last is None or last[0] != key.digit or last[1] == key.method or now_ns - last[2] >= ECHO_NS:
            return False
        self._released()
        return True

    def _released(self) -> None:
        self._down_ns = None
        if self.gather is not None:
            self.gather.key_up()

    def _pressed(self, key: messages.DtmfReceived) -> None:
        if key.at_ns != self._down_ns:
            self._player.barge_in(key.at_ns)
        self._released()
        gather, is_late = self.gather, self._is_late(key.digit)
        if gather is None:
            if not is_late:
                self._typed.append((self._clock.now_ns(), key.digit))
        elif not (is_late and gather.is_ended_by(key.digit)):
            gather.key_pressed(key.digit)

    def _begin(self, gather: Gather) -> list[str]:
        """Note that a gather runs; return the keys that were typed ahead."""
        horizon_ns = self._clock.now_ns() - self._type_ahead_ns
        typed = [] if gather.request.flush_buffer else [key for at_ns, key in self._typed if at_ns >= horizon_ns]
        self._typed.clear()
        self.gather = gather
        return typed

    def _end(self, gather: Gather) -> None:
        """Note that the gather is complete. Unused keys wait for the next gather."""
        self.gather, self._last = None, gather
        now_ns = self._clock.now_ns()
        unused = list(gather.waiting_keys)
        if unused and self._is_late(unused[0]):
            del unused[0]
        self._typed.extend((now_ns, key) for key in unused)

    def _is_late(self, key: str) -> bool:
        """Whether this is the finish key of a gather that was already complete; only the key right after it can be."""
        last, self._last = self._last, None
        if last is None or last.ended_ns is None or last.result != "max_digits":
            return False
        return key in last.request.finish_on_key and self._clock.now_ns() - last.ended_ns <= self._type_ahead_ns
