import random
from collections import Counter
from typing import Final

import pytest

from cc_tts.engines.cosyvoice.engine.device import PagesExhausted
from cc_tts.engines.cosyvoice.runners.kv_cache import PagePool
from cc_tts.errors import EngineOverloaded

pytest.importorskip("torch")

import torch

from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, EstimatorConfig
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.tiny_model import tiny_states

pytestmark = pytest.mark.unit

NUM_PAGES: Final = 7


class TestPagePool:
    def test_the_lowest_come_first_and_scratch_never(self) -> None:
        pool = PagePool(NUM_PAGES)
        assert pool.num_free == 6
        assert pool.take(3) == [1, 2, 3]
        pool.release([2])
        assert pool.take(0) == []
        assert pool.take(2) == [2, 4]
        assert pool.num_free == 2

    def test_more_than_there_are(self) -> None:
        pool = PagePool(NUM_PAGES)
        pool.take(4)
        with pytest.raises(PagesExhausted, match="3 pages are needed and 2 are free"):
            pool.take(3)
        assert pool.num_free == 2
        assert pool.take(2) == [5, 6]
        assert issubclass(PagesExhausted, EngineOverloaded)

    @pytest.mark.parametrize("pages", [[1, 1], [1, 2], [0], [NUM_PAGES], [-1]])
    def test_what_is_not_held_cannot_be_let_go(self, pages: list[int]) -> None:
        pool = PagePool(NUM_PAGES)
        pool.take(1)
        with pytest.raises(ValueError, match="held"):
            pool.release(pages)
        assert pool.num_free == 5
        pool.release([1])
        assert pool.num_free == 6

    @pytest.mark.parametrize("pages", [[2], [0], [1, 2]])
    def test_what_is_not_held_cannot_be_shared(self, pages: list[int]) -> None:
        pool = PagePool(NUM_PAGES)
        pool.take(1)
        with pytest.raises(ValueError, match="held 0 times"):
            pool.share(pages)
        pool.release([1])
        assert pool.num_free == 6

    def test_the_counts_are_those_of_a_model(self) -> None:
        draw = random.Random(4)
        pool, held = PagePool(20), Counter[int]()
        for _ in range(400):
            busy = sorted(held.elements())
            match draw.choice(("take", "share", "release")):
                case "take" if pool.num_free:
                    taken = pool.take(draw.randint(1, pool.num_free))
                    assert not set(taken) & set(held)
                    held.update(taken)
                case "share" if busy:
                    shared = set(draw.choices(busy, k=3))
                    pool.share(shared)
                    held.update(shared)
                case "release" if busy:
                    released = draw.sample(busy, k=draw.randint(1, len(busy)))
                    pool.release(released)
                    held -= Counter(released)
            assert pool.num_free == 19 - len(held)


class TestFlowArena:
    """The tensors behind the pages."""

    def test_sizes(self) -> None:
        flow = flow_of(tiny_states()["flow"])
        arena = FlowArena(flow, num_slots=3, num_pages=5)
        config, encoder, cache = flow.config, flow.config.encoder, arena.encoder
        assert isinstance(encoder, EncoderConfig)
        assert isinstance(config.estimator, EstimatorConfig)
        num_attentions = arena.estimator.attention.kept.shape[1]
        assert arena.estimator.attention.kept.shape == (10, num_attentions, 10, 50, 2, 2, 16)
        assert [pages.kept.shape[1:3] for pages in cache.paged] == [(5, 25), (5, 50)]
        per_token = 2 * encoder.width * (encoder.num_layers + 2 * encoder.num_up_layers)
        per_frame = 10 * num_attentions * 2 * 2 * config.estimator.num_attention
        assert arena.bytes_per_page == 4 * (25 * per_token + 50 * per_frame)
        contexts = (*cache.contexts, arena.estimator.contexts)
        assert arena.bytes_per_slot == sum(context.nbytes for context in contexts) // 3

    def test_contexts_of_a_slot_are_views(self) -> None:
        flow = flow_of(tiny_states()["flow"])
        arena = FlowArena(flow, num_slots=3, num_pages=2)
        for context in arena.contexts(1):
            context.fill_(1.0)
        assert arena.estimator.contexts.mean(dim=(0, 2, 3)).tolist() == [0, 0, 1, 1, 0, 0]
        assert arena.encoder.contexts[1].mean(dim=(1, 2)).tolist() == [0, 1, 0]

    def test_wiping_leaves_the_others(self) -> None:
        flow = flow_of(tiny_states()["flow"])
        arena = FlowArena(flow, num_slots=2, num_pages=3)
        (tokens, frames), attention = arena.encoder.paged, arena.estimator.attention.kept
        for tensor in (tokens.kept, frames.kept, attention):
            tensor.fill_(float("nan"))
        arena.wipe([1], 1)
        assert torch.isnan(tokens.kept).flatten(2).any(2).tolist() == [[True, False, True]] * len(tokens.kept)
        assert torch.isnan(attention[0, 0]).flatten(1).any(1).tolist() == [True, True, False, False, True, True]
