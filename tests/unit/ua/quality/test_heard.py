"""How we hear the far side, from the counts of each second."""

import pytest

from cc_tts.media.quality import Quality, mean_opinion_score
from cc_tts.ua.quality.heard import Losses

pytestmark = pytest.mark.unit


def counted(*seconds: tuple[int, int], round_trip_ms: float | None = 20.0) -> tuple[Losses, Quality]:
    losses, received, lost = Losses(), 0, 0
    quality = Quality()
    for came, missing in seconds:
        received, lost = received + came, lost + missing
        quality = Quality(packets_received=received, packets_lost=lost, round_trip_ms=round_trip_ms)
        losses.note(quality)
    return losses, quality


def test_nothing_lost() -> None:
    losses, quality = counted((50, 0), (50, 0), (50, 0))
    metrics = losses.metrics(quality, jitter_buffer_ms=(40, 60))
    assert (metrics.loss_rate, metrics.burst_ms, metrics.gap_ms) == (0.0, 0, 3000)
    assert metrics.mos_cq == mean_opinion_score(loss=0.0, round_trip_ms=20.0)
    assert metrics.mos_lq is not None
    assert metrics.mos_lq >= metrics.mos_cq
    assert (metrics.jitter_buffer_ms, metrics.jitter_buffer_max_ms) == (40, 60)


def test_bursts_are_told_from_gaps() -> None:
    losses, quality = counted((50, 0), (40, 10), (30, 20), (49, 1), (25, 25))
    metrics = losses.metrics(quality)
    assert metrics.loss_rate == 56 / 250
    assert metrics.burst_density == 55 / 150
    assert metrics.gap_density == 1 / 100
    assert (metrics.burst_ms, metrics.gap_ms) == (1500, 1000)
    losses, quality = counted((40, 10), (60, -10), (50, 0))
    assert losses.metrics(quality).loss_rate == 0.0, "a packet that came late is no loss of the next second"


def test_without_a_round_trip_only_listening_is_rated() -> None:
    losses, quality = counted((45, 5), round_trip_ms=None)
    metrics = losses.metrics(quality)
    assert (metrics.r_factor, metrics.mos_cq, metrics.round_trip_ms) == (None, None, 0)
    assert metrics.mos_lq is not None
    assert metrics.mos_lq < 4
    losses, quality = counted((0, 0))
    assert (losses.metrics(quality).mos_lq, losses.metrics(quality).loss_rate) == (None, 0.0), "nothing was heard"
