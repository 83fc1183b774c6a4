"""One call: its parties, its state, its prompts, and what may be done with it. Changed only on the event loop."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls import traces
from cc_tts.calls.adoption import record as records
from cc_tts.calls.audio.caller_speech import CallerSpeech, policy_of
from cc_tts.calls.audio.hub import AudioHub
from cc_tts.calls.call_state import CALL_TABLE, CallEvent, CallState
from cc_tts.calls.dtmf_collector import DtmfCollector
from cc_tts.calls.ending import PROMPT_FAILED, Ending, ending_of
from cc_tts.calls.events import types
from cc_tts.calls.gather import Gather, GatherRequest
from cc_tts.calls.player import PromptPlayer, TextPlace
from cc_tts.calls.services import CallServices
from cc_tts.calls.utterance import CompletionCause, Utterance, UtteranceError
from cc_tts.clock import NS_PER_MS, ms_between
from cc_tts.config.schema import MediaDialect
from cc_tts.errors import (
    CcTtsError,
    DtmfUnsupported,
    GatherActive,
    GatherNotFound,
    QueueFull,
    ServerRestarted,
    UserAgentUnavailable,
    WrongState,
)
from cc_tts.media.playout_events import PlayoutFinished, PlayoutProgress, PlayoutSpeech, PlayoutUnderrun
from cc_tts.media.quality import Quality
from cc_tts.speech.chunks import SpeechChunk
from cc_tts.speech.prompt import Prompt, PromptDefaults, text_of, texts_of
from cc_tts.state_machine import StateMachine
from cc_tts.ua import messages
from cc_tts.voices.voice import Voice

if TYPE_CHECKING:
    from cc_tts.calls.audio.stream import MediaStream
    from cc_tts.calls.text_stream.stream import TextStream

CUT_TIMEOUT_S: Final = 0.5
"""How long ``stop`` waits for the UA process to report silence."""
MAX_UTTERANCES_KEPT: Final = 1000
"""Of one call; older complete ones are forgotten."""

log = logs.get(__name__)

Direction = Literal["inbound", "outbound"]


@dataclass(kw_only=True, eq=False, repr=False)
class Call:
    """A leg seen from the application. Attributes are read by the API; only methods change them."""

    services: CallServices
    id: str
    direction: Direction
    caller: str
    callee: str
    sip_call_id: str
    headers: dict[str, str]
    uri_parameters: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    """Whose call it is; empty: the operator's."""
    route: str = ""
    """The key of ``[routes]`` that takes an incoming call."""
    peer: str = ""
    """The address an INVITE came from, or the host that ours is for."""
    defaults: PromptDefaults = field(default_factory=PromptDefaults)
    metadata: Mapping[str, str] = field(default_factory=dict)
    client_state: str | None = None
    """Of the last command on the call that gave one. Both are the client's own and are in every event of the call."""
    codec: str | None = None
    clock_rate_hz: int | None = None
    transport: str | None = None
    srtp: bool | None = None
    dtmf_method: messages.DtmfMethod | None = "rfc4733"
    held: bool = False
    """As ``paused``, in any state before the call's end, by either side."""
    paused: bool = False
    answered_at_s: float | None = None
    ended_at_s: float | None = None
    ending: Ending | None = None
    quality: Quality = field(default_factory=Quality)
    utterances: dict[str, Utterance] = field(default_factory=dict)
    local_reason: str | None = None
    end_in_gap: str | None = None
    """What it is called if the UA process ends the call of itself, as it does for want of a server."""
    hangup_cause: str = ""
    """What our BYE gives as the cause."""
    lead_in_ms: int = 0
    media_route: tuple[str, MediaDialect] | None = None
    """The application that the call's route has it connect to, and how that speaks."""
    no_answer_at_s: float | None = None
    """When an outgoing call is given up that is not answered, on the wall clock."""
    text_streams: set["TextStream"] = field(default_factory=set)
    """That are open."""
    media_streams: set["MediaStream"] = field(default_factory=set)
    """That are open."""

    def __post_init__(self) -> None:
        services = self.services
        inbound = self.direction == "inbound"
        self.machine = StateMachine(CALL_TABLE, CallState.INCOMING if inbound else CallState.OUTGOING)
        self.created_at_s = services.clock.wall_s()
        self._log = log.bind(call_id=self.id)
        self._answering = False
        self._completed = asyncio.Event()
        self._record = b""
        self._hides_keys = False  # a sensitive gather was broken off, and the caller may not know
        type_ahead_ms = services.config.gather.type_ahead_ms
        self.keys = DtmfCollector(services.clock, type_ahead_ms=type_ahead_ms, interrupt=self.interrupt)
        self.audio = AudioHub(self.id, services.ua, services.metrics)
        self.speech = CallerSpeech(self)
        self._timer: asyncio.TimerHandle | None = None
        self.player = PromptPlayer(
            self.id,
            services,
            tenant=self.tenant,
            on_complete=self._utterance_complete,
            on_marks=self._marks_reached,
            on_recovered=self._utterance_recovered,
            on_refused=self._words_refused,
        )

    # --- what the API reads ------------------------------------------------------------------------------------------

    @property
    def utterance_ids(self) -> tuple[str, ...]:
        """Of the utterances that are kept, oldest first."""
        return tuple(self.utterances)

    @property
    def state(self) -> CallState:
        """Where the call stands."""
        return self.machine.state

    @property
    def waits_for_answer(self) -> bool:
        """Whether it is an incoming call to which no final answer went out."""
        waits = self.direction == "inbound" and self.state in (CallState.INCOMING, CallState.EARLY)
        return waits and not self._answering

    @property
    def _is_answered(self) -> bool:
        """Whether somebody listens who would rather hear a prompt late than not at all."""
        return self._answering or self.answered_at_s is not None

    # --- speaking ----------------------------------------------------------------------------------------------------

    def speak(self, prompt: Prompt) -> Utterance:
        """Accept a prompt.

        Raises:
            WrongState: the call is over.
            QueueFull: as many prompts wait as the config allows.
            DuplicateId: the utterance id is taken.
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the content is of no use.
            EngineOverloaded: it would start now, and there is no engine, or it is full and the call is not answered.
            QuotaExceeded: the tenant has used up its characters, or it would start now and too many texts are spoken.
            SpeechNotHeard: speech is to interrupt it, and nothing here hears speech.
        """
        self._check(CallEvent.SPEAK, "speak" if texts_of(prompt.content) else "play")
        services = self.services
        if prompt.barge_in_speech:
            services.vad.check()
        limit = services.config.calls.max_queued_prompts
        if prompt.queue == "append" and len(self.player.queue) >= limit:
            raise QueueFull(f"{limit} prompts wait on this call; calls.max_queued_prompts is {limit}", retry_after_s=1)
        prompt = self.defaults.applied_to(prompt)
        voice = services.source.check(prompt.content)
        if not self.player.queue:
            may_wait = self._is_answered and not services.config.tts.refuse_when_full
            services.check_capacity(self.tenant, prompt.content, may_wait=may_wait)
        with services.tenants.characters(self.tenant, len(text_of(prompt.content))):
            utterance = self._new_utterance(prompt, voice)
        if prompt.queue == "replace":
            for earlier in reversed(self.player.queue):
                self.player.discard(earlier, CompletionCause.CANCELLED, by="replace")
        self._keep(utterance)
        self.publish(types.SpeakQueued(**utterance.event_fields, text_chars=utterance.text_chars))
        self._log.info("speak", utterance_id=utterance.id, text_chars=utterance.text_chars, voice=utterance.voice)
        self.player.enqueue(utterance)
        self._keep_record()
        self.speech.refresh()
        return utterance

    async def stop(self, scope: Literal["current", "all"]) -> tuple[list[str], float]:
        """Silence the current prompt, or everything, and wait until the line is silent, at most :data:`CUT_TIMEOUT_S`.
        Returns the ids of what was stopped, and how much produced audio was dropped, ms.

        Raises:
            WrongState: the call is over.
        """
        self._check(CallEvent.SPEAK, "stop")
        queue = self.player.queue
        victims = queue[:1] if scope == "current" else queue
        cancelled = partial(self.player.discard, cause=CompletionCause.CANCELLED, by="stop")
        discarded_ms = sum(map(cancelled, reversed(victims)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_TIMEOUT_S):
                while not all(utterance.is_complete for utterance in victims):
                    self._completed.clear()
                    await self._completed.wait()
        return [utterance.id for utterance in victims], round(discarded_ms, 1)

    def gather(self, request: GatherRequest) -> Gather:
        """Collect keys; ``call.gather_complete`` follows once.

        Raises:
            WrongState: the call is over.
            GatherActive: one runs already.
            QueueFull, DuplicateId, TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable,
                EngineOverloaded: as :meth:`speak`, of a prompt.
        """
        self._check(CallEvent.SPEAK, "gather")
        if self.keys.gather is not None:
            raise GatherActive(f"gather {self.keys.gather.id} runs on call {self.id}")
        if request.invalid_prompt is not None:
            self.services.source.check(self.defaults.applied_to(request.invalid_prompt).content)
        prompt = None if request.prompt is None else self.speak(request.prompt)
        gather = Gather(
            request.gather_id or f"gather_{secrets.token_hex(8)}",
            request,
            self.services.clock,
            say=self._say_again,
            silence=self.player.discard,
            on_complete=self._gather_complete,
        )
        self._log.info("gather", gather_id=gather.id)
        typed_ahead = self.keys.begin(gather)
        self._hides_keys = False
        self._keep_record()
        self._run_gather_timers()
        gather.start(prompt, typed_ahead)
        return gather

    def stop_gather(self) -> Gather:
        """End the gather that runs, with ``cancelled``.

        Raises:
            WrongState: the call is over.
            GatherNotFound: none runs.
        """
        self._check(CallEvent.SPEAK, "stop gather")
        gather = self.running_gather
        gather.cancel("cancelled")
        return gather

    @property
    def running_gather(self) -> Gather:
        """The gather that runs.

        Raises:
            GatherNotFound: none does.
        """
        if self.keys.gather is None:
            raise GatherNotFound(f"no gather runs on call {self.id}")
        return self.keys.gather

    def set_paused(self, *, paused: bool) -> None:
        """Stop the prompts' clock, or let it go on.

        Raises:
            WrongState: the call is over, or the prompts are paused already or not paused.
        """
        self._check(CallEvent.SPEAK, "pause" if paused else "resume")
        was_held = not paused and self.speech.resume()
        if self.paused == paused:
            if was_held:
                return
            raise WrongState("the prompts are paused already" if paused else "the prompts are not paused")
        self.services.ua.send(messages.SetPaused(self.id, paused))
        self.paused = paused
        self._keep_record()

    # --- the call itself -----------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """200.

        Raises:
            WrongState: it is not an incoming call that waits for an answer.
        """
        self._check_unanswered()
        self.accept()

    def accept(self) -> None:
        """200 if the call still waits for an answer; nothing happens if not."""
        if self.waits_for_answer:
            self._answering = True
            self.services.ua.send(messages.Answer(call_id=self.id, lead_in_ms=self.lead_in_ms))
            self.player.prepare()

    def ring(self, *, early_media: bool = False) -> None:
        """180, or 183 with SDP.

        Raises:
            WrongState: it is not an incoming call that waits for an answer.
        """
        self._check_unanswered()
        self.services.ua.send(messages.Ring(call_id=self.id, early_media=early_media, lead_in_ms=self.lead_in_ms))
        self.player.prepare()

    def hangup(self, *, sip_code: int | None = None, reason: str | None = None) -> None:
        """End it; ``call.terminated`` follows.

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
    ) -> None:
        """End it for a reason of our own, after ``tail_ms`` of silence; nothing happens if it is over. ``cause`` is what our
        BYE says if not that, ``digits`` what a gather has collected for it.
        """
        if self.state is CallState.TERMINATED:
            return
        if self.local_reason is None:
            self.local_reason, self.hangup_cause = local_reason, cause or local_reason
        self.player.stop_feeding()
        self.services.ua.send(
            messages.Hangup(
                call_id=self.id,
                sip_code=sip_code or 0,
                reason=reason or "",
                retry_after_s=retry_after_s,
                cause=cause or local_reason,
                tail_ms=tail_ms,
                digits=digits,
            )
        )
        self._keep_record()  # after it: a call that has a reason to end is ending

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` then, unless the call is established or over before; one timer a call, the last one counts."""
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._run_quietly, action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_quietly(self, action: Callable[[], None]) -> None:
        try:
            action()
        except CcTtsError as error:
            self._log.warning("timer_failed", code=error.code, detail=error.detail)

    def set_hold(self, *, hold: bool) -> None:
        """Re-INVITE sendonly to hold, or sendrecv to take back.

        Raises:
            WrongState: not established, or held already or not held.
        """
        self._check(CallEvent.MODIFY, "hold" if hold else "unhold")
        if self.held == hold:
            raise WrongState("the call is held already" if hold else "the call is not held")
        self.services.ua.send(messages.SetHold(self.id, hold))

    def send_dtmf(self, digits: str, *, duration_ms: int = 160) -> None:
        """Telephone events of RFC 4733, or INFO where the far side takes that alone.

        Raises:
            WrongState: not established.
            DtmfUnsupported: the far side takes neither.
        """
        self._check(CallEvent.MODIFY, "dtmf")
        if self.dtmf_method is None:
            raise DtmfUnsupported("the far side has no telephone-event (RFC 4733) in its SDP and no INFO in its Allow")
        self.services.ua.send(messages.SendDtmf(call_id=self.id, digits=digits, duration_ms=duration_ms))

    def update(self, *, defaults: PromptDefaults, metadata: Mapping[str, str], client_state: str | None = None) -> None:
        """Take these in place of what the call has. Prompts that are accepted from now on fall back to ``defaults``;
        those that wait stay as they are.

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
        self._keep_record()
        self.speech.refresh()

    # --- what another server began ---------------------------------------------------------------------------------------

    def restore(self, snapshot: messages.CallSnapshot, record: records.CallRecord) -> None:
        """Go on with a call that another server had, from the state that its leg is in. What went on is broken off with
        ``server_restarted``, but for what the line still has of a prompt.
        """
        clock = self.services.clock
        self.end_in_gap = "server_gone"
        self.created_at_s = record.created_at_s
        self.sip_call_id = snapshot.sip_call_id or self.sip_call_id
        self.transport = snapshot.transport or self.transport
        self.held, self.paused = snapshot.held_by != "none", record.paused
        if snapshot.media is not None:
            media = snapshot.media
            self.codec, self.clock_rate_hz, self.srtp = media.codec, media.clock_rate_hz, media.srtp
            self.dtmf_method = media.dtmf
        is_answered = snapshot.state != "invited"
        self._answering = is_answered and self.direction == "inbound"
        if snapshot.sip_code:
            self.machine.fire(CallEvent.RING)
        if snapshot.state == "established":
            self.machine.fire(CallEvent.ANSWER)
            self.answered_at_s = clock.wall_s() - ms_between(snapshot.established_ns, clock.now_ns()) / 1000
            self._limit_duration()
            self.player.open_line(snapshot.established_ns)
        elif record.no_answer_at_s is not None:
            self.no_answer_at_s = record.no_answer_at_s
            self.after(max(0.0, record.no_answer_at_s - clock.wall_s()), partial(self.end, "no_answer"))
        if self._answering:
            self.player.prepare()
        self._take_up_prompts(snapshot, record, may_hang_up=is_answered)
        if record.gather is not None:
            self._break_off_gather(record.gather, may_hang_up=is_answered)
        self.local_reason = record.local_reason or self.local_reason
        if self.state is CallState.ESTABLISHED:
            self.speech.begin(snapshot.established_ns)
        self._keep_record()

    def _take_up_prompts(
        self, snapshot: messages.CallSnapshot, record: records.CallRecord, *, may_hang_up: bool
    ) -> None:
        """Prompts that the line has hang up as they would have. One that was never begun does so only where nobody is there
        who could say it again.
        """
        played_ms, now_ns = dict(snapshot.utterances), self.services.clock.now_ns()
        on_line: list[Utterance] = []
        waiting: list[Utterance] = []
        for kept in record.utterances:
            has_begun = kept.id in played_ms
            then = kept.then if may_hang_up and (has_begun or kept.unattended) else "stay"
            utterance = kept.revive(self.id, then=then, now_ns=now_ns)
            utterance.error = UtteranceError(ServerRestarted.code, ServerRestarted.title)
            utterance.played_ms = played_ms.get(kept.id, 0.0)
            self._keep(utterance)
            (on_line if has_begun else waiting).append(utterance)
        self.player.restore(on_line, waiting)
        if snapshot.state == "invited":  # the call is routed again, which says its prompt again
            for utterance in on_line:
                if not utterance.played_ms:
                    self.player.discard(utterance, CompletionCause.ERROR)

    def _break_off_gather(self, gather: records.KeptGather, *, may_hang_up: bool) -> None:
        self._hides_keys = gather.sensitive
        self.publish(
            types.CallGatherComplete(
                client_state=UNSET if gather.client_state is None else gather.client_state,
                gather_id=gather.id,
                result="server_restarted",
                valid=False,
                digits="",
                terminator=None,
                timed_out=None,
                tries=gather.tries,
                prompt_error=None,
                duration_ms=0.0,
            )
        )
        if gather.then == "hangup" and may_hang_up:
            with contextlib.suppress(UserAgentUnavailable):  # its end is the call's
                self.end("gather_complete", cause="server_restarted")

    def _keep_record(self) -> None:
        """Have the UA process keep what another server would need, if it has changed."""
        if not self.services.config.ua.orphan_grace_ms or self.state is CallState.TERMINATED:
            return
        record = records.encode(self)
        if record != self._record:
            with contextlib.suppress(UserAgentUnavailable):  # its end is the call's
                self.services.ua.send(messages.KeepRecord(call_id=self.id, record=record))
                self._record = record

    # --- what the UA process reports -------------------------------------------------------------------------------------

    def on_report(self, report: messages.CallReport) -> None:
        """Take in what the UA process reports of this call."""
        self._reports[type(report)](self, report)

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
        """The leg can be heard; before the answer only if we ring it with early media."""
        self.codec, self.clock_rate_hz, self.srtp = media.codec, media.clock_rate_hz, media.srtp
        self.dtmf_method = media.dtmf
        self._open_early_media()

    def _on_established(self, established: messages.CallEstablished) -> None:
        """ACK. Prompts that waited for it count their time from here."""
        self.sip_call_id = established.sip_call_id or self.sip_call_id
        self.transport = established.transport or self.transport
        if not self.machine.can(CallEvent.ANSWER):
            return
        self.machine.fire(CallEvent.ANSWER)
        self.answered_at_s = self.services.clock.wall_s()
        traces.note_answer(self)
        self.publish(types.CallEstablished(codec=self.codec, clock_rate_hz=self.clock_rate_hz))
        self._run_gather_timers()
        self._open_line(established.at_ns)
        self.speech.begin(established.at_ns)
        self._cancel_timer()
        self._limit_duration()

    def _limit_duration(self) -> None:
        if max_duration_s := self.services.config.calls.max_duration_s:
            since_s = self.services.clock.wall_s() - (self.answered_at_s or 0.0)
            self.after(max(0.0, max_duration_s - since_s), partial(self.end, "max_duration"))

    def _on_hold(self, change: messages.HoldChanged) -> None:
        self.held = change.by != "none"
        self._run_gather_timers()
        self.speech.refresh()
        self.publish(types.CallUnheld() if change.by == "none" else types.CallHeld(by=change.by))

    def _on_key_down(self, key: messages.DtmfBegan) -> None:
        self.keys.down(key.at_ns)

    def _on_digit(self, key: messages.DtmfReceived) -> None:
        if self.keys.is_repeated(key):
            return
        gather = self.keys.gather
        is_hidden = self._hides_keys if gather is None else gather.request.sensitive
        digit = "x" if is_hidden else key.digit
        self.publish(
            types.CallDtmf(
                digit=digit,
                duration_ms=key.duration_ms,
                method=key.method,
                gather_id=UNSET if gather is None else gather.id,
            )
        )
        for stream in tuple(self.media_streams):
            stream.on_key(digit, key.duration_ms)
        self.keys.pressed(key)

    def _on_quality(self, report: messages.QualityReport) -> None:
        self.quality = report.quality

    def _on_command_failed(self, failed: messages.CommandFailed) -> None:
        """PJSIP refused a command. A call that cannot be answered ends; any other goes on."""
        self._log.warning("command_refused", command=failed.command, detail=failed.detail)
        self.publish(types.CallCommandFailed(command=failed.command, detail=failed.detail))
        if failed.command in ("answer", "ring"):
            self.end("sip_error", sip_code=500)

    def _on_ended(self, ended: messages.CallEnded) -> None:
        self.quality = ended.quality
        self.services.metrics.ua_late_frames.inc(ended.quality.late_frames)
        self.terminate(
            ending_of(
                ended,
                was_established=self.answered_at_s is not None,
                local_reason=self.local_reason or self.end_in_gap,
                direction=self.direction,
            ),
            ended.at_ns,
        )

    def _on_playout(self, report: messages.PlayoutReport) -> None:
        match report.event:
            case PlayoutSpeech(utterance_id=utterance_id, at_ns=at_ns):
                self._speech_began(utterance_id, at_ns)
            case PlayoutProgress() as progress:
                self.player.progress(progress)
            case PlayoutUnderrun(missing_ms=missing_ms):
                self.services.metrics.playout_underruns.inc()
                self.services.threshold.underrun(missing_ms)
            case PlayoutFinished() as finished:
                self.player.finished(finished)

    _reports: ClassVar[Mapping[type[messages.CallReport], Callable[[Any, Any], None]]] = {
        messages.CallPlaced: _on_placed,
        messages.CallRinging: _on_ringing,
        messages.MediaActive: _on_media,
        messages.CallEstablished: _on_established,
        messages.HoldChanged: _on_hold,
        messages.DtmfBegan: _on_key_down,
        messages.DtmfReceived: _on_digit,
        messages.QualityReport: _on_quality,
        messages.CommandFailed: _on_command_failed,
        messages.CallEnded: _on_ended,
        messages.PlayoutReport: _on_playout,
    }

    def interrupt(self, at_ns: int, by: Literal["dtmf", "speech"] = "dtmf", *, speech_id: str | None = None) -> None:
        """A key or speech that began at ``at_ns`` ends the prompt that is said and those behind it, as far as they allow it;
        nothing happens if the one that is said does not.
        """
        queue = self.player.queue
        allowing = [each for each in queue if (each.barge_in_dtmf if by == "dtmf" else each.barge_in_speech)]
        if not allowing or allowing[0] is not queue[0]:
            return
        queue[0].interrupted_ns = queue[0].interrupted_ns or at_ns
        for utterance in reversed(allowing):
            if utterance.interrupted_by is None:
                utterance.speech_id = speech_id
            self.player.discard(utterance, CompletionCause.BARGE_IN, by=by)

    def _say_again(self, prompt: Prompt) -> Utterance:
        """Queue the prompt of a gather's next try; raises as :meth:`speak`."""
        try:
            return self.speak(replace(prompt, utterance_id=None))
        except CcTtsError as error:
            self._log.warning("gather_prompt_failed", code=error.code, detail=error.detail)
            raise

    def _run_gather_timers(self) -> None:
        if self.keys.gather is not None:
            self.keys.gather.run_timers(running=self.state is CallState.ESTABLISHED and not self.held)

    def _gather_complete(self, gather: Gather) -> None:
        self.keys.end(gather)
        result = gather.result
        assert result is not None
        self.publish(
            types.CallGatherComplete(
                client_state=UNSET if gather.request.client_state is None else gather.request.client_state,
                gather_id=gather.id,
                result=result,
                valid=gather.valid,
                digits=gather.digits,
                terminator=gather.terminator,
                timed_out=gather.timed_out,
                tries=gather.tries,
                prompt_error=gather.prompt_error,
                duration_ms=round(gather.duration_ms, 1),
            )
        )
        self._log.info("gather_complete", gather_id=gather.id, result=result, tries=gather.tries)
        if gather.request.then == "hangup":
            cause = CompletionCause.ERROR if result == "timeout" and gather.prompt_error else result
            with contextlib.suppress(UserAgentUnavailable):  # its end is the call's
                self.end("gather_complete", cause=str(cause), digits=gather.digits if gather.valid else "")

    def _speech_began(self, utterance_id: str, at_ns: int) -> None:
        """The first frame that carries speech was sent."""
        utterance = self.utterances.get(utterance_id)
        if utterance is None or utterance.first_speech_ns is not None:
            return
        utterance.first_speech_ns = at_ns
        utterance.origin_ns = max(utterance.origin_ns, utterance.text_ready_ns, self.player.heard_from_ns)
        self.publish(
            types.SpeakStarted(
                **utterance.event_fields,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                time_to_first_pcm_ms=utterance.time_to_first_pcm_ms,
            )
        )
        if utterance.watcher is not None:
            utterance.watcher.on_started(utterance)
        self.speech.prompt_heard(utterance, at_ns)

    def terminate(self, ending: Ending, at_ns: int = 0) -> None:
        """The call is over, since ``at_ns`` if that is given. Everything pending completes with ``call_ended``."""
        if not self.machine.can(CallEvent.END):
            return
        self.machine.fire(CallEvent.END)
        self._cancel_timer()
        clock = self.services.clock
        self.ended_at_s = clock.wall_s() - (ms_between(at_ns, clock.now_ns()) / 1000 if at_ns else 0.0)
        self.ending = ending
        self.held = self.paused = False
        if self.keys.gather is not None:
            self.keys.gather.cancel("call_ended")
        self.speech.close()
        self.player.close(CompletionCause.CALL_ENDED)
        for stream in tuple(self.text_streams):
            stream.on_call_ended()
        for media in tuple(self.media_streams):
            media.on_call_ended(ending.reason)
        traces.note_end(self, ending)

    # ---------------------------------------------------------------------------------------------------------------------

    def _open_early_media(self) -> None:
        if self.state is CallState.EARLY and self.waits_for_answer and self.codec is not None:
            self._open_line(self.services.clock.now_ns())

    def _open_line(self, at_ns: int) -> None:
        """The call can be heard since ``at_ns``; the first prompt starts after the lead-in."""
        self.player.open_line(at_ns + self.lead_in_ms * NS_PER_MS)

    def _new_utterance(self, prompt: Prompt, voice: Voice | None) -> Utterance:
        services = self.services
        default = services.config.calls.barge_in_dtmf
        return Utterance(
            id=services.utterances.new_id(prompt.utterance_id),
            call_id=self.id,
            prompt=prompt,
            voice=voice.id if voice is not None else "",
            engine=voice.engine if voice is not None else "",
            accepted_at_s=services.clock.wall_s(),
            origin_ns=services.clock.now_ns(),
            barge_in_dtmf=default if prompt.barge_in_dtmf is None else prompt.barge_in_dtmf,
            barge_in_speech=policy_of(prompt.barge_in_speech, services.config.calls.barge_in_speech),
        )

    def _keep(self, utterance: Utterance) -> None:
        self.utterances[utterance.id] = utterance
        self.services.utterances.add(utterance, self.utterances, tenant=self.tenant)
        while len(self.utterances) > MAX_UTTERANCES_KEPT + self.services.config.calls.max_queued_prompts:
            oldest = next(iter(self.utterances))
            del self.utterances[oldest]
            self.services.utterances.forget((oldest,))

    def _marks_reached(self, utterance: Utterance, marks: list[tuple[str, float]]) -> None:
        for name, at_ms in marks:
            self.publish(types.SpeakMark(**utterance.event_fields, name=name, played_ms=round(at_ms, 1)))
        if utterance.watcher is not None:
            utterance.watcher.on_progress(utterance, marks)

    def _utterance_recovered(self, utterance: Utterance, place: TextPlace) -> None:
        self.publish(
            types.SpeakRecovered(**utterance.event_fields, text_chunk=place.text_chunk, char_start=place.char_start)
        )

    def _words_refused(self, utterance: Utterance, chunk: SpeechChunk, place: TextPlace) -> None:
        assert utterance.error is not None
        words = chunk.begins_source or ""
        self.publish(
            types.SpeakRefused(
                **utterance.event_fields,
                error=utterance.error.code,
                detail=chunk.refused_because,
                text=words,
                char_start=place.char_end - len(words.lstrip()),
            )
        )
        if utterance.watcher is not None:
            utterance.watcher.on_refused(utterance, words, chunk.refused_because)

    def _utterance_complete(self, utterance: Utterance) -> None:
        """Publish it, and let what waits for its end go on."""
        self._completed.set()
        cause = utterance.completion_cause
        assert cause is not None
        self.publish(
            types.SpeakComplete(
                **utterance.event_fields,
                completion_cause=cause,
                interrupted_by=utterance.interrupted_by,
                speech_id=UNSET if utterance.speech_id is None else utterance.speech_id,
                played_ms=round(utterance.played_ms, 1),
                text_chars=utterance.text_chars,
                spoken_text=utterance.spoken_text,
                underruns=utterance.underruns,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                error=None if utterance.error is None else utterance.error.code,
            )
        )
        self._log.info(
            "spoken",
            utterance_id=utterance.id,
            text_chars=utterance.text_chars,
            cause=cause.value,
            played_ms=round(utterance.played_ms),
            time_to_first_audio_ms=utterance.time_to_first_audio_ms,
        )
        self.services.utterances.complete(utterance, tenant=self.tenant)
        if _ends_call(utterance, is_last=not self.player.queue):
            self._hang_up_after(cause)
        if utterance.watcher is not None:
            utterance.watcher.on_complete(utterance)
        utterance.forget_text()
        self.speech.prompt_complete(utterance)
        if self.keys.gather is not None:
            self.keys.gather.prompt_complete(utterance)

    def _hang_up_after(self, cause: CompletionCause) -> None:
        # what has just been sent is still in the jitter buffer of the far side, unless it was cut
        is_heard_out = self.state is CallState.ESTABLISHED and cause is not CompletionCause.BARGE_IN
        tail_ms = self.services.config.calls.hangup_tail_ms if is_heard_out else 0
        sip_code = 480 if self.waits_for_answer else None
        reason = PROMPT_FAILED if cause is CompletionCause.ERROR else "prompt_finished"
        with contextlib.suppress(UserAgentUnavailable):  # its end is the call's
            self.end(reason, sip_code=sip_code, cause=cause.value, tail_ms=tail_ms)

    def end_after_media(self) -> None:
        """Hang up, since the application has closed the media stream that it was asked for; after the silence that lets what
        was just sent be heard.
        """
        tail_ms = self.services.config.calls.hangup_tail_ms if self.state is CallState.ESTABLISHED else 0
        with contextlib.suppress(UserAgentUnavailable):  # its end is the call's
            self.end("media_closed", sip_code=480 if self.waits_for_answer else None, tail_ms=tail_ms)

    def _check(self, event: CallEvent, command: str) -> None:
        if not self.machine.can(event):
            raise WrongState(f"call {self.id} is {self.state}: {command} is not possible")

    def _check_unanswered(self) -> None:
        if not self.waits_for_answer:
            raise WrongState(f"call {self.id} ({self.direction}, {self.state}) does not wait for an answer")

    def publish(self, data: types.EventData) -> None:
        """Send an event of this call; what happens to the call itself carries its metadata and client state."""
        if isinstance(data, types.CallData):
            client_state = self.client_state if data.client_state is UNSET else data.client_state
            data = msgspec.structs.replace(
                data,
                client_state=UNSET if client_state is None else client_state,
                metadata=self.metadata or UNSET,
            )
        self._keep_record()
        self.services.events.publish(data, call_id=self.id, tenant=self.tenant)


def _ends_call(utterance: Utterance, *, is_last: bool) -> bool:
    """Whether a complete utterance takes the call with it."""
    if utterance.prompt.then != "hangup":
        return False
    if utterance.completion_cause is CompletionCause.BARGE_IN:
        return utterance.prompt.unattended and is_last
    return utterance.completion_cause in (CompletionCause.NORMAL, CompletionCause.ERROR)
