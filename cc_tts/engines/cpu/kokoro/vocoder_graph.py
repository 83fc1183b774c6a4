"""The last part of Kokoro as a graph of its own: from the decoder's frames to samples, which is 94 % of the cost.

Its instance norms look at the whole sentence. Here their means and variances are inputs, so that the graph is a convolution:
a window of a sentence gives the samples that the whole sentence gives. One form measures those statistics, the other one is
given them, and may run its convolutions on 8-bit integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]

FRAMES: Final = "frames"
SOURCE: Final = "source"
AUDIO: Final = "audio"
SAMPLES_A_FRAME: Final = 300
SOURCE_A_FRAME: Final = 60
_PREFIX: Final = "decoder.decoder.generator."
_NODE: Final = "/decoder/decoder/generator/"
_OPSET: Final = 17
_EPSILON: Final = 1e-5
_LARGEST_BIAS: Final = 2**30  # a signed 32-bit number
HEADROOM: Final = 1.25
"""Room above the largest value that was measured, in 8 bits; unmeasured."""


@dataclass(frozen=True, slots=True)
class StyleNorm:
    """One adaptive instance norm, whose gain and bias come from the style."""

    name: str
    fc_weight: Array
    fc_bias: Array

    def inputs(self, style: Array, mean: Array | np.float32, variance: Array | np.float32) -> dict[str, Array]:
        """The gain and the bias of each channel, as inputs of the graph, given the statistics of the sentence."""
        gain, bias = np.split(style @ self.fc_weight + self.fc_bias, 2)
        scale = ((1.0 + gain) / np.sqrt(variance + _EPSILON)).astype(np.float32)
        return {f"{self.name}.gain": scale, f"{self.name}.bias": (bias - mean * scale).astype(np.float32)}


def _key(node: str) -> str:
    """The names of a node's weights begin with this: ``resblocks.0.convs1.0.``."""
    return node.removeprefix(_NODE).replace("/", ".").removesuffix("Conv_quant").removesuffix("fc.Gemm_MatMul_quant")


Weights = Mapping[str, Array]
"""The weights of the vocoder, as floats."""


def weights_of(model: Any) -> Weights:
    """Take the weights out of a model whose convolutions are dynamically quantised; raises ``KeyError`` if it is built in
    another way.
    """
    found = {each.name: each for each in model.graph.initializer}
    tensors: dict[str, Array] = {}
    for node in model.graph.node:
        if node.op_type in {"ConvInteger", "MatMulInteger"} and node.name.startswith(_NODE):
            weight, zero = (numpy_helper.to_array(found[node.input[index]]).astype(np.float32) for index in (1, 3))
            scale = numpy_helper.to_array(found[node.input[1].removesuffix("_quantized") + "_scale"])
            tensors[f"{_key(node.name)}weight"] = (weight - zero) * scale
    for name, each in found.items():
        if name.startswith(_PREFIX):
            tensors[name.removeprefix(_PREFIX)] = numpy_helper.to_array(each)
    for name, key in (("Mul_output_0", "ups.0"), ("Mul_1_output_0", "ups.1"), ("Mul_2_output_0", "conv_post")):
        tensors[f"{key}.weight"] = numpy_helper.to_array(found[_NODE + name])
    return tensors


