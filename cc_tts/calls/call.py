"""One call: its state, and the commands that it takes. Changed only on the event loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Literal

from cc_tts import logs
from cc_tts.calls import traces
from cc_tts.calls.adoption import record as records
from cc_tts.calls.audio.barge_in import BargeIn
from cc_tts.calls.audio.hub import AudioHub
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.call_state import CALL_TABLE, CallEvent, CallState
from cc_tts.calls.dtmf.collector import DtmfCollector, Gather
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.ending import PROMPT_FAILED, Ending
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView, Followers
from cc_tts.calls.prompts.player import PromptPlayer
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.recording.recorder import CallRecorder
from cc_tts.calls.timer import CallTimer
from cc_tts.calls.tracing.spans import spans_of
from cc_tts.calls.transfers.bridge import CallBridge
from cc_tts.calls.transfers.transfer import AnyTransfer, Transfer
from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.errors import DtmfUnsupported, WrongState
from cc_tts.speech.prompt import Prompt, PromptDefaults, texts_of
from cc_tts.state_machine import StateMachine
from cc_tts.ua import messages

DEFAULT_KEY_MS: Final = 160
"""The length of a key that we send, unless the client gives one; unmeasured."""

log = logs.get(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Call(CallView):
    """A call of the API: the server's side of one leg."""

    def __post_init__(self) -> None:
        inbound = self.direction == "inbound"
        self.machine = StateMachine(CALL_TABLE, CallState.INCOMING if inbound else CallState.OUTGOING)
        clock = self.services.clock
        self._epoch_s = clock.wall_s() - clock.now_ns() / NS_PER_S
        self.created_at_s = self._at_s(clock.now_ns())
        self.timer = CallTimer(self.id)
        self.followers = Followers(self.id)
        self.audio = AudioHub(self)
        self.player = PromptPlayer(
            self,
            on_started=lambda utterance, at_ns: self.barge_in.prompt_heard(utterance, at_ns),  # noqa: PLW0108 - it is made below
            on_complete=self._prompt_complete,
        )
        self.spans = spans_of(self, self.player.utterances)
        self.keys = DtmfCollector(self, on_complete=self._gather_complete)
        self.barge_in = BargeIn(self)
        self.transfer: AnyTransfer | None = None
        """The last one; it may be over."""
        self.bridge = CallBridge(self)
        self.recorder = CallRecorder(self)
        self._kept = b""

    # --- what the API reads ------------------------------------------------------------------------------------------

    @property
    def utterances(self) -> Mapping[str, Utterance]:
        """The utterances that are still known, by id, oldest first."""
        return self.player.utterances

    @property
    def running_transfer(self) -> AnyTransfer | None:
        return None if self.transfer is None or self.transfer.is_over else self.transfer

    @property
    def gathers_secrets(self) -> bool:
        return self.keys.gather is not None and self.keys.gather.request.sensitive

    # --- speaking ----------------------------------------------------------------------------------------------------

    def speak(self, prompt: Prompt) -> Utterance:
        """Accept a prompt for this call.

        Raises:
            WrongState: the call is over.
            QueueFull: as many prompts wait as the config allows.
            DuplicateId: the utterance id is taken.
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the content is of no use.
            EngineOverloaded: it would start now, and there is no engine, or it is full and the call is not answered.
            QuotaExceeded: the tenant has used up its characters, or it would start now and too many texts are spoken.
            SpeechNotHeard, DisclosureFailed: nothing hears speech that may interrupt it, or its disclosure cannot be said.
        """
        self._check(CallEvent.SPEAK, "speak" if texts_of(prompt.content) else "play")
        utterance = self.player.speak(
            prompt, self.defaults, may_wait=self.is_answering or self.answered_at_s is not None
        )
        self.keep()
        self.barge_in.refresh()
        return utterance

    async def stop(self, scope: Literal["current", "all"]) -> tuple[list[str], float]:
        """Stop the current prompt, or all, and wait for silence. Returns the ids of those, and the dropped audio, ms.

        Raises:
            WrongState: the call is over.
        """
        self._check(CallEvent.SPEAK, "stop")
        return await self.player.stop(scope)

    def gather(self, request: GatherRequest) -> Gather:
        """Collect keys; ``call.gather_complete`` follows once.

        Raises:
            WrongState: the call is over.
            GatherActive: one runs already.
            CcTtsError: as :meth:`speak`, of a prompt.
        """
        self._check(CallEvent.SPEAK, "gather")
        gather = self.keys.collect(request)
        if self.spans is not None and gather.result is None:
            self.spans.gather_began(gather.id)
        self.recorder.gather_began(gather)
        self.bridge.withhold_keys(withheld=self.keys.hides_keys)
        self.keep()
        return gather

    def stop_gather(self) -> Gather:
        """End the gather that runs, with ``cancelled``.

        Raises:
            WrongState: the call is over.
            GatherNotFound: none runs.
        """
        self._check(CallEvent.SPEAK, "stop gather")
        gather = self.keys.running
        gather.cancel("cancelled")
        return gather

    def set_paused(self, *, paused: bool) -> None:
        """Stop the prompts' clock, or let it run again.

        Raises:
            WrongState: the call is over, or the prompts are paused already or not paused.
        """
        self._check(CallEvent.SPEAK, "pause" if paused else "resume")
        was_held = not paused and self.barge_in.resume()
        if self.paused == paused:
            if was_held:
                return
            raise WrongState("the prompts are paused already" if paused else "the prompts are not paused")
        self.services.ua.send(messages.SetPaused(self.id, paused))
        self.paused = paused
        self.keep()

    # --- the call itself -----------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Answer the call with 200.

        Raises:
            WrongState: it is not an incoming call that waits for an answer.
        """
        self._check_unanswered()
        self.accept()

    def accept(self) -> None:
        """Send 200 if the call still waits for an answer. Prompts are synthesised from now on, and heard from the ACK on."""
        if self.waits_for_answer:
            self.is_answering = True
            self.recorder.begin_wanted()
            self.services.ua.send(messages.Answer(call_id=self.id, lead_in_ms=self.lead_in_ms))
            self.player.prepare()

    def ring(self, *, early_media: bool = False) -> None:
        """Send 180, or 183 with SDP.

        Raises:
            WrongState: it is not an incoming call that waits for an answer.
        """
        self._check_unanswered()
        if early_media:
            self.recorder.begin_wanted()
        self.services.ua.send(messages.Ring(call_id=self.id, early_media=early_media, lead_in_ms=self.lead_in_ms))

    def hangup(self, *, sip_code: int | None = None, reason: str | None = None) -> None:
        """End the call; ``call.terminated`` follows.

        Raises:
            WrongState: it is over.
        """
        self._check(CallEvent.END, "hangup")
        self.end("local_hangup", sip_code=sip_code, reason=reason)

    def end(
        self,
        local_reason: str,
        *,
        sip_code: int | None = None,
        reason: str | None = None,
        retry_after_s: int = 0,
        cause: str = "",
        tail_ms: int = 0,
        digits: str = "",
        transfer_result: str = "",
    ) -> None:
        """End the call for a reason of our own, after ``tail_ms`` of silence; does nothing if it is over. Our BYE gives
        ``cause`` if there is one, else the reason, and the results ``digits`` of a gather and ``transfer_result``.
        """
        if self.state is CallState.TERMINATED:
            return
        if self.local_reason is None:
            self.local_reason, self.hangup_cause = local_reason, cause or local_reason
        self.player.stop_feeding()
        self.services.ua.tell(
            messages.Hangup(
                call_id=self.id,
                sip_code=sip_code or 0,
                reason=reason or "",
                retry_after_s=retry_after_s,
                cause=cause or local_reason,
                tail_ms=tail_ms,
                digits=digits,
                transfer_result=transfer_result,
            )
        )
        self.keep()  # after it: a call that has a reason to end is ending

    def set_hold(self, *, hold: bool) -> None:
        """Hold the call by a re-INVITE with sendonly, or resume it.

        Raises:
            WrongState, LineUnsupported: not established, or held already or not held; a line without SIP.
        """
        self._check(CallEvent.MODIFY, "hold" if hold else "unhold")
        self.check_sip("hold")
        if self.held == hold:
            raise WrongState("the call is held already" if hold else "the call is not held")
        self.services.ua.send(messages.SetHold(self.id, hold))

    def send_dtmf(self, digits: str, *, duration_ms: int = DEFAULT_KEY_MS) -> None:
        """Send telephone events (RFC 4733), or INFO requests if the far side takes only those.

        Raises:
            WrongState: not established.
            DtmfUnsupported, LineUnsupported: the far side takes neither.
        """
        self._check(CallEvent.MODIFY, "dtmf")
        self.check_sip("way to send keys")
        if self.dtmf_method is None:
            raise DtmfUnsupported("the far side has no telephone-event (RFC 4733) in its SDP and no INFO in its Allow")
        self.services.ua.send(messages.SendDtmf(call_id=self.id, digits=digits, duration_ms=duration_ms))

    def update(self, *, defaults: PromptDefaults, metadata: Mapping[str, str], client_state: str | None = None) -> None:
        """Replace defaults, metadata and client state. Later prompts use the new ``defaults``; queued ones do not change.

        Raises:
            WrongState: the call is over.
            UnknownVoice, LanguageUnsupported, UnknownLexicon, SpeechNotHeard: a default is of no use; nothing has changed.
        """
        self._check(CallEvent.SPEAK, "update")
        if defaults != self.defaults:
            self.services.source.check_defaults(defaults)
            if defaults.barge_in_speech:
                self.services.vad.check()
        self.defaults, self.metadata, self.client_state = defaults, metadata, client_state
        self.keep()
        self.barge_in.refresh()

    def end_heard_out(self, local_reason: str, *, cause: str = "", is_cut: bool = False) -> None:
        """End the call after some silence, in which the far side plays what was sent; a cut prompt needs none."""
        has_tail = self.state is CallState.ESTABLISHED and not is_cut
        tail_ms = self.services.config.calls.hangup_tail_ms if has_tail else 0
        self.end(local_reason, sip_code=480 if self.waits_for_answer else None, cause=cause, tail_ms=tail_ms)

    # --- what another server began ---------------------------------------------------------------------------------------

    def restore(self, snapshot: messages.CallSnapshot, record: records.CallRecord) -> None:
        """Restore a call of an earlier server from its leg. What was in progress completes with ``server_restarted``, except
        prompts that the leg still plays.
        """
        clock = self.services.clock
        self.end_in_gap = "server_gone"
        self.created_at_s, self.paused = record.created_at_s, record.paused
        self.note_leg(snapshot)
        is_answered = snapshot.state != "invited"
        self.is_answering = is_answered and self.direction == "inbound"
        if snapshot.sip_code:
            self.machine.fire(CallEvent.RING)
        if snapshot.state == "established":
            self.machine.fire(CallEvent.ANSWER)
            self.answered_at_s = self._at_s(snapshot.established_ns)
            self._limit_duration()
            self.player.open_line(snapshot.established_ns)
        elif record.no_answer_at_s is not None:
            self.no_answer_at_s = record.no_answer_at_s
            self.timer.set(max(0.0, record.no_answer_at_s - clock.wall_s()), partial(self.end, "no_answer"))
        if self.is_answering:
            self.player.prepare()
        self.player.restore(record.utterances, dict(snapshot.utterances), is_answered=is_answered)
        if record.gather is not None:
            self.keys.break_off(record.gather)
            self.bridge.withhold_keys(withheld=self.keys.hides_keys)
            if record.gather.then == "hangup" and is_answered:
                self.end("gather_complete", cause="server_restarted")
        if (
            record.transfer is not None and not self.waits_for_answer
        ):  # a call that waits for its answer is routed again
            self.transfer = Transfer.restored(self, record.transfer, snapshot.transfer)
        self.bridge.restore(record.bridge, snapshot.bridge_id)
        self.recorder.restore(record.recording)
        self.local_reason = record.local_reason or self.local_reason
        self._run_gather_timers()
        if self.state is CallState.ESTABLISHED:
            self.barge_in.begin(snapshot.established_ns)
        self.keep()

    def record(self) -> records.CallRecord:
        """Return what another server would need to adopt the call."""
        running = self.running_transfer
        return records.CallRecord(
            version=records.VERSION,
            run=self.services.events.run,
            utterances=tuple(map(records.KeptUtterance.of, self.player.queue[: records.MAX_UTTERANCES])),
            gather=self.keys.kept,
            transfer=None if running is None else running.kept,
            bridge=self.bridge.kept,
            recording=self.recorder.current,
            **records.without_text(self.headers, self.uri_parameters),
            **{name: getattr(self, name) for name in (*records.FACTS, *records.PROGRESS)},
        )

    def keep(self) -> None:
        """Have the UA process keep the record for another server, if it has changed."""
        if self.services.config.ua.orphan_grace_ms and self.state is not CallState.TERMINATED:
            before, self._kept = self._kept, records.encode(self.record())
            if before != self._kept:
                self.services.ua.tell(messages.KeepRecord(call_id=self.id, record=self._kept))

    # --- what the UA process reports -------------------------------------------------------------------------------------

    def on_report(self, report: messages.CallReport) -> None:
        self._reports[type(report)](self, report)
        self.followers.tell(lambda each: each.on_report(report))

    def _on_placed(self, placed: messages.CallPlaced) -> None:
        self.sip_call_id = placed.sip_call_id
        traces.note_begin(self)

    def _on_ringing(self, ringing: messages.CallRinging) -> None:
        self.sip_call_id = ringing.sip_call_id or self.sip_call_id
        if self.machine.can(CallEvent.RING):
            self.machine.fire(CallEvent.RING)
            self.publish(types.CallEarly(sip_code=ringing.sip_code))
            self._open_early_media()

    def _on_media(self, media: messages.MediaActive) -> None:
        """Media has begun: before the answer only if we have sent early media."""
        self.note_media(media)
        self._open_early_media()

    def _on_established(self, established: messages.CallEstablished) -> None:
        """The ACK has arrived. Prompts that waited for it count their time from here."""
        self.sip_call_id, self.tags = established.sip_call_id or self.sip_call_id, established.tags
        self.transport = established.transport or self.transport
        if not self.machine.can(CallEvent.ANSWER):
            return
        self.machine.fire(CallEvent.ANSWER)
        self.answered_at_s = self._at_s(self.services.clock.now_ns())
        traces.note_answer(self)
        self.publish(types.CallEstablished(codec=self.codec, clock_rate_hz=self.clock_rate_hz))
        self._run_gather_timers()
        self.player.open_line(established.at_ns + self.lead_in_ms * NS_PER_MS)
        self.barge_in.begin(established.at_ns)
        self.timer.cancel()
        self._limit_duration()

    def _limit_duration(self) -> None:
        if max_duration_s := self.services.config.calls.max_duration_s:
            since_s = self._at_s(self.services.clock.now_ns()) - (self.answered_at_s or 0.0)
            self.timer.set(max(0.0, max_duration_s - since_s), partial(self.end, "max_duration"))

    def _open_early_media(self) -> None:
        if self.state is CallState.EARLY and self.waits_for_answer and self.codec is not None:
            self.player.open_line(self.services.clock.now_ns() + self.lead_in_ms * NS_PER_MS)

    def _run_gather_timers(self) -> None:
        self.keys.run_timers(running=self.state is CallState.ESTABLISHED and not self.held)

    def _on_hold(self, change: messages.HoldChanged) -> None:
        self.held = change.by != "none"
        self._run_gather_timers()
        self.barge_in.refresh()
        self.publish(types.CallUnheld() if change.by == "none" else types.CallHeld(by=change.by))

    def _on_command_failed(self, failed: messages.CommandFailed) -> None:
        """PJSIP refused a command. A call that cannot be answered ends; any other stays up."""
        log.warning("command_refused", call_id=self.id, command=failed.command, detail=failed.detail)
        self.publish(types.CallCommandFailed(command=failed.command, detail=failed.detail))
        if failed.command in ("answer", "ring"):
            self.end("sip_error", sip_code=500)

    def _on_ended(self, ended: messages.CallEnded) -> None:
        self.quality, self.levels = ended.quality, None
        self.services.metrics.ua_late_frames.inc(ended.quality.late_frames)
        self.terminate(self.ending_by(ended), ended.at_ns)

    _reports: ClassVar[Mapping[type[messages.CallReport], Callable[[Any, Any], None]]] = {
        messages.CallPlaced: _on_placed,
        messages.CallRinging: _on_ringing,
        messages.MediaActive: _on_media,
        messages.CallEstablished: _on_established,
        messages.HoldChanged: _on_hold,
        messages.DtmfBegan: lambda call, key: call.keys.key_down(key.at_ns),
        messages.DtmfReceived: lambda call, key: call.keys.key(key),
        messages.QualityReport: CallInfo.note_quality,
        messages.CommandFailed: _on_command_failed,
        messages.TransferProgress: lambda _call, _progress: None,  # of its transfer, which follows the call
        messages.Bridged: lambda call, bridged: call.bridge.made(bridged.bridge_id),
        messages.Unbridged: lambda call, parted: call.bridge.over(parted.bridge_id, parted.because),
        messages.CallEnded: _on_ended,
        messages.PlayoutReport: lambda call, report: call.player.on_playout(report.event),
    }

    def terminate(self, ending: Ending, at_ns: int = 0) -> None:
        """Mark the call as over, at ``at_ns`` if given. Everything pending completes with ``call_ended``."""
        if not self.machine.can(CallEvent.END):
            return
        self.machine.fire(CallEvent.END)
        self.timer.cancel()
        self.ended_ns = at_ns or self.services.clock.now_ns()
        self.ended_at_s = self._at_s(self.ended_ns)
        self.ending = ending
        self.held = self.paused = False
        self.keys.call_ended()
        self.bridge.call_ended()
        self.barge_in.close()
        self.player.close(CompletionCause.CALL_ENDED)
        self.followers.tell(lambda each: each.on_call_ended(ending.reason))
        traces.note_end(self, ending)

    def _at_s(self, at_ns: int) -> float:
        """Return the time of day of an instant; where the clock of the machine is set meanwhile, as it was before."""
        return self._epoch_s + at_ns / NS_PER_S

    def _prompt_complete(self, utterance: Utterance) -> None:
        """Hang up if the prompt asked for that, and start whatever waited for its end."""
        cause = utterance.completion_cause
        assert cause is not None
        if _ends_call(utterance, is_last=not self.player.queue):
            is_cut = cause is CompletionCause.BARGE_IN
            reason = PROMPT_FAILED if cause is CompletionCause.ERROR else "prompt_finished"
            self.end_heard_out(reason, cause=cause.value, is_cut=is_cut)
        self.barge_in.prompt_complete(utterance)
        self.keys.prompt_complete(utterance)
        self.followers.tell(lambda each: each.on_prompt_complete(utterance))

    def _gather_complete(self, gather: Gather) -> None:
        self.bridge.withhold_keys(withheld=self.keys.hides_keys)
        if gather.request.then == "hangup":
            failed = gather.result == "timeout" and gather.prompt_error
            cause = CompletionCause.ERROR if failed else gather.result
            self.end("gather_complete", cause=str(cause), digits=gather.digits if gather.valid else "")
        self.recorder.gather_over()

    def _check(self, event: CallEvent, command: str) -> None:
        if not self.machine.can(event):
            raise WrongState(f"call {self.id} is {self.state}: {command} is not possible")

    def _check_unanswered(self) -> None:
        if not self.waits_for_answer:
            raise WrongState(f"call {self.id} ({self.direction}, {self.state}) does not wait for an answer")


def _ends_call(utterance: Utterance, *, is_last: bool) -> bool:
    if utterance.prompt.then != "hangup":
        return False
    if utterance.completion_cause is CompletionCause.BARGE_IN:
        return utterance.prompt.unattended and is_last
    return utterance.completion_cause in (CompletionCause.NORMAL, CompletionCause.ERROR)
