"""The prompts of one call: they are accepted, queue, become PCM, and go to the leg no faster than it plays.

::

    speak ─▸ _waiting ─▸ Feeder: source.open ─▸ chunks ─▸ less than the window? ─▸ leg ─▸ _on_line ─▸ finished
                             stop / barge-in / replace: cancel the feed, cut the leg, complete with the cause

Prompts are synthesised from the answer on, or before it where it is certain to follow; the leg's buffer keeps them until the
caller listens. One task a call feeds one utterance after the other. The next is fed while the last of the one before still
plays, so that queued prompts follow each other without a gap; an utterance is *in progress* from the moment it is the first
on the line.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptUtterance
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.call_state import UtteranceEvent
from cc_tts.calls.prompts.disclosure import Disclosing, is_synthetic
from cc_tts.calls.prompts.feeder import Feeder
from cc_tts.calls.prompts.speak_events import SpeakEvents
from cc_tts.calls.prompts.utterance import CompletionCause, Interrupter, Utterance, UtteranceError, policy_of
from cc_tts.errors import (
    CcTtsError,
    DisclosureFailed,
    EngineFailed,
    EngineOverloaded,
    FetchFailed,
    QueueFull,
    QuotaExceeded,
    ServerError,
    ServerRestarted,
    UserAgentUnavailable,
)
from cc_tts.media.playout_events import (
    PlayoutEvent,
    PlayoutFinished,
    PlayoutProgress,
    PlayoutSpeech,
    PlayoutUnderrun,
)
from cc_tts.speech.prompt import Prompt, PromptDefaults, text_of
from cc_tts.ua import messages
from cc_tts.voices.voice import Voice

MAX_ON_LINE: Final = 8
"""The most utterances that the leg holds at once; it matters only for very short ones. Unmeasured."""
CUT_TIMEOUT_S: Final = 0.5
"""How long ``stop`` waits for the UA process to report silence, unmeasured; a frame and two messages take some 30 ms."""
MAX_UTTERANCES_KEPT: Final = 1000
"""The most complete utterances of a call that are kept; older ones are forgotten. Unmeasured."""

log = logs.get(__name__)


class PromptPlayer:
    """The prompts of one call. None of them is heard before ``heard_from_ns``. ``on_started`` is called when the first frame
    of an utterance with speech was sent, ``on_complete`` once for each utterance. Runs on: the event loop.
    """

    def __init__(
        self,
        call: CallInfo,
        *,
        on_started: Callable[[Utterance, int], None],
        on_complete: Callable[[Utterance], None],
    ) -> None:
        self._call_id = call.id
        self._services = call.services
        self._tenant = call.tenant
        self._on_started = on_started
        self._on_complete = on_complete
        self._disclosing = Disclosing(call)
        self._told = SpeakEvents(call)
        self._feeder = Feeder(
            call,
            self._told,
            # counted, not measured by a clock: a leg that is on hold or not open plays nothing
            buffered_ms=lambda: sum(utterance.fed_ms - utterance.played_ms for utterance in self._on_line),
            is_heard=lambda: self._is_open,
        )
        self._waiting: deque[Utterance] = deque()
        self._on_line: deque[Utterance] = deque()
        self._feeding: tuple[Utterance, asyncio.Task[None]] | None = None
        self._feeds = self._is_open = self._is_ending = False
        self._completed = asyncio.Event()
        self.heard_from_ns = 0
        self.utterances: dict[str, Utterance] = {}
        """The utterances that are still known, by id, oldest first."""

    @property
    def is_disclosing(self) -> bool:
        """Whether the disclosure is being said, or will be next."""
        return self._disclosing.utterance is not None

    @property
    def queue(self) -> list[Utterance]:
        return [*self._on_line, *self._waiting]

    # --- what the call asks for --------------------------------------------------------------------------------------

    def speak(self, prompt: Prompt, defaults: PromptDefaults, *, may_wait: bool) -> Utterance:
        """Accept a prompt. ``may_wait``: it may wait for a full engine, since a listener prefers late speech to none.

        Raises:
            As :meth:`cc_tts.calls.call.Call.speak`.
        """
        prompts = self._checked(prompt, defaults, may_wait=may_wait)
        with self._services.tenants.characters(self._tenant, _num_chars(prompts)):
            accepted = [self._new_utterance(*each) for each in prompts]
        if prompt.queue == "replace":
            for earlier in reversed(self.queue):
                if earlier is not self._disclosing.utterance:
                    self.discard(earlier, CompletionCause.CANCELLED, by="replace")
        if len(accepted) > 1:
            self._disclosing.utterance = accepted[0]
            accepted[0].is_disclosure = True
        for utterance in accepted:
            self._keep(utterance)
            self._told.queued(utterance)
            self.enqueue(utterance)
        return accepted[-1]

    def check(self, prompt: Prompt, defaults: PromptDefaults) -> None:
        """Refuse a prompt that :meth:`speak` would refuse now, before its call is placed."""
        prompts = self._checked(prompt, defaults, may_wait=False)
        self._services.tenants.check_characters(self._tenant, _num_chars(prompts))
        self._services.utterances.new_id(prompt.utterance_id)

    def _checked(
        self, prompt: Prompt, defaults: PromptDefaults, *, may_wait: bool
    ) -> list[tuple[Prompt, Voice | None]]:
        """Return the prompt with its voice, behind the disclosure that the caller must hear first."""
        services = self._services
        limit = services.config.calls.max_queued_prompts
        if prompt.queue == "append" and len(self.queue) >= limit:
            raise QueueFull(f"{limit} prompts wait on this call; calls.max_queued_prompts is {limit}", retry_after_s=1)
        prompt, voice = services.checked(prompt, self._tenant, defaults)
        if not self.queue:
            services.check_capacity(
                self._tenant, prompt.content, may_wait=may_wait and not services.config.tts.refuse_when_full
            )
        disclosure = self._disclosure_before(prompt, defaults)
        return [(prompt, voice)] if disclosure is None else [disclosure, (prompt, voice)]

    def _disclosure_before(self, prompt: Prompt, defaults: PromptDefaults) -> tuple[Prompt, Voice | None] | None:
        """Return the disclosure that the caller must hear first, and its voice.

        Raises:
            DisclosureFailed: it cannot be spoken.
        """
        wanted = self._disclosing.before(prompt.content)
        if wanted is None:
            return None
        try:
            return self._services.checked(wanted, self._tenant, defaults)
        except CcTtsError as error:
            raise DisclosureFailed(f"the disclosure cannot be spoken: {error.detail}") from error

    def prepare(self) -> None:
        """Synthesise the queued prompts. The leg plays them once the far side listens; :meth:`open_line` reports that."""
        self._feeds = not self._is_ending
        self._next()

    def open_line(self, at_ns: int) -> None:
        """The far side listens from ``at_ns`` on. Prompts that waited for this count their time from then."""
        if self._is_open:
            return
        self._is_open, self.heard_from_ns = True, at_ns
        for utterance in self.queue:
            utterance.origin_ns = max(utterance.origin_ns, at_ns)
        self._start_first()
        self.prepare()

    def restore(self, kept: Iterable[KeptUtterance], played_ms: Mapping[str, float], *, is_answered: bool) -> None:
        """Restore the utterances of an earlier server. They complete with an error, and the leg plays what it has of those
        in ``played_ms``. An utterance that began still ends an answered call if its prompt says so; one that never began
        does so only if no application is there to say it again. Unheard audio of an unanswered call is cut, since it is said
        again.
        """
        now_ns = self._services.clock.now_ns()
        for each in kept:
            has_begun = each.id in played_ms
            then = each.then if is_answered and (has_begun or each.unattended) else "stay"
            utterance = each.revive(self._call_id, then=then, now_ns=now_ns)
            utterance.error = UtteranceError(ServerRestarted.code, ServerRestarted.title)
            utterance.played_ms = played_ms.get(each.id, 0.0)
            self._keep(utterance)
            (self._on_line if has_begun else self._waiting).append(utterance)
        self._start_first()
        self._next()
        for utterance in () if is_answered else tuple(self._on_line):
            if not utterance.played_ms:
                self.discard(utterance, CompletionCause.ERROR)

    def stop_feeding(self) -> None:
        """Start no further utterance, since the call is about to end."""
        self._feeds, self._is_ending = False, True

    def enqueue(self, utterance: Utterance) -> None:
        """Queue an utterance. It counts as having waited only behind a prompt that is played to its end, not
        behind a cut.
        """
        utterance.has_waited = any(earlier.discard_cause is None for earlier in self.queue)
        self._waiting.append(utterance)
        self._next()

    async def stop(self, scope: Literal["current", "all"]) -> tuple[list[str], float]:
        """Stop the current prompt, or all, and wait until the line is silent, at most :data:`CUT_TIMEOUT_S`. Returns the ids
        of the stopped prompts, and how much synthesised audio was dropped, ms.
        """
        victims = self.queue
        if scope == "current":
            victims = [each for each in victims if each is not self._disclosing.utterance][:1]
        discarded_ms = self._cancel(victims)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_TIMEOUT_S):
                while not all(utterance.is_complete for utterance in victims):
                    self._completed.clear()
                    await self._completed.wait()
        return [utterance.id for utterance in victims], round(discarded_ms, 1)

    def cancel_all(self) -> None:
        """Stop everything, without waiting until the line is silent."""
        self._cancel(self.queue)

    def _cancel(self, victims: list[Utterance]) -> float:
        cancelled = partial(self.discard, cause=CompletionCause.CANCELLED, by="stop")
        return sum(map(cancelled, reversed(victims)))

    def barge_in(self, at_ns: int, by: Literal["dtmf", "speech"] = "dtmf", *, speech_id: str | None = None) -> None:
        """A key or speech that began at ``at_ns`` cuts the current prompt and those behind it, as far as each allows it.
        Nothing happens if the current prompt does not allow it.
        """
        queue = self.queue
        allowing = [each for each in queue if (each.barge_in_dtmf if by == "dtmf" else each.barge_in_speech)]
        if not allowing or allowing[0] is not queue[0]:
            return
        queue[0].interrupted_ns = queue[0].interrupted_ns or at_ns
        for utterance in reversed(allowing):
            if utterance.interrupted_by is None:
                utterance.speech_id = speech_id
            self.discard(utterance, CompletionCause.BARGE_IN, by=by)

    def discard(self, utterance: Utterance, cause: CompletionCause, *, by: Interrupter | None = None) -> float:
        """Drop one utterance at every stage; return how much synthesised audio is dropped, ms. It completes at once if the
        leg never had it, else when the leg reports silence. ``by`` is the cause of the interruption, unless one is noted
        already.
        """
        by = by or ("dtmf" if cause is CompletionCause.BARGE_IN else None)
        utterance.interrupted_by = utterance.interrupted_by or by
        if utterance in self._waiting:
            self._waiting.remove(utterance)
            self._complete(utterance, cause)
            return 0.0
        if utterance not in self._on_line or utterance.discard_cause is not None:
            return 0.0
        utterance.discard_cause = cause
        self._stop_feeding(utterance)
        self._services.ua.tell(messages.CutUtterance(self._call_id, utterance.id))
        return max(0.0, utterance.fed_ms - utterance.played_ms)

    def close(self, cause: CompletionCause) -> None:
        """Complete everything now without asking the leg, since the call is over."""
        self._feeds = False
        if self._feeding is not None:
            self._feeding[1].cancel()
        pending = self.queue
        self._waiting.clear()
        self._on_line.clear()
        for utterance in pending:
            self._complete(utterance, utterance.discard_cause or cause)

    # --- what the leg reports ----------------------------------------------------------------------------------------

    def on_playout(self, event: PlayoutEvent) -> None:
        """Handle a report of the leg's playout buffer."""
        match event:
            case PlayoutSpeech(utterance_id=utterance_id, at_ns=at_ns):
                self._speech_began(utterance_id, at_ns)
            case PlayoutProgress():
                self._progress(event)
            case PlayoutUnderrun(missing_ms=missing_ms):
                self._services.metrics.playout_underruns.inc()
                self._services.threshold.underrun(missing_ms)
            case PlayoutFinished():
                self._finished(event)

    def _speech_began(self, utterance_id: str, at_ns: int) -> None:
        utterance = self.utterances.get(utterance_id)
        if utterance is None or utterance.first_speech_ns is not None:
            return
        utterance.first_speech_ns = at_ns
        utterance.origin_ns = max(utterance.origin_ns, utterance.text_ready_ns, self.heard_from_ns)
        self._told.started(utterance)
        self._on_started(utterance, at_ns)
        self._next()  # the prompt that waited until the disclosure was heard

    def _progress(self, report: PlayoutProgress) -> None:
        if (utterance := self._find(report.utterance_id)) is not None:
            utterance.played_ms = report.played_ms
            self._told.progress(utterance)
        self._feeder.moved.set()

    def _finished(self, report: PlayoutFinished) -> None:
        if (utterance := self._find(report.utterance_id)) is not None:
            utterance.played_ms, utterance.underruns = report.played_ms, report.underruns
            utterance.completed_ns = report.at_ns
            self._told.progress(utterance)
            self._on_line.remove(utterance)
            cause = CompletionCause.NORMAL
            if report.cause == "cut":
                cause = CompletionCause.CANCELLED
                self._stop_feeding(utterance)
            elif utterance.discard_cause is None:
                self._disclosing.check_heard(utterance)
            if utterance.error is not None:
                cause = CompletionCause.ERROR
            self._complete(utterance, utterance.discard_cause or cause)
            self._start_first()
        self._feeder.moved.set()
        self._next()

    def _find(self, utterance_id: str) -> Utterance | None:
        return next((utterance for utterance in self._on_line if utterance.id == utterance_id), None)

    # -----------------------------------------------------------------------------------------------------------------

    def _new_utterance(self, prompt: Prompt, voice: Voice | None) -> Utterance:
        services = self._services
        default = services.config.calls.barge_in_dtmf
        return Utterance(
            id=services.utterances.new_id(prompt.utterance_id),
            call_id=self._call_id,
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
        self._services.utterances.add(utterance, self.utterances, tenant=self._tenant)
        while len(self.utterances) > MAX_UTTERANCES_KEPT + self._services.config.calls.max_queued_prompts:
            oldest = next(iter(self.utterances))
            del self.utterances[oldest]
            self._services.utterances.forget((oldest,))

    def _stop_feeding(self, utterance: Utterance) -> None:
        if self._feeding is not None and self._feeding[0] is utterance:
            self._feeding[1].cancel()

    def _next(self) -> None:
        """Begin to feed the next utterance if its turn has come."""
        while self._waiting and self._waiting[0].error is not None:
            if self._on_line:
                return
            self._complete(self._waiting.popleft(), CompletionCause.ERROR)
        last = self._on_line[-1] if self._on_line else None
        full = len(self._on_line) >= MAX_ON_LINE or (last is not None and last.prompt.then == "hangup")
        full = full or self._disclosing.holds_back(self._on_line)
        if self._feeds and self._waiting and self._feeding is None and not full:
            utterance = self._waiting.popleft()
            self._on_line.append(utterance)
            self._start_first()
            start_ms = self._feeder.start_ms(utterance.prompt.content)
            self._services.ua.tell(messages.BeginUtterance(self._call_id, utterance.id, start_ms))
            feed = self._feeder.feed(utterance)
            task = asyncio.create_task(feed, name=f"feed {utterance.id}", context=utterance.context)
            self._feeding = (utterance, task)
            task.add_done_callback(partial(self._fed, utterance), context=utterance.context)

    def _fed(self, utterance: Utterance, task: asyncio.Task[None]) -> None:
        """Feed the next utterance. Whatever broke, this one completes and the call stays up. If the UA process died,
        the end of the call completes it.
        """
        self._feeding = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, UserAgentUnavailable):
            self._fail(utterance, error)
        self._next()

    def _start_first(self) -> None:
        """Mark the first utterance on the line as in progress. Its clock starts when its turn comes, not while it waits."""
        if self._is_open and self._on_line and self._on_line[0].machine.can(UtteranceEvent.START):
            head = self._on_line[0]
            head.machine.fire(UtteranceEvent.START)
            if head.has_waited:
                head.origin_ns = self._services.clock.now_ns()

    def _fail(self, utterance: Utterance, error: Exception) -> None:
        known = error if isinstance(error, CcTtsError) else EngineFailed()
        is_refusal = isinstance(error, EngineOverloaded | QuotaExceeded | FetchFailed)
        is_expected = isinstance(error, CcTtsError) and error.__cause__ is None
        (log.warning if is_refusal else log.error)(
            "utterance_failed",
            utterance_id=utterance.id,
            code=known.code,
            detail=known.detail if isinstance(known, ServerError) else None,  # that of another error may quote the text
            exc_info=None if is_expected else error,
        )
        utterance.error = UtteranceError(known.code, known.detail)
        self.discard(utterance, CompletionCause.ERROR)

    def _complete(self, utterance: Utterance, cause: CompletionCause) -> None:
        """Publish that an utterance is complete, and start whatever waited for it."""
        if utterance.is_complete:
            return
        utterance.completion_cause = cause
        utterance.machine.fire(UtteranceEvent.COMPLETE)
        self._completed.set()
        self._told.complete(utterance)
        self._services.utterances.complete(utterance, tenant=self._tenant)
        if utterance.watcher is not None:
            utterance.watcher.on_complete(utterance)
        utterance.forget_text()
        is_unlabelled = self._disclosing.complete(utterance)
        self._on_complete(utterance)
        if is_unlabelled:
            self._refuse_synthetic()

    def _refuse_synthetic(self) -> None:
        """Complete the queued synthetic words with an error, since the caller has not heard the disclosure."""
        for utterance in reversed(self.queue):
            if is_synthetic(utterance.prompt.content):
                utterance.error = UtteranceError(DisclosureFailed.code, "the disclosure before it was not heard")
                self.discard(utterance, CompletionCause.ERROR)


def _num_chars(prompts: Iterable[tuple[Prompt, Voice | None]]) -> int:
    return sum(len(text_of(prompt.content)) for prompt, _ in prompts)
