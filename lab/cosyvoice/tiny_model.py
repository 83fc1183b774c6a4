"""A whole model directory in the published layout (spec §1), small enough to be made in a test.

The weights are filled by the rule that the reference outputs are filled by (``tests/data/golden/README.md``), the
dimensions are those of its ``tiny``. The tokenizer is a real byte-level BPE of a few merges. The two ONNX graphs take and
give what the real ones do, and depend on their input.
"""

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.checkpoint import DESCRIPTIONS
from cc_tts.engines.cosyvoice.model.sizes import (
    CAUSAL,
    TEXT_EMBEDDING,
    TIED_HEAD,
    DitConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    Generation,
    LmConfig,
    LookaheadConfig,
    Part,
    Shape,
    VocoderConfig,
)
from lab.cosyvoice.golden_fill import fill_by_kind
from lab.cosyvoice.networks import shapes_for

NUM_CODES: Final = 243
HEAD_DIM: Final = 16
LLM: Final = LmConfig(
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    query_size=64,
    key_size=32,
    head_dim=HEAD_DIM,
    text_vocab_size=512,
    num_speech_codes=NUM_CODES,
)
FLOW: Final = FlowConfig(
    vocab_size=NUM_CODES,
    encoder=EncoderConfig(num_hidden=64, num_layers=1),
    estimator=EstimatorConfig(
        channels=32, num_attention=32, head_dim=HEAD_DIM, num_time=128, num_hidden=128, num_blocks=1, num_mid_blocks=2
    ),
)
HIFT: Final = VocoderConfig(channels=32, num_hidden_f0=32)
_LLM3: Final = dataclasses.replace(LLM, generation=3, text_vocab_size=768)  # there are more special tokens
_FLOW3: Final = FlowConfig(
    vocab_size=NUM_CODES,
    encoder=LookaheadConfig(lookahead_hidden=96),
    estimator=DitConfig(width=64, num_blocks=2, head_dim=HEAD_DIM, num_hidden=128),
)
SIZES: Final[Mapping[Generation, tuple[LmConfig, FlowConfig, VocoderConfig]]] = {
    2: (LLM, FLOW, HIFT),
    3: (_LLM3, _FLOW3, VocoderConfig(channels=32, num_hidden_f0=32, **CAUSAL)),
}
"""By generation."""
SPECIAL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_SAMPLE_TEXT: Final = """
hello and welcome to the service line. your call is important to us. please hold the line and we will be with you
shortly. to speak to someone about your bill, press one. for all other questions, please stay on the line.
thank you for calling. goodbye.
"""
_NUM_MERGES: Final = 120


def make_tiny_model(
    directory: Path, generation: Generation = 2, *, hift_prefix: str = "", old_weight_norm: bool = False
) -> Path:
    """Write the directory; returns it.

    ``hift_prefix`` and ``old_weight_norm`` choose between the spellings of the vocoder's keys (spec §1).
    """
    directory.mkdir(parents=True, exist_ok=True)
    description = f"# a small model for tests\nsample_rate: 24000\nattention_head_dim: {HEAD_DIM}\n"
    (directory / DESCRIPTIONS[generation]).write_text(description)
    for part, state in tiny_states(generation).items():
        if part == "hift":
            state = {hift_prefix + _spelled(key, old=old_weight_norm): value for key, value in state.items()}  # noqa: PLW2901
        torch.save(state, directory / f"{part}.pt")
    write_tokenizer(directory / "CosyVoice-BlankEN")
    write_campplus(directory / "campplus.onnx")
    write_speech_tokenizer(directory / f"speech_tokenizer_v{generation}.onnx")
    return directory


def tiny_states(generation: Generation = 2) -> dict[Part, dict[str, Tensor]]:
    """The state dicts of ``llm.pt``, ``flow.pt`` and ``hift.pt``, as they are stored."""
    lm_sizes, flow_sizes, hift_sizes = SIZES[generation]
    llm = fill_by_kind(shapes_for(lm_sizes), "llm.")
    llm[TIED_HEAD] = llm[TEXT_EMBEDDING]
    flow, hift = fill_by_kind(shapes_for(flow_sizes), "flow."), fill_by_kind(shapes_for(hift_sizes), "hift.")
    return {"llm": llm, "flow": flow, "hift": hift}


def random_values(name: str, shape: Shape) -> npt.NDArray[np.float32]:
    """Numbers that depend on ``name`` alone."""
    values: npt.NDArray[np.float32] = fill_by_kind({name: shape}, "")[name].numpy()
    return values


