"""A Piper voice made for tests: next to no work for a processor."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

RATE_HZ = 16_000
PHONEMES = "_^$ ˈˌːəɛɪʊɔɑæɐɚɹθðŋʃʒʌabdefghijklmnopstuvwz,.!?;:"


def make_piper_voice(
    folder: Path, name: str, *, num_speakers: int = 1, tone_hz: float = 0.0, ms_each: float = 50.0
) -> Path:
    """A model with the inputs of Piper's, which speaks ``ms_each`` of a constant for each phoneme id, or of a tone."""
    pytest.importorskip("onnx.helper")  # of "onnx" alone, a folder of the tests would do
    onnx: Any = importlib.import_module("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    inputs = [
        helper.make_tensor_value_info("input", types.INT64, [1, "length"]),
        helper.make_tensor_value_info("input_lengths", types.INT64, [1]),
        helper.make_tensor_value_info("scales", types.FLOAT, [3]),
    ]
    if num_speakers > 1:
        inputs.append(helper.make_tensor_value_info("sid", types.INT64, [1]))
    level = "speaker" if num_speakers > 1 else "level"
    nodes = [
        helper.make_node("Slice", ["scales", "one", "two"], ["length_scale"]),
        helper.make_node("Cast", ["input_lengths"], ["count"], to=types.FLOAT),
        helper.make_node("Mul", ["count", "samples_each"], ["unscaled"]),
        helper.make_node("Mul", ["unscaled", "length_scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["size"], to=types.INT64),
        helper.make_node("Expand", [level, "size"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["output"]),
    ]
    if num_speakers > 1:
        nodes = [
            helper.make_node("Cast", ["sid"], ["speaker_id"], to=types.FLOAT),
            helper.make_node("Mul", ["speaker_id", "level"], ["louder"]),
            helper.make_node("Add", ["louder", "level"], ["speaker"]),
            *nodes,
        ]
    if tone_hz:
        nodes[-2:] = [
            helper.make_node("Squeeze", ["size"], ["samples"]),
            helper.make_node("Range", ["zero", "samples", "step"], ["index"]),
            helper.make_node("Cast", ["index"], ["at"], to=types.FLOAT),
            helper.make_node("Mul", ["at", "radians"], ["phase"]),
            helper.make_node("Sin", ["phase"], ["wave"]),
            helper.make_node("Mul", ["wave", "level"], ["flat"]),
            helper.make_node("Reshape", ["flat", "shape"], ["output"]),
        ]
    constants = [
        helper.make_tensor("one", types.INT64, [1], [1]),
        helper.make_tensor("two", types.INT64, [1], [2]),
        helper.make_tensor("shape", types.INT64, [4], [1, 1, 1, -1]),
        helper.make_tensor("samples_each", types.FLOAT, [1], [ms_each * RATE_HZ / 1000]),
        helper.make_tensor("level", types.FLOAT, [1], [0.25]),
    ]
    if tone_hz:
        constants += [
            helper.make_tensor("zero", types.INT64, [], [0]),
            helper.make_tensor("step", types.INT64, [], [1]),
            helper.make_tensor("radians", types.FLOAT, [1], [2 * math.pi * tone_hz / RATE_HZ]),
        ]
    output = helper.make_tensor_value_info("output", types.FLOAT, [1, 1, 1, "time"])
    graph = helper.make_graph(nodes, name, inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    description: dict[str, Any] = {
        "audio": {"sample_rate": RATE_HZ},
        "espeak": {"voice": "de"},
        "inference": {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8},
        "phoneme_id_map": {phoneme: [number] for number, phoneme in enumerate(PHONEMES)},
        "num_speakers": num_speakers,
        "speaker_id_map": {f"speaker {number}": number for number in range(num_speakers)} if num_speakers > 1 else {},
        "language": {"code": "de_DE"},
    }
    path.with_name(f"{name}.onnx.json").write_text(json.dumps(description))
    return path
