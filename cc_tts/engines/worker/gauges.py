"""What the workers report, as metrics. Runs on: the event loop."""

from cc_tts.engines.stepped import EngineLoad
from cc_tts.metrics import Metrics


class EngineGauges:
    """See ``cc_tts.engines.engine.EngineListener``."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: dict[str, EngineLoad] = {}

    def on_worker_down(self, worker: str, reason: str) -> None:  # noqa: ARG002 - the supervisor logs the reason
        """A worker ended without having been asked to."""
        self._metrics.process_restarts.labels(process="worker").inc()
        self._counted.pop(worker, None)

    def on_engine_load(self, worker: str, load: EngineLoad) -> None:
        """A worker says how busy it is."""
        metrics = self._metrics
        metrics.engine_streams.labels(worker=worker).set(load.num_streams)
        metrics.engine_room.labels(worker=worker).set(load.room)
        metrics.engine_utilisation.labels(worker=worker).set(load.utilisation)
        metrics.engine_first_audio.labels(worker=worker).set(load.first_audio_ms / 1000)
        metrics.engine_slots.labels(worker=worker, state="used").set(load.slots_used)
        metrics.engine_slots.labels(worker=worker, state="free").set(load.slots_total - load.slots_used)
        metrics.engine_pages.labels(worker=worker, state="used").set(load.pages_used)
        metrics.engine_pages.labels(worker=worker, state="free").set(load.pages_total - load.pages_used)
        before = self._counted.get(worker)
        self._counted[worker] = load
        num_not_finite, num_underruns = (0, 0) if before is None else (before.num_not_finite, before.num_underruns)
        metrics.engine_not_finite.inc(max(0, load.num_not_finite - num_not_finite))
        metrics.engine_underruns.inc(max(0, load.num_underruns - num_underruns))

    def on_refusal(self, reason: str) -> None:
        """A stream was refused by admission."""
        self._metrics.engine_refusals.labels(where=reason).inc()
