"""Barge-in by speech on one call: whether we listen to the caller, the events of the caller's speech, and its effect on
prompts.

::

    SpeechStarted ─▸ call.speech_started ─▸ the prompt that is said, as it allows:
                                              stop ──▸ interrupted
                                              pause ─▸ held ─┬─ SpeechConfirmed ───────────▸ interrupted
                                                             └─ silent for resume_after_ms ▸ resumes
    SpeechStopped ─▸ call.speech_stopped

A call is listened to while speech may interrupt its prompts: by its own defaults, or by those of a prompt that is not
complete. A prompt that is heard while the caller is speaking is interrupted if the caller keeps speaking.

Runs on: the event loop.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from cc_tts.calls.audio.hub import DIRECTIONS
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView
from cc_tts.calls.prompts.utterance import Utterance, policy_of
from cc_tts.calls.timer import CallTimer
from cc_tts.clock import NS_PER_MS, ms_between
from cc_tts.config.schema import SpeechBargeIn
from cc_tts.errors import UserAgentUnavailable
from cc_tts.ua import messages
from cc_tts.vad.speech import Edge, Listening, SpeechConfirmed, SpeechStarted, SpeechStopped

MAX_STEP_BACK_MS: Final = 600
"""A resumed prompt starts again at the current word if that word began at most this long ago; unmeasured."""
ANSWER_MS: Final = 100
"""The round trip to the VAD process: audio out, result back; unmeasured."""


@dataclass(slots=True)
class _Speech:
    id: str
    onset_ns: int
    is_confirmed: bool = False


@dataclass(slots=True)
class _Hold:
    """A prompt that the caller's speech has paused since ``since_ns``. ``heard_ms`` is the length of earlier speech in this
    pause.
    """

    utterance: Utterance
    policy: SpeechBargeIn
    speech_id: str
    onset_ns: int
    since_ns: int
    heard_ms: float = 0.0


class BargeIn:
    """The effect of the caller's speech on the prompts of one call."""

    def __init__(self, call: CallView) -> None:
        self._call = call
        self._services = call.services
        self._established_ns = 0
        self._deaf_until_ns = 0
        self._speech: _Speech | None = None
        self._hold: _Hold | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._timer = CallTimer(call.id)

    def begin(self, established_ns: int) -> None:
        self._established_ns = established_ns
        self.refresh()

    def refresh(self) -> None:
        """Start, change or stop listening, since the prompts, the defaults or the hold of the call have changed."""
        policy = self._policy if self._call.state is CallState.ESTABLISHED and not self._call.held else None
        if self._call.held or self._call.state is CallState.TERMINATED:
            self._stopped(self._services.clock.now_ns())
        if policy is None:
            if self._speech is None and self._hold is None:
                self._ignore()
            return
        if self._unsubscribe is None:
            try:
                self._unsubscribe = self._call.audio.subscribe(DIRECTIONS, self._on_audio)
            except UserAgentUnavailable:  # the UA process died, which ends the call
                return
        self._services.vad.listen(self._call.id, self._listening(policy), self._on_edge)

    def prompt_heard(self, utterance: Utterance, at_ns: int) -> None:
        """The first frame of an utterance that carries sound was sent."""
        policy = utterance.barge_in_speech
        if policy is None:
            return
        self._deaf_until_ns = at_ns + policy.guard_ms * NS_PER_MS
        self.refresh()
        if (speech := self._speech) is not None:
            # the end of speech is known only after vad.silence_ms
            delay_ms = policy.guard_ms + max(policy.min_speech_ms, self._services.config.vad.silence_ms + ANSWER_MS)
            self._timer.set(delay_ms / 1000, partial(self._goes_on, speech, utterance))

    def prompt_complete(self, utterance: Utterance) -> None:
        if self._hold is not None and self._hold.utterance is utterance:
            self._release()
        self.refresh()

    def resume(self) -> bool:
        """Resume the prompt that speech has paused; return whether there was one."""
        hold = self._hold
        if hold is None:
            return False
        self._services.metrics.false_interruptions.inc()
        utterance = hold.utterance
        from_ms = _word_begin_ms(utterance)
        self._release(utterance.id, from_ms)
        self._call.publish(types.SpeakResumed(**utterance.event_fields, played_ms=round(from_ms, 1)))
        self.refresh()
        return True

    def close(self) -> None:
        self._stopped(self._services.clock.now_ns())
        self._timer.cancel()
        self._hold = None
        self._ignore()

    # --- what is heard -----------------------------------------------------------------------------------------------

    def _on_audio(self, audio: messages.CallAudio, pcm: bytes) -> None:
        self._services.vad.push(self._call.id, audio.at_ns, pcm, is_sent=audio.direction == "out")

    def _on_edge(self, edge: Edge) -> None:
        match edge:
            case SpeechStarted(onset_ns=onset_ns):
                self._started(onset_ns)
            case SpeechConfirmed():
                self._confirmed()
            case SpeechStopped(end_ns=end_ns):
                self._stopped(end_ns)
                self.refresh()

    def _started(self, onset_ns: int) -> None:
        speech = self._speech = _Speech(f"speech_{secrets.token_hex(8)}", onset_ns)
        heard = self._heard
        self._call.publish(
            types.CallSpeechStarted(
                speech_id=speech.id,
                during=None if heard is None else heard.id,
                at_ms=round(ms_between(self._established_ns, onset_ns), 1),
            )
        )
        self._call.followers.tell(lambda each: each.on_speech(speech.id, onset_ns, begins=True))
        if self._hold is not None:
            self._timer.cancel()
        else:
            self._act(speech, onset_ns)

    def _act(self, speech: _Speech, onset_ns: int) -> None:
        queue = self._call.player.queue
        policy = queue[0].barge_in_speech if queue else None
        if policy is None or queue[0].discard_cause is not None:
            return
        if policy.action == "stop" or speech.is_confirmed or queue[0] is not self._heard:
            self._interrupt(onset_ns, speech.id)
            return
        self._hold = _Hold(queue[0], policy, speech.id, onset_ns, self._services.clock.now_ns())
        self._set_paused(paused=True)
        self._call.publish(
            types.SpeakPaused(**queue[0].event_fields, speech_id=speech.id, played_ms=round(queue[0].played_ms, 1))
        )
        self.refresh()

    def _confirmed(self) -> None:
        if self._speech is not None:
            self._speech.is_confirmed = True
        if (hold := self._hold) is not None:
            held_ns = self._services.clock.now_ns() - hold.since_ns
            self._interrupt(hold.onset_ns + held_ns, hold.speech_id)  # the line was silent meanwhile

    def _stopped(self, end_ns: int) -> None:
        speech, self._speech = self._speech, None
        if speech is None:
            return
        duration_ms = ms_between(speech.onset_ns, end_ns)
        self._call.publish(types.CallSpeechStopped(speech_id=speech.id, duration_ms=round(duration_ms, 1)))
        self._call.followers.tell(lambda each: each.on_speech(speech.id, end_ns, begins=False))
        hold = self._hold
        if hold is None:
            self._timer.cancel()
        elif hold.policy.resume_after_ms is not None:
            hold.heard_ms += duration_ms
            since_ms = ms_between(end_ns, self._services.clock.now_ns())
            self._timer.set(max(0.0, hold.policy.resume_after_ms - since_ms) / 1000, self.resume)

    def _goes_on(self, speech: _Speech, utterance: Utterance) -> None:
        """Interrupt an utterance that began while the caller was speaking, if the caller is still speaking."""
        if self._speech is speech and self._heard is utterance and self._hold is None:
            self._act(speech, self._services.clock.now_ns())

    # --- what is done -------------------------------------------------------------------------------------------------

    def _interrupt(self, onset_ns: int, speech_id: str) -> None:
        self._call.player.barge_in(onset_ns, "speech", speech_id=speech_id)

    def _release(self, utterance_id: str = "", from_ms: float = 0.0) -> None:
        self._timer.cancel()
        self._hold = None
        self._set_paused(paused=False, utterance_id=utterance_id, from_ms=from_ms)

    def _set_paused(self, *, paused: bool, utterance_id: str = "", from_ms: float = 0.0) -> None:
        self._services.ua.tell(
            messages.SetPaused(self._call.id, paused, by="speech", utterance_id=utterance_id, from_ms=from_ms)
        )

    def _ignore(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._services.vad.ignore(self._call.id)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _heard(self) -> Utterance | None:
        head = next(iter(self._call.player.queue), None)
        return head if head is not None and head.first_speech_ns is not None else None

    @property
    def _policy(self) -> SpeechBargeIn | None:
        """The settings to listen by: those of the current prompt, else of the call, else of a prompt in the queue."""
        of_prompts = [each.barge_in_speech for each in self._call.player.queue]
        of_call = policy_of(self._call.defaults.barge_in_speech, self._services.config.calls.barge_in_speech)
        return next((each for each in (*of_prompts[:1], of_call, *of_prompts) if each is not None), None)

    def _listening(self, policy: SpeechBargeIn) -> Listening:
        confirm_ms = 0
        if policy.action == "pause":
            heard_ms = 0.0 if self._hold is None else self._hold.heard_ms
            confirm_ms = max(1, round(policy.confirm_ms - heard_ms))
        return Listening(
            threshold=policy.threshold,
            min_speech_ms=policy.min_speech_ms,
            confirm_ms=confirm_ms,
            silence_ms=self._services.config.vad.silence_ms,
            deaf_until_ns=self._deaf_until_ns,
        )


def _word_begin_ms(utterance: Utterance) -> float:
    """Return the start of the current word, ms; the current position if the word began too long ago or is unknown."""
    begin_ms = max((word.start_ms for word in utterance.words), default=0.0)
    return begin_ms if utterance.played_ms - MAX_STEP_BACK_MS <= begin_ms else utterance.played_ms
