"""The API on a loopback port over the real registry, whose user agent and speech are made up."""

import asyncio
import dataclasses
import functools
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from aiohttp import ClientSession, ClientTimeout, web

from cc_tts.api.admin.operations import Operations
from cc_tts.api.app import build_app
from cc_tts.api.context import ApiContext
from cc_tts.api.http import openapi
from cc_tts.api.http.connections import HttpListener
from cc_tts.api.routes import ROUTES
from cc_tts.api.webhooks.answers import IncomingAnswers
from cc_tts.calls.call import Call
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.registry import CallRegistry
from cc_tts.calls.services import CallServices
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.cluster.messages import Worker
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import CallsConfig, Config, HttpConfig, RouteConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.enrolment.own_voices import OwnVoices
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    CapacityExceeded,
    LanguageUnsupported,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
    UserAgentUnavailable,
)
from cc_tts.metrics import Metrics
from cc_tts.speech.lexicons import Lexicons
from cc_tts.speech.prompt import (
    Content,
    Prompt,
    PromptDefaults,
    SequenceContent,
    TextContent,
    ToneContent,
    text_of,
    texts_of,
)
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.tracing.tracer import Tracer
from cc_tts.ua import messages
from cc_tts.voices.voice import Voice
from cc_tts.webhooks.webhooks import Webhooks
from lab.waiting import PATIENCE_S
from tests.fakes.fake_engine import FakeEngine, FakeSource, Step
from tests.fakes.fake_ua import FakeUa
from tests.fakes.fake_vad import FakeVad


