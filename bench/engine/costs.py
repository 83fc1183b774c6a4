"""What the stages are expected to cost on a card, ms: a roofline model. Calculated, not measured. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cc_tts.engines.cosyvoice.engine.capacity import StageCosts


class Latency(NamedTuple):
    """The part of what each stage costs in which kernels are begun, and neither bandwidth nor sums are used; ms."""

    lm: float  # a step, or a prefill
    call: float  # of flow and vocoder


WEIGHT_AND_CONTEXT_BYTES: Final = 2.0e9
LM_BYTES: Final = 0.72e9  # the layers in half precision
LM_FLOP: Final = 0.72e9  # a row
LM_ROW_BYTES: Final = 4e6  # keys and values of 300 positions
FRAMES_PER_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Model:
    """What the stages of a model ask for, counted at full size on PyTorch's meta device; bytes in half precision."""

    lm_nodes: int  # kernels of a step; these three by ``bench.engine.launches``
    flow_nodes: int  # of a call of ten steps
    vocoder_nodes: int
    estimator_bytes: float  # read in each step
    step_flop: float  # of a frame, with condition and without
    keys_like_one_frame: float  # as many keys cost what a frame does without any
    page_bytes: int  # of ten steps, of the real classes (test_full_size_plans.py)
    vocoder_flop: float  # of a frame


COSYVOICE2: Final = Model(527, 9386, 862, 142.6e6, 264e6, 1160.0, 115_404_800, 0.61e9)
COSYVOICE3: Final = Model(526, 4709, 909, 662.3e6, 756e6, 8390.0, 90_112_000, 0.62e9)
MODELS: Final[Mapping[str, Model]] = {"CosyVoice2": COSYVOICE2, "CosyVoice3": COSYVOICE3}
JOINED: Final[Mapping[Model, Mapping[str, int]]] = {
    COSYVOICE2: {"lm_nodes": 177, "flow_nodes": 7584, "vocoder_nodes": 178, "few_frames": 3291},
    COSYVOICE3: {"lm_nodes": 177, "flow_nodes": 2792, "vocoder_nodes": 191, "few_frames": 1252},
}
"""What is left of the kernels in compiled code with ours (``engine_launches.json``)."""
FEW_FRAMES: Final = 128  # up to which ours compute the flow: with condition and without they are twice as many rows


@dataclass(frozen=True, slots=True)
class Card:
    """A roofline model: kernels of a graph, bytes that are read, sums. All of it is assumed; nothing was measured."""

    memory_gb: float
    bandwidth_gb_s: float  # that is reached: 80 to 85 % of the published one
    tflops: float  # that small matrices reach in half precision
    node_us: float  # of a kernel in a graph
    vocoder_slowdown: float = 2.0  # of sums in TF32; published. Volta has float32 alone
    model: Model = COSYVOICE2
    has_kernels: bool = True  # Triton compiles for it
    copies: float = 3.0  # of the pages that a call looks at: they are read, written beside each other and read again
    page_share: float = 1.0  # of the bytes of a page in half precision
    is_joined: bool = False  # compiled, and with kernels of our own
    num_steps: int = 10

    @property
    def state_bytes(self) -> float:
        """What the plan of a worker leaves for pages: less weights and context, graphs of 20 %, 15 % for calls, slots."""
        return 0.65 * 0.95 * (1e9 * self.memory_gb - WEIGHT_AND_CONTEXT_BYTES)

    @property
    def page_bytes(self) -> float:
        """Each step has keys and values of its own."""
        return self.model.page_bytes * self.page_share * self.num_steps / 10

    @property
    def latency_ms(self) -> Latency:
        return Latency(self._nodes_ms("lm_nodes"), self._nodes_ms("flow_nodes") + self._nodes_ms("vocoder_nodes"))

    def prefill_ms(self, num_positions: int) -> float:
        return self._nodes_ms("lm_nodes") + self._read_ms(LM_BYTES) + self._sums_ms(LM_FLOP * num_positions)

    def lm_step_ms(self, num_rows: int) -> float:
        """One decode step: the weights, and the keys of each row."""
        read = LM_BYTES + num_rows * LM_ROW_BYTES
        return self._nodes_ms("lm_nodes") + self._read_ms(read) + self._sums_ms(LM_FLOP * num_rows)

    def flow_ms(self, num_rows: int, num_frames: int, num_keys: int) -> float:
        """All Euler steps, with the pages of each row."""
        model, steps = self.model, self.num_steps
        read = steps * model.estimator_bytes + num_rows * num_keys * self.page_bytes / FRAMES_PER_PAGE * self.copies
        sums = steps * model.step_flop * num_frames * (1.0 + num_keys / model.keys_like_one_frame)
        nodes = "few_frames" if self.is_joined and num_frames <= FEW_FRAMES else "flow_nodes"
        return self._nodes_ms(nodes) + self._read_ms(read) + self._sums_ms(sums)

    def vocoder_ms(self, num_frames: int) -> float:
        flop = self.vocoder_slowdown * self.model.vocoder_flop * num_frames
        return self._nodes_ms("vocoder_nodes") + 1.0 + self._sums_ms(flop)

    def _nodes_ms(self, stage: str) -> float:
        counted = JOINED[self.model][stage] if self.is_joined else getattr(self.model, stage)
        return counted * (self.num_steps / 10 if stage in {"flow_nodes", "few_frames"} else 1.0) * self.node_us / 1e3

    def _read_ms(self, num_bytes: float) -> float:
        return num_bytes / (self.bandwidth_gb_s * 1e6)

    def _sums_ms(self, num_flop: float) -> float:
        return num_flop / (self.tflops * 1e9)


