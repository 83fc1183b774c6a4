"""The device that only counts: costs are those of the literature, pages come back, nothing depends on the machine."""

import argparse
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from bench.engine.costs import flow_ms, lm_step_ms, prefill_ms, vocoder_ms
from bench.engine.phone import always, burst
from bench.engine.phone_load import PhoneLoad
from bench.engine.simulated import (
    MAX_STREAMS,
    FixedClock,
    Simulated,
    measure,
)
from cc_tts.engines.cosyvoice2.engine.engine import Engine

pytestmark = pytest.mark.unit


def arguments(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"seconds": 6.0, "target_ms": 300.0, "seed": 1, "planning_us": 10.0, **changes})


def test_costs_are_the_expected_ones() -> None:
    assert [lm_step_ms(rows) for rows in (64, 256)] == [1.6, 3.0]
    assert 1.0 <= lm_step_ms(1) <= 1.2
    assert 2.0 <= prefill_ms(150) <= 4.0
    assert 10.0 <= flow_ms(50, 300) <= 15.0
    assert 50.0 <= flow_ms(64 * 50, 500) <= 80.0
    assert 3.0 <= vocoder_ms(58) <= 5.0
    assert 10.0 <= vocoder_ms(64 * 58) <= 15.0


def test_pages_and_slots_come_back_and_the_audio_has_its_length(tmp_path: Path) -> None:
    simulated = Simulated(tmp_path, FixedClock())
    device = simulated.device(MAX_STREAMS)
    free = device.num_free_pages
    engine = simulated.engine(device, Engine, MAX_STREAMS, target_ms=300.0)
    load = PhoneLoad(engine, simulated.clock, seed=1, seconds=(2.0, 2.0))
    tally = load.run(burst(3), for_ms=4000.0, warm_up_ms=0.0, num_pages_used=lambda: device.num_pages - free)
    assert [round(each.received_ms) for each in tally.heard] == [2000] * 3
    assert (device.num_used, device.num_free_pages) == (0, free)


def test_with_planning_that_is_given_it_comes_out_the_same(tmp_path: Path) -> None:
    first, again = (
        measure(Simulated(tmp_path, FixedClock()), Engine, always(4, random.Random(4)), arguments()) for _ in range(2)
    )
    assert first == again
    assert first["sentences"] > 0
    assert first["failed"] == 0
