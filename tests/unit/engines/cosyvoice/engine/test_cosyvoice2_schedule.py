from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, LOOKAHEAD_TOKENS  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.flow.flow import (  # noqa: E402
    Flow,
    FlowReference,
    fixed_noise,
)
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder  # noqa: E402
from lab.cosyvoice.golden_fill import fill_by_kind  # noqa: E402
from lab.cosyvoice.networks import flow_of, vocoder_of  # noqa: E402
from lab.cosyvoice.schedule import FlowCall, HopSchedule, calls_for, calls_with_hops  # noqa: E402
from lab.cosyvoice.token2wav import stream_mel, stream_wav  # noqa: E402
from lab.cosyvoice.whole_vocoder import vocode, with_coarse_phase  # noqa: E402
from tests.support.golden import read_tensors, tiny_shapes  # noqa: E402
from tests.support.torch_threads import one_thread_without_gradients  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit


_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def golden() -> "dict[str, Tensor]":
    return read_tensors("tiny.npz")


@pytest.fixture(scope="module")
def flow() -> Flow:
    return flow_of(fill_by_kind(tiny_shapes("flow"), "flow."))


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return with_coarse_phase(vocoder_of(fill_by_kind(tiny_shapes("hift"), "hift.")))


@pytest.fixture(scope="module")
def prompt(golden: "dict[str, Tensor]") -> FlowReference:
    return FlowReference(golden["flow_prompt_token"], golden["flow_prompt_feat"], golden["flow_embedding"])


@given(num_prompt=st.integers(0, 200), num_tokens=st.integers(0, 700), hop=st.integers(1, 120))
def test_every_token_is_given_out_once_and_hops_end_on_the_grid(num_prompt: int, num_tokens: int, hop: int) -> None:
    calls = list(calls_for(HopSchedule(num_prompt, hop=hop), num_tokens))
    given_out = 0
    for call in calls:
        assert call.num_given == given_out
        given_out += call.num_new
        if not call.finalize:
            assert call.num_tokens == given_out + LOOKAHEAD_TOKENS
            assert (num_prompt + given_out) % CHUNK_TOKENS == 0 or (given_out == hop < CHUNK_TOKENS)
    assert given_out == num_tokens
    assert [call.finalize for call in calls] == [False] * (len(calls) - 1) + [True]
    assert all(call.streaming for call in calls)


@given(num_prompt=st.integers(0, 60), steps=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_it_does_not_matter_how_the_tokens_arrive(num_prompt: int, steps: list[int]) -> None:
    schedule = HopSchedule(num_prompt)
    calls: list[FlowCall] = []
    num_tokens = 0
    for step in steps:
        num_tokens += step
        while (call := schedule.poll(num_tokens, finished=False)) is not None:
            calls.append(call)
        assert num_tokens < schedule.needed_tokens
    calls.extend(calls_for(schedule, num_tokens))
    assert calls == list(calls_for(HopSchedule(num_prompt), num_tokens))
    assert schedule.poll(num_tokens, finished=True) is None


def test_the_first_call_waits_for_what_the_prompt_lacks() -> None:
    assert HopSchedule(100).needed_tokens == 28
    assert HopSchedule(101).needed_tokens == 52
    assert HopSchedule(100, hop=10).needed_tokens == 13
    assert HopSchedule(30, hop=100).needed_tokens == 123
    assert HopSchedule(30, hop=100, compat=True).needed_tokens == 173


def test_a_hop_must_lead_somewhere() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        HopSchedule(0, hop=0)


class TestTokensToAudio:
    """Flow, vocoder and crossfades together."""

    def test_the_last_call_of_the_reference_sees_everything(
        self, flow: Flow, prompt: FlowReference, golden: "dict[str, Tensor]"
    ) -> None:
        tokens, noise = golden["flow_token"], fixed_noise()[:, :, :400]
        calls = calls_for(HopSchedule(prompt.token.shape[1], compat=True), tokens.shape[1])
        mels = [mel for mel, _ in stream_mel(flow, prompt, tokens, calls, noise=noise)]
        tail = golden["mel_offline"][:, -mels[-1].shape[2] :]
        torch.testing.assert_close(mels[-1][0], tail, rtol=0.0, atol=2e-5)

    def test_draws_fit_the_chunks(
        self, flow: Flow, vocoder: Vocoder, prompt: FlowReference, golden: "dict[str, Tensor]"
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        asked: list[int] = []

        def draw(num_frames: int) -> "Tensor":
            asked.append(num_frames)
            draws: Tensor = torch.randn(1, num_frames * 480, 9, generator=generator)
            return draws

        tokens = golden["flow_token"][:, :30]
        calls = calls_with_hops([13], 30)
        chunks = list(
            stream_wav(
                flow, partial(vocode, vocoder), prompt, tokens, calls, noise=fixed_noise()[:, :, :400], draw=draw
            )
        )
        assert asked == [26, 42]
        assert sum(chunk.shape[1] for chunk in chunks) == 30 * 960
