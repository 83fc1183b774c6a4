"""Dependencies that all calls share."""

from dataclasses import dataclass, field

from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.prompts.utterance_index import UtteranceIndex
from cc_tts.clock import Clock
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import Config
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.speech.prompt import Content, texts_of
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import Reservation, TenantQuotas
from cc_tts.ua.client import UaClient
from cc_tts.vad.client import VadProcess


@dataclass(slots=True, kw_only=True)
class CallServices:
    """``config`` is that of the start: what a reload can change concerns only the registry."""

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
    threshold: StartThreshold = field(init=False)
    utterances: UtteranceIndex = field(init=False)

    def __post_init__(self) -> None:
        playout = self.config.playout
        self.threshold = StartThreshold(
            floor_ms=playout.start_threshold_min_ms, ceiling_ms=playout.start_threshold_max_ms
        )
        self.utterances = UtteranceIndex(self.metrics, self.threshold, self.nodes, self.accounting)

    def check_capacity(self, tenant: str, content: Content, *, may_wait: bool = False) -> None:
        """Refuse a prompt that would start now if the engine, or the tenant's part of it, is used up. One that ``may_wait``
        waits for a full engine.

        Raises:
            EngineOverloaded, QuotaExceeded: it is.
        """
        if not texts_of(content):
            return
        with self.tenants.asking_engine(tenant):
            self.source.check_capacity(content, may_wait=may_wait)
        self.tenants.check_stream(tenant, lambda: self.source.utilisation(content))

    def hold_stream(self, tenant: str, content: Content) -> Reservation:
        """The content begins to be spoken; raises as :meth:`check_capacity`, of the tenant's part."""
        if not texts_of(content):
            return Reservation()
        return self.tenants.hold_stream(tenant, lambda: self.source.utilisation(content))
