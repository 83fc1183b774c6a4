from collections.abc import Callable
from typing import Any, Final, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.flow import encoder as flow_encoder
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FlowEncoder
from cc_tts.engines.cosyvoice.model.networks.layers import Span
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig
from tests.support.flow_cases import SMALL

pytestmark = pytest.mark.unit

CHUNK: Final = SMALL.chunk_tokens
CONFIG: Final = cast("EncoderConfig", SMALL.encoder)


@pytest.fixture
def encoder() -> FlowEncoder:
    torch.manual_seed(3)
    encoder = FlowEncoder(CONFIG).eval().requires_grad_(requires_grad=False)
    for parameter in encoder.parameters():
        parameter.normal_(0.0, 0.3)
    return encoder


@pytest.fixture
def num_made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often distances were made since the fixture was asked for."""
    made: list[tuple[int, int]] = []
    make = flow_encoder.relative_positions

    def counted(lowest: int, highest: int, *rest: Any) -> Tensor:
        made.append((lowest, highest))
        return make(lowest, highest, *rest)

    monkeypatch.setattr(flow_encoder, "relative_positions", counted)
    return lambda: len(made)


def run(encoder: FlowEncoder, num_tokens: int) -> Tensor:
    x = torch.randn(1, num_tokens + CONFIG.lookahead, CONFIG.width, generator=torch.Generator().manual_seed(1))
    count = torch.tensor([num_tokens])
    tokens = Span.of(count, num_tokens, chunk=CHUNK)
    frames = Span.of(2 * count, 2 * num_tokens, chunk=2 * CHUNK)
    hidden: Tensor = encoder(x, torch.ones(x.shape[:2], dtype=torch.bool), tokens, frames)
    return hidden


@pytest.mark.parametrize("num_tokens", [1, CHUNK, 11, 12])
def test_kept_distances_give_what_new_ones_give(
    encoder: FlowEncoder, num_made: Callable[[], int], num_tokens: int
) -> None:
    plain = run(encoder, num_tokens)
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    torch.testing.assert_close(run(encoder, num_tokens), plain, rtol=0.0, atol=1e-5)
    assert num_made() == made


def test_what_is_longer_than_kept_is_right_too(encoder: FlowEncoder, num_made: Callable[[], int]) -> None:
    plain = run(encoder, 13)
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    torch.testing.assert_close(run(encoder, 13), plain, rtol=0.0, atol=1e-5)
    assert num_made() == made + 2


def test_fewer_do_not_replace_more(encoder: FlowEncoder, num_made: Callable[[], int]) -> None:
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    encoder.keep_distances(2, CHUNK)
    assert num_made() == made
    encoder.keep_distances(4, CHUNK)
    assert num_made() == made + 2
