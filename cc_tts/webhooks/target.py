"""An endpoint's address: where its events go, and how they are signed."""

from dataclasses import dataclass, field
from typing import Self

from yarl import URL

from cc_tts.config.schema import CallWebhook, WebhookConfig
from cc_tts.config.webhooks import PER_CALL, key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """The address of events. ``types`` empty: all; ``tenant`` empty: the events of every tenant. ``of_call``: a client chose
    it for a call, so its address must be in ``webhooks.allowed_hosts``.
    """

    name: str
    url: URL = field(repr=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    types: frozenset[str] = frozenset()
    tenant: str = ""
    timeout_s: float = 5.0
    max_in_flight: int = 32
    of_call: CallWebhook | None = field(default=None, repr=False)

    @property
    def is_guarded(self) -> bool:
        return self.of_call is not None

    @classmethod
    def configured(cls, name: str, config: WebhookConfig) -> Self:
        return cls(
            name=name,
            url=URL(config.url),
            keys=tuple(map(key_of, config.secrets)),
            types=frozenset(config.types),
            tenant=config.tenant,
            timeout_s=config.timeout_ms / 1000,
            max_in_flight=config.max_in_flight,
        )

    @classmethod
    def chosen(cls, webhook: CallWebhook) -> Self:
        keys = (key_of(webhook.secret),) if webhook.secret else ()
        return cls(name=PER_CALL, url=URL(webhook.url), keys=keys, of_call=webhook)

    def wants(self, kind: str, tenant: str) -> bool:
        return (not self.types or kind in self.types) and self.tenant in ("", tenant)

    @property
    def shown(self) -> str:
        """The URL without path and query, which may hold a secret."""
        return str(self.url.origin())
