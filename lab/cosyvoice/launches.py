"""How many kernels the networks ask a device for: operators as they are called, and kernels of compiled code."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.layers import join_linears
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import LOOKAHEAD_FRAMES, CausalVocoder
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import (
    CAUSAL,
    DitConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    Generation,
    LmConfig,
    LookaheadConfig,
    VocoderConfig,
)
from cc_tts.engines.cosyvoice.runners.causal_vocoder import CausalVocoderRunner
from cc_tts.engines.cosyvoice.runners.flow import FlowRunner, FlowShape
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall
from cc_tts.engines.cosyvoice.runners.lm import LmRunner
from cc_tts.engines.cosyvoice.runners.lm_slots import Column
from cc_tts.engines.cosyvoice.runners.vocoder import VocoderRunner

GENERATED: Final = "generated"
_FREE: Final = ("aten._unsafe_view", "aten.empty", "aten.split_with_sizes", "aten.unbind")


class Operators(TorchDispatchMode):
    """Counts operators while it is entered. Views are left out: they ask for nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not func.is_view and not str(func).startswith(_FREE):
            self.counts[str(func).removeprefix("aten.").partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


class OnlyCounted(Exception):
    """The graph was counted and is not to be made."""


def kernels_of(compiled: Callable[[], object]) -> Counter[str]:
    """The kernels, by kind, of the one graph that ``compiled`` makes when it is called; it is ended once that is counted.

    They are counted after the compiler has joined what it joins for a card, so each that is left is a launch: of a kernel
    that is generated, or of a library.
    """
    from torch._inductor import config, ir, scheduler

    counts: Counter[str] = Counter()
    torch._dynamo.reset()  # noqa: SLF001 - the documented name; sizes that differ from an earlier graph's would be taken to vary

    def counted(self: Any) -> None:
        for node in self.nodes:
            if isinstance(node, scheduler.NopKernelSchedulerNode) or isinstance(node.node, ir.MultiOutput):
                continue
            is_library = isinstance(node, scheduler.ExternKernelSchedulerNode)
            counts[str(getattr(node.node, "python_kernel_name", node.node)) if is_library else GENERATED] += 1
        raise OnlyCounted

    as_for_a_card = {"cpu_backend": "triton", "force_pointwise_cat": True, "force_disable_caches": True}
    with (
        mock.patch.object(scheduler.Scheduler, "codegen", counted),
        config.patch(as_for_a_card),
        torch.inference_mode(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of the compiler's own modules
        try:
            compiled()
        except Exception as error:
            if OnlyCounted.__name__ not in repr(error):
                raise
    return counts


@dataclass(frozen=True, slots=True)
class Stage:
    plain: Callable[[], tuple[Tensor, ...]]
    compiled: Callable[[], tuple[Tensor, ...]]
    state: tuple[Tensor, ...]  # what it writes to besides its answer

    def operators(self) -> Counter[str]:
        """Count what a device is asked for without the compiler; the networks may be on the meta device."""
        counting = Operators()
        with counting, torch.inference_mode():
            self.plain()
        return counting.counts


def lm_step(lm: SpeechLm, *, num_rows: int = 1, num_keys: int = 512) -> Stage:
    """A decode step, on scratch."""
    runner = LmRunner(lm, num_slots=2 * num_rows, num_positions=num_keys, compiles=True)
    rows, cache = runner._rows, runner._cache  # noqa: SLF001 - a stage of it is of interest
    rows.column(Column.UNTIL).fill_(num_keys)
    rows.column(Column.MAX_IDS).fill_(num_keys)
    rows.column(Column.MIN_IDS).fill_(num_keys)
    return _stage(runner._step, (num_rows, num_keys), {}, rows.numbers, rows.history, rows.out, cache)  # noqa: SLF001


def flow_call(flow: Flow, *, num_rows: int = 1, num_pages: int = 16) -> Stage:
    """A call of one chunk, on scratch."""
    chunk = flow.config.chunk_tokens
    runner = FlowRunner(
        flow,
        num_slots=num_rows,
        num_pages=num_pages,
        noise=fixed_noise(),
        max_tokens=num_pages * chunk,
        compiles=True,
    )
    shape = FlowShape(num_rows, chunk, num_pages)
    inputs = runner._inputs(shape, ())  # noqa: SLF001
    inputs["counts"][1:4] = torch.tensor([[chunk + flow.config.encoder.lookahead], [chunk], [chunk]])
    inputs["pages"].copy_(torch.arange(1, num_pages + 1))
    inputs["slots"].fill_(1)
    arena = runner.arena.estimator
    return _stage(runner._graphs, shape, inputs, *arena.attention.tensors, arena.contexts)  # noqa: SLF001


def parts_of_flow_call(flow: Flow, *, num_rows: int = 1) -> tuple[Counter[str], Counter[str]]:
    """The kernels of the two graphs of a call: of what comes before the estimator, and of an Euler step."""
    found = []
    for part in range(2):
        flow.__dict__.pop("_compiled", None)
        begin, euler = flow._compiled  # noqa: SLF001 - one at a time
        flow.__dict__["_compiled"] = (partial(_begin, flow), euler) if part else (begin, flow._euler)  # noqa: SLF001
        found.append(kernels_of(flow_call(flow, num_rows=num_rows).compiled))
    flow.__dict__.pop("_compiled", None)
    return found[0], found[1]


def _begin(flow: Flow, *given: Any) -> Any:
    """What comes before the estimator, by PyTorch: there is no card to run the kernels."""
    cache = given[-1]
    by_pytorch = replace(cache, paged=tuple(replace(pages, in_place=False, fused=False) for pages in cache.paged))
    begin: Callable[..., Any] = flow._begin  # noqa: SLF001
    return begin(*given[:-1], by_pytorch)


def published_kernels(generation: Generation, name: str, *, fused: bool) -> list[int]:
    """The kernels of the compiled graphs of a stage with the published layers: of a flow call what comes before the
    estimator and an Euler step, of others one number.
    """
    model = narrow(generation, fused=fused)
    if name == "flow_call":
        return [counts.total() for counts in parts_of_flow_call(model.flow)]
    return [kernels_of(stages(model)[name].compiled).total()]


def vocoder_call(vocoder: Vocoder | CausalVocoder, *, num_rows: int = 1, num_frames: int = 50) -> Stage:
    """The audio of a chunk, on scratch."""
    device, num_mels = vocoder.conv_pre.weight.device, vocoder.config.num_mels
    if isinstance(vocoder, Vocoder):
        call = VocoderRunner(vocoder, num_slots=num_rows, compiles=True)._run  # noqa: SLF001
        key: tuple[int, ...] = (num_rows, num_frames, 0)
        numbers = torch.tensor([[num_rows, num_frames, 0, 0, 0]] * num_rows)
    else:
        noise = torch.rand(((num_frames + 1) * vocoder.config.hop_samples, vocoder.config.num_harmonics))
        call = CausalVocoderRunner(vocoder, num_slots=num_rows, noise=noise, compiles=True)._run  # noqa: SLF001
        key = (num_rows, num_frames)
        numbers = torch.tensor([[num_rows, num_frames, 1, 1, 0, 0]] * num_rows)
        num_frames += LOOKAHEAD_FRAMES
    mel = torch.zeros((num_rows, num_mels, num_frames), device=device)
    return _stage(call, key, {"mel": mel, "numbers": numbers.to(device)})


def stages(model: SpeechModel, *, num_rows: int = 1) -> dict[str, Stage]:
    return {
        "lm_step": lm_step(model.lm, num_rows=num_rows),
        "flow_call": flow_call(model.flow, num_rows=num_rows),
        "vocoder_call": vocoder_call(model.vocoder, num_rows=num_rows),
    }


def _stage(call: GraphedCall, key: tuple[int, ...], tensors: dict[str, Tensor], *state: Tensor) -> Stage:
    return Stage(partial(call._fn, *key, **tensors), partial(call._recorded_fn, *key, **tensors), state)  # noqa: SLF001


def published_operators(generation: Generation) -> dict[str, int]:
    """Count the operators of each stage in the published sizes, without weights, in half precision.

    Of the flow one Euler step and two are counted, for all are alike.
    """
    with torch.device("meta"):
        lm, flow = LmConfig(generation=generation), _flow(generation, {}, {})
        models = [_joined(generation, lm, replace(flow, num_steps=number), torch.bfloat16) for number in (1, 2)]
    one, two = (flow_call(model.flow).operators().total() for model in models)
    return {
        "lm_step": lm_step(models[0].lm).operators().total(),
        "flow_call": one + (flow.num_steps - 1) * (two - one),
        "vocoder_call": vocoder_call(models[0].vocoder).operators().total(),
    }


def narrow(generation: Generation, *, fused: bool = False) -> SpeechModel:
    """The networks with the published layers, narrow ones, on the CPU. Their width changes no count.

    ``fused``: by the kernels for cards, which are counted and not run; each of their operators is one launch.
    """
    lm = LmConfig(generation=generation, hidden_size=64, intermediate_size=128, query_size=64, key_size=32, head_dim=16)
    lm = replace(lm, text_vocab_size=300)
    encoder = {"width": 64, "num_heads": 4, "num_hidden": 128} if generation == 2 else {"lookahead_hidden": 64}
    estimator = {"channels": 32, "num_time": 64, "num_hidden": 64, "num_attention": 64, "head_dim": 16}
    if generation == 3:
        estimator = {"width": 64, "head_dim": 16, "num_hidden": 64, "num_sinusoids": 32, "num_groups": 4}
    model = _joined(generation, lm, _flow(generation, encoder, estimator), torch.float32)
    model.flow.page_form = PageForm(in_place=fused, fused=fused)
    model.lm.backbone.in_place = model.lm.backbone.fused = fused
    return model


def _flow(generation: Generation, encoder: dict[str, Any], estimator: dict[str, Any]) -> FlowConfig:
    if generation == 2:
        return FlowConfig(encoder=EncoderConfig(**encoder), estimator=EstimatorConfig(**estimator))
    return FlowConfig(encoder=LookaheadConfig(**encoder), estimator=DitConfig(**estimator))


def _joined(generation: Generation, lm: LmConfig, flow: FlowConfig, dtype: torch.dtype) -> SpeechModel:
    voice = Vocoder(VocoderConfig()) if generation == 2 else CausalVocoder(VocoderConfig(**CAUSAL))
    if isinstance(voice, CausalVocoder):
        voice.f0_predictor.to(torch.float64)  # as in the file
    model = SpeechModel(lm=SpeechLm(lm).to(dtype), flow=Flow(flow).to(dtype), vocoder=voice)
    for network in (model.lm, model.flow):
        join_linears(network)
    return model
