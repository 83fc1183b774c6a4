"""Reports of how busy the engine is, and the room in them."""

import math
from typing import Any

import pytest

from cc_tts.engines.cosyvoice2.engine.admission import Admission, AdmissionConfig, RefusalCode
from cc_tts.engines.cosyvoice2.engine.costs import DefaultCosts, StageCosts
from cc_tts.engines.cosyvoice2.engine.load_meter import MAX_ROOM, PREVIEW_INTERVAL_MS, Crowd, LoadMeter
from tests.fakes.fake_device import FakeDevice, VirtualClock

pytestmark = pytest.mark.unit

PAGES_EACH = 10


def make_meter(
    *, num_pages: int = 10_000, max_streams: int = 200, max_recomputed: int = 0, ms: float = 0.01
) -> LoadMeter:
    device = FakeDevice(VirtualClock(), num_slots=max_streams, num_pages=num_pages)
    costs = StageCosts(DefaultCosts(prefill_ms=ms, lm_step_ms=ms, flow_ms=ms, vocoder_ms=ms))
    limits = AdmissionConfig(first_audio_target_ms=300.0, max_streams=max_streams)
    return LoadMeter(device, Admission(limits, costs), max_streams=max_streams, max_recomputed=max_recomputed)


def crowd(num_streams: int = 0, **fields: Any) -> Crowd:
    return Crowd(
        **{
            "now_ms": 0.0,
            "num_streams": num_streams,
            "num_first_pending": 0,
            "spare_ms": math.inf,
            "num_sequences": num_streams,
            "num_recomputed": 0,
            "pending_positions": 0,
            "pages_each": PAGES_EACH,
            "slots_used": num_streams,
            **fields,
        }
    )


def room(meter: LoadMeter, there: Crowd) -> int:
    return meter.report(there, num_underruns=0).room


def num_taken(meter: LoadMeter, there: Crowd) -> int:
    """How many newcomers are taken, one after the other, none of whom has begun."""
    count = 0
    while meter.decide(there.with_more(count)).admit:
        count += 1
    return count


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({}, crowd()),
        ({"max_streams": 7}, crowd(3)),
        ({"num_pages": 55}, crowd(1)),
        ({"num_pages": 55, "max_recomputed": 3}, crowd(1)),
        ({"num_pages": 5, "max_recomputed": 3}, crowd(1)),
        ({"num_pages": 5, "max_recomputed": 3}, crowd(4, num_recomputed=2)),
        ({"num_pages": 55}, crowd(4, num_first_pending=2)),
        ({"ms": 2.0}, crowd(5)),
        ({"ms": 2.0}, crowd(5, spare_ms=100.0)),
        ({"ms": 30.0}, crowd(5)),
    ],
)
def test_the_room_is_how_many_would_be_taken(options: dict[str, Any], there: Crowd) -> None:
    assert room(make_meter(**options), there) == min(MAX_ROOM, num_taken(make_meter(**options), there))


@pytest.mark.parametrize(
    ("options", "there", "expected"),
    [
        ({"max_streams": 7}, crowd(3), 4),
        ({"max_streams": 7}, crowd(7), 0),
        ({"num_pages": 55}, crowd(1), 5),
        ({"num_pages": 55, "max_recomputed": 3}, crowd(1), 8),
        ({"num_pages": 5, "max_recomputed": 3}, crowd(4, num_recomputed=3), 0),
        ({}, crowd(1), MAX_ROOM),
    ],
)
def test_slots_and_pages_are_counted(options: dict[str, Any], there: Crowd, expected: int) -> None:
    assert room(make_meter(**options), there) == expected


def test_a_refusal_is_reported_with_its_reason() -> None:
    meter = make_meter(num_pages=5)
    decision = meter.decide(crowd(2))
    assert decision.code is RefusalCode.MEMORY
    report = meter.report(crowd(2), num_underruns=4)
    assert report.room == 0
    assert report.refusal == decision.reason
    assert report.retry_after_s >= 1
    assert (report.num_streams, report.num_underruns, report.pages_total) == (2, 4, 5)


def test_who_is_refused_is_told_when_the_next_stream_ends() -> None:
    meter = make_meter(max_streams=2)
    assert meter.decide(crowd(2, now_ms=500.0, next_end_ms=3000.0)).retry_after_s == 3
    assert meter.report(crowd(2, now_ms=500.0, next_end_ms=math.inf), num_underruns=0).retry_after_s == 1


def test_a_report_holds_for_a_while_unless_streams_come_or_go() -> None:
    meter = make_meter()
    assert meter.recent(0.0, 0) is None
    report = meter.report(crowd(2), num_underruns=0)
    assert meter.recent(PREVIEW_INTERVAL_MS - 1, 2) is report
    assert meter.recent(PREVIEW_INTERVAL_MS, 2) is None
    assert meter.recent(1.0, 3) is None


def test_asking_for_the_room_closes_nothing() -> None:
    """Previews leave no trace in what admission remembers."""
    meter = make_meter(ms=20.0)
    before = num_taken(meter, crowd(5))
    meter = make_meter(ms=20.0)
    for _ in range(5):
        assert meter.report(crowd(5, spare_ms=0.0), num_underruns=0).room == 0
    assert num_taken(meter, crowd(5)) == before
