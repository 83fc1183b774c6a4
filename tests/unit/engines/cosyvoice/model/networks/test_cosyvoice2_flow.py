from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice.model.loader import new_network  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import relative_positions  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference, fixed_noise  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.flow.ode import euler_grid  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.layers import Span  # noqa: E402
from cc_tts.engines.cosyvoice.model.sizes import FlowConfig  # noqa: E402
from lab.cosyvoice.golden_fill import fill_by_hash, fill_by_kind  # noqa: E402
from lab.cosyvoice.networks import flow_of  # noqa: E402
from lab.cosyvoice.whole_flow import encode, whole_mel  # noqa: E402
from tests.support.flow_cases import SMALL  # noqa: E402
from tests.support.golden import full_shapes, read_tensors, tiny_shapes  # noqa: E402
from tests.support.torch_threads import one_thread_without_gradients  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

GOLDEN_CLOSE: Final = {"rtol": 0.0, "atol": 2e-5}
CLOSE: Final = {"rtol": 0.0, "atol": 5e-5}

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def golden() -> "dict[str, Tensor]":
    return read_tensors("tiny.npz")


@pytest.fixture(scope="module")
def noise() -> "Tensor":
    return fixed_noise()


@pytest.fixture(scope="module")
def tiny() -> Flow:
    return flow_of(fill_by_kind(tiny_shapes("flow"), "flow."))


@pytest.fixture(scope="module")
def full() -> Flow:
    return flow_of(fill_by_hash(full_shapes("flow")), head_dim=64)


def voice_of(golden: "Mapping[str, Tensor]") -> "tuple[Tensor, Tensor, Tensor]":
    return golden["flow_prompt_token"], golden["flow_prompt_feat"], golden["flow_embedding"]


def lengths_of(token: "Tensor") -> "Tensor":
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
        self, golden: "dict[str, Tensor]", noise: "Tensor", monkeypatch: pytest.MonkeyPatch
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
        span = Span.of(torch.tensor([120, 120]), 120, chunk=50 if streaming else None)
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


def small_voice(num_prompt: int, seed: int = 5, num_rows: int = 1) -> "tuple[Tensor, Tensor, Tensor]":
    generator = torch.Generator().manual_seed(seed)
    token = torch.randint(0, SMALL.vocab_size, (num_rows, num_prompt), generator=generator)
    feat = torch.randn((num_rows, 2 * num_prompt, 4), generator=generator)
    return token, feat, torch.randn((num_rows, 6), generator=generator)


def small_tokens(num_tokens: int, seed: int = 6, num_rows: int = 1) -> "Tensor":
    generator = torch.Generator().manual_seed(seed)
    token: Tensor = torch.randint(0, SMALL.vocab_size, (num_rows, num_tokens), generator=generator)
    return token


SMALL_NOISE: Final = fixed_noise()[:, :4, :200]


def whole(flow: Flow, token: "Tensor", voice: "tuple[Tensor, Tensor, Tensor]", **kwargs: Any) -> "Tensor":
    mel: Tensor = whole_mel(
        flow, token, FlowReference(*voice), noise=SMALL_NOISE, **{"streaming": True, "finalize": True, **kwargs}
    )
    return mel


class TestBatch:
    """A batch gives what its rows give alone."""

    @pytest.mark.parametrize("streaming", [True, False])
    @pytest.mark.parametrize("finalize", [True, False])
    def test_rows_of_different_lengths(self, streaming: bool, finalize: bool) -> None:
        flow = small_flow()
        prompts, counts = (7, 0, 10), (5, 12, 9)
        voice, token = small_voice(10, num_rows=3), small_tokens(12, num_rows=3)
        how = {"streaming": streaming, "finalize": finalize}
        mels = whole(flow, token, voice, token_len=torch.tensor(counts), prompt_token_len=torch.tensor(prompts), **how)
        assert mels.shape == (3, 4, 24 if finalize else 18)
        for row, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
            one = tuple(part[row : row + 1] for part in voice)
            alone = (one[0][:, :prompt], one[1][:, : 2 * prompt], one[2])
            mel = whole(flow, token[row : row + 1, :count], alone, **how)
            torch.testing.assert_close(mels[row : row + 1, :, : mel.shape[2]], mel, **CLOSE)
            assert not mels[row, :, mel.shape[2] :].any()


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

    def test_a_prompt_has_two_frames_a_token(self) -> None:
        flow, (token, feat, embedding) = small_flow(), small_voice(4)
        with pytest.raises(ValueError, match="4 tokens cannot have 7"):
            whole(flow, small_tokens(3), (token, feat[:, :7], embedding))

    @pytest.mark.parametrize("num_tokens", [0, 2])
    def test_less_than_the_lookahead_gives_nothing_yet(self, num_tokens: int) -> None:
        mel = whole(small_flow(), small_tokens(num_tokens), small_voice(6), finalize=False)
        assert mel.shape == (1, 4, 0)

    def test_only_the_direction_of_the_embedding_counts(self) -> None:
        flow = small_flow()
        _, _, embedding = small_voice(1)
        torch.testing.assert_close(flow.speaker(7 * embedding), flow.speaker(embedding))

    def test_positions_may_be_negative(self) -> None:
        table = relative_positions(-2, 3, 8, torch.device("cpu"))
        torch.testing.assert_close(table[2], torch.tensor([0.0, 1.0] * 4))
        torch.testing.assert_close(table[1, 0::2], -table[3, 0::2])
        torch.testing.assert_close(table[1, 1::2], table[3, 1::2])

    def test_no_tensor_is_asked_for_its_value(self) -> None:
        """On the meta device tensors have none; what runs there can be captured in a CUDA graph."""
        with torch.device("meta"):
            flow = Flow(SMALL)
            token, prompt, noise = torch.zeros(2, 9).long(), torch.zeros(2, 5).long(), torch.zeros(1, 4, 60)
            lengths = torch.zeros(2).long()
            voice = prompt, torch.zeros(2, 10, 4), torch.zeros(2, 6)
            how = {"noise": noise, "token_len": lengths, "prompt_token_len": lengths}
            for streaming in (True, False):
                assert whole_mel(
                    flow, token, FlowReference(*voice), streaming=streaming, finalize=False, **how
                ).shape == (2, 4, 12)

    def test_half_precision_inside_float32_outside(self) -> None:
        flow, voice, token = small_flow().to(torch.bfloat16), small_voice(6), small_tokens(9)
        mel, exact = whole(flow, token, voice), whole(small_flow(), token, voice)
        assert mel.dtype == torch.float32
        torch.testing.assert_close(mel, exact, rtol=0.0, atol=0.2)
