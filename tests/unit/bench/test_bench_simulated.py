"""The device that only counts: costs are those of the literature, pages come back, nothing depends on the machine."""

import argparse
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from bench.engine.costs import DEVICES, flow_ms, lm_step_ms, prefill_ms, simulated_costs, vocoder_ms
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


@pytest.mark.parametrize(
    ("card", "step_ms", "call_ms"),
    [
        ("L4", 3.9, 52),
        ("A10", 2.4, 38),
        ("V100", 2.1, 35),
        ("RTX 4090", 1.7, 27),
        ("L20", 2.0, 30),
        ("A100", 1.4, 23),
        ("H100", 1.0, 17.5),
    ],
)
def test_the_cards_are_those_of_the_roofline(card: str, step_ms: float, call_ms: float) -> None:
    device = DEVICES[card]
    assert device.lm_step_ms(1) == pytest.approx(step_ms, rel=0.1)
    assert device.flow_ms(1, 50, 550) == pytest.approx(call_ms, rel=0.15)


def test_a_slow_card_is_given_more_time() -> None:
    costs = {card: simulated_costs(device) for card, device in DEVICES.items()}
    assert (costs["H200"].guard_ms(60.0), costs["H200"].first_hop(12)) == (60.0, 12)
    assert 100.0 < costs["L4"].guard_ms(60.0) <= 250.0
    assert costs["L4"].first_hop(12) == 25
    assert costs["L4"].first_hop(40) == 40, "a longer one that was set stays"


@pytest.mark.parametrize("num_calls", [8, 24])
def test_nobody_on_a_full_l4_has_an_underrun(tmp_path: Path, num_calls: int) -> None:
    simulated = Simulated(tmp_path, FixedClock(), "L4")
    found = measure(simulated, Engine, always(num_calls, random.Random(num_calls)), arguments(seconds=30.0))
    assert found["sentences"] > 20
    assert found["underrun_rate"]["any"] == 0.0
    assert found["refused"] > 0, "it is full"


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
