"""Every Prometheus series of the server, declared once. Base units: seconds, bytes, counts.

Nothing here is global, so that two servers in one test do not share counts. Label values come from closed sets (engines,
routes, causes): an id is never a label.
"""

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from cc_tts import __version__

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The Prometheus text format, version 0.0.4, which :data:`encode_text` writes."""
Encode = Callable[[CollectorRegistry], bytes]
"""Writes all series of a registry in some format."""
encode_text: Final[Encode] = generate_latest

AUDIO_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Buckets of the times to first PCM and first audio, s."""
MOS_BUCKETS: Final = (1.5, 2.0, 2.5, 3.0, 3.25, 3.5, 3.75, 4.0, 4.1, 4.2, 4.3, 4.4, 4.5)
"""Buckets of the mean opinion score of a call; G.711 without loss has 4.4 (ITU-T G.107)."""
LOST_BUCKETS: Final = (0.0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
"""Buckets of the share of a call's packets that were lost."""
JITTER_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
"""Buckets of the interarrival jitter of a call, s."""
ROUND_TRIP_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Buckets of the round trip of a call, s; ITU-T G.114 wants 300 ms at most."""
BARGE_IN_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Buckets of the time from a caller's key or the begin of speech to silence, s."""
HTTP_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0)
"""Buckets of the time of a request to the control API, s."""

MAX_GENERATIONS: Final = 8
"""The most generations of workers that get a label value of their own: workers choose the names, so the number is
bounded (unmeasured).
"""


