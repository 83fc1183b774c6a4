"""Followers are told what happens to a call: clients, its recording, its transfer. ``CallView`` is the call as its parts
see it.

Runs on: the event loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cc_tts import logs
from cc_tts.calls.audio.hub import AudioHub
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.call_state import CallEvent, CallState
from cc_tts.calls.dtmf.gather import NOBODY, DigitsTo
from cc_tts.calls.events import types
from cc_tts.calls.prompts.player import PromptPlayer
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.calls.tracing.spans import CallSpans
from cc_tts.errors import CapacityExceeded, WrongState
from cc_tts.speech.prompt import Prompt
from cc_tts.state_machine import StateMachine
from cc_tts.ua import messages

log = logs.get(__name__)


class Follower:
    """A follower is told what happens to a call. The default methods do nothing."""

    def on_report(self, report: messages.CallReport) -> None:
        """The user agent has reported something, and the call has taken note of it."""

    def on_key(self, digit: str, duration_ms: int) -> None:
        """The caller pressed a key; ``x`` while keys are hidden."""

    def on_prompt_complete(self, utterance: Utterance) -> None:
        """Nothing more will be heard of a prompt."""

    def on_speech(self, speech_id: str, at_ns: int, *, begins: bool) -> None:
        """The caller began or stopped speaking at that time."""

    def on_call_ended(self, reason: str) -> None:
        """The call is over; nothing follows."""


@dataclass(kw_only=True, eq=False, repr=False)
class CallView(CallInfo, ABC):
    """A call as its parts and followers see it: its facts, its state, its events, and the commands that they give. They
    import this class only, and not each other.
    """

    machine: StateMachine[CallState, CallEvent] = field(init=False)
    is_answering: bool = field(default=False, init=False)
    """Whether we have sent 200 for an incoming call."""
    player: PromptPlayer = field(init=False)
    audio: AudioHub = field(init=False)
    spans: CallSpans | None = field(default=None, init=False)
    """``None``: the call is not traced."""
    followers: "Followers" = field(init=False)

    @property
    def state(self) -> CallState:
        return self.machine.state

    @property
    def waits_for_answer(self) -> bool:
        """Whether it is an incoming call to which no final response has been sent."""
        waits = self.direction == "inbound" and self.state in (CallState.INCOMING, CallState.EARLY)
        return waits and not self.is_answering

    def publish(
        self, data: types.EventData, in_clear: types.CallData | None = None, digits_to: DigitsTo = NOBODY
    ) -> None:
        self.keep()
        if self.spans is not None:
            self.spans.take(data)
        super().publish(data, in_clear, digits_to)

    @property
    @abstractmethod
    def gathers_secrets(self) -> bool:
        """Whether a sensitive gather runs."""

    @abstractmethod
    def keep(self) -> None:
        """Have the UA process keep the record of the call for another server."""

    @abstractmethod
    def speak(self, prompt: Prompt) -> Utterance:
        """Accept a prompt for this call."""

    @abstractmethod
    def set_hold(self, *, hold: bool) -> None:
        """Hold the call or take it back."""

    @abstractmethod
    def end(self, local_reason: str, *, sip_code: int | None = None, transfer_result: str = "") -> None:
        """End the call, for this reason."""

    @abstractmethod
    def end_heard_out(self, local_reason: str) -> None:
        """End the call for this reason, once the far side has heard what was sent."""


class Followers:
    """The followers of one call."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._followers: dict[Follower, None] = {}

    def check(self, kind: type[Follower], call: CallView, *, limit: int, what: str, key: str) -> None:
        """Refuse another follower of this kind if there are too many.

        Raises:
            WrongState: the call is over.
            CapacityExceeded: as many follow it as the configuration's ``key`` allows.
        """
        if call.state is CallState.TERMINATED:
            raise WrongState(f"call {call.id} is over")
        if sum(isinstance(each, kind) for each in self._followers) >= limit:
            raise CapacityExceeded(f"{limit} {what} are open on this call: {key}", retry_after_s=1)

    def join(self, follower: Follower) -> None:
        self._followers[follower] = None

    def __iter__(self) -> Iterator[Follower]:
        return iter(tuple(self._followers))

    def __len__(self) -> int:
        return len(self._followers)

    def leave(self, follower: Follower) -> bool:
        """Remove a follower; return whether it was there."""
        if follower not in self._followers:
            return False
        del self._followers[follower]
        return True

    def tell(self, tell: Callable[[Follower], None]) -> None:
        """Tell each follower something. A fault of one is logged, so that the others hear it, and the call goes on."""
        for each in self:
            try:
                tell(each)
            except Exception:
                log.exception("follower_failed", call_id=self._call_id)
