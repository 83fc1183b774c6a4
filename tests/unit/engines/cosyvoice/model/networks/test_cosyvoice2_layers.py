from typing import Final

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from cc_tts.engines.cosyvoice.model.checkpoint import canonical_names
from cc_tts.engines.cosyvoice.model.loader import fold_weight_norm
from cc_tts.engines.cosyvoice.model.networks.layers import (
    CausalConv,
    JoinedLinears,
    PositionSpan,
    join_linears,
    within,
)
from lab.cosyvoice.networks import flow_of, lm_of
from lab.cosyvoice.tiny_model import tiny_states

pytestmark = pytest.mark.unit

MAGNITUDE: Final = "parametrizations.weight.original0"
DIRECTION: Final = "parametrizations.weight.original1"


@pytest.mark.parametrize("conv", [nn.Conv1d(3, 5, 7), nn.ConvTranspose1d(3, 5, 4)], ids=["conv", "transposed"])
@pytest.mark.parametrize("spelling", ["new", "old"])
@pytest.mark.parametrize("prefix", ["", "generator."])
def test_weight_norm_is_multiplied_out(conv: nn.Module, spelling: str, prefix: str) -> None:
    normed = parametrizations.weight_norm(type(conv)(3, 5, 7))
    normed.state_dict()[MAGNITUDE].mul_(1.5)
    state = {prefix + "ups.0." + key: value for key, value in normed.state_dict().items()}
    if spelling == "old":
        old = {MAGNITUDE: "weight_g", DIRECTION: "weight_v"}
        state = {
            key.replace(MAGNITUDE, old[MAGNITUDE]).replace(DIRECTION, old[DIRECTION]): v for key, v in state.items()
        }
    folded = fold_weight_norm(canonical_names("hift.pt", state))
    assert set(folded) == {"ups.0.weight", "ups.0.bias"}
    torch.testing.assert_close(folded["ups.0.weight"], normed.weight.detach())


def test_what_has_no_weight_norm_stays() -> None:
    state = {"generator.m_source.l_linear.weight": torch.ones(1, 9)}
    assert list(fold_weight_norm(canonical_names("hift.pt", state))) == ["m_source.l_linear.weight"]


def test_lengths_become_places() -> None:
    assert within(torch.tensor([0, 2]), 3).tolist() == [[False] * 3, [True, True, False]]


def test_without_pages_a_query_sees_to_the_end_of_its_row() -> None:
    span = PositionSpan.of(torch.tensor([3, 5]), 6, chunk=None)
    for row, length in enumerate((3, 5)):
        for query in range(6):
            assert span.visible[row, 0, query].tolist() == [key < length for key in range(6)]
            assert span.distance[row, query].tolist() == [query - key for key in range(6)]


