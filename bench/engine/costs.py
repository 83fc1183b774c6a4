"""What the stages are expected to cost on one H200 in bfloat16 with graphs, ms: engine-performance §4.2, §4.6 to §4.8.

Calculated and published, not measured: no GPU was at hand. Other cards are a roofline model (:class:`Card`). No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from cc_tts.engines.cosyvoice.engine.capacity import StageCosts

KEYS_LIKE_ONE_FRAME: Final = 1160.0


def prefill_ms(num_positions: int) -> float:
    """§4.7: 2 to 4 ms for one; what more cost is by their arithmetic."""
    return 3.0 + num_positions / 1000.0


def lm_step_ms(num_rows: int) -> float:
    """§4.2, the realistic column: 1.1 ms for one, 1.6 for 64, 3 for 256."""
    return 1.1 + 0.5 * num_rows / 64 if num_rows <= 64 else 1.6 + 1.4 * (num_rows - 64) / 192


def flow_ms(num_frames: int, num_keys: int) -> float:
    """§4.7 and §4.8: 10 to 15 ms for one chunk, 50 to 80 for 64, encoder included; for 16 some more than it says."""
    return 10.0 + 0.0115 * num_frames * (1.0 + num_keys / KEYS_LIKE_ONE_FRAME)


def vocoder_ms(num_frames: int) -> float:
    """§4.6 and §4.8: 3 to 5 ms for one chunk, 10 to 15 for 64."""
    return 4.0 + 0.0025 * num_frames


class Latency(NamedTuple):
    """The part of what each stage costs in which kernels are begun, and neither bandwidth nor sums are used; ms."""

    lm: float  # a step, or a prefill
    call: float  # of flow and vocoder


class Costs(Protocol):
    """What the stages of one device cost, ms."""

    @property
    def state_bytes(self) -> float:
        """Memory that is left for pages."""
        ...

    @property
    def page_bytes(self) -> float: ...

    @property
    def latency_ms(self) -> "Latency": ...

    def prefill_ms(self, num_positions: int) -> float: ...

    def lm_step_ms(self, num_rows: int) -> float: ...

    def flow_ms(self, num_rows: int, num_frames: int, num_keys: int) -> float:
        """A call of so many frames in all, each of which attends to at most ``num_keys``."""
        ...

    def vocoder_ms(self, num_frames: int) -> float: ...


class H200:
    state_bytes = 0.75 * 140e9 - 10e9
    page_bytes = 2.29e6 * 50  # of the flow's state, for a second of speech (§4.5)
    latency_ms = Latency(1.1 - 0.15, 10.0 + 4.0)  # §4.2: what a step of one row takes, less its roofline

    def prefill_ms(self, num_positions: int) -> float:
        return prefill_ms(num_positions)

    def lm_step_ms(self, num_rows: int) -> float:
        return lm_step_ms(num_rows)

    def flow_ms(self, num_rows: int, num_frames: int, num_keys: int) -> float:
        del num_rows
        return flow_ms(num_frames, num_keys)

    def vocoder_ms(self, num_frames: int) -> float:
        return vocoder_ms(num_frames)


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


COSYVOICE2: Final = Model(527, 9386, 862, 142.6e6, 264e6, KEYS_LIKE_ONE_FRAME, 115_404_800, 0.61e9)
COSYVOICE3: Final = Model(526, 4709, 911, 662.3e6, 756e6, 8390.0, 90_112_000, 0.62e9)
MODELS: Final[Mapping[str, Model]] = {"CosyVoice2": COSYVOICE2, "CosyVoice3": COSYVOICE3}
JOINED: Final[Mapping[Model, Mapping[str, int]]] = {
    COSYVOICE2: {"lm_nodes": 177, "flow_nodes": 7584, "vocoder_nodes": 178, "few_frames": 3291},
    COSYVOICE3: {"lm_nodes": 177, "flow_nodes": 2792, "vocoder_nodes": 192, "few_frames": 1252},
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


DEVICES: Final[Mapping[str, Costs]] = {
    "L4": Card(24, 255, 25, 2.0),
    "A10": Card(24, 510, 40, 2.0),
    "V100": Card(32, 765, 45, 2.0, vocoder_slowdown=8.0),
    "RTX 4090": Card(24, 857, 80, 1.7),
    "L20": Card(48, 734, 60, 2.0),
    "A100": Card(80, 1630, 120, 1.8),
    "H100": Card(80, 2700, 200, 1.4),
    "H200": H200(),
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


def simulated_costs(device: Costs = DEVICES["H200"]) -> StageCosts:
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
