"""What the workers report, as metrics. Runs on: the event loop."""

from cc_tts.engines.stepped import EngineLoad
from cc_tts.metrics import Metrics


def show_load(metrics: Metrics, worker: str, load: EngineLoad, *, before: EngineLoad | None) -> None:
    """How busy a worker is. ``before`` is its last report since it started."""
    metrics.engine_streams.labels(worker=worker).set(load.num_streams)
    metrics.engine_room.labels(worker=worker).set(load.room)
    metrics.engine_utilisation.labels(worker=worker).set(load.utilisation)
    metrics.engine_first_audio.labels(worker=worker).set(load.first_audio_ms / 1000)
    metrics.engine_slots.labels(worker=worker, state="used").set(load.slots_used)
    metrics.engine_slots.labels(worker=worker, state="free").set(load.slots_total - load.slots_used)
    metrics.engine_pages.labels(worker=worker, state="used").set(load.pages_used)
    metrics.engine_pages.labels(worker=worker, state="free").set(load.pages_total - load.pages_used)
    num_not_finite, num_underruns = (0, 0) if before is None else (before.num_not_finite, before.num_underruns)
    metrics.engine_not_finite.inc(max(0, load.num_not_finite - num_not_finite))
    metrics.engine_underruns.inc(max(0, load.num_underruns - num_underruns))
