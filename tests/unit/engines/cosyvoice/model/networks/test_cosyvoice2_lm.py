from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import stored_shapes
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    SOS,
    LmInput,
    Table,
    speech_inputs,
    text_inputs,
)
from cc_tts.engines.cosyvoice.model.networks.lm.lm import (
    SpeechLm,
    cache_capacity,
    inverse_frequencies,
    rotate,
    rotation,
)
from cc_tts.engines.cosyvoice.model.sizes import LmConfig
from lab.cosyvoice.networks import lm_of
from tests.support.golden import full_shapes
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

SMALL: Final = LmConfig(
    hidden_size=48,
    intermediate_size=80,
    num_layers=3,
    query_size=48,
    key_size=16,
    head_dim=8,
    text_vocab_size=60,
    num_speech_codes=40,
)
CLOSE: Final[dict[str, Any]] = {"rtol": 0.0, "atol": 2e-5}

_one_thread_without_gradients = pytest.fixture(autouse=True)(one_thread_without_gradients)


@pytest.fixture(scope="module")
def lm() -> SpeechLm:
    torch.manual_seed(11)
    return SpeechLm(SMALL).eval()


def some_inputs(seed: int, length: int) -> list[LmInput]:
    """A mixture of all three tables."""
    rng = np.random.default_rng(seed)
    kinds = [text_inputs(rng.integers(0, 60, length)), speech_inputs(rng.integers(0, 40, length))]
    return [SOS, *(kinds[int(rng.integers(2))][place] for place in range(length - 1))]


def prefilled(lm: SpeechLm, inputs: list[LmInput]) -> tuple[Tensor, Tensor]:
    """Log-probabilities and cache of one sequence alone."""
    tables, rows, num_new = lm.pack([inputs])
    return lm.prefill(lm.embed(tables, rows), num_new, lm.new_cache(1, 40))


# --- the state dict


def test_sizes_are_read_off_the_released_shapes() -> None:
    shapes = full_shapes("llm")
    assert len(shapes) == 295
    assert LmConfig.of(shapes) == LmConfig()
    with torch.device("meta"):
        lm = SpeechLm(LmConfig())
    assert stored_shapes(lm) == {key: tuple(shape) for key, shape in shapes.items()}
    assert sum(value.numel() for value in lm.state_dict().values()) == 505_803_812


def test_sizes_are_read_off_other_shapes(lm: SpeechLm) -> None:
    assert LmConfig.of(stored_shapes(lm), head_dim=8) == SMALL


# --- the reference


def test_rotation_turns_pairs_by_the_angle_of_their_position() -> None:
    frequencies = inverse_frequencies(8, 100.0)
    torch.testing.assert_close(frequencies, torch.tensor([1.0, 100.0**-0.25, 100.0**-0.5, 100.0**-0.75]))
    x = torch.randn(1, 3, 1, 8)
    turned = rotate(x, *rotation(torch.tensor([[0, 1, 5]]), frequencies))
    pairs = torch.complex(x[..., :4], x[..., 4:])
    angles = torch.tensor([0.0, 1.0, 5.0])[:, None, None] * frequencies
    expected = pairs * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(torch.complex(turned[..., :4], turned[..., 4:]), expected)


# --- batches, caches


def test_inputs_are_packed_and_embedded(lm: SpeechLm) -> None:
    tables, rows, lengths = lm.pack(
        [[SOS, LmInput(Table.TEXT, 59), LmInput(Table.SPEECH, 41)], [LmInput(Table.SPEECH, 3)]]
    )
    assert lengths.tolist() == [3, 1]
    x = lm.embed(tables, rows)
    assert x.shape == (2, 3, 48)
    assert torch.equal(x[0, 0], lm.llm_embedding.weight[0])
    assert torch.equal(x[0, 1], lm.backbone.embed_tokens.weight[59])
    assert torch.equal(x[0, 2], lm.speech_embedding.weight[41])
    assert torch.equal(x[1, 0], lm.speech_embedding.weight[3])


LENGTHS: Final = (7, 1, 12, 4)


