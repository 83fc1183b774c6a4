from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice.runners.vocoder import CROSSFADE_SAMPLES, crossfade, crossfade_window  # noqa: E402
from lab.cosyvoice.chunked_vocoder import ChunkedVocoder, Crossfade  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Ramp:
    """A vocoder whose audio is the first mel bin, held for a frame, and whose source counts samples."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(
        self, mel: "Tensor", *, cache_source: "Tensor | None" = None, draws: "Tensor | None" = None
    ) -> "tuple[Tensor, Tensor]":
        self.calls.append((mel.shape[2], 0 if cache_source is None else cache_source.shape[2]))
        audio = mel[:, 0].repeat_interleave(480, dim=1)
        return audio, torch.arange(audio.shape[1], dtype=torch.float32).expand(audio.shape[0], 1, -1)


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


def test_chunks_hold_back_and_give_everything_in_the_end() -> None:
    ramp = Ramp()
    chunked = ChunkedVocoder(ramp)
    mel = torch.arange(40.0).expand(1, 4, -1)
    crossfade: Crossfade | None = None
    parts = []
    for start, end in ((0, 20), (20, 25), (25, 40)):
        audio, crossfade = chunked.push(mel[:, :, start:end], crossfade, is_last=end == 40)
        parts.append(audio)
    assert crossfade is None
    assert ramp.calls == [(20, 0), (13, CROSSFADE_SAMPLES), (23, CROSSFADE_SAMPLES)]
    assert [part.shape[1] for part in parts] == [12 * 480, 5 * 480, 23 * 480]
    joined = torch.cat(parts, dim=1)
    untouched = joined[0, : 12 * 480]
    assert torch.equal(untouched, mel[0, 0, :12].repeat_interleave(480))
    assert torch.equal(joined[0, 25 * 480 :], mel[0, 0, 25:].repeat_interleave(480))


def test_a_crossfade_keeps_nothing_of_its_chunk_alive() -> None:
    audio, crossfade = ChunkedVocoder(Ramp()).push(torch.ones(1, 4, 30), None, is_last=False)
    assert crossfade is not None
    for kept in (crossfade.mel, crossfade.source, crossfade.audio):
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()
    audio.zero_()
    assert bool((crossfade.audio == 1).all())


def test_a_chunk_shorter_than_its_crossfade_is_refused() -> None:
    chunked = ChunkedVocoder(Ramp())
    with pytest.raises(ValueError, match="shorter"):
        chunked.push(torch.ones(1, 4, 7), None, is_last=False)
    audio, _ = chunked.push(torch.ones(1, 4, 7), None, is_last=True)
    assert audio.shape == (1, 7 * 480)
