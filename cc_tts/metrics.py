"""Every Prometheus series of the server, declared once. Base units: seconds, bytes, counts.

One :class:`Metrics` object is built by the composition root and handed down; nothing here is global, so that two
servers in one test do not share counts. Label values come from closed sets (engines, routes, causes): an id is never
a label.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from cc_tts import __version__

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""Content-Type of :meth:`Metrics.render` (the Prometheus text format, version 0.0.4)."""

AUDIO_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""For the times to first PCM and first audio, s."""
CUT_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""From a caller's key to silence, s."""
HTTP_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0)
"""For a request to the control API, s."""


class Metrics:
    """The series, each named after its Prometheus name without ``cctts_`` and the unit.

    Runs on: the event loop for writers; prometheus_client locks, so a reader may be anywhere.
    """

    def __init__(self, *, node: str = "") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each counter, read by nobody
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        # --- what the caller hears
        self.time_to_first_audio = Histogram(
            "cctts_time_to_first_audio_seconds",
            "From the origin of an utterance to its first frame that carries speech.",
            ["engine"],
            buckets=AUDIO_BUCKETS_S,
            registry=registry,
        )
        self.time_to_first_pcm = Histogram(
            "cctts_time_to_first_pcm_seconds",
            "From the origin of an utterance to the engine's first PCM.",
            ["engine"],
            buckets=AUDIO_BUCKETS_S,
            registry=registry,
        )
        self.playout_underruns = Counter(
            "cctts_playout_underruns", "Times a playout buffer ran dry within an utterance.", registry=registry
        )
        self.start_threshold = Gauge(
            "cctts_start_threshold_seconds", "Audio a playout buffer waits for now.", ["engine"], registry=registry
        )
        self.barge_in_cut = Histogram(
            "cctts_barge_in_cut_seconds",
            "From the caller's key to silence on the line.",
            buckets=CUT_BUCKETS_S,
            registry=registry,
        )
        self.ua_late_frames = Counter(
            "cctts_ua_late_frames",
            "Frames that missed their 20 ms media clock tick in the UA process.",
            registry=registry,
        )
        self.ua_media_lateness = Gauge(
            "cctts_ua_media_lateness_seconds",
            "How late frames were asked for in the last 5 seconds, 99th percentile.",
            registry=registry,
        )
        self.ua_refusing_lateness = Gauge(
            "cctts_ua_refusing_for_lateness",
            "1 while new calls get 503 because the media clock is late.",
            registry=registry,
        )

        self.ua_failed_assertions = Counter(
            "cctts_ua_failed_assertions",
            "Assertions of PJSIP that failed in the server build, each a fault of ours or PJSIP's.",
            registry=registry,
        )

        # --- requests that never were calls
        self.sip_refused = Counter(
            "cctts_sip_refused",
            "SIP messages kept out before they could become calls, and why.",
            ["cause"],
            registry=registry,
        )

        # --- calls and utterances
        self.calls_active = Gauge("cctts_calls_active", "Calls that have not ended.", registry=registry)
        self.calls_total = Counter("cctts_calls", "Calls begun.", ["direction"], registry=registry)
        self.calls_ended = Counter(
            "cctts_calls_ended", "Calls ended, with how and why.", ["direction", "result", "reason"], registry=registry
        )
        self.utterances = Counter("cctts_utterances", "Utterances completed.", ["cause"], registry=registry)
        self.utterances_active = Gauge(
            "cctts_utterances_active", "Utterances accepted and not complete.", registry=registry
        )

        # --- the control API
        self.http_requests = Counter(
            "cctts_http_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.http_request_duration = Histogram(
            "cctts_http_request_seconds",
            "From the request's headers to the end of the handler.",
            ["route"],
            buckets=HTTP_BUCKETS_S,
            registry=registry,
        )
        self.speech_streams = Gauge(
            "cctts_speech_streams", "Answers of /v1/audio/speech being streamed.", registry=registry
        )
        self.event_subscribers = Gauge("cctts_event_subscribers", "Open event subscriptions.", registry=registry)
        self.event_subscribers_dropped = Counter(
            "cctts_event_subscribers_dropped", "Event subscribers dropped for reading too slowly.", registry=registry
        )

        # --- the neural engine's workers
        self.engine_streams = Gauge(
            "cctts_engine_streams", "Utterances being synthesised.", ["worker"], registry=registry
        )
        self.engine_room = Gauge(
            "cctts_engine_room", "Utterances that would be taken now.", ["worker"], registry=registry
        )
        self.engine_utilisation = Gauge(
            "cctts_engine_utilisation_ratio",
            "Share of a device's time that running utterances need to keep their listeners supplied.",
            ["worker"],
            registry=registry,
        )
        self.engine_first_audio = Gauge(
            "cctts_engine_first_audio_seconds",
            "Predicted time to first audio of an utterance begun now.",
            ["worker"],
            registry=registry,
        )
        self.engine_slots = Gauge(
            "cctts_engine_slots", "Places for sequences, by state.", ["worker", "state"], registry=registry
        )
        self.engine_pages = Gauge(
            "cctts_engine_pages", "Pages of the flow's state, by state.", ["worker", "state"], registry=registry
        )
        self.engine_refusals = Counter(
            "cctts_engine_refusals",
            "Refusals of the engine, and where; an utterance that waits for room is refused again and again.",
            ["where"],
            registry=registry,
        )
        self.engine_not_finite = Counter(
            "cctts_engine_not_finite", "Pieces of audio whose numbers were not finite.", registry=registry
        )
        self.engine_underruns = Counter(
            "cctts_engine_underruns",
            "Pieces of audio that came after their listener had run dry, as the engine reckons.",
            registry=registry,
        )

        # --- the prompt cache
        self.prompt_cache_requests = Counter(
            "cctts_prompt_cache_requests",
            "Prompts of text begun: kept in memory, on disk, joined while being made, missed, or bypassed.",
            ["result"],
            registry=registry,
        )
        self.prompt_cache_bytes = Gauge(
            "cctts_prompt_cache_bytes", "Audio kept in memory, on disk, or being made.", ["where"], registry=registry
        )
        self.prompt_cache_prompts = Gauge(
            "cctts_prompt_cache_prompts",
            "Prompts kept in memory, on disk, or being made.",
            ["where"],
            registry=registry,
        )
        self.prompt_cache_evictions = Counter(
            "cctts_prompt_cache_evictions", "Prompts that made room for others.", ["where"], registry=registry
        )
        self.prompt_cache_damaged = Counter(
            "cctts_prompt_cache_damaged", "Files of prompts that were damaged and dropped.", registry=registry
        )

        # --- the server itself
        self.process_restarts = Counter(
            "cctts_process_restarts", "Child processes started again.", ["process"], registry=registry
        )
        self.draining = Gauge("cctts_draining", "1 while no new calls are taken.", registry=registry)
        self.ready = Gauge("cctts_ready", "1 when a call would be answered and spoken to.", registry=registry)
        self.build_info = Gauge("cctts_build_info", "Always 1; see the labels.", ["version", "node"], registry=registry)
        self.build_info.labels(version=__version__, node=node).set(1)

    def render(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)