@pytest.mark.parametrize("num_keys", [None, 20], ids=["all positions", "a bucket"])
@pytest.mark.parametrize("slots", [None, [5, 0, 3, 1]], ids=["first slots", "any slots"])
def test_a_ragged_batch_equals_its_rows_alone(lm: SpeechLm, slots: list[int] | None, num_keys: int | None) -> None:
    """Prefill, four steps at different lengths, then more inputs for all: always as each sequence alone."""
    sequences = [some_inputs(seed, length) for seed, length in enumerate(LENGTHS)]
    where = None if slots is None else torch.tensor(slots)
    cache = lm.new_cache(6, 40)
    cache.normal_()  # what sequences of the past left behind
    alone = [prefilled(lm, inputs) for inputs in sequences]

    tables, rows, lengths = lm.pack(sequences)
    log_probs, cache = lm.prefill(lm.embed(tables, rows), lengths, cache, slots=where, num_keys=num_keys)
    torch.testing.assert_close(log_probs, torch.cat([answer for answer, _ in alone]), **CLOSE)

    for step in range(4):
        ids = torch.tensor([3, 9, 27, 11]) + step
        x, num_new = lm.speech_embedding(ids)[:, None], torch.ones(4, dtype=torch.int64)
        log_probs, cache = lm.prefill(x, num_new, cache, starts=lengths, slots=where, num_keys=num_keys)
        alone = [lm.decode(ids[row : row + 1], lengths[row : row + 1], own) for row, (_, own) in enumerate(alone)]
        torch.testing.assert_close(log_probs, torch.cat([answer for answer, _ in alone]), **CLOSE)
        lengths = lengths + 1

    tables, rows, num_new = lm.pack([some_inputs(9, length) for length in (2, 4, 1, 3)])
    x = lm.embed(tables, rows)
    log_probs, cache = lm.prefill(x, num_new, cache, starts=lengths, slots=where, num_keys=num_keys)
    alone = [
        lm.prefill(x[row : row + 1, :count], num_new[row : row + 1], own, starts=lengths[row : row + 1])
        for row, (count, (_, own)) in enumerate(zip(num_new.tolist(), alone, strict=True))
    ]
    torch.testing.assert_close(log_probs, torch.cat([answer for answer, _ in alone]), **CLOSE)


@pytest.mark.parametrize("cut", [1, 5, 16])
def test_cached_equals_uncached(lm: SpeechLm, cut: int) -> None:
    inputs = [*some_inputs(3, 10), *speech_inputs([4, 4, 39, 0, 17, 2, 8])]
    whole, _ = prefilled(lm, inputs)
    _, cache = prefilled(lm, inputs[:cut])
    tables, rows, num_new = lm.pack([inputs[cut:]])
    answer, cache = lm.prefill(lm.embed(tables, rows), num_new, cache, starts=torch.tensor([cut]))
    torch.testing.assert_close(answer, whole, **CLOSE)


def test_decoding_step_by_step_equals_one_prefill(lm: SpeechLm) -> None:
    start, tokens = some_inputs(3, 10), [4, 4, 39, 0, 17]
    _, cache = prefilled(lm, start)
    for count, token in enumerate(tokens, start=1):
        answer, cache = lm.decode(torch.tensor([token]), torch.tensor([len(start) + count - 1]), cache)
        torch.testing.assert_close(answer, prefilled(lm, [*start, *speech_inputs(tokens[:count])])[0], **CLOSE)


def test_a_slot_can_be_filled_to_its_last_position(lm: SpeechLm) -> None:
    """Padding of a row whose slot ends at its last real position falls into the scratch position."""
    sequences = [some_inputs(1, 8), some_inputs(2, 3)]
    cache = lm.new_cache(2, 8)
    assert cache_capacity(cache) == 8
    tables, rows, lengths = lm.pack(sequences)
    _, cache = lm.prefill(lm.embed(tables, rows), lengths, cache)
    tables, rows, num_new = lm.pack([speech_inputs([5]), speech_inputs([1, 2, 3, 4, 5])])
    x = lm.embed(tables, rows)
    second = cache[:, :, 1:].clone()
    expected, _ = lm.prefill(x[1:], num_new[1:], second, starts=lengths[1:])
    before = cache.clone()
    answers, cache = lm.prefill(x, torch.tensor([0, 5]), cache, starts=lengths)  # the first row is full and not there
    torch.testing.assert_close(answers[1:], expected, **CLOSE)
    assert torch.equal(cache[:, :, 0, :, :8], before[:, :, 0, :, :8])


