"""Who answers one call that we place: what the VAD process finds, as events of the call.

::

    placed ─▸ audio to the VAD process ─▸ call.early_media, each change of sound
    answered ─▸ call.machine_detected, once ─▸ of a machine: call.machine_greeting_ended, once
    the call ends, the process dies, or nothing is found in time ─▸ call.machine_detected: unknown

Nothing of it exists for a call that was placed without ``amd``. Runs on: the event loop.
"""

from collections.abc import Callable
from typing import Final

from cc_tts.calls.audio.hub import DIRECTIONS
from cc_tts.calls.call_info import AmdStage
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.timer import CallTimer
from cc_tts.clock import ms_between
from cc_tts.errors import UserAgentUnavailable
from cc_tts.ua import messages
from cc_tts.vad.answering.settings import (
    Amd,
    AmdResult,
    Answered,
    EarlyMedia,
    EarlySound,
    Finding,
    GreetingEnd,
    GreetingEnded,
)

MARGIN_MS: Final = 2000.0
"""The VAD process counts as lost if it has found nothing this long after the longest analysis; unmeasured."""


class MachineDetection(Follower):
    """The detection of one call, which it follows. ``amd_stage`` of the call says what has not been found yet."""

    def __init__(self, call: CallView, settings: Amd) -> None:
        self._call = call
        self._services = call.services
        self._settings = settings
        self._leg = f"amd:{call.id}"
        self._early: EarlySound | None = None
        self._established_ns: int | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._timer = CallTimer(call.id)

    def begin(self) -> None:
        """The call has been placed."""
        self._call.amd_stage = "answer"
        self._call.followers.join(self)
        try:
            self._unsubscribe = self._call.audio.subscribe(DIRECTIONS, self._on_audio)
        except UserAgentUnavailable:  # the UA process died, which ends the call
            return
        self._classify(self._services.clock.now_ns(), is_answered=False)

    def on_report(self, report: messages.CallReport) -> None:
        if isinstance(report, messages.CallEstablished):
            self._established_ns = report.at_ns
            self._classify(report.at_ns, is_answered=True)
            self._timer.set((self._settings.longest_ms + MARGIN_MS) / 1000, self._lost)

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - what was found until then counts
        if self._call.amd_stage == "answer":
            is_refused = self._established_ns is None and self._early in ("busy", "information_tone")
            result: AmdResult = "unavailable" if is_refused else "unknown"
            self._answered(Answered(self._since_answer_ms, result=result, cause="call_ended"))
        self._stop()

    # --- what is heard -----------------------------------------------------------------------------------------------

    def _classify(self, origin_ns: int, *, is_answered: bool) -> None:
        self._services.vad.classify(
            self._leg,
            self._settings,
            origin_ns,
            is_answered=is_answered,
            on_finding=self._on_finding,
        )

    def _on_audio(self, audio: messages.CallAudio, pcm: bytes) -> None:
        self._services.vad.push(self._leg, audio.at_ns, pcm, is_sent=audio.direction == "out")

    def _on_finding(self, finding: Finding | None) -> None:
        match finding:
            case None:
                self._lost()
            case EarlyMedia(sound=sound):
                self._early = sound
                self._call.publish(types.CallEarlyMedia(sound=sound))
            case Answered():
                self._answered(finding)
            case GreetingEnded(by=by):
                self._greeting_ended(finding.at_ms, by)

    def _answered(self, answered: Answered) -> None:
        if self._call.amd_stage != "answer":
            return
        self._call.amd_stage = "greeting" if answered.result == "machine" else ""
        report(self._call, answered)
        if self._call.amd_stage:
            self._timer.set((self._settings.greeting_timeout_ms + MARGIN_MS) / 1000, self._lost)
        else:
            self._stop()

    def _greeting_ended(self, at_ms: float, by: GreetingEnd) -> None:
        if self._call.amd_stage == "greeting":
            self._call.amd_stage = ""
            self._call.publish(types.CallMachineGreetingEnded(by=by, at_ms=round(at_ms, 1)))
            self._stop()

    def _lost(self) -> None:
        if self._call.amd_stage == "greeting":
            self._greeting_ended(self._since_answer_ms, "timeout")
        elif self._established_ns is not None:
            self._answered(Answered(self._since_answer_ms, result="unknown", cause="not_heard"))

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _since_answer_ms(self) -> float:
        return 0.0 if self._established_ns is None else ms_between(self._established_ns, self._services.clock.now_ns())

    def _stop(self) -> None:
        self._timer.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._services.vad.declassify(self._leg)


def report(call: CallView, answered: Answered) -> None:
    call.services.metrics.machine_detections.labels(result=answered.result).inc()
    call.publish(
        types.CallMachineDetected(
            result=answered.result,
            cause=answered.cause,
            after_ms=round(answered.at_ms, 1),
            words=answered.words,
            greeting_ms=answered.greeting_ms,
        )
    )


def break_off(call: CallView, stage: AmdStage) -> None:
    """End the detection that an earlier server had begun."""
    if stage == "answer":
        report(call, Answered(0.0, result="unknown", cause="server_restarted"))
    elif stage == "greeting":
        call.publish(types.CallMachineGreetingEnded(by="timeout", at_ms=0.0))
