from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch

from cc_tts.engines.cosyvoice.runners.vocoder import crossfade, crossfade_window

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def test_a_crossfade_is_a_little_louder_than_what_it_joins() -> None:
    rise, fall = crossfade_window().chunk(2)
    sums = rise + fall
    assert float(sums.min()) == pytest.approx(1.0798, abs=1e-4)
    assert float(sums.max()) == pytest.approx(1.08, abs=1e-4)


def test_neither_input_is_changed() -> None:
    new, old = torch.ones(1, 5000), torch.ones(1, 3840)
    crossfade(new, old, crossfade_window())
    assert bool((new == 1).all())
    assert bool((old == 1).all())