def test_inactive_rows_leave_their_slots_alone(lm: SpeechLm) -> None:
    sequences = [some_inputs(seed, 6) for seed in range(3)]
    tables, rows, lengths = lm.pack(sequences)
    _, cache = lm.prefill(lm.embed(tables, rows), lengths, lm.new_cache(3, 20))
    before, other = cache.clone(), cache.clone()
    ids = torch.tensor([1, 2, 3])
    answers, cache = lm.decode(ids, lengths, cache, active=torch.tensor([True, False, True]))
    expected, _ = lm.decode(ids, lengths, other)
    torch.testing.assert_close(answers[[0, 2]], expected[[0, 2]], **CLOSE)
    assert torch.equal(cache[:, :, 1, :, :20], before[:, :, 1, :, :20])
    assert not torch.equal(cache[:, :, 0, :, :20], before[:, :, 0, :, :20])
    assert torch.isfinite(cache).all()


def test_the_cache_is_written_in_place(lm: SpeechLm) -> None:
    cache = lm.new_cache(2, 20)
    tables, rows, lengths = lm.pack([some_inputs(1, 5), some_inputs(2, 5)])
    _, result = lm.prefill(lm.embed(tables, rows), lengths, cache)
    assert result is cache
    assert cache.shape == (3, 2, 2, 2, 21, 8)
    assert not cache[..., 5:20, :].any()
    assert (cache[..., :5, :] != 0).all()


def test_half_precision_stays_close(lm: SpeechLm) -> None:
    state = {key: value.to(torch.bfloat16) for key, value in lm.state_dict().items()}
    half = lm_of(state, head_dim=8)
    assert half.new_cache(1, 4).dtype is torch.bfloat16
    inputs = some_inputs(4, 15)
    answer, _ = prefilled(half, inputs)
    assert answer.dtype is torch.float32
    torch.testing.assert_close(answer, prefilled(lm, inputs)[0], rtol=0.0, atol=0.1)


def test_casting_the_model_keeps_its_angles() -> None:
    half = SpeechLm(SMALL).to(torch.bfloat16)
    assert half.dtype is torch.bfloat16
    assert torch.equal(half.backbone.frequencies, inverse_frequencies(8, 1_000_000.0))


def test_no_value_leaves_the_device() -> None:
    """Tensors without values can go through: nothing asks for one, so a step can be captured in a graph."""
    with torch.device("meta"):
        lm = SpeechLm(SMALL).to("meta")
        cache = lm.new_cache(4, 30)
        integers = torch.empty(3, dtype=torch.int64)
        answer, cache = lm.prefill(torch.empty(3, 7, 48), integers, cache, starts=integers, slots=integers)
        assert answer.shape == (3, 43)
        answer, cache = lm.decode(integers, integers, cache, active=torch.empty(3, dtype=torch.bool), num_keys=16)
        assert answer.shape == (3, 43)
        tables = torch.empty(3, 7, dtype=torch.int64)
        assert lm.embed(tables, tables).shape == (3, 7, 48)


def test_logits_of_half_weights_are_not_rounded_to_half(lm: SpeechLm) -> None:
    half = lm_of({key: value.to(torch.bfloat16) for key, value in lm.state_dict().items()}, head_dim=8)
    hidden = torch.randn(4, SMALL.hidden_size).to(torch.bfloat16)
    head = half.llm_decoder
    exact = torch.log_softmax(hidden.double() @ head.weight.double().T + head.bias.double(), dim=-1)
    half.backbone.forward = lambda *_: hidden[:, None]  # type: ignore[method-assign]
    log_probs, _ = half.prefill(hidden[:, None], torch.ones(4, dtype=torch.int64), half.new_cache(4, 2))
    assert log_probs.dtype is torch.float32
    assert (log_probs - exact).abs().max() < 1e-5
