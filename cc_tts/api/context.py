"""The objects of the layers below that the API needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from cc_tts.api.admin.operations import Operations
from cc_tts.calls.registry import CallRegistry
from cc_tts.clock import Clock
from cc_tts.cluster.link import PoolLink
from cc_tts.cluster.messages import Worker
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import Config
from cc_tts.engines.enrolment.own_voices import OwnVoices
from cc_tts.metrics import Metrics
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.tracing.tracer import Tracer
from cc_tts.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Everything that the API needs. ``on_drain`` is called once, when the first drain is requested, and must return at
    once. ``nodes``: the addresses of other nodes, for requests about their calls. ``pool``: the connection to `cc-tts pool`,
    if there is one. ``workers``: the workers on other machines that this server has reached. ``operations``: the operators'
    commands to the server process.
    """

    config: Config
    registry: CallRegistry
    speech_source: SpeechSource
    own_voices: OwnVoices
    clock: Clock
    metrics: Metrics
    webhooks: Webhooks
    on_drain: Callable[[], None]
    nodes: LineNodes = field(default_factory=LineNodes)
    pool: PoolLink | None = None
    tenants: TenantQuotas = field(default_factory=TenantQuotas)
    accounting: AccountingLog = field(default_factory=AccountingLog)
    workers: Callable[[], Sequence[Worker]] = tuple
    operations: Operations = field(default_factory=Operations)
    tracer: Tracer = field(default_factory=Tracer)


CONTEXT: Final = web.AppKey("context", ApiContext)
