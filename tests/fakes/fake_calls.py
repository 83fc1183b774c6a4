"""Calls without SIP: the shape of ``calls.registry``, ``calls.call`` and ``calls.speech_source`` for tests of the API.

A unit test compares the names with the real classes.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
from aiohttp import ClientSession, ClientTimeout, web

from cc_tts.api.app import build_app
from cc_tts.api.context import ApiContext
from cc_tts.api.http.connections import Listener
from cc_tts.calls.call_info import Direction
from cc_tts.calls.call_state import CALL_TABLE, CallEvent, CallState
from cc_tts.calls.dtmf.gather import Gather, GatherRequest
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.cluster.messages import Worker
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import CallsConfig, Config, HttpConfig, TtsConfig
from cc_tts.errors import (
    CallNotFound,
    CapacityExceeded,
    Draining,
    DuplicateId,
    GatherActive,
    GatherNotFound,
    LanguageUnsupported,
    NothingToSay,
    QueueFull,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
    UserAgentUnavailable,
    UtteranceNotFound,
    WrongState,
)
from cc_tts.media.quality import Quality
from cc_tts.metrics import Metrics
from cc_tts.speech.chunks import SpeechChunk
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
from cc_tts.state_machine import StateMachine
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.voices.voice import Voice

VOICES = (Voice(id="en-us", engine="fake", language="en-US"), Voice(id="de", engine="fake", language="de"))


class FakeSpeechStream:
    """Silence for each word of the text, 100 ms a word; an error or a gate may come instead."""

    def __init__(self, source: "FakeSpeechSource", content: Content, rate_hz: int) -> None:
        self._source = source
        self._content = content
        self._rate_hz = rate_hz
        self.is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        assert isinstance(self._content, TextContent)
        for number, word in enumerate(self._content.text.split()):
            await self._source.gate.wait()
            if self.is_cancelled:
                return
            if number == self._source.fail_at:
                raise self._source.error
            await asyncio.sleep(0)
            yield SpeechChunk(b"\x01\x00" * (self._rate_hz // 10), word)

    def set_buffered_ms(self, buffered_ms: float) -> None:
        pass

    async def cancel(self) -> None:
        self.is_cancelled = True


class FakeEngine:
    """Its voices."""

    def voices(self) -> tuple[Voice, ...]:
        return VOICES


class FakeSpeechSource:
    """Speech without a call."""

    def __init__(self, config: TtsConfig) -> None:
        self._config = config
        self.engine = FakeEngine()
        self.lexicons = Lexicons(config)
        self.streams: list[FakeSpeechStream] = []
        self.contents: list[Content] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail_at: int | None = None
        self.error: Exception = RuntimeError("the secret detail of a failure")

    async def match_lexicons(self, content: Content) -> None:
        """Nothing is matched."""

    def check(self, content: Content) -> Voice | None:
        if isinstance(content, SequenceContent):
            return self._check_sequence(content)
        match content:
            case TextContent():
                if len(content.text) > self._config.max_text_chars:
                    raise TextTooLong(f"{len(content.text)} characters")
                if not any(character.isalnum() for character in content.text):
                    raise NothingToSay
                if content.language and content.language[:2] not in ("en", "de"):
                    raise LanguageUnsupported(f"no voice speaks {content.language!r}")
                for voice in VOICES:
                    if voice.id == (content.voice or "en-us"):
                        return voice
                raise UnknownVoice(f"no voice is called {content.voice!r}")
            case ToneContent() if content.tone not in ("beep", "busy"):
                raise Unprocessable(f"no tone is called {content.tone!r}")
        return None

    def utilisation(self, content: Content) -> float:
        return 0.0

    def _check_sequence(self, content: SequenceContent) -> Voice | None:
        if not content.parts:
            raise NothingToSay
        if len(text_of(content)) > self._config.max_text_chars:
            raise TextTooLong(f"{len(text_of(content))} characters")
        return next(iter([self.check(text) for text in texts_of(content)]), None)

    def open(
        self,
        content: Content,
        *,
        rate_hz: int,
        call_id: str = "",
        utterance_id: str = "",
        is_again: bool = False,
        must_speak: bool = False,
    ) -> FakeSpeechStream:
        self.contents.append(content)
        self.streams.append(FakeSpeechStream(self, content, rate_hz))
        return self.streams[-1]


class FakeCall:
    """A call that does at once what it is told."""

    def __init__(self, registry: "FakeCallRegistry", id_: str, direction: Direction) -> None:
        self._registry = registry
        self.id = id_
        self.direction: Direction = direction
        self.machine = StateMachine(CALL_TABLE, CallState.INCOMING if direction == "inbound" else CallState.OUTGOING)
        self.caller = "sip:alice@127.0.0.1"
        self.callee = "sip:bob@127.0.0.1"
        self.sip_call_id = f"sip-{id_}"
        self.headers: dict[str, str] = {"X-Queue": "sales"}
        self.uri_parameters: dict[str, str] = {}
        self.codec: str | None = None
        self.clock_rate_hz: int | None = None
        self.transport: str | None = None
        self.srtp: bool | None = None
        self.held = False
        self.paused = False
        self.created_at_s = 1000.0
        self.answered_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.ending: Ending | None = None
        self.quality = Quality()
        self.defaults = PromptDefaults()
        self.metadata: Mapping[str, str] = {}
        self.client_state: str | None = None
        self.tenant = ""
        self.prompts: list[Prompt] = []
        self.utterances: dict[str, Utterance] = {}
        self.asked: list[tuple[str, Any]] = []
        self.running: Gather | None = None

    @property
    def utterance_ids(self) -> tuple[str, ...]:
        return tuple(self.utterances)

    @property
    def state(self) -> CallState:
        return self.machine.state

    def speak(self, prompt: Prompt) -> Utterance:
        self._must_live()
        registry = self._registry
        if registry.speak_error is not None:
            raise registry.speak_error
        if len(self.utterances) >= registry.config.calls.max_queued_prompts:
            raise QueueFull("too many", retry_after_s=1)
        voice = registry.source.check(prompt.content)
        utterance_id = prompt.utterance_id or f"utt_{next(registry.numbers)}"
        if utterance_id in registry.utterances:
            raise DuplicateId(f"there is an utterance {utterance_id!r} already")
        utterance = Utterance(
            id=utterance_id,
            call_id=self.id,
            prompt=prompt,
            voice="" if voice is None else voice.id,
            engine="" if voice is None else voice.engine,
            accepted_at_s=1001.0,
            origin_ns=0,
            barge_in_dtmf=bool(prompt.barge_in_dtmf),
        )
        self.prompts.append(prompt)
        self.utterances[utterance_id] = registry.utterances[utterance_id] = utterance
        registry.events.publish(types.SpeakQueued(utterance_id=utterance_id, text_chars=0), call_id=self.id)
        return utterance

    def gather(self, request: GatherRequest) -> Gather:
        self._must_live()
        if self.running is not None:
            raise GatherActive
        clock = self._registry.clock
        self.running = Gather("g1", request, clock, say=self.speak, silence=lambda *_: None, on_complete=self._gathered)
        return self.running

    def _gathered(self, _gather: Gather) -> None:
        self.running = None

    @property
    def running_gather(self) -> Gather:
        if self.running is None:
            raise GatherNotFound
        return self.running

    def stop_gather(self) -> Gather:
        gather = self.running_gather
        gather.cancel("cancelled")
        return gather

    async def stop(self, scope: Literal["current", "all"]) -> tuple[list[str], float]:
        self._must_live()
        self.asked.append(("stop", scope))
        return list(self.utterances)[: 1 if scope == "current" else None], 120.0

    def set_paused(self, *, paused: bool) -> None:
        self._must_live()
        if self.paused == paused:
            raise WrongState("the prompts are paused already" if paused else "the prompts are not paused")
        self.paused = paused

    def update(self, *, defaults: PromptDefaults, metadata: Mapping[str, str], client_state: str | None = None) -> None:
        self._must_live()
        if defaults.voice is not None or defaults.language is not None:
            self._registry.source.check(TextContent("a", defaults.voice, defaults.language))
        self._registry.source.lexicons.check(defaults.lexicons)
        self.defaults, self.metadata, self.client_state = defaults, metadata, client_state

    def answer(self) -> None:
        self.machine.fire(CallEvent.ANSWER)
        self.codec, self.clock_rate_hz, self.answered_at_s = "PCMU", 8000, 1002.0

    def ring(self, *, early_media: bool = False) -> None:
        self.machine.fire(CallEvent.RING)
        self.asked.append(("ring", early_media))

    def hangup(self, *, sip_code: int | None = None, reason: str | None = None) -> None:
        self._must_live()
        self.asked.append(("hangup", (sip_code, reason)))
        self.machine.fire(CallEvent.END)
        self.ended_at_s = 1003.0
        self.ending = Ending("completed", "local_hangup", sip_code)

    def set_hold(self, *, hold: bool) -> None:
        self._must_be_established()
        self.held = hold

    def send_dtmf(self, digits: str, *, duration_ms: int = 160) -> None:
        self._must_be_established()
        self.asked.append(("dtmf", (digits, duration_ms)))

    def _must_live(self) -> None:
        if self.state is CallState.TERMINATED:
            raise WrongState(f"call {self.id} is terminated")

    def _must_be_established(self) -> None:
        if self.state is not CallState.ESTABLISHED:
            raise WrongState(f"call {self.id} is {self.state}: modify is not possible")


class FakeCallRegistry:
    """Calls in a dictionary. ``gate`` holds back what would take time, ``speak_error`` and ``originate_error`` fail."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.draining = False
        self.not_ready_because: str | None = None
        self.degraded_because: str | None = None
        self.events = EventBus(
            clock,
            max_subscribers=config.http.max_event_subscribers,
            history_size=config.http.event_history_size,
        )
        self.source = FakeSpeechSource(config.tts)
        self.numbers = itertools.count(1)
        self.live: dict[str, FakeCall] = {}
        self.utterances: dict[str, Utterance] = {}
        self.requests: list[OriginateRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.speak_error: Exception | None = None
        self.originate_error: Exception | None = None

    def add(self, id_: str, *, direction: Direction = "inbound", answered: bool = False) -> FakeCall:
        """Put a call in."""
        call = self.live[id_] = FakeCall(self, id_, direction)
        if answered:
            call.machine.fire(CallEvent.ANSWER)
        return call

    async def slowly(self) -> None:
        """Wait for the gate."""
        await self.gate.wait()

    @property
    def num_calls(self) -> int:
        return len(self.live)

    @property
    def max_calls(self) -> int:
        return 4

    def calls(self, state: CallState | None = None, sip_call_id: str | None = None) -> list[FakeCall]:
        calls = self.live.values()
        return [each for each in calls if state in (None, each.state) and sip_call_id in (None, each.sip_call_id)]

    def call(self, call_id: str) -> FakeCall:
        try:
            return self.live[call_id]
        except KeyError:
            raise CallNotFound.named(call_id) from None

    def has(self, id_: str) -> bool:
        return id_ in self.live or id_ in self.utterances

    def utterance(self, utterance_id: str) -> Utterance:
        try:
            return self.utterances[utterance_id]
        except KeyError:
            raise UtteranceNotFound.named(utterance_id) from None

    async def originate(self, request: OriginateRequest) -> FakeCall:
        self.requests.append(request)
        await self.slowly()
        if self.draining:
            raise Draining(retry_after_s=7)
        if self.originate_error is not None:
            raise self.originate_error
        call_id = request.call_id or f"call_{next(self.numbers)}"
        if call_id in self.live:
            raise DuplicateId(f"there is a call {call_id!r} already")
        call = self.add(call_id, direction="outbound")
        call.callee, call.tenant = request.to, request.tenant
        call.metadata, call.client_state = request.metadata, request.client_state
        if request.prompt is not None:
            call.speak(request.prompt)
        return call

    def start_drain(self) -> bool:
        if self.draining:
            return False
        self.draining = True
        self.events.publish(types.ServerDraining(calls=len(self.live)))
        return True


BUSY = CapacityExceeded("4 calls are up", retry_after_s=3)
UA_DOWN = UserAgentUnavailable(retry_after_s=2)


def make_config(*, max_text_chars: int = 100, max_queued_prompts: int = 3, **http: Any) -> Config:
    """Small limits."""
    return Config(
        http=HttpConfig(**{"request_timeout_s": 0.5, "max_body_bytes": 4096, **http}),
        tts=TtsConfig(max_text_chars=max_text_chars),
        calls=CallsConfig(max_queued_prompts=max_queued_prompts),
    )


def make_context(
    config: Config | None = None,
    *,
    clock: Clock | None = None,
    on_drain: Callable[[], None] = lambda: None,
    accounting: AccountingLog | None = None,
) -> tuple[ApiContext, FakeCallRegistry]:
    """The API's context with everything below it made up."""
    config = config or make_config()
    clock = clock or MonotonicClock()
    registry = FakeCallRegistry(config, clock)
    context = ApiContext(
        config=config,
        registry=cast("Any", registry),
        speech_source=cast("Any", registry.source),
        clock=clock,
        metrics=Metrics(),
        on_drain=on_drain,
        nodes=LineNodes(config.server, config.cluster),
        tenants=TenantQuotas(config.tenants),
        accounting=accounting or AccountingLog(),
    )
    return context, registry


@dataclass(frozen=True, slots=True)
class RunningApi:
    """The API on a loopback port, as the server process runs it."""

    registry: FakeCallRegistry
    context: ApiContext
    app: web.Application
    session: ClientSession
    port: int
    listener: Listener

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
            raw = await response.read()
            return Answered(response.status, response.headers, raw)

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
    """A response that was read."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return msgspec.json.decode(self.raw)

    @property
    def pointers(self) -> list[str]:
        """Where a problem lies."""
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


@asynccontextmanager
async def running_api(
    config: Config | None = None,
    *,
    on_drain: Callable[[], None] = lambda: None,
    workers: Callable[[], Sequence[Worker]] = tuple,
    shutdown_timeout_s: float = 1.0,
    accounting: AccountingLog | None = None,
    **options: Any,
) -> AsyncIterator[RunningApi]:
    """Serve the API on a free loopback port, as the server does."""
    context, registry = make_context(config, on_drain=on_drain, accounting=accounting)
    context = dataclasses.replace(context, workers=workers)
    app = build_app(context)
    http = dataclasses.replace(context.config.http, host="127.0.0.1", port=0)
    listener = Listener(app, http, clock=context.clock, shutdown_timeout=shutdown_timeout_s, **options)
    try:
        await listener.start()
        port = listener.port
        async with ClientSession(f"http://127.0.0.1:{port}", timeout=ClientTimeout(total=10)) as session:
            yield RunningApi(registry, context, app, session, port, listener)
    finally:
        registry.gate.set()
        registry.source.gate.set()
        await listener.stop()


async def eventually(condition: Callable[[], object], *, timeout_s: float = 3.0) -> None:
    """Wait until ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.01)
