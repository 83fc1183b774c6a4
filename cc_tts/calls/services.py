"""The dependencies that all calls share."""

from dataclasses import dataclass, field, replace
from typing import Literal

from msgspec import UNSET

from cc_tts.calls.dialplan.trunks import Trunks
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.events.types import PromptReady
from cc_tts.calls.prompts.utterance_index import UtteranceIndex
from cc_tts.calls.recording.recordings import Recordings
from cc_tts.clock import Clock
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import Config
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.speech.prompt import Content, Prompt, PromptDefaults, texts_of
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.staged.prompts import StagedPrompt, StagedPrompts
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import Reservation, TenantQuotas
from cc_tts.tracing.tracer import Tracer
from cc_tts.ua.client import UaClient
from cc_tts.ua.guard.limits import PeerList
from cc_tts.vad.client import VadProcess
from cc_tts.voices.voice import Voice


@dataclass(slots=True, kw_only=True)
class CallServices:
    """``config`` is the current configuration: a reload replaces it, and affects only later calls and commands."""

    config: Config
    ua: UaClient
    source: SpeechSource
    vad: VadProcess
    events: EventBus
    metrics: Metrics
    clock: Clock
    nodes: LineNodes = field(default_factory=LineNodes)
    tenants: TenantQuotas = field(default_factory=TenantQuotas)
    accounting: AccountingLog = field(default_factory=AccountingLog)
    tracer: Tracer = field(default_factory=Tracer)
    threshold: StartThreshold = field(init=False)
    utterances: UtteranceIndex = field(init=False)
    staged: StagedPrompts = field(init=False)
    recordings: Recordings = field(init=False)
    trunks: Trunks = field(init=False)
    trusted_peers: PeerList = field(init=False)

    def __post_init__(self) -> None:
        self.reload(self.config)
        playout = self.config.playout
        self.threshold = StartThreshold(
            floor_ms=playout.start_threshold_min_ms, ceiling_ms=playout.start_threshold_max_ms
        )
        self.utterances = UtteranceIndex(self.metrics, self.threshold, self.nodes, self.accounting)
        self.recordings = Recordings(
            self.config, events=self.events, metrics=self.metrics, clock=self.clock, nodes=self.nodes
        )
        self.trunks = Trunks(self.config.trunks, clock=self.clock, metrics=self.metrics)
        rate_hz = self.config.rtp.clock_rate_hz
        self.staged = StagedPrompts(
            self.config.prompts,
            rate_hz=rate_hz,
            clock=self.clock,
            open_stream=lambda content, **again: self.source.open(content, rate_hz=rate_hz, **again),
            hold_stream=self.hold_stream,
            on_ready=self._on_staged,
            producer=self.config.tts.producer,
            on_fetch=lambda outcome: self.metrics.prompt_fetches.labels(result=outcome).inc(),
        )

    def reload(self, config: Config) -> None:
        """Use this configuration for new calls and new commands; live calls do not change."""
        self.config = config
        self.tenants.reload(config.tenants)
        self.trusted_peers = PeerList(config.sip.trusted_peers)

    def _on_staged(self, prompt: StagedPrompt) -> None:
        state: Literal["ready", "failed"] = "failed" if prompt.error else "ready"
        event = PromptReady(
            prompt_id=prompt.id, state=state, duration_ms=prompt.duration_ms, error=prompt.error or UNSET
        )
        self.events.publish(event, tenant=prompt.tenant)

    def resolved(self, prompt: Prompt, tenant: str) -> Prompt:
        """Return the prompt with its staged content, or with the download of its URL; raises ``PromptNotFound`` and
        ``UrlNotAllowed``.
        """
        content = self.staged.resolved(prompt.content, tenant)
        return prompt if content is prompt.content else replace(prompt, content=content)

    def checked(self, prompt: Prompt, tenant: str, defaults: PromptDefaults) -> tuple[Prompt, Voice | None]:
        """Return the prompt's content with the ``defaults`` of a call, and its voice.

        Raises:
            CcTtsError: it is of no use.
        """
        if prompt.barge_in_speech:
            self.vad.check()
        prompt = defaults.applied_to(self.resolved(prompt, tenant))
        return prompt, self.source.check(prompt.content)

    def check_capacity(self, tenant: str, content: Content, *, may_wait: bool = False) -> None:
        """Refuse a prompt that would start now if the engine, or the tenant's share of it, is full. A prompt that
        ``may_wait`` waits for a full engine.

        Raises:
            EngineOverloaded, QuotaExceeded: it is.
        """
        if not texts_of(content):
            return
        with self.tenants.asking_engine(tenant):
            self.source.check_capacity(content, may_wait=may_wait)
        self.tenants.check_stream(tenant, lambda: self.source.utilisation(content))

    def hold_stream(self, tenant: str, content: Content) -> Reservation:
        """Reserve a stream for content that begins to be spoken; raises as :meth:`check_capacity` for the tenant's share."""
        if not texts_of(content):
            return Reservation()
        return self.tenants.hold_stream(tenant, lambda: self.source.utilisation(content))
