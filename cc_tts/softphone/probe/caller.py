"""The caller of a probe: waits for the greeting, says a sentence, listens, interrupts, presses a key.

::

    greeting ─▸ its end ─▸ [ sentence ─▸ answer ─▸ interruption ─▸ stop ─▸ answer ─▸ its end ] × rounds ─▸ key ─▸ hang up

Each arrow is a wait with a bound and a name. Runs on: the SIP thread, a step between two polls.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cc_tts.clock import NS_PER_MS, NS_PER_S, Clock
from cc_tts.softphone.probe.ear import PAUSE_MS, WAIT_MS, Ear
from cc_tts.softphone.probe.plan import ENCODERS, INTERRUPT_AFTER_S, KEY_WAIT_S, MAX_WORDS_S, CallerWords, ProbePlan
from cc_tts.softphone.rtp.packets import Keypress, event_code
from cc_tts.softphone.rtp.receiver import Interval

if TYPE_CHECKING:
    from cc_tts.softphone.call import SoftphoneCall

Wait = Literal["greeting", "end of the greeting", "words", "answer", "stop", "end of the answer"]
Steps = Generator[None, None, bool]


@dataclass(frozen=True, slots=True)
class Expired:
    """A wait that ended before the awaited event came."""

    wait: Wait
    at_ns: int
    bound_s: float


class Caller:
    """Speaks into ``call`` according to the plan, and notes events that did not come."""

    def __init__(self, plan: ProbePlan, words: CallerWords, *, call: "SoftphoneCall", ear: Ear, clock: Clock) -> None:
        self._plan, self._words = plan, words
        self._call, self._ear, self._clock = call, ear, clock
        self.spoken: list[bytes] = []
        """The words that were said, in order."""
        self.expired: list[Expired] = []
        self.remarks: list[str] = []
        """Remarks on the call, a sentence each."""

    def script(self) -> Generator[None, None, None]:
        """The whole conversation; the caller hangs up when it is over."""
        if (yield from self._until(lambda: bool(self._ear.speech), "greeting")):
            yield from self._until(self._is_quiet, "end of the greeting")
        for _ in range(self._plan.rounds):
            if not (yield from self._exchange()):
                return
        if self._plan.key and self._ear.speech:
            yield from self._press()

    def _exchange(self) -> Steps:
        """Say a sentence, wait for its answer and interrupt it; return whether the agent let the caller speak."""
        if not (yield from self._say(self._words.sentence)):
            return False
        if self._is_quiet():
            return True  # no answer came, which is noted
        yield from self._pause(INTERRUPT_AFTER_S)
        if not self._is_quiet():
            if not (yield from self._say(self._words.interruption)):
                return False
        else:
            self.remarks.append("an answer was over too soon to be interrupted")
        yield from self._until(self._is_quiet, "end of the answer")
        return True

    def _say(self, pcm: bytes) -> Steps:
        """Say words and wait for the answer; return whether they were said and the agent fell silent for them."""
        was_speaking, count = self._ear.is_speaking, len(self._call.said)
        self._call.say(ENCODERS[self._call.plan.codec](pcm))
        self.spoken.append(pcm)
        has_said = yield from self._until(
            lambda: len(self._call.said) > count and self._call.said[count].end_ns is not None,
            "words",
            MAX_WORDS_S + self._plan.wait_s,
        )
        if not has_said:
            return False
        said = self._call.said[count]
        if was_speaking and not (
            yield from self._until(lambda: self._is_quiet() or self._ear.begun_ns > said.begin_ns, "stop")
        ):
            return False
        yield from self._until(lambda: self._has_answered(said), "answer")
        return True

    def _press(self) -> Generator[None, None, None]:
        """Press the key, and give the agent time to react: most agents do nothing then, which is no fault."""
        try:
            self._call.press([Keypress(event_code(self._plan.key))])
        except ValueError as error:
            self.remarks.append(f"the key was not pressed: {error}")
        else:
            yield from self._pause(KEY_WAIT_S)

    def _has_answered(self, said: Interval) -> bool:
        """Return whether the agent has spoken since the caller finished; sounds during the caller's words are no answer to
        them.
        """
        assert said.end_ns is not None
        begun_ns, known_ns = self._ear.begun_ns, said.end_ns + (PAUSE_MS + WAIT_MS) * NS_PER_MS
        goes_on = self._ear.is_speaking and self._clock.now_ns() > known_ns
        return begun_ns > said.end_ns or (begun_ns > said.begin_ns and goes_on)

    def _is_quiet(self) -> bool:
        return not self._ear.is_speaking

    def _pause(self, seconds: float) -> Generator[None, None, None]:
        end_ns = self._clock.now_ns() + round(seconds * NS_PER_S)
        while self._clock.now_ns() < end_ns:
            yield

    def _until(self, condition: Callable[[], bool], wait: Wait, bound_s: float = 0.0) -> Steps:
        """Wait, for at most ``bound_s`` or as long as the plan says; return whether the condition was met."""
        bound_s = bound_s or self._plan.wait_s
        end_ns = self._clock.now_ns() + round(bound_s * NS_PER_S)
        while not condition():
            if (now_ns := self._clock.now_ns()) >= end_ns:
                self.expired.append(Expired(wait, now_ns, bound_s))
                return False
            yield
        return True