class Metrics:
    """The series, each named after its Prometheus name without ``cctts_`` and the unit.

    Runs on: the event loop for writers; prometheus_client locks, so a reader may be anywhere.
    """

    def __init__(self, *, node: str = "") -> None:  # noqa: PLR0915 - a statement a series
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each counter, read by nobody
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(name, meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, meaning, labels, buckets=buckets, registry=registry)

        # --- what the caller hears
        self.time_to_first_audio = histogram(
            "cctts_time_to_first_audio_seconds",
            "From the origin of an utterance to its first frame that carries speech.",
            "engine",
            buckets=AUDIO_BUCKETS_S,
        )
        self.time_to_first_pcm = histogram(
            "cctts_time_to_first_pcm_seconds",
            "From the origin of an utterance to the engine's first PCM.",
            "engine",
            buckets=AUDIO_BUCKETS_S,
        )
        self.playout_underruns = counter(
            "cctts_playout_underruns", "Times a playout buffer ran dry within an utterance."
        )
        self.call_mos = histogram(
            "cctts_call_mos",
            "Estimated mean opinion score of an answered call, 1 to 4.5, at its end.",
            buckets=MOS_BUCKETS,
        )
        self.call_remote_mos = histogram(
            "cctts_call_remote_mos",
            "Mean opinion score of what the far side of an answered call heard, 1 to 5, where it says so by RTCP-XR.",
            buckets=MOS_BUCKETS,
        )
        self.call_lost = histogram(
            "cctts_call_lost_ratio",
            "Share of the packets of an answered call that did not arrive.",
            buckets=LOST_BUCKETS,
        )
        self.call_jitter = histogram(
            "cctts_call_jitter_seconds", "Mean jitter of what an answered call received.", buckets=JITTER_BUCKETS_S
        )
        self.call_round_trip = histogram(
            "cctts_call_round_trip_seconds",
            "Last round trip of an answered call that RTCP measured.",
            buckets=ROUND_TRIP_BUCKETS_S,
        )
        self.transfers = counter(
            "cctts_transfers",
            "Transfers of calls that are over: succeeded, or why one failed; unknown: the far side hung up without a word.",
            "mode",
            "result",
        )
        self.refers = counter(
            "cctts_refers",
            "REFERs of far sides that were taken: succeeded, failed, refused, or timeout (nobody decided).",
            "result",
        )
        self.bridges = counter(
            "cctts_bridges",
            "Bridges of calls that are over, each counted for both calls: requested, call_ended, or failed.",
            "reason",
        )
        self.media_streams = gauge("cctts_media_streams", "Open media streams of calls.")
        self.media_connections = counter(
            "cctts_media_connections", "Connections to the media_url of a route: connected or failed.", "result"
        )
        self.relays_ended = counter(
            "cctts_relays_ended",
            "Relays that are over: completed, closed, stopped, call_ended, or why one failed: unreachable, lost, silent, "
            "server_restarted.",
            "cause",
        )
        self.call_audio_dropped = counter(
            "cctts_call_audio_dropped_frames",
            "Frames of 20 ms that were dropped: the server (ua) or a client (client) took them too slowly, or a client sent "
            "more than is buffered (talk).",
            "where",
        )
        self.recordings_active = gauge("cctts_recordings_active", "Recordings that run, or wait for consent.")
        self.recordings_total = counter(
            "cctts_recordings", "Recordings that are over: saved or failed, and why.", "result", "reason"
        )
        self.start_threshold = gauge("cctts_start_threshold_seconds", "Audio a playout buffer waits for now.", "engine")
        self.barge_in = histogram(
            "cctts_barge_in_seconds",
            "From the caller's key (dtmf), or the begin of the caller's speech, to silence on the line.",
            "by",
            buckets=BARGE_IN_BUCKETS_S,
        )
        self.false_interruptions = counter(
            "cctts_false_interruptions", "Prompts that speech held and that went on since it was over too soon."
        )
        self.disclosures = counter(
            "cctts_disclosures", "Disclosures that a machine speaks: heard, or failed with what they precede.", "result"
        )
        self.machine_detections = counter(
            "cctts_machine_detections", "Calls placed with amd, by who answered them.", "result"
        )
        self.ua_late_frames = counter(
            "cctts_ua_late_frames", "Frames that missed their 20 ms media clock tick in the UA process."
        )
        self.ua_media_lateness = gauge(
            "cctts_ua_media_lateness_seconds", "How late frames were asked for in the last 5 seconds, 99th percentile."
        )
        self.ua_refusing_lateness = gauge(
            "cctts_ua_refusing_for_lateness", "1 while new calls get 503 because the media clock is late."
        )

        self.ua_failed_assertions = counter(
            "cctts_ua_failed_assertions",
            "Assertions of PJSIP that failed in the server build, each a fault of ours or PJSIP's.",
        )

        self.hep_packets = counter(
            "cctts_hep_packets",
            "Copies of SIP messages and reports to the server of sip.hep; dropped: the socket did not take one at once.",
            "result",
        )

        self.quality_reports = counter(
            "cctts_quality_reports",
            "Reports of calls to quality.collector: accepted, refused, unanswered; dropped: too many waited.",
            "result",
        )

        # --- requests that never were calls
        self.sip_refused = counter(
            "cctts_sip_refused", "SIP messages kept out before they could become calls, and why.", "cause"
        )

        self.registered = gauge(
            "cctts_registered",
            "1 while the registrar has us, once it has answered or been silent for too long.",
            "registrar",
        )
        self.trunk_registered = gauge("cctts_trunk_registered", "1 while the registrar of a trunk has us.", "trunk")
        self.trunk_calls = gauge("cctts_trunk_calls", "Calls that are up by a trunk, those that came in too.", "trunk")
        self.trunk_failures = counter(
            "cctts_trunk_failures",
            "Attempts to place a call by a trunk that ended without an answer, by SIP status; 0: none came.",
            "trunk",
            "code",
        )
        self.certificate_expiry = gauge(
            "cctts_tls_certificate_expiry_timestamp_seconds",
            "When the certificate that a key of the configuration names expires, since the Unix epoch.",
            "key",
        )

        # --- calls and utterances
        self.calls_active = gauge("cctts_calls_active", "Calls that have not ended.")
        self.calls_total = counter("cctts_calls", "Calls begun.", "direction")
        self.calls_ended = counter(
            "cctts_calls_ended", "Calls ended, with how and why.", "direction", "result", "reason"
        )
        self.utterances = counter("cctts_utterances", "Utterances completed.", "cause")
        self.utterances_active = gauge("cctts_utterances_active", "Utterances accepted and not complete.")

        # --- tenants
        self.tenant_calls = gauge("cctts_tenant_calls", "Calls of a tenant that have not ended.", "tenant")
        self.tenant_streams = gauge("cctts_tenant_streams", "Texts of a tenant that are being spoken.", "tenant")
        self.tenant_characters = counter("cctts_tenant_characters", "Characters of text to speak.", "tenant")
        self.tenant_refused = counter(
            "cctts_tenant_refused",
            "Refusals at a limit of a tenant, or at its share of a busy engine; a text that waits is refused repeatedly.",
            "tenant",
            "limit",
        )
        self.accounting_lost = counter(
            "cctts_accounting_lost_lines", "Accounting lines that could not be written in time."
        )
        self.file_unwritable = gauge(
            "cctts_file_unwritable",
            "1 if the disk refused the last write to the file or folder of this key: lines wait, prompts are not cached.",
            "key",
        )

        # --- the control API
        self.http_requests = counter("cctts_http_requests", "Requests answered.", "method", "route", "status")
        self.http_request_duration = histogram(
            "cctts_http_request_seconds",
            "From the request's headers to the end of the handler.",
            "route",
            buckets=HTTP_BUCKETS_S,
        )
        self.speech_streams = gauge("cctts_speech_streams", "Responses of /v1/audio/speech being streamed.")
        self.mrcp_sessions = gauge("cctts_mrcp_sessions", "Sessions of MRCP clients.")
        self.mrcp_speaks = counter(
            "cctts_mrcp_speaks",
            "SPEAK requests that are over: normal, cancelled, hangup (the session has ended), process_ended, or error.",
            "reason",
        )
        self.text_streams = gauge("cctts_text_streams", "Open sockets of /v1/calls/{id}/stream.")
        self.event_subscribers = gauge("cctts_event_subscribers", "Open event subscriptions.")
        self.event_subscribers_dropped = counter(
            "cctts_event_subscribers_dropped", "Event subscribers dropped for reading too slowly."
        )

        # --- webhooks
        self.webhook_attempts = counter(
            "cctts_webhook_attempts", "Attempts to deliver an event: delivered or failed.", "webhook", "result"
        )
        self.webhook_queued = gauge("cctts_webhook_queued", "Events that wait for an endpoint.", "webhook")
        self.webhook_failing = gauge(
            "cctts_webhook_failing",
            "1 while an endpoint takes no events: webhooks.breaker_failures failed in a row, or it answered 410. For "
            "webhook=call the number of such endpoints.",
            "webhook",
        )
        self.webhooks_dropped = counter(
            "cctts_webhooks_dropped",
            "Events that were given up: too many waited (overflow), too old (expired), the endpoint gone (disabled), or not "
            "written to webhooks.file (not_kept), which only a restart loses.",
            "reason",
        )
        self.webhook_answers = counter(
            "cctts_webhook_answers", "Answers to call.incoming: used, unusable, refused or late.", "result"
        )

        # --- the neural engine's workers
        self.engine_streams = gauge("cctts_engine_streams", "Utterances being synthesised.", "worker")
        self.engine_room = gauge("cctts_engine_room", "Utterances that would be taken now.", "worker")
        self.engine_utilisation = gauge(
            "cctts_engine_utilisation_ratio",
            "Share of a device's time that running utterances need to keep their listeners supplied.",
            "worker",
        )
        self.engine_first_audio = gauge(
            "cctts_engine_first_audio_seconds", "Predicted time to first audio of an utterance begun now.", "worker"
        )
        self.engine_slots = gauge("cctts_engine_slots", "Places for sequences, by state.", "worker", "state")
        self.engine_pages = gauge("cctts_engine_pages", "Pages of the flow's state, by state.", "worker", "state")
        self.engine_refusals = counter(
            "cctts_engine_refusals",
            "Refusals of the engine, and where; an utterance that waits for room is refused again and again.",
            "where",
        )
        self.engine_resumed = counter(
            "cctts_engine_resumed",
            "Utterances whose worker was lost and that another one, or the fallback, went on with.",
        )
        self.engine_no_audio = counter(
            "cctts_engine_no_audio",
            "Text chunks for which a voice gave no audio though there is something to say, or that it was stopped in; the "
            "fallback says them, or the prompt fails with no_audio.",
            "engine",
        )
        self.engine_generation_streams = counter(
            "cctts_engine_generation_streams",
            "Streams in workers, by the workers' generation and how they ended: spoken, cancelled, refused, lost with their "
            "worker, or failed.",
            "generation",
            "result",
        )
        self.engine_generation_first_audio = histogram(
            "cctts_engine_generation_first_audio_seconds",
            "From the first text of a stream to the worker's first audio, by the worker's generation.",
            "generation",
            buckets=AUDIO_BUCKETS_S,
        )
        self._generations: set[str] = set()
        self.engine_not_finite = counter("cctts_engine_not_finite", "Chunks of audio whose numbers were not finite.")
        self.engine_underruns = counter(
            "cctts_engine_underruns",
            "Chunks of audio that came after their listener had run dry, as the engine reckons.",
        )

        self.engine_runaways = counter(
            "cctts_engine_runaways",
            "How often speech ran away and was stopped: took too long (length), repeated itself (repeats), or fell silent "
            "(silence).",
            "cause",
        )

        # --- the prompt cache
        self.prompt_cache_requests = counter(
            "cctts_prompt_cache_requests",
            "Prompts of text begun: kept in memory, on disk, joined while being made, missed, or bypassed.",
            "result",
        )
        self.prompt_cache_bytes = gauge(
            "cctts_prompt_cache_bytes", "Audio kept in memory, on disk, or being made.", "where"
        )
        self.prompt_cache_prompts = gauge(
            "cctts_prompt_cache_prompts", "Prompts kept in memory, on disk, or being made.", "where"
        )
        self.prompt_cache_evictions = counter(
            "cctts_prompt_cache_evictions", "Prompts that made room for others.", "where"
        )
        self.prompt_fetches = counter(
            "cctts_prompt_fetches",
            "Audio files at URLs that were asked for: fetched, unchanged since (not_modified), or failed.",
            "result",
        )
        self.prompt_cache_damaged = counter(
            "cctts_prompt_cache_damaged", "Files of prompts that were damaged and dropped."
        )

        # --- the server itself
        self.trace_spans = counter(
            "cctts_trace_spans",
            "Spans of traces: exported, failed (the collector did not take them), or dropped since too many waited.",
            "result",
        )
        self.process_restarts = counter("cctts_process_restarts", "Child processes started again.", "process")
        self.draining = gauge("cctts_draining", "1 while no new calls are taken.")
        self.degraded = gauge("cctts_degraded", "1 while the fallback engine speaks in place of the workers.")
        self.ready = gauge("cctts_ready", "1 when a call would be answered and spoken to.")
        self.build_info = gauge("cctts_build_info", "Always 1; see the labels.", "version", "node")
        self.build_info.labels(version=__version__, node=node).set(1)

    def generation_label(self, generation: str) -> str:
        """Return the label of a generation: ``other`` after the first :data:`MAX_GENERATIONS`."""
        if generation not in self._generations and len(self._generations) >= MAX_GENERATIONS:
            return "other"
        self._generations.add(generation)
        return generation or "unknown"

    def render(self, encode: Encode = encode_text) -> bytes:
        """Return all series, in the Prometheus text format unless another is given."""
        return encode(self.registry)