def _spelled(key: str, *, old: bool) -> str:
    if not old:
        return key
    key = key.replace(".parametrizations.weight.original0", ".weight_g")
    return key.replace(".parametrizations.weight.original1", ".weight_v")


def write_tokenizer(directory: Path) -> None:
    """The files of ``CosyVoice-BlankEN`` that are needed (spec §1, §7.4)."""
    directory.mkdir(parents=True, exist_ok=True)
    letters = _byte_letters()
    merges = _learn_merges([_in_letters(word, letters) for word in _sample_words()])
    words = [*sorted(letters.values()), *("".join(pair) for pair in merges)]
    vocab = {word: number for number, word in enumerate(dict.fromkeys(words))}
    (directory / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (directory / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    added = {str(len(vocab) + i): {"content": token, "special": True} for i, token in enumerate(SPECIAL_TOKENS)}
    description = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "eos_token": SPECIAL_TOKENS[0],
        "pad_token": SPECIAL_TOKENS[0],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(description))
    config = {
        "model_type": "qwen2",
        "hidden_size": LLM.hidden_size,
        "intermediate_size": LLM.intermediate_size,
        "num_hidden_layers": LLM.num_layers,
        "num_attention_heads": LLM.query_size // HEAD_DIM,
        "num_key_value_heads": LLM.num_kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
        "vocab_size": LLM.text_vocab_size,
    }
    (directory / "config.json").write_text(json.dumps(config))


def _sample_words() -> list[str]:
    """Each word with the space before it, as the byte-level BPE sees it."""
    return [" " + word for word in _SAMPLE_TEXT.split()]


def _byte_letters() -> dict[int, str]:
    """A printable character for each byte: itself if it is one, else the next one from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def _in_letters(word: str, letters: Mapping[int, str]) -> list[str]:
    return [letters[byte] for byte in word.encode()]


def _learn_merges(words: list[list[str]]) -> list[tuple[str, str]]:
    """Byte pair encoding: join the commonest pair, again and again."""
    merges: list[tuple[str, str]] = []
    for _ in range(_NUM_MERGES):
        pairs = Counter(pair for word in words for pair in itertools.pairwise(word))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [_joined(word, best) for word in words]
    return merges


def _joined(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    for letter in word:
        if result and (result[-1], letter) == pair:
            result[-1] += letter
        else:
            result.append(letter)
    return result


def write_campplus(path: Path) -> None:
    """``[1, T, 80]`` → ``[1, 192]``: the spread of each bin over time, mixed by a fixed matrix."""
    from onnx import TensorProto, helper

    mix = random_values("campplus.mix", (80, 192))
    nodes = [
        helper.make_node("Mul", ["feats", "feats"], ["squared"]),
        helper.make_node("ReduceMean", ["squared"], ["spread"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["spread", "mix"], ["embedding"]),
    ]
    feats = helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, "frames", 80])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, 192])
    _write_graph(path, nodes, [feats], [embedding], {"mix": mix})


def write_speech_tokenizer(path: Path) -> None:
    """Features ``[1, 128, T]`` and length ``[1]`` → ids ``[1, length // 4]`` below ``NUM_CODES``: one per four frames."""
    from onnx import TensorProto, helper

    constants: dict[str, npt.NDArray[Any]] = {
        "mix": random_values("speech_tokenizer.mix", (1, 128)),
        "gain": np.array(1000.0, dtype=np.float32),
        "codes": np.array(NUM_CODES, dtype=np.int32),
        "four": np.array([4], dtype=np.int32),
        "start": np.array([0], dtype=np.int32),
        "axis": np.array([1], dtype=np.int32),
        "middle": np.array([1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("AveragePool", ["feats"], ["pooled"], kernel_shape=[4], strides=[4]),
        helper.make_node("MatMul", ["mix", "pooled"], ["mixed"]),  # [1, 1, T / 4]
        helper.make_node("Squeeze", ["mixed", "middle"], ["flat"]),
        helper.make_node("Abs", ["flat"], ["positive"]),
        helper.make_node("Mul", ["positive", "gain"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Mod", ["whole", "codes"], ["ids"]),
        helper.make_node("Div", ["length", "four"], ["end"]),
        helper.make_node("Slice", ["ids", "start", "end", "axis"], ["indices"]),
    ]
    feats = helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "frames"])
    length = helper.make_tensor_value_info("length", TensorProto.INT32, [1])
    indices = helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "tokens"])
    _write_graph(path, nodes, [feats, length], [indices], constants)


def _write_graph(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: Mapping[str, npt.NDArray[Any]]
) -> None:
    import onnx
    from onnx import helper, numpy_helper

    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
