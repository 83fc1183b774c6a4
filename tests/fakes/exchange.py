"""A registry between a made-up UA process and a made-up engine."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from cc_tts.calls.call import Call
from cc_tts.calls.events.bus import Event, EventBus, Subscription
from cc_tts.calls.incoming import MediaConnector
from cc_tts.calls.registry import CallRegistry
from cc_tts.calls.services import CallServices
from cc_tts.clock import Clock
from cc_tts.config.record import RecordConfig
from cc_tts.config.schema import CallsConfig, Config, MediaConfig, MediaDialect, RouteConfig, StreamConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.config.sections.relay import RelayConfig
from cc_tts.config.sections.trunks import TrunkConfig
from cc_tts.config.transfer import TransferConfig
from cc_tts.metrics import Metrics
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from cc_tts.tracing.tracer import Tracer
from cc_tts.ua import messages
from tests.fakes.fake_engine import FakeEngine, FakeSource, tone
from tests.fakes.fake_line import FakeClock
from tests.fakes.fake_ua import FakeUa, invite_of
from tests.fakes.fake_vad import FakeVad

ROUTES = {
    "greet": RouteConfig(greeting="Good morning"),
    "bye": RouteConfig(greeting="Good bye", then="hangup"),
    "silent": RouteConfig(),
    "desk": RouteConfig(greeting="One moment", then="transfer", transfer_to="sip:1001@pbx.example.com"),
    "ring": RouteConfig(answer="ring", ring_ms=10, greeting="Hello"),
    "manual": RouteConfig(answer="manual"),
    "office": RouteConfig(answer="manual", unanswered_greeting="We are away"),
    "german": RouteConfig(voice="de", language="de-DE"),
    "wrong": RouteConfig(voice="nobody"),
    "app": RouteConfig(media_url="ws://127.0.0.1:9/call", greeting="Good morning"),
    "office-app": RouteConfig(
        media_url="ws://127.0.0.1:9/call", media_dialect="twilio", unanswered_greeting="We are away"
    ),
}


class Exchange:
    opened: ClassVar[list["Exchange"]] = []

    def __init__(
        self,
        *,
        max_calls: int = 4,
        max_text_chars: int = 100,
        stream: StreamConfig | None = None,
        media: MediaConfig | None = None,
        relay: RelayConfig | None = None,
        record: RecordConfig | None = None,
        routes: Mapping[str, RouteConfig] | None = None,
        trunks: dict[str, TrunkConfig] | None = None,
        allowed: tuple[str, ...] = ("sip:*@pbx.example.com",),
        ua: FakeUa | None = None,
        connect_media: MediaConnector | None = None,
        tracer: Tracer | None = None,
        **calls: Any,
    ) -> None:
        self.config = Config(
            routes={**ROUTES, **(routes or {})},
            trunks=trunks or {},
            calls=CallsConfig(**calls),
            stream=stream or StreamConfig(),
            media=media or MediaConfig(),
            relay=relay or RelayConfig(),
            record=record or RecordConfig(),
            transfer=TransferConfig(allowed=allowed),
            tts=TtsConfig(max_text_chars=max_text_chars),
        )
        self.ua = ua or FakeUa(max_calls=max_calls)
        self.engine = FakeEngine()
        self.source = FakeSource()
        self.vad = FakeVad()
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.events = EventBus(self.clock)
        self.dialled: list[tuple[Call, str, MediaDialect, Callable[[], None]]] = []
        cast("Any", self.source).engine = self.engine
        self.services = CallServices(
            config=self.config,
            ua=cast("Any", self.ua),
            source=cast("Any", self.source),
            vad=cast("Any", self.vad),
            events=self.events,
            metrics=self.metrics,
            clock=self.clock,
            tracer=tracer or Tracer(self.clock),
        )
        self.registry = CallRegistry(self.services, connect_media or self._connect_media)
        self._subscription: Subscription = self.events.subscribe(max_queued=1_000_000)
        self._seen: list[Event] = []
        self.opened.append(self)

    def use_clock(self, clock: Clock) -> None:
        self.clock = cast("Any", clock)
        self.services.clock = clock

    def use_real_speech(self) -> None:
        self.engine.make_pcm = tone
        self.services.source = SpeechSource(cast("Any", self.engine), Normalizer(), self.config.tts)

    def _connect_media(self, call: Call, url: str, dialect: MediaDialect, on_failed: Callable[[], None]) -> None:
        self.dialled.append((call, url, dialect, on_failed))

    @property
    def seen(self) -> list[Event]:
        while self._subscription.has_queued:
            self._seen.append(self._subscription.take())
        return list(self._seen)

    def ended_as(self, call_id: str) -> tuple[str, str]:
        """The result of a call that is over, and why."""
        ending = self.registry.call(call_id).ending
        assert ending is not None
        return ending.result, ending.reason

    def kinds(self, call_id: str | None) -> list[str]:
        return [event.type for event in self.seen if event.call_id == call_id]

    def talking(self, user: str = "silent", **more: Any) -> str:
        call_id = self.ua.incoming(user, **more)
        self.ua.established(call_id, at_ns=self.clock.now_ns())
        return call_id

    def snapshot(self, call_id: str, state: Any = "established", **more: Any) -> messages.CallSnapshot:
        """What the UA process would say to the next server of a call that came by an INVITE."""
        fields: dict[str, Any] = {
            "record": self.ua.records.get(call_id, b""),
            "sip_call_id": f"sip-{call_id}",
            "sip_code": 0,
            "established_ns": self.clock.now_ns(),
            "transport": "",
            "held_by": "none",
            "media": messages.MediaActive(call_id=call_id, codec="PCMU", clock_rate_hz=8000),
            "invite": invite_of(call_id),
            "utterances": (),
        }
        return messages.CallSnapshot(call_id=call_id, state=state, **(fields | more))

    @staticmethod
    def adopted(*snapshots: messages.CallSnapshot) -> "Exchange":
        """Another server with these calls, once it can speak."""
        after = Exchange()
        after.clock.advance(60_000)
        for snapshot in snapshots:
            after.ua.report(snapshot)
        after.registry.incoming.present_adopted()
        return after

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def settle(self) -> None:
        """Let every task go as far as it can."""
        for _ in range(20):
            await asyncio.sleep(0)