class FakeSpeechSource(FakeSource):
    """Silence for each word of the text, 100 ms a word; an error or a gate may come instead."""

    def __init__(self, config: TtsConfig) -> None:
        super().__init__()
        self._config = config
        self.engine = FakeEngine()
        self.lexicons = Lexicons(config)
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail_at: int | None = None
        self.error: Exception = RuntimeError("the secret detail of a failure")

    async def match_lexicons(self, content: Content) -> None:
        """Nothing is matched."""

    def check_defaults(self, defaults: PromptDefaults) -> None:
        if defaults.voice is not None or defaults.language is not None:
            self.check(TextContent("a", defaults.voice, defaults.language))
        self.lexicons.check(defaults.lexicons)

    def check_capacity(self, content: Content, *, may_wait: bool = False) -> None:
        if self.refusal is not None:
            raise self.refusal

    def check(self, content: Content) -> Voice | None:
        if isinstance(content, SequenceContent):
            return self._check_sequence(content)
        match content:
            case TextContent():
                self.check_text(content)
                if content.language and content.language[:2] not in ("en", "de"):
                    raise LanguageUnsupported(f"no voice speaks {content.language!r}")
                for voice in self.engine.voices():
                    if voice.id == (content.voice or "en-us"):
                        return voice
                raise UnknownVoice(f"no voice is called {content.voice!r}")
            case ToneContent() if content.tone not in ("beep", "busy"):
                raise Unprocessable(f"no tone is called {content.tone!r}")
        return None

    def check_text(self, content: TextContent) -> None:
        if len(content.text) > self._config.max_text_chars:
            raise TextTooLong(f"{len(content.text)} characters")
        if not any(character.isalnum() for character in content.text):
            raise NothingToSay

    def _check_sequence(self, content: SequenceContent) -> Voice | None:
        if not content.parts:
            raise NothingToSay
        if len(text_of(content)) > self._config.max_text_chars:
            raise TextTooLong(f"{len(text_of(content))} characters")
        return next(iter([self.check(text) for text in texts_of(content)]), None)

    def steps_of(self, content: Content, rate_hz: int) -> Sequence[Step]:
        words = re.findall(r"\S+\s*", text_of(content))
        chunks: list[Step] = [SpeechChunk(b"\x01\x00" * (rate_hz // 10), word) for word in words]
        if self.fail_at is not None:
            chunks[self.fail_at :] = [self.error]
        return [step for chunk in chunks for step in (self.gate, chunk)]


class ObedientUa(FakeUa):
    """Does what it is told in the next turn of the event loop, as a user agent whose far side agrees to everything."""

    def send(self, message: Any, payload: bytes = b"") -> None:
        super().send(message, payload)
        asyncio.get_running_loop().call_soon(self._obey, message)

    def _obey(self, message: Any) -> None:
        match message:
            case messages.Ring(call_id=call_id, early_media=early_media):
                self.report(messages.CallRinging(call_id, f"sip-{call_id}", 183 if early_media else 180))
            case messages.Answer(call_id=call_id):
                self.established(call_id)
            case messages.SetHold(call_id=call_id, hold=hold):
                self.report(messages.HoldChanged(call_id, "local" if hold else "none"))
            case messages.Bridge(call_id=call_id, other_call_id=other, bridge_id=bridge_id):
                self.report(messages.Bridged(call_id, bridge_id))
                self.report(messages.Bridged(other, bridge_id))
            case messages.CutUtterance(call_id=call_id, utterance_id=str(utterance_id)):
                self.finished(call_id, utterance_id, cut=True)
            case messages.Hangup(call_id=call_id, sip_code=sip_code):
                self.ended(call_id, by="local", sip_code=sip_code or 200)


class ObservedRegistry(CallRegistry):
    """The real registry over a made-up user agent and made-up speech. ``gate`` and ``originate_error`` stand in front of
    :meth:`originate`; ``not_ready`` is given instead of its own reason.
    """

    def __init__(self, config: Config, clock: Clock, metrics: Metrics, tenants: TenantQuotas, **services: Any) -> None:
        self.source = FakeSpeechSource(config.tts)
        self.ua = ObedientUa(max_calls=8)
        self.requests: list[OriginateRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.originate_error: Exception | None = None
        self.not_ready: str | None = None
        self.webhooks = Webhooks(config.webhooks, clock=clock, metrics=metrics)
        events = EventBus(
            clock,
            sink=self.webhooks.take,
            max_subscribers=config.http.max_event_subscribers,
            history_size=config.http.event_history_size,
        )
        super().__init__(
            CallServices(
                config=config,
                ua=cast("Any", self.ua),
                source=cast("Any", self.source),
                vad=cast("Any", FakeVad()),
                events=events,
                metrics=metrics,
                clock=clock,
                tenants=tenants,
                **services,
            ),
            cast("Any", None),
        )

    @property
    def not_ready_because(self) -> str | None:
        return self.not_ready or super().not_ready_because

    def add(self, id_: str, *, answered: bool = False) -> Call:
        self.ua.incoming(
            "bob", call_id=id_, caller="sip:alice@127.0.0.1", callee="sip:bob@127.0.0.1", headers={"X-Queue": "sales"}
        )
        if answered:
            self.ua.established(id_)
        return self.call(id_)

    @property
    def prompts(self) -> dict[str, Prompt]:
        ids = [utterance_id for call in self.calls() for utterance_id in call.utterances]
        return {utterance_id: self.services.utterances.get(utterance_id).prompt for utterance_id in ids}

    async def originate(self, request: OriginateRequest) -> Call:
        self.requests.append(request)
        await self.gate.wait()
        if self.originate_error is not None:
            raise self.originate_error
        return await super().originate(request)


BUSY = CapacityExceeded("4 calls are up", retry_after_s=3)
UA_DOWN = UserAgentUnavailable(retry_after_s=2)
OF_ANY_REQUEST = ("forbidden", "expectation_failed", "not_found")
"""These are named for no path: a web page of another origin asks where no token is needed; ``Expect``; no such path."""


def make_config(*, max_text_chars: int = 100, max_queued_prompts: int = 3, **http: Any) -> Config:
    return Config(
        http=HttpConfig(**{"request_timeout_s": 0.5, "max_body_bytes": 4096, **http}),
        tts=TtsConfig(max_text_chars=max_text_chars),
        calls=CallsConfig(max_queued_prompts=max_queued_prompts),
        routes={"bob": RouteConfig(answer="manual")},
    )


def make_own_voices(config: Config, engine: Any) -> OwnVoices:
    """Own voices of an engine, whose transcripts are words already."""
    return OwnVoices(config.tts, engine, refresh=engine.refresh_voices, normalize=lambda text, _language: text)


def make_context(
    config: Config | None = None,
    *,
    clock: Clock | None = None,
    on_drain: Callable[[], None] = lambda: None,
    accounting: AccountingLog | None = None,
) -> tuple[ApiContext, ObservedRegistry]:
    """The API's context with everything below it made up."""
    config = config or make_config()
    clock = clock or MonotonicClock()
    metrics, tenants = Metrics(), TenantQuotas(config.tenants)
    nodes, accounting = LineNodes(config.server, config.cluster), accounting or AccountingLog()
    registry = ObservedRegistry(config, clock, metrics, tenants, nodes=nodes, accounting=accounting)
    context = ApiContext(
        registry=registry,
        own_voices=make_own_voices(config, registry.source.engine),
        webhooks=registry.webhooks,
        on_drain=on_drain,
    )
    return context, registry


@dataclass(frozen=True, slots=True)
class RunningApi:
    """The API on a loopback port, as the server process runs it."""

    registry: ObservedRegistry
    context: ApiContext
    app: web.Application
    session: ClientSession
    port: int
    listener: HttpListener

    async def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> "Answered":
        """One request; a body that is not bytes goes as JSON."""
        headers = dict(headers or {})
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        async with self.session.request(
            method, path, data=data, headers=headers, skip_auto_headers=("Content-Type",)
        ) as response:
            answered = Answered(response.status, response.headers, await response.read())
        if answered.raw and answered.headers.get("Content-Type") == "application/problem+json":
            check_documented(method, path, answered)
        return answered

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A raw connection; it is closed at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def pointers(self) -> list[str]:
        return [error["pointer"] for error in self.json.get("errors", [])]

    def check_problem(self, status: int, code: str, *pointers: str) -> None:
        """This is that problem, in the form of RFC 9457."""
        assert self.headers["Content-Type"] == "application/problem+json", self.raw
        problem = self.json
        assert (self.status, problem["code"], self.pointers) == (status, code, list(pointers)), problem
        assert problem["status"] == status
        assert problem["type"] == f"urn:cc-tts:problem:{code}"
        assert problem["title"]
        assert problem["detail"]
        assert problem["instance"].startswith("/")


def check_documented(method: str, path: str, answered: Answered) -> None:
    """The OpenAPI document names this problem for the paths that are in it."""
    described = [
        methods[method.lower()]["responses"]
        for template, methods in documented_paths().items()
        if method.lower() in methods and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path.partition("?")[0])
    ]
    told = " ".join(responses.get(str(answered.status), {}).get("description", "") for responses in described)
    code = answered.json["code"]
    assert not described or code in OF_ANY_REQUEST or f"`{code}`" in told, f"{method} {path}: {code} is not documented"


@functools.cache
def documented_paths() -> Any:
    return msgspec.json.decode(msgspec.json.encode(openapi.document(ROUTES)))["paths"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def running_api(
    config: Config | None = None,
    *,
    on_drain: Callable[[], None] = lambda: None,
    workers: Callable[[], Sequence[Worker]] = tuple,
    shutdown_timeout_s: float = 1.0,
    accounting: AccountingLog | None = None,
    own_voices: OwnVoices | None = None,
    operations: Operations | None = None,
    tracer: Tracer | None = None,
    speech_source: SpeechSource | None = None,
    **options: Any,
) -> AsyncIterator[RunningApi]:
    """Serve the API on a free loopback port, as the server does. ``speech_source``: of speech without a call."""
    context, registry = make_context(config, on_drain=on_drain, accounting=accounting)
    context = dataclasses.replace(
        context,
        workers=workers,
        own_voices=own_voices or context.own_voices,
        operations=operations or context.operations,
    )
    context.services.tracer = tracer or context.services.tracer
    context.services.source = speech_source or context.services.source
    registry.webhooks.on_answer = IncomingAnswers(context).take
    app = build_app(context)
    http = dataclasses.replace(context.config.http, host="127.0.0.1", port=0)
    listener = HttpListener(app, http, clock=context.services.clock, shutdown_timeout=shutdown_timeout_s, **options)
    try:
        await registry.webhooks.start()
        await listener.start()
        port = listener.port
        async with ClientSession(f"http://127.0.0.1:{port}", timeout=ClientTimeout(total=PATIENCE_S)) as session:
            yield RunningApi(registry, context, app, session, port, listener)
    finally:
        registry.gate.set()
        registry.source.gate.set()
        await listener.stop()
        await registry.webhooks.stop(timeout_s=0)
