"""The objects of the layers below that the API needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from cc_tts.api.admin.operations import Operations
from cc_tts.calls.registry import CallRegistry
from cc_tts.calls.services import CallServices
from cc_tts.cluster.link import PoolLink
from cc_tts.cluster.messages import Worker
from cc_tts.config.schema import Config
from cc_tts.engines.enrolment.own_voices import OwnVoices
from cc_tts.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Everything that the API needs. ``on_drain`` is called once, when the first drain is requested, and must return at
    once. ``pool``: the connection to `cc-tts pool`, if there is one. ``workers``: the workers on other machines that this
    server has reached. ``operations``: the operators' commands to the server process.
    """

    registry: CallRegistry
    own_voices: OwnVoices
    webhooks: Webhooks
    on_drain: Callable[[], None]
    pool: PoolLink | None = None
    workers: Callable[[], Sequence[Worker]] = tuple
    operations: Operations = field(default_factory=Operations)

    @property
    def services(self) -> CallServices:
        return self.registry.services

    @property
    def config(self) -> Config:
        return self.registry.services.config


CONTEXT: Final = web.AppKey("context", ApiContext)