@pytest.mark.parametrize("chunk", [1, 3, 4])
@pytest.mark.parametrize("start", [0, 4, 5])
def test_a_query_sees_to_the_end_of_its_chunk_and_of_its_row(chunk: int, start: int) -> None:
    lengths, width, num_keys = [3, 5], 6, 12
    starts, num_pages = torch.tensor([start, 0]), num_keys // chunk
    pages = torch.arange(1, 2 * num_pages + 1).view(2, num_pages)
    slots = torch.tensor([1, 2])
    span = PositionSpan.of(torch.tensor(lengths), width, chunk=chunk, starts=starts, pages=pages, slots=slots)
    for row, first in enumerate((start, 0)):
        end = first + lengths[row]
        for query in range(width):
            place = first + query
            limit = min(end, (place // chunk + 1) * chunk)
            assert span.visible[row, 0, query].tolist() == [key < limit for key in range(num_keys)]
            assert span.distance[row, query].tolist() == [place - key for key in range(num_keys)]
            written = chunk * (1 + row * num_pages) + place if query < lengths[row] else 0
            assert span.written[row, query] == written
            assert place - (limit - 1) >= span.lowest


def test_a_span_for_both_halves_repeats_itself() -> None:
    span = PositionSpan.of(torch.tensor([2, 3]), 3, chunk=2)
    both = span.twice(torch.float32, num_past=2)
    assert torch.equal(both.visible[2:], span.visible)
    assert both.bias is not None
    assert torch.equal(both.bias == 0.0, both.visible)
    assert torch.equal(both.bias == -torch.inf, ~both.visible)
    assert torch.equal(both.num_kept, torch.tensor([2, 3, 2, 3]))


def kept(*counts: int) -> PositionSpan:
    """Two rows in slots 2 and 1, of which so many new positions are past for the next call."""
    num_kept = torch.tensor(counts)
    return PositionSpan.of(num_kept, 9, chunk=None, num_kept=num_kept, slots=torch.tensor([2, 1]))


def test_a_causal_convolution_goes_on_where_each_row_ended() -> None:
    torch.manual_seed(0)
    conv = CausalConv(2, 3, 4).requires_grad_(requires_grad=False)
    x = torch.randn(2, 9, 2)
    whole = conv(x)
    context = torch.zeros(3, 3, 2)
    # of the first row one position is kept, the others run again
    first = conv.behind(context, x[:, :5], kept(1, 5))
    second = conv.behind(context, torch.stack((x[0, 1:5], x[1, 5:])), kept(4, 4))
    torch.testing.assert_close(first, whole[:, :5])
    torch.testing.assert_close(second, torch.stack((whole[0, 1:5], whole[1, 5:])))


@pytest.mark.parametrize("with_context", [False, True])
def test_a_convolution_as_a_linear_map(with_context: bool) -> None:
    conv = CausalConv(5, 3, 4).requires_grad_(requires_grad=False)
    x, span = torch.randn(2, 9, 5), kept(9, 6)
    contexts = [torch.ones(3, 3, 5), torch.ones(3, 3, 5)]
    before = conv.behind(contexts[0] if with_context else None, x, span)
    conv.keep_flat()
    torch.testing.assert_close(conv.behind(contexts[1] if with_context else None, x, span), before)
    assert torch.equal(contexts[0], contexts[1])


def test_joined_maps_give_what_each_gives_and_hold_nothing_twice() -> None:
    maps = [nn.Linear(4, size) for size in (3, 2)]
    joined = JoinedLinears(*maps)
    x = torch.randn(2, 5, 4)

    def apart() -> Tensor:
        cat: Tensor = torch.cat([each(x) for each in maps], dim=-1)
        return cat

    expected = apart()
    assert torch.equal(joined(x), expected)
    assert maps[0].weight.untyped_storage().data_ptr() != maps[1].weight.untyped_storage().data_ptr()
    joined.join()
    with torch.inference_mode():
        torch.testing.assert_close(joined(x), expected)
    assert maps[0].weight.untyped_storage().data_ptr() == maps[1].weight.untyped_storage().data_ptr()
    torch.testing.assert_close(apart(), expected)
    with torch.no_grad():
        maps[1].weight.mul_(2.0)  # seen without being joined again
        torch.testing.assert_close(joined(x), apart())


def test_maps_that_were_loaded_or_moved_are_apart_again() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(4, 2)
    joined = JoinedLinears(first, second)
    layer = nn.ModuleDict({"first": first, "second": second, "joined": joined})
    assert set(layer.state_dict()) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    x = torch.randn(1, 4)
    with torch.no_grad():
        joined.join()
        layer.load_state_dict({key: torch.randn_like(value) for key, value in layer.state_dict().items()}, assign=True)
        assert torch.equal(joined(x), torch.cat((first(x), second(x)), dim=-1))
        joined.join()
        layer.to(torch.float64)
        assert torch.equal(joined(x.double()), torch.cat((first(x.double()), second(x.double())), dim=-1))


def test_all_maps_of_a_network_are_joined() -> None:
    states = tiny_states()
    for network in (
        lm_of(states["llm"]),
        flow_of(states["flow"]),
    ):
        before = {key: value.clone() for key, value in network.state_dict().items()}
        joined = [module for module in network.modules() if isinstance(module, JoinedLinears)]
        assert len(joined) >= 2
        num_bytes = sum(part.num_bytes for part in joined)
        join_linears(network, most_bytes=num_bytes - 1)
        assert not any(part.is_joined for part in joined)
        join_linears(network, most_bytes=num_bytes)
        assert all(map(torch.equal, before.values(), network.state_dict().values()))
        assert all(part.is_joined for part in joined)