@dataclass(slots=True)
class Graph:
    """A graph that is being built: nodes, constants, inputs and outputs by name."""

    weights: Weights
    is_measuring: bool
    ranges: Mapping[str, Array] | None = None
    """The largest input of each channel of each convolution, and the largest output, where it is to run on integers."""
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, list[int | str]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    norms: list[StyleNorm] = field(default_factory=list)

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Append a node; returns its output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        """Keep a constant; returns its name."""
        self.constants.setdefault(name, numpy_helper.from_array(np.asarray(value), name))
        return name

    def conv(self, x: str, key: str, *, dilation: int = 1, stride: int = 1, padding: int) -> str:
        weight, bias = self.weights[f"{key}.weight"], self.weights[f"{key}.bias"]
        attributes: dict[str, Any] = {
            "dilations": [dilation], "strides": [stride], "pads": [padding, padding], "kernel_shape": [weight.shape[2]],
        }  # fmt: skip
        if self.ranges is not None and key in self.ranges:
            return self._quantised(x, key, weight, bias, attributes)
        y = self.node(
            "Conv", [x, self.constant(f"{key}.weight", weight), self.constant(f"{key}.bias", bias)], key, **attributes
        )
        if self.is_measuring:
            self._measure(x, key)
            self._measure(y, f"{key}.out")
        return y

    def _measure(self, x: str, name: str) -> None:
        self.node("Abs", [x], f"{name}.abs")
        self.node("ReduceMax", [f"{name}.abs"], f"{name}.max", axes=[0, 2], keepdims=0)
        self.outputs.append(f"{name}.max")

    def _quantised(self, x: str, key: str, weight: Array, bias: Array, attributes: Mapping[str, Any]) -> str:
        assert self.ranges is not None
        scale = np.maximum(self.ranges[key], 1e-4).astype(np.float32) * HEADROOM / 127
        out_scale = np.maximum(self.ranges[f"{key}.out"], 1e-4).astype(np.float32) * HEADROOM / 127
        scaled = weight * scale[None, :, None]
        each = np.maximum(np.abs(scaled).max(axis=(1, 2)) / 127, np.abs(bias) / _LARGEST_BIAS)
        each = np.maximum(each, 1e-12).astype(np.float32)
        zero, one = self.constant("zero_point", np.uint8(128)), self.constant("unit", np.float32(1.0))
        self.node(
            "QuantizeLinear", [x, self.constant(f"{key}.in_scale", scale), self._zeros(len(scale))], f"{key}.in", axis=1
        )
        inputs = [
            f"{key}.in", one, zero,
            self.constant(f"{key}.quantised", np.rint(scaled / each[:, None, None]).astype(np.int8)),
            self.constant(f"{key}.scales", each / out_scale),
            self.constant(f"no_offset.{len(each)}", np.zeros(each.shape, np.int8)),
            one, zero, self.constant(f"{key}.integer_bias", np.rint(bias / each).astype(np.int32)),
        ]  # fmt: skip
        self.node("QLinearConv", inputs, f"{key}.q", **attributes)
        inputs = [f"{key}.q", self.constant(f"{key}.out_scale", out_scale), self._zeros(len(out_scale))]
        return self.node("DequantizeLinear", inputs, key, axis=1)

    def _zeros(self, channels: int) -> str:
        return self.constant(f"zero_points.{channels}", np.full(channels, 128, np.uint8))

    def norm_and_snake(self, x: str, name: str, alpha_name: str) -> str:
        """An adaptive instance norm and the activation ``y + sin²(αy)/α`` behind it."""
        norm = StyleNorm(name, self.weights[f"{name}.weight"], self.weights[f"{name}.fc.bias"])
        self.norms.append(norm)
        channels = len(norm.fc_bias) // 2
        if self.is_measuring:
            self.node("ReduceMean", [x], f"{name}.mean", axes=[2], keepdims=1)
            centred = self.node("Sub", [x, f"{name}.mean"], f"{name}.centred")
            self.node("Mul", [centred, centred], f"{name}.squares")
            self.node("ReduceMean", [f"{name}.squares"], f"{name}.variance", axes=[2], keepdims=1)
            self.outputs += [f"{name}.mean", f"{name}.variance"]
            self.node("Add", [f"{name}.variance", self.constant("epsilon", np.float32(_EPSILON))], f"{name}.v")
            self.node("Sqrt", [f"{name}.v"], f"{name}.deviation")
            x = self.node("Div", [centred, f"{name}.deviation"], f"{name}.normal")
        for part in ("gain", "bias"):
            self.inputs[f"{name}.{part}"] = [channels]
        ones, zeros = (
            self.constant(f"{word}.{channels}", np.full(channels, value, np.float32))
            for word, value in (("ones", 1.0), ("zeros", 0.0))
        )
        y = self.node("BatchNormalization", [x, f"{name}.gain", f"{name}.bias", zeros, ones], f"{name}.y", epsilon=0.0)
        alpha = self.weights[alpha_name]
        self.node("Mul", [y, self.constant(alpha_name, alpha)], f"{name}.phase")
        sine = self.node("Sin", [f"{name}.phase"], f"{name}.sine")
        self.node("Mul", [sine, sine], f"{name}.square")
        self.node("Mul", [f"{name}.square", self.constant(f"{alpha_name}.inverse", 1.0 / alpha)], f"{name}.bump")
        return self.node("Add", [y, f"{name}.bump"], f"{name}.snake")

    def block(self, x: str, key: str) -> str:
        """Three dilated convolutions with a residual around each pair."""
        for index, dilation in enumerate((1, 3, 5)):
            width = self.weights[f"{key}.convs1.{index}.weight"].shape[2] // 2
            y = self.norm_and_snake(x, f"{key}.adain1.{index}", f"{key}.alpha1.{index}")
            y = self.conv(y, f"{key}.convs1.{index}", dilation=dilation, padding=width * dilation)
            y = self.norm_and_snake(y, f"{key}.adain2.{index}", f"{key}.alpha2.{index}")
            y = self.conv(y, f"{key}.convs2.{index}", padding=width)
            x = self.node("Add", [x, y], f"{key}.sum.{index}")
        return x

    def upsampled(self, x: str, stage: int, *, stride: int) -> str:
        """A transposed convolution behind a leaky rectifier."""
        key = f"ups.{stage}"
        self.node("LeakyRelu", [x], f"{key}.in", alpha=0.1)
        weight = self.weights[f"{key}.weight"]
        constants = [self.constant(f"{key}.{part}", self.weights[f"{key}.{part}"]) for part in ("weight", "bias")]
        padding = (weight.shape[2] - stride) // 2
        return self.node("ConvTranspose", [f"{key}.in", *constants], key, strides=[stride], pads=[padding, padding])

    def stage(self, x: str, source: str, stage: int) -> str:
        """The upsampled frames and the source of this rate, through three blocks whose mean is taken."""
        x = self.node("Add", [x, self.block(source, f"noise_res.{stage}")], f"stage.{stage}")
        first, second, third = (self.block(x, f"resblocks.{3 * stage + index}") for index in range(3))
        self.node("Sum", [first, second, third], f"stage.{stage}.sum")
        return self.node(
            "Mul", [f"stage.{stage}.sum", self.constant("third", np.float32(1 / 3))], f"stage.{stage}.mean"
        )

    def whole(self) -> "Graph":
        self.inputs |= {FRAMES: [1, 512, "length"], SOURCE: [1, 22, "source_length"]}
        x = self.upsampled(FRAMES, 0, stride=10)
        x = self.stage(x, self.conv(SOURCE, "noise_convs.0", stride=6, padding=3), 0)
        x = self.upsampled(x, 1, stride=6)
        x = self.node(
            "Pad", [x, self.constant("one_before", np.array([0, 0, 1, 0, 0, 0], np.int64))], "padded", mode="reflect"
        )
        x = self.stage(x, self.conv(SOURCE, "noise_convs.1", padding=0), 1)
        x = self.node("LeakyRelu", [x], "last", alpha=0.01)
        x = self.conv(x, "conv_post", padding=3)
        self._samples(x)
        return self

    def _samples(self, x: str) -> None:
        """Magnitudes and phases of short spectra become samples."""
        self.constant("halves", np.array([11, 11], np.int64))
        self.nodes.append(helper.make_node("Split", [x, "halves"], ["logarithm", "angle"], axis=1))
        self.node("Exp", ["logarithm"], "magnitude")
        self.node("Sin", ["angle"], "phase")
        self.node("Cos", ["phase"], "cosine")
        self.node("Sin", ["phase"], "sine")
        self.node("Mul", ["magnitude", "cosine"], "real")
        self.node("Mul", ["magnitude", "sine"], "imaginary")
        self.node("Concat", ["real", "imaginary"], "spectrum", axis=1)
        basis = self.weights["stft.istft.stft.inverse_basis"] * 4.0
        self.node(
            "ConvTranspose", ["spectrum", self.constant("basis", basis)], "overlapped", strides=[5], pads=[10, 10]
        )
        self.node("Reshape", ["overlapped", self.constant("flat", np.array([-1], np.int64))], AUDIO)
        self.outputs.insert(0, AUDIO)

    def model(self) -> Any:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "vocoder",
            [value(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()],
            [value(name, TensorProto.FLOAT, None) for name in self.outputs],
            list(self.constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def part_of(model: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """The part of a model before tensors, which get new names by ``outputs``, and behind ``inputs``, which keep theirs."""
    made = {output: node for node in model.graph.node for output in node.output}
    wanted: set[int] = set()
    seen: set[str] = set(inputs)
    stack = list(outputs)
    while stack:
        name = stack.pop()
        if name in seen or name not in made:
            continue
        seen.add(name)
        wanted.add(id(made[name]))
        stack += made[name].input
    nodes = [node for node in model.graph.node if id(node) in wanted]
    used = {name for node in nodes for name in node.input}
    nodes += [helper.make_node("Identity", [name], [new]) for name, new in outputs.items()]
    graph = helper.make_graph(
        nodes,
        "front",
        [each for each in model.graph.input if each.name in used],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.values()],
        [each for each in model.graph.initializer if each.name in used],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
