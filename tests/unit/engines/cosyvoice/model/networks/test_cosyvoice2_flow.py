from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import new_network
from cc_tts.engines.cosyvoice.model.networks.flow import encoder as flow_encoder
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FlowEncoder, relative_positions
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.flow.ode import euler_grid
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, FlowConfig
from lab.cosyvoice.golden_fill import fill_by_hash, fill_by_kind
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.whole_flow import encode, whole_mel
from tests.support.flow_cases import SMALL
from tests.support.golden import full_shapes, read_tensors, tiny_shapes
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

GOLDEN_CLOSE: Final[dict[str, Any]] = {"rtol": 0.0, "atol": 2e-5}
CLOSE: Final[dict[str, Any]] = {"rtol": 0.0, "atol": 5e-5}

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return read_tensors("tiny.npz")


@pytest.fixture(scope="module")
def noise() -> Tensor:
    return fixed_noise()


@pytest.fixture(scope="module")
def tiny() -> Flow:
    return flow_of(fill_by_kind(tiny_shapes("flow"), "flow."))


@pytest.fixture(scope="module")
def full() -> Flow:
    return flow_of(fill_by_hash(full_shapes("flow")), head_dim=64)


def voice_of(golden: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return golden["flow_prompt_token"], golden["flow_prompt_feat"], golden["flow_embedding"]


def lengths_of(token: Tensor) -> Tensor:
    lengths: Tensor = torch.full((token.shape[0],), token.shape[1])
    return lengths


class TestGolden:
    """Numbers of the reference implementation."""

    def test_euler_grid(self) -> None:
        ends = read_tensors("spec/flow.npz")["t_span"].tolist()
        moments = [moment for moment, _ in euler_grid(10)]
        assert moments == pytest.approx(ends[:-1], abs=1e-6)
        assert sum(length for _, length in euler_grid(10)) == pytest.approx(1.0, abs=1e-6)

    def test_constants_at_hand_change_nothing(
        self, golden: dict[str, Tensor], noise: Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flow = flow_of(fill_by_kind(tiny_shapes("flow"), "flow."))
        token, voice = golden["flow_token"], voice_of(golden)
        before = whole_mel(flow, token, FlowReference(*voice), streaming=True, finalize=True, noise=noise)
        flow.keep_constants(8)
        monkeypatch.setattr(flow.estimator, "shifts", lambda _t: pytest.fail("they are at hand"))
        torch.testing.assert_close(
            whole_mel(flow, token, FlowReference(*voice), streaming=True, finalize=True, noise=noise),
            before,
            **GOLDEN_CLOSE,
        )

    @pytest.mark.parametrize("streaming", [1, 0])
    def test_full_size_encoder_and_estimator(self, full: Flow, streaming: int) -> None:
        golden = read_tensors("spec/flow.npz")
        token = torch.cat((golden["prompt_token"], golden["token"]), dim=1)
        for finalize, name in ((True, "final"), (False, "lookahead")):
            hidden = encode(full, token, lengths_of(token), streaming=bool(streaming), finalize=finalize)
            torch.testing.assert_close(
                full.encoder_proj(hidden), golden[f"mu_streaming{streaming}_{name}"], **GOLDEN_CLOSE
            )
        span = PositionSpan.of(torch.tensor([120, 120]), 120, chunk=50 if streaming else None)
        x, mu, cond = (golden[name].mT for name in ("est_x", "est_mu", "est_cond"))
        out = full.estimator(x, mu, full.estimator.shifts(golden["est_t"]), golden["est_spks"], cond, span)
        torch.testing.assert_close(out.mT, golden[f"est_out_streaming{streaming}"], **GOLDEN_CLOSE)


class TestConfig:
    def test_published_sizes(self) -> None:
        config = FlowConfig.of(full_shapes("flow"))
        assert config == FlowConfig()
        assert (config.estimator.in_channels, config.chunk_frames) == (320, 50)

    @pytest.mark.parametrize("shapes", [full_shapes("flow"), tiny_shapes("flow")], ids=["full", "tiny"])
    def test_keys_are_those_of_the_state_dict(self, shapes: dict[str, list[int]]) -> None:
        flow = new_network("flow", shapes)
        assert {key: list(value.shape) for key, value in flow.state_dict().items()} == shapes


def small_flow(seed: int = 0) -> Flow:
    torch.manual_seed(seed)
    flow = Flow(SMALL).eval()
    for name, parameter in flow.named_parameters():
        scale = 0.3 if "pos_bias" in name else 1.0
        parameter.copy_(parameter + scale * torch.randn_like(parameter) * 0.1)
    return flow


def small_voice(num_prompt: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    token = torch.randint(0, SMALL.vocab_size, (1, num_prompt), generator=generator)
    feat = torch.randn((1, 2 * num_prompt, 4), generator=generator)
    return token, feat, torch.randn((1, 6), generator=generator)


def small_tokens(num_tokens: int, seed: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    token: Tensor = torch.randint(0, SMALL.vocab_size, (1, num_tokens), generator=generator)
    return token


SMALL_NOISE: Final = fixed_noise()[:, :4, :200]


def whole(flow: Flow, token: Tensor, voice: tuple[Tensor, Tensor, Tensor], **kwargs: Any) -> Tensor:
    mel: Tensor = whole_mel(
        flow, token, FlowReference(*voice), noise=SMALL_NOISE, **{"streaming": True, "finalize": True, **kwargs}
    )
    return mel


class TestTraps:
    """What is easy to get wrong (§13)."""

    def test_a_prefix_never_changes_under_the_chunk_mask(self) -> None:
        flow, voice, token = small_flow(), small_voice(4), small_tokens(20)
        long = whole(flow, token, voice)
        short = whole(flow, token[:, :11], voice, finalize=False)  # two whole chunks and their lookahead
        torch.testing.assert_close(short, long[:, :, :16], **CLOSE)
        assert (whole(flow, token, voice, streaming=False)[:, :, :16] - short).abs().max() > 1e-3

    def test_the_end_is_silence_and_not_token_zero(self) -> None:
        flow, voice, token = small_flow(), small_voice(4), small_tokens(8)
        with_zeros = torch.cat((token, torch.zeros(1, 3, dtype=torch.int64)), dim=1)
        ended = whole(flow, token, voice)
        assert (ended - whole(flow, with_zeros, voice, finalize=False)).abs().max() > 1e-4

    def test_negative_tokens_count_as_zero(self) -> None:
        flow, voice = small_flow(), small_voice(4)
        torch.testing.assert_close(
            whole(flow, torch.tensor([[-1, 3, 4]]), voice), whole(flow, torch.tensor([[0, 3, 4]]), voice)
        )

    def test_only_the_direction_of_the_embedding_counts(self) -> None:
        flow = small_flow()
        _, _, embedding = small_voice(1)
        torch.testing.assert_close(flow.speaker(7 * embedding), flow.speaker(embedding))

    def test_positions_may_be_negative(self) -> None:
        table = relative_positions(-2, 3, 8, torch.device("cpu"))
        torch.testing.assert_close(table[2], torch.tensor([0.0, 1.0] * 4))
        torch.testing.assert_close(table[1, 0::2], -table[3, 0::2])
        torch.testing.assert_close(table[1, 1::2], table[3, 1::2])

    def test_half_precision_inside_float32_outside(self) -> None:
        flow, voice, token = small_flow().to(torch.bfloat16), small_voice(6), small_tokens(9)
        mel, exact = whole(flow, token, voice), whole(small_flow(), token, voice)
        assert mel.dtype == torch.float32
        torch.testing.assert_close(mel, exact, rtol=0.0, atol=0.2)


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


def encoded(encoder: FlowEncoder, num_tokens: int) -> Tensor:
    x = torch.randn(1, num_tokens + CONFIG.lookahead, CONFIG.width, generator=torch.Generator().manual_seed(1))
    count = torch.tensor([num_tokens])
    tokens = PositionSpan.of(count, num_tokens, chunk=CHUNK)
    frames = PositionSpan.of(2 * count, 2 * num_tokens, chunk=2 * CHUNK)
    hidden: Tensor = encoder(x, torch.ones(x.shape[:2], dtype=torch.bool), tokens, frames)
    return hidden


@pytest.mark.parametrize("num_tokens", [1, CHUNK, 11, 12])
def test_kept_distances_give_what_new_ones_give(
    encoder: FlowEncoder, num_made: Callable[[], int], num_tokens: int
) -> None:
    plain = encoded(encoder, num_tokens)
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    torch.testing.assert_close(encoded(encoder, num_tokens), plain, rtol=0.0, atol=1e-5)
    assert num_made() == made


def test_what_is_longer_than_kept_is_right_too(encoder: FlowEncoder, num_made: Callable[[], int]) -> None:
    plain = encoded(encoder, 13)
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    torch.testing.assert_close(encoded(encoder, 13), plain, rtol=0.0, atol=1e-5)
    assert num_made() == made + 2


def test_fewer_do_not_replace_more(encoder: FlowEncoder, num_made: Callable[[], int]) -> None:
    encoder.keep_distances(3, CHUNK)
    made = num_made()
    encoder.keep_distances(2, CHUNK)
    assert num_made() == made
    encoder.keep_distances(4, CHUNK)
    assert num_made() == made + 2