CARDS: Final[Mapping[str, Card]] = {
    "L4": Card(24, 255, 25, 2.0),
    "A10": Card(24, 510, 40, 2.0),
    "V100": Card(32, 765, 45, 2.0, vocoder_slowdown=8.0, has_kernels=False),
    "RTX 4090": Card(24, 857, 80, 1.7),
    "L20": Card(48, 734, 60, 2.0),
    "A100": Card(80, 1630, 120, 1.8),
    "H100": Card(80, 2700, 200, 1.4),
    "H200": Card(141, 4000, 200, 1.4),  # an H100 with more and faster memory
}
IN_PLACE: Final[Mapping[str, Any]] = {"copies": 1.0}
SMALL: Final[Mapping[str, Any]] = {**IN_PLACE, "page_share": 0.516}  # int8 with a scale for each head and frame
LEVERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "as PyTorch does it": {},
    "pages in place": IN_PLACE,
    "int8 pages in place": SMALL,
    "all three levers": {**SMALL, "is_joined": True},
    "all three, five steps": {**SMALL, "is_joined": True, "num_steps": 5},
}
"""What the engine can do otherwise, by the fields of a card that it changes; each has what the one before has."""
WITHOUT_KERNELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "as PyTorch does it": {},
    "five steps": {"num_steps": 5},
}
"""The same where there are no kernels. Pages in 8 bits are left out: PyTorch copies them once more to read them, and memory
is not what ends a V100.
"""


def with_model(card: Card, name: str) -> Card:
    """A card that runs this model. One without kernels is a V100, where the flow of CosyVoice3 is computed in float32."""
    model = MODELS[name]
    if model is COSYVOICE3 and not card.has_kernels:
        model = replace(
            model,
            estimator_bytes=2 * model.estimator_bytes,
            page_bytes=2 * model.page_bytes,
            step_flop=card.vocoder_slowdown * model.step_flop,
        )
    return replace(card, model=model)


def simulated_costs(device: Card) -> StageCosts:
    """What start-up would have measured, in the same sizes."""
    costs = StageCosts()
    for _ in range(40):  # a mean moves by a fifth each time
        for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            costs.lm_step.observe(rows, device.lm_step_ms(rows))
            costs.prefill.observe(100 * rows, device.prefill_ms(100 * rows))
        for rows in (1, 2, 4, 8, 16, 32):
            for chunks, keys in ((1, 400), (2, 500), (4, 800)):
                frames = rows * 50 * chunks
                costs.observe_call(frames, keys, device.flow_ms(rows, frames, keys), device.vocoder_ms(frames))
    return costs
