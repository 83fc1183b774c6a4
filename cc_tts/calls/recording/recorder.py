"""The recordings of one call, one at a time. Runs on: the event loop."""

from typing import Literal

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.collector import Gather
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.recording.recording import PauseReason, Recording, RecordingStamp, RecordRequest
from cc_tts.errors import RecordingActive, RecordingNotFound, WrongState
from cc_tts.recorder.info import Consent, Ending, RecordingInfo, RecordingPlan
from cc_tts.ua import messages

AFTER_GATHER_MS = 200
"""A recording resumes this long after a sensitive gather: the jitter buffer may still hold the tone of a key
(unmeasured).
"""

log = logs.get(__name__)


class CallRecorder(Follower):
    """Starts, pauses and ends the recordings of a call, and publishes their events."""

    def __init__(self, call: CallView) -> None:
        self._call = call
        self._recordings = call.services.recordings
        self._is_preparing = False
        self.wanted: RecordRequest | None = None
        """The recording that the route or the INVITE asks for, until it begins."""
        self.current: Recording | None = None

    @property
    def running(self) -> Recording:
        """The recording that runs, or waits for consent.

        Raises:
            RecordingNotFound: there is none.
        """
        if self.current is None:
            raise RecordingNotFound(f"call {self._call.id} is not recorded")
        return self.current

    async def start(self, request: RecordRequest) -> Recording:
        """Begin to record, or to wait for consent.

        Raises:
            WrongState: the call is over.
            RecordingActive: it is recorded already.
            RecordingOff, RecordingStorageFull, DuplicateId, UserAgentUnavailable: it cannot be.
        """
        self._check_start()
        self._is_preparing = True
        try:
            recording_id = await self._recordings.free_id(self._call.tenant, request.recording_id)
            plan = self._recordings.plan(recording_id, self._call.id, self._call.tenant, request)
        finally:
            self._is_preparing = False
        self._check_start()
        return self._start(plan, request)

    def begin_wanted(self) -> None:
        """Begin the recording that the route or the INVITE asks for, since the call is about to have media."""
        wanted, self.wanted = self.wanted, None
        if wanted is not None and self.current is None and not self._is_preparing:
            recording_id = self._recordings.new_id()
            self._start(self._recordings.plan(recording_id, self._call.id, self._call.tenant, wanted), wanted)

    def _start(self, plan: RecordingPlan, request: RecordRequest) -> Recording:
        waits = plan.info.consent == "required"
        recording = Recording(plan=plan, finish_on_key=request.finish_on_key, state="waiting")
        if not waits:
            self._begin(recording, plan)
        self._follow(recording)
        self._stamp(plan.info)
        if waits:
            self._tell("waiting", "consent")
        return recording

    def _check_start(self) -> None:
        if self._call.state is CallState.TERMINATED:
            raise WrongState(f"call {self._call.id} is over")
        if self.current is not None or self._is_preparing:
            raise RecordingActive(f"call {self._call.id} is recorded already")

    def _begin(self, recording: Recording, plan: RecordingPlan) -> None:
        is_paused = self._call.gathers_secrets
        self._call.services.ua.send(messages.StartRecording(self._call.id, plan, is_paused))
        recording.plan, recording.state = plan, "starting"
        recording.pauses = ["gather"] if is_paused else []

    def consent(self, *, given: bool) -> Recording:
        """Note whether the caller agrees to be recorded.

        Raises:
            RecordingNotFound: no recording of the call is wanted.
            WrongState: this one does not wait for consent.
        """
        recording = self.running
        if recording.state != "waiting":
            raise WrongState(f"recording {recording.id} does not wait for consent")
        consent: Consent = "given" if given else "refused"
        info = msgspec.structs.replace(recording.plan.info, consent=consent)
        plan = msgspec.structs.replace(recording.plan, info=info)
        if given:
            self._begin(recording, plan)
        else:
            recording.plan = plan
            self._fail("consent_refused")
        self._stamp(info)
        return recording

    def set_paused(self, *, paused: bool, skips: bool = False) -> Recording:
        """Pause or resume. A pause records silence, or leaves the time out if it ``skips``. A pause by a sensitive gather
        ends with the gather.

        Raises:
            RecordingNotFound: the call is not recorded.
            WrongState: it is paused already or not paused, or a sensitive gather runs.
        """
        recording = self.running
        if recording.state in ("waiting", "stopping"):
            raise WrongState(f"recording {recording.id} is {recording.state}")
        if paused == bool(recording.pauses):
            raise WrongState("the recording is paused already" if paused else "the recording is not paused")
        if not paused and self._call.gathers_secrets:
            raise WrongState("a sensitive gather runs, which is not recorded")
        pauses: list[PauseReason] = ["request"] if paused else []
        self._set_pauses(recording, pauses, reason="request", skips=skips)
        return recording

    def stop(self, reason: Ending = "stopped") -> Recording:
        """End the recording; its last event follows.

        Raises:
            RecordingNotFound: the call is not recorded.
            UserAgentUnavailable: the user agent is gone; the recording ends with it.
        """
        recording = self.running
        if recording.state == "waiting":
            self._fail("no_consent")
        elif recording.state != "stopping":
            self._call.services.ua.send(messages.StopRecording(self._call.id, reason))
            recording.state = "stopping"
        return recording

    # --- what happens on the call ----------------------------------------------------------------------------------------

    def on_key(self, digit: str, duration_ms: int) -> None:  # noqa: ARG002 - of the follower
        recording = self.current
        if recording is not None and digit in recording.finish_on_key and recording.state in ("recording", "paused"):
            self.stop("key")

    def gather_began(self, gather: Gather) -> None:
        """A gather runs. The caller's keys and speech are not recorded during a sensitive one."""
        if not gather.request.sensitive or gather.result is not None or (recording := self._audible) is None:
            return
        if "gather" not in recording.pauses:
            self._set_pauses(recording, [*recording.pauses, "gather"], reason="gather")

    def gather_over(self) -> None:
        """The gather is over: resume the recording that it paused, unless the call ends with it."""
        if self._call.state is CallState.TERMINATED or self._call.local_reason is not None:
            return
        if (recording := self._audible) is not None and "gather" in recording.pauses:
            pauses: list[PauseReason] = [each for each in recording.pauses if each != "gather"]
            self._set_pauses(recording, pauses, reason="gather", delay_ms=AFTER_GATHER_MS)

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - of the follower
        """The call is over; the user agent completes the recording."""
        recording = self.current
        if recording is None:
            return
        if recording.state == "waiting":
            self._fail("no_consent")
        else:
            recording.state = "stopping"
            self._recordings.look_for(recording.id)

    def restore(self, recording: Recording | None) -> None:
        """Continue a recording of an earlier server. If a sensitive gather had paused it, it stays paused until a client
        resumes it, since the caller may still be pressing keys.
        """
        if recording is not None:
            self._follow(recording)

    # --- what the user agent says ----------------------------------------------------------------------------------------

    def started(self) -> None:
        if (recording := self.current) is not None and recording.state == "starting":
            recording.state = "paused" if recording.pauses else "recording"
            self._tell("started", None)
            if recording.pauses:
                self._tell("paused", recording.pauses[-1])

    def over(self, info: RecordingInfo) -> RecordingInfo:
        """The recording has ended; return the final information about it."""
        if self.current is not None and self.current.id == info.recording_id:
            self.current = None
            self._call.followers.leave(self)
        return msgspec.structs.replace(info, disclosed_at_s=self._call.disclosed_at_s)

    def publish(self, data: types.EventData) -> None:
        self._call.publish(data)

    def _follow(self, recording: Recording) -> None:
        self.current = recording
        self._call.followers.join(self)
        self._recordings.add(self, recording)

    @property
    def _audible(self) -> Recording | None:
        recording = self.current
        return recording if recording is not None and recording.state not in ("waiting", "stopping") else None

    def _set_pauses(
        self,
        recording: Recording,
        pauses: list[PauseReason],
        *,
        reason: PauseReason,
        skips: bool = False,
        delay_ms: int = 0,
    ) -> None:
        was_paused, recording.pauses = bool(recording.pauses), pauses
        if was_paused == bool(pauses):
            return
        self._call.services.ua.tell(messages.SetRecordingPaused(self._call.id, bool(pauses), skips, delay_ms))
        if recording.state != "starting":  # one that is starting reports its state when it has started
            recording.state = "paused" if pauses else "recording"
            self._tell("paused" if pauses else "resumed", reason)

    def _fail(self, reason: Ending) -> None:
        assert self.current is not None
        recording = self.current
        info = msgspec.structs.replace(recording.plan.info, state="failed", reason=reason)
        recording.plan, recording.state = msgspec.structs.replace(recording.plan, info=info), "failed"
        self._recordings.finish(info)

    def _stamp(self, info: RecordingInfo) -> None:
        others = tuple(each for each in self._call.recordings if each.recording_id != info.recording_id)
        self._call.recordings = (*others, RecordingStamp(info.recording_id, info.consent))

    def _tell(self, state: Literal["waiting", "started", "paused", "resumed"], reason: str | None) -> None:
        info = self.running.plan.info
        log.info("recording", call_id=self._call.id, recording_id=info.recording_id, state=state, reason=reason)
        self._call.publish(
            types.CallRecording(
                recording_id=info.recording_id,
                state=state,
                reason=reason,
                client_state=UNSET if info.client_state is None else info.client_state,
                consent=info.consent,
            )
        )
