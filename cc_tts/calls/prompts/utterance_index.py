"""The utterances of all calls by id; the metrics and accounting of complete ones. Runs on: the event loop."""

from collections.abc import Iterable
from typing import Final

from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.clock import ms_between
from cc_tts.cluster.nodes import LineNodes
from cc_tts.errors import DuplicateId, UtteranceNotFound
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.tenants.accounting import AccountingLog, UtteranceLine
from cc_tts.tenants.shares import SharedRoom

MAX_UTTERANCES_KEPT: Final = 20_000
"""The most utterances of all calls that are kept, unmeasured. Beyond it the oldest complete ones of the tenant with the most
are forgotten.
"""


class UtteranceIndex:
    """Finds utterances by id, without their call."""

    def __init__(
        self, metrics: Metrics, threshold: StartThreshold, nodes: LineNodes, accounting: AccountingLog
    ) -> None:
        self._metrics = metrics
        self._accounting = accounting
        self._nodes = nodes
        self._threshold = threshold
        self._kept: SharedRoom[str, tuple[Utterance, dict[str, Utterance]]] = SharedRoom()
        """Each utterance with the table of its call's utterances."""

    def __contains__(self, utterance_id: str) -> bool:
        return utterance_id in self._kept

    def get(self, utterance_id: str) -> Utterance:
        """Return the utterance of this id.

        Raises:
            UtteranceNotFound: unknown, or forgotten.
        """
        try:
            return self._kept[utterance_id][0]
        except KeyError:
            raise UtteranceNotFound.named(utterance_id) from None

    def new_id(self, wanted: str | None) -> str:
        """Return ``wanted``, or a new id.

        Raises:
            DuplicateId: it is in use.
        """
        if wanted is None:
            return self._nodes.new_id("utt")
        if wanted in self._kept:
            raise DuplicateId(f"there is an utterance {wanted[:80]!r} already")
        return wanted

    def add(self, utterance: Utterance, of_its_call: dict[str, Utterance], *, tenant: str) -> None:
        """Keep an utterance until it or its call is forgotten; it is then removed from ``of_its_call``."""
        self._kept.add(utterance.id, (utterance, of_its_call), tenant)
        while len(self._kept) > MAX_UTTERANCES_KEPT:
            oldest = self._kept.next_out(lambda kept: kept[0].is_complete)
            if oldest is None:
                break
            _, siblings = self._kept[oldest]
            self.forget((oldest,))
            siblings.pop(oldest, None)
        self._metrics.utterances_active.inc()

    def forget(self, utterance_ids: Iterable[str]) -> None:
        """Forget these utterances; unknown ids are ignored."""
        for utterance_id in utterance_ids:
            self._kept.discard(utterance_id)

    def complete(self, utterance: Utterance, *, tenant: str) -> None:
        cause = utterance.completion_cause
        assert cause is not None
        self._accounting.add(
            UtteranceLine(
                tenant=tenant,
                call_id=utterance.call_id,
                utterance_id=utterance.id,
                characters=utterance.text_chars,
                played_ms=round(utterance.played_ms),
                cached=utterance.cached,
                voice=utterance.voice,
                engine=utterance.engine,
                reason=cause,
                error=None if utterance.error is None else utterance.error.code,
            )
        )
        metrics = self._metrics
        metrics.utterances.labels(cause=cause.value).inc()
        metrics.utterances_active.dec()
        if cause is CompletionCause.NORMAL and not utterance.underruns:
            self._threshold.smooth()
        if utterance.engine:
            self._observe_engine(utterance)
        begun_ns, completed_ns, by = utterance.interrupted_ns, utterance.completed_ns, utterance.interrupted_by
        if cause is CompletionCause.BARGE_IN and begun_ns is not None and completed_ns is not None:
            metrics.barge_in.labels(by=by).observe(ms_between(begun_ns, completed_ns) / 1000)

    def _observe_engine(self, utterance: Utterance) -> None:
        metrics, engine = self._metrics, utterance.engine
        exemplar = None if utterance.span is None else utterance.span.exemplar
        for series, ms in (
            (metrics.time_to_first_audio, utterance.time_to_first_audio_ms),
            (metrics.time_to_first_pcm, utterance.time_to_first_pcm_ms),
        ):
            if ms is not None:
                series.labels(engine=engine).observe(ms / 1000, exemplar)
        metrics.start_threshold.labels(engine=engine).set(self._threshold.current_ms / 1000)
