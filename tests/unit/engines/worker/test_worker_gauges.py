"""What the workers tell becomes metrics."""

import pytest

from cc_tts.engines.stepped import EngineLoad
from cc_tts.engines.worker.gauges import EngineGauges
from cc_tts.metrics import Metrics

pytestmark = pytest.mark.unit


def test_counts_of_workers_add_up_over_their_restarts() -> None:
    metrics = Metrics()
    gauges, registry = EngineGauges(metrics), metrics.registry

    def report(worker: str, num_underruns: int, num_not_finite: int) -> None:
        load = EngineLoad(
            num_streams=2,
            first_audio_ms=120.0,
            utilisation=0.5,
            num_underruns=num_underruns,
            num_not_finite=num_not_finite,
        )
        gauges.on_engine_load(worker, load)

    report("worker-0", 2, 0)
    report("worker-0", 3, 1)
    report("worker-1", 4, 0)
    gauges.on_worker_down("worker-0", "killed")
    report("worker-0", 1, 1)
    assert registry.get_sample_value("cctts_engine_underruns_total") == 8
    assert registry.get_sample_value("cctts_engine_not_finite_total") == 2
    assert registry.get_sample_value("cctts_engine_streams", {"worker": "worker-0"}) == 2
