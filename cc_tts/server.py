"""Composition root: builds every object of the server process once, starts them in order, stops them in reverse.

::

    CachedSource (prompt cache) ────┐
    engine ─▸ text ─▸ SpeechSource ─┤
    UaClient (UA process) ──────────┼─▸ CallRegistry ─▸ api (aiohttp)
    VadProcess ─────────────────────┤
    EventBus, Metrics, Clock ───────┘
       └─▸ Webhooks
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from cc_tts import __version__, logs, startup
from cc_tts.api.admin.operations import Operations, Process, Reloaded, SpeechWorker
from cc_tts.api.app import build_app, set_tokens
from cc_tts.api.context import ApiContext
from cc_tts.api.health import as_node
from cc_tts.api.http.connections import HttpListener
from cc_tts.api.http.problems import NotReady
from cc_tts.api.media.dial_back import DialBack
from cc_tts.api.plugs.speech_context import streams_over
from cc_tts.api.prompts.fetch import HttpFetch
from cc_tts.api.recordings.delivery import RecordingDelivery
from cc_tts.api.relay.connector import RelayConnector
from cc_tts.api.webhooks.answers import IncomingAnswers
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.registry import CallRegistry
from cc_tts.calls.services import CallServices
from cc_tts.clock import MonotonicClock
from cc_tts.cluster.link import PoolLink
from cc_tts.cluster.messages import Worker
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config import load as configuration
from cc_tts.config import tls as tls_files
from cc_tts.config.remote import pool_url
from cc_tts.config.schema import Config, listens
from cc_tts.config.sections.log import LogConfig
from cc_tts.engines.enrolment.own_voices import OwnVoices
from cc_tts.engines.factory import make_engine
from cc_tts.errors import CcTtsError, ConfigError, ProcessFailed
from cc_tts.metrics import Metrics
from cc_tts.mrcp.server.client import MrcpProcess
from cc_tts.processes import systemd, threads
from cc_tts.processes.adoption import AdoptedProcess
from cc_tts.processes.tasks import first_of
from cc_tts.speech.cache.prompt_cache import engine_identity
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.client import TextProcess
from cc_tts.tracing import otlp
from cc_tts.ua.client import UaClient
from cc_tts.ua.pjsua2_build import WHEEL_MAX_CALLS, advice
from cc_tts.vad.client import VadProcess
from cc_tts.webhooks.webhooks import Webhooks

HTTP_SHUTDOWN_TIMEOUT_S: Final = 5.0  # unmeasured
KEYS_IN_CLEAR: Final = (
    "rtp.srtp is on and SIP is taken without TLS too: whoever reads that SIP has the keys of its calls (RFC 4568 §7). "
    'Calls over TLS are safe; sip.transports = ["tls"] leaves no others'
)

log = logs.get(__name__)


class Server:
    """The server process: makes all parts, and starts and ends them."""

    def __init__(
        self,
        config: Config,
        *,
        read_config: Callable[[], Config],
        asked: Mapping[str, AdoptedProcess] = MappingProxyType({}),
    ) -> None:
        self._config = config
        self._read_config = read_config
        self._tls_fingerprint = tls_files.fingerprint(config.tls)
        self._hangup = asyncio.Event()
        self._serves = False
        self._awaiting_reload: list[asyncio.Future[Reloaded]] = []
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._hand_over = asyncio.Event()
        clock = MonotonicClock()
        self._notifier = systemd.notifier(os.environ, clock=clock)
        self.metrics = Metrics(node=config.server.node_name)
        self._note_expiry(tls_files.expiry_s(config.tls))
        self._tracer = otlp.make_tracer(
            config.tracing, os.environ, node=config.server.node_name, clock=clock, metrics=self.metrics
        )
        self.engine = make_engine(config, clock=clock, metrics=self.metrics)
        restarts = self.metrics.process_restarts
        self.text_process = TextProcess(clock=clock, log=config.log, on_down=restarts.labels(process="text").inc)
        self.cached_source = CachedSource(config.cache, self.metrics)
        self.source = SpeechSource(
            self.engine,
            Normalizer(),
            config.tts,
            cache=self.cached_source if config.cache.enabled else None,
            line_rate_hz=config.rtp.clock_rate_hz,
            text_process=self.text_process,
            metrics=self.metrics,
        )
        self.ua = UaClient(
            config, clock=clock, on_dispatcher_down=restarts.labels(process="dispatcher").inc, asked=asked
        )
        self.vad = VadProcess(config, clock=clock, on_down=restarts.labels(process="vad").inc)
        self.nodes = LineNodes(config.server, config.cluster)
        self.tenants = TenantQuotas.of(config, clock=clock, metrics=self.metrics)
        path = Path(config.accounting.file).expanduser() if config.accounting.file else None
        self.accounting = AccountingLog(path, node=config.server.node_name, clock=clock, metrics=self.metrics)
        self.mrcp = MrcpProcess(
            config,
            self.source,
            tenants=self.tenants,
            accounting=self.accounting,
            metrics=self.metrics,
            clock=clock,
            new_id=lambda: self.nodes.new_id("utt"),
            on_down=restarts.labels(process="mrcp").inc,
            tracer=self._tracer,
        )
        self.webhooks = Webhooks(config.webhooks, clock=clock, metrics=self.metrics, tracer=self._tracer)
        self.events = EventBus(
            clock,
            sink=self.webhooks.take,
            max_subscribers=config.http.max_event_subscribers,
            history_size=config.http.event_history_size,
            node=config.server.node_name,
            api=self.nodes.base_url,
        )
        self.dial_back = DialBack(config, self.metrics)
        self.registry = CallRegistry(
            CallServices(
                config=config,
                ua=self.ua,
                source=self.source,
                vad=self.vad,
                events=self.events,
                metrics=self.metrics,
                clock=clock,
                nodes=self.nodes,
                tenants=self.tenants,
                accounting=self.accounting,
                tracer=self._tracer,
            ),
            self.dial_back.dial,
        )
        self.relay_connector = RelayConnector(config, clock)
        self.registry.relays.connect = self.relay_connector.connect
        self.registry.services.recordings.deliver = RecordingDelivery(config.record).deliver
        self._fetch = self.registry.services.staged.urls.fetch = HttpFetch(config.prompts)
        url = pool_url(config)
        self.pool_link = (
            PoolLink(
                url,
                remote=config.remote,
                clock=clock,
                node=partial(as_node, self.registry),
                tenants=self.tenants.use,
                on_leases=self.tenants.on_leases,
                on_workers=self._name_workers,
                on_nodes=self.nodes.set_reported,
            )
            if url
            else None
        )
        context = ApiContext(
            registry=self.registry,
            own_voices=OwnVoices(
                config.tts, self.engine, refresh=self._refresh_voices, normalize=Normalizer().normalize
            ),
            webhooks=self.webhooks,
            on_drain=self.drain,
            pool=self.pool_link,
            workers=lambda: self.engine.elsewhere.workers,
            operations=self._operations(clock.wall_s()),
        )
        self.webhooks.on_answer = IncomingAnswers(context).take
        self.app = build_app(context)
        self._listener = HttpListener(self.app, config.http, clock=clock, shutdown_timeout=HTTP_SHUTDOWN_TIMEOUT_S)

    def _operations(self, started_at_s: float) -> Operations:
        """Return the operations that the API offers to operators."""
        return Operations(
            reload=self._reload_for_client,
            log=lambda: self._config.log,
            set_log=self._set_log,
            processes=lambda: [
                Process.of(each)
                for each in (
                    *self.ua.supervisors,
                    self.text_process.supervisor,
                    self.vad.supervisor,
                    *self.mrcp.supervisors,
                )
            ],
            workers=lambda: [SpeechWorker.of(link) for link in (*self.engine.local, *self.engine.elsewhere.links)],
            started_at_s=started_at_s,
        )

    def drain(self) -> None:
        """Take no new calls; exit when the last one and all speech over HTTP have ended, at most after
        ``calls.drain_timeout_s``.
        """
        self.registry.start_drain()
        self.mrcp.set_accepting(accepting=False)
        self._notifier.stopping()
        self._stop.set()

    def _note_expiry(self, at_s: float | None) -> None:
        if at_s is not None:
            self.metrics.certificate_expiry.labels(key="tls.certificate_file").set(at_s)

    def _name_workers(self, found: Sequence[Worker]) -> None:
        self.engine.elsewhere.set_pool_workers(found)

    async def run(self) -> None:
        """Serve until a drain is over; raises ``ProcessFailed`` if a child process does not start, ``ConfigError`` or
        ``OSError`` if an address or a file cannot be used.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        loop.add_signal_handler(signal.SIGUSR2, self._on_hand_over)
        loop.set_exception_handler(_on_loop_error)
        background: list[asyncio.Task[None]] = []
        notifying = asyncio.create_task(self._notify(), name="notify") if self._notifier.is_on else None
        is_serving = False
        try:
            # the API answers first (readyz says what is missing), so that a port in use is found before anything starts
            try:
                await self._listener.start()
            except OSError as error:
                raise startup.cannot_listen(self._config.http, error) from None
            if not await self._start_unless_stopped():
                return
            is_serving = self._serves = True
            self._say_ready()
            background.append(asyncio.create_task(self._reload_on_hangup(), name="reload"))
            background.append(asyncio.create_task(self.registry.follow_engine(), name="follow the engine"))
            await self._stop.wait()
            await self._drained()
            if self._hand_over.is_set():
                await self._leave_calls()
        finally:
            for task in background:
                task.cancel()
            if is_serving or not self.ua.has_adopted:  # otherwise the calls stay for the next server that starts
                await self.ua.stop()
                await self.registry.services.recordings.stop()
            await self._stop_all()
            if notifying is not None:
                notifying.cancel()
            log.info("stopped")

    async def _start_unless_stopped(self) -> bool:
        """Start everything; ``False`` if the server is to end first. Loading an engine, or waiting for a first worker, may
        take minutes.
        """
        if await first_of(self._start(), self._stop.wait()) == 0:
            return True
        log.warning("stopped_while_starting")
        return False

    async def _start(self) -> None:
        """Start what :meth:`run` has not started, including the children."""
        await self.accounting.start()
        await self.webhooks.start()
        if self.pool_link is not None:
            self.pool_link.start()
        await self.ua.adopt()  # before the engine loads, which may take longer than the UA process keeps the calls
        self.registry.services.recordings.start()
        helpers = [self.engine.start(), self.text_process.start()]
        if listens(self._config):
            helpers.append(self.vad.start())
        await asyncio.gather(*helpers)
        if self._config.cache.enabled:
            await self.cached_source.cache.files.start()
        await self._note_identity()
        for warning in self.source.check_voices(self._config.routes, self._config.calls.disclosure):
            log.warning("configuration", detail=warning)
        await self._load_prompts()
        await self.mrcp.start()
        await self.ua.start()
        self.registry.incoming.present_adopted()

    async def _note_identity(self) -> None:
        """Update the identity of the voices, by which prompts are cached."""
        if self._config.cache.enabled:
            self.cached_source.identity = await asyncio.to_thread(engine_identity, self._config, self.engine.identity)

    async def _refresh_voices(self) -> None:
        await self.engine.refresh_voices()
        await self._note_identity()

    async def _load_prompts(self) -> None:
        for fault in await self.registry.services.staged.load():
            log.warning("prompt_not_loaded", detail=fault)

    async def _drained(self) -> None:
        """Wait until nothing is spoken any more, at most ``calls.drain_timeout_s``. A second signal ends the calls, and a
        hand-over leaves them.
        """
        forced = self._force.wait()
        if await first_of(self._hand_over.wait(), forced, self._all_over(self._config.calls.drain_timeout_s)) == 1:
            await self.registry.drained(timeout_s=0)

    async def _all_over(self, timeout_s: float) -> None:
        """Wait for the last call, for speech over HTTP, and for MRCP sessions."""
        await asyncio.gather(
            self.registry.drained(timeout_s=timeout_s),
            self._speech_over(timeout_s),
            self.mrcp.drained(timeout_s=timeout_s),
        )

    async def _speech_over(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await streams_over(self.app)

    async def _stop_all(self) -> None:
        """Stop everything except the UA processes."""
        await self.mrcp.stop()
        await self.vad.stop()
        await self.dial_back.stop()
        await self.relay_connector.stop()
        self.events.close()
        await self.webhooks.stop()
        await self._listener.stop()
        if self.pool_link is not None:
            await self.pool_link.stop()
        await self.registry.services.staged.stop()
        await self._fetch.close()
        await self.cached_source.stop()
        await self.engine.stop()
        await self.text_process.stop()
        await self.accounting.stop()
        await self.cached_source.cache.files.stop()
        await self._tracer.stop(otlp.STOP_TIMEOUT_S)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            log.warning("second_signal", consequence="ending calls now")
            self._force.set()
        else:
            self.drain()

    def _on_hand_over(self) -> None:
        if not self._config.ua.orphan_grace_ms:
            log.warning("nothing_to_hand_over", detail="ua.orphan_grace_ms is 0", consequence="draining")
            self._on_signal()
        elif not self._force.is_set():
            self._hand_over.set()
            self._notifier.stopping()
            self._stop.set()

    async def _leave_calls(self) -> NoReturn:
        """Answer the current requests, and exit: the UA processes keep the calls for the next server."""
        self.events.close()
        await self._listener.stop()
        await self.accounting.stop()
        await self.webhooks.stop(timeout_s=0)  # do not wait: the next server can adopt the calls sooner
        for call in self.registry.calls():
            if call.spans is not None:
                call.spans.leave()
        await self._tracer.stop(otlp.HANDOVER_TIMEOUT_S)
        log.info("handed_over", calls=self.registry.num_calls)
        sys.stderr.flush()
        os._exit(0)  # asyncio's cleanup would end the UA processes; the other children end by themselves

    async def _reload_on_hangup(self) -> None:
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            clients, self._awaiting_reload = self._awaiting_reload, []
            self._notifier.reloading()
            failure: CcTtsError = CcTtsError()
            reloaded = None
            try:
                reloaded = await self._reload()
            except CcTtsError as error:
                failure = error
                log.error("reload_failed", detail=error.detail or error.title, consequence="nothing has changed")
            except Exception:
                log.exception("reload_failed")
            self._notifier.reloaded()
            for client in clients:
                if client.done():
                    continue
                if reloaded is None:
                    client.set_exception(failure)
                else:
                    client.set_result(reloaded)

    async def _reload_for_client(self) -> Reloaded:
        """Reload, and wait for the outcome. A client that disconnects does not stop it."""
        self._check_serving()
        outcome = asyncio.get_running_loop().create_future()
        self._awaiting_reload.append(outcome)
        self._hangup.set()
        reloaded: Reloaded = await outcome
        return reloaded

    async def _set_log(self, wanted: LogConfig) -> None:
        """Set the log levels until the next reload."""
        self._check_serving()
        self._config = replace(self._config, log=wanted)
        logs.set_level(wanted.level)
        await self.ua.reload(self._config, renew_tls=False)

    def _check_serving(self) -> None:
        if not self._serves:
            raise NotReady("the server is starting")

    async def _notify(self) -> None:
        while True:
            registry = self.registry
            self._notifier.update(not_ready_because=registry.not_ready_because, num_calls=registry.num_calls)
            await asyncio.sleep(self._notifier.interval_s)

    async def _reload(self) -> Reloaded:
        """Read the configuration again and apply what a running server can; after a ``CcTtsError`` nothing has changed."""
        found = configuration.reload(self._config, await asyncio.to_thread(self._read_config))
        config, tls = found.config, found.config.tls
        warnings = await asyncio.to_thread(startup.check_machine, config)
        for warning in warnings + self.source.check_voices(config.routes, config.calls.disclosure):
            log.warning("configuration", detail=warning)
        fingerprint = await asyncio.to_thread(tls_files.fingerprint, tls)
        renew_tls = fingerprint != self._tls_fingerprint
        if renew_tls:
            self._note_expiry(await asyncio.to_thread(tls_files.expiry_s, tls))
        changed = list(found.changed)
        if renew_tls and not any(key.startswith("tls.") for key in changed):
            changed.append("the files of tls")
        needs_restart = list(found.needs_restart)
        before, self._config, self._tls_fingerprint = self._config, config, fingerprint
        logs.set_level(config.log.level)
        self.registry.services.reload(config)
        self.webhooks.reload(config.webhooks)
        self.engine.elsewhere.generations = config.tts.generations
        self.mrcp.reload(config)
        if config.http.tokens != before.http.tokens:
            await set_tokens(self.app, config.http.tokens)
        refused = await self.ua.reload(self._config, renew_tls=renew_tls)  # with log levels that were changed meanwhile
        await self._load_prompts()  # last: what waits for disks and workers keeps no token valid
        await self._refresh_voices()
        if config.log.level != before.log.level:
            needs_restart.append("log.level of the engine's workers")
        needs_restart += refused
        log.info("reloaded", changed=changed, needs_restart=needs_restart, refused=refused or None)
        return Reloaded(changed=changed, needs_restart=needs_restart, refused=refused)

    def _say_ready(self) -> None:
        build, config = self.ua.build, self._config
        log.info(
            "serving",
            version=__version__,
            sip=f"{config.sip.host}:{config.sip.port} {'+'.join(config.sip.transports)}",
            srtp=config.rtp.srtp,
            http=f"http://{config.http.host}:{config.http.port}",
            engine=config.tts.engine,
            voice=self.engine.resolve_voice(config.tts.voice or None, None).id,
            pjsip=build.get("pjsip"),
            pjsua2=build.get("pjsua2"),
            max_calls=str(self.ua.max_calls),
        )
        build_max_calls = int(build.get("build_max_calls", "0"))
        if build_max_calls <= WHEEL_MAX_CALLS:
            log.warning("try_out_build", detail=advice(max_calls=build_max_calls))
        if config.rtp.srtp != "off" and config.sip.transports != ("tls",):
            log.warning("srtp_keys_in_clear", detail=KEYS_IN_CLEAR)


def _on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio reports: an exception in a callback, or in a task that nobody awaited."""
    log.error("event_loop_error", detail=str(context.get("message", "")), exc_info=context.get("exception"))


def serve(
    config: Config, *, read_config: Callable[[], Config], asked: Mapping[str, AdoptedProcess] = MappingProxyType({})
) -> int:
    """Run the server; returns the exit status. ``read_config`` is asked at SIGHUP; ``asked`` are those of
    :func:`cc_tts.ua.client.ask_waiting_processes`.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # ignored until the server can reload
    logs.configure(level=config.log.level, json=config.log.json, process="server")

    async def main() -> None:
        await Server(config, read_config=read_config, asked=asked).run()

    try:
        for warning in startup.check_machine(config):
            log.warning("configuration", detail=warning)
        threads.run(main())
    except (ProcessFailed, ConfigError, OSError) as error:
        log.error("cannot_start", detail=startup.unusable(config, error).detail)
        return 1
    return 0
