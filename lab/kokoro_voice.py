"""A model with the inputs of Kokoro's, made for tests: next to no work for a processor."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RATE_HZ = 24_000


def make_kokoro_voices(folder: Path, *names: str, ms_each: float = 50.0) -> Path:
    """A model that speaks ``ms_each`` for each token, as loud as the first number of the style; returns its folder."""
    pytest.importorskip("onnx.helper")  # of "onnx" alone, a folder of the tests would do
    onnx: Any = importlib.import_module("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    inputs = [
        helper.make_tensor_value_info("tokens", types.INT64, [1, "length"]),
        helper.make_tensor_value_info("style", types.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", types.FLOAT, [1]),
    ]
    nodes = [
        helper.make_node("Shape", ["tokens"], ["shape"]),
        helper.make_node("Slice", ["shape", "one", "two"], ["length"]),
        helper.make_node("Cast", ["length"], ["count"], to=types.FLOAT),
        helper.make_node("Mul", ["count", "samples_each"], ["unscaled"]),
        helper.make_node("Div", ["unscaled", "speed"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["size"], to=types.INT64),
        helper.make_node("Reshape", ["style", "flat"], ["numbers"]),
        helper.make_node("Slice", ["numbers", "zero", "one"], ["level"]),
        helper.make_node("Expand", ["level", "size"], ["audio"]),
    ]
    constants = [
        helper.make_tensor("zero", types.INT64, [1], [0]),
        helper.make_tensor("one", types.INT64, [1], [1]),
        helper.make_tensor("two", types.INT64, [1], [2]),
        helper.make_tensor("flat", types.INT64, [1], [-1]),
        helper.make_tensor("samples_each", types.FLOAT, [1], [ms_each * RATE_HZ / 1000]),
    ]
    output = helper.make_tensor_value_info("audio", types.FLOAT, ["time"])
    graph = helper.make_graph(nodes, "kokoro", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    made = folder / "kokoro"
    (made / "styles").mkdir(parents=True, exist_ok=True)
    onnx.save(model, made / "model.onnx")
    for name in names:
        np.full((510, 256), 0.25, np.float32).tofile(made / "styles" / f"{name}.bin")
    return made
