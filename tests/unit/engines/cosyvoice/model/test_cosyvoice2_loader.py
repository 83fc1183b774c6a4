"""Loading: everything in the published layout is taken, everything else is refused in words."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.engines.cosyvoice.model import sizes
from cc_tts.engines.cosyvoice.model.checkpoint import (
    ModelError,
    ModelFileDamaged,
    ModelFileMissing,
    TensorMismatch,
    UnsafeCheckpoint,
    WrongModelVersion,
)
from cc_tts.engines.cosyvoice.model.loader import (
    check_part,
    check_weights,
    dtype_for,
    load_model,
)
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference
from cc_tts.engines.cosyvoice.model.sizes import TEXT_EMBEDDING, TIED_HEAD, FlowConfig, LmConfig, Part, VocoderConfig
from cc_tts.errors import ConfigError
from lab.cosyvoice import tiny_model
from lab.cosyvoice.networks import shapes_for
from lab.cosyvoice.whole_flow import whole_mel
from lab.cosyvoice.whole_vocoder import two_sided

pytestmark = pytest.mark.unit

KEYS = Path(__file__).parents[4] / "data" / "golden" / "keys"


def listed(name: str) -> dict[str, tuple[int, ...]]:
    path = KEYS / name
    if not path.exists():
        pytest.skip(f"{name} is not in tests/data/golden/keys")
    return {key: tuple(shape) for key, shape in json.loads(path.read_text()).items()}


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def change(model: Path, part: Part, edit: Callable[[dict[str, Any]], object]) -> None:
    path = model / f"{part}.pt"
    state = torch.load(path, weights_only=True)
    edit(state)
    path.unlink()
    torch.save(state, path)


def test_a_whole_directory_loads(whole: Path) -> None:
    check_weights(whole)
    model = load_model(whole)
    assert (model.lm.config, model.flow.config, model.vocoder.config) == (
        tiny_model.LLM,
        tiny_model.FLOW,
        tiny_model.HIFT,
    )
    assert len(model.lm.state_dict()) == 30  # the tied head is dropped
    assert model.flow.state_dict().keys() == shapes_for(tiny_model.FLOW).keys()
    assert "num_layers 2, published 24" in sizes.differences(model.lm.config)
    assert "encoder.num_layers 1, published 6" in sizes.differences(model.flow.config)
    assert all(value.dtype == torch.float32 for value in model.vocoder.state_dict().values())


@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
def test_a_file_straight_from_training_loads(model: Path, part: Part) -> None:
    change(model, part, lambda state: state.update(epoch=12, step=34_000))
    check_weights(model)


@pytest.mark.parametrize("name", ["epoch", "step"])
def test_other_things_under_the_names_of_training_are_refused(model: Path, name: str) -> None:
    change(model, "flow", lambda state: state.update({name: "12"}))
    with pytest.raises(TensorMismatch, match=rf"{name} \(str\)"):
        check_weights(model)


@pytest.mark.parametrize("prefix", ["", "generator."])
@pytest.mark.parametrize("old", [False, True])
def test_every_spelling_of_the_vocoder_gives_the_same_weights(
    whole: Path, tmp_path: Path, prefix: str, *, old: bool
) -> None:
    expected = load_model(whole).vocoder.state_dict()
    directory = tiny_model.make_tiny_model(tmp_path, hift_prefix=prefix, old_weight_norm=old)
    other = load_model(directory).vocoder.state_dict()
    assert other.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(other[key], value, rtol=0, atol=0)


def test_weight_norm_is_folded_as_torch_computes_it(whole: Path) -> None:
    stored = torch.load(whole / "hift.pt", weights_only=True)
    loaded = load_model(whole).vocoder.state_dict()
    assert not [key for key in loaded if "original" in key]
    for name, conv in (("conv_pre", torch.nn.Conv1d(80, 32, 7)), ("ups.0", torch.nn.ConvTranspose1d(32, 16, 16))):
        normed = torch.nn.utils.parametrizations.weight_norm(conv)
        prefix = f"{name}."
        normed.load_state_dict({key.removeprefix(prefix): stored[key] for key in stored if key.startswith(prefix)})
        torch.testing.assert_close(loaded[f"{name}.weight"], normed.weight.detach(), rtol=1e-5, atol=1e-7)


def test_the_networks_take_the_weights_and_run(whole: Path) -> None:
    model = load_model(whole)
    for network in (model.lm, model.flow, model.vocoder):
        assert not network.training
        assert not [name for name, value in network.named_parameters() if value.requires_grad or value.is_meta]
    f0 = two_sided(model.vocoder).f0(torch.zeros(1, 80, 6))
    assert f0.shape == (1, 6)
    mel = whole_mel(
        model.flow,
        torch.arange(10)[None],
        FlowReference(torch.arange(25)[None], torch.zeros(1, 50, 80), torch.ones(1, 192)),
        streaming=True,
        finalize=True,
        noise=torch.zeros(1, 80, 100),
    )
    assert torch.isfinite(mel).all()


def test_a_weight_norm_without_direction_is_refused(model: Path) -> None:
    change(model, "hift", lambda state: state["conv_pre.parametrizations.weight.original1"].zero_())
    with pytest.raises(TensorMismatch, match=r"conv_pre.*zero"):
        check_weights(model)


@pytest.mark.parametrize(
    ("part", "config", "num_tensors", "num_values"),
    [
        ("llm", LmConfig(), 295, 505_803_812 + 151_936 * 896),
        ("flow", FlowConfig(), 1121, 112_549_360),
        ("hift", VocoderConfig(), 328, 20_821_295),
    ],
)
def test_the_shapes_of_the_specification_add_up(part: Part, config: Any, num_tensors: int, num_values: int) -> None:
    shapes = shapes_for(config)
    assert len(shapes) == num_tensors
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == num_values
    assert check_part(f"{part}.pt", part, shapes).config == config


@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
def test_the_shapes_are_those_of_the_published_files(part: Part) -> None:
    network = check_part(f"{part}.pt", part, listed(f"cosyvoice2_{part}_pt.json"))
    assert sizes.differences(network.config) == []


@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
def test_the_small_model_has_the_tensors_of_the_small_reference(part: Part) -> None:
    path = KEYS.parent / "tiny_state_dict.json"
    if not path.exists():
        pytest.skip("tiny_state_dict.json is not in tests/data/golden")
    stored = json.loads(path.read_text())[f"{part}.pt"]
    configs: dict[Part, Any] = {"llm": tiny_model.LLM, "flow": tiny_model.FLOW, "hift": tiny_model.HIFT}
    made = shapes_for(configs[part])
    assert {key: tuple(shape) for key, (shape, _dtype) in stored.items()} == made


class Code:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("exit 1",)


def test_a_bare_pickle_is_refused(model: Path) -> None:
    replace(model / "flow.pt", pickle.dumps({"weight": Code()}))
    with pytest.raises(UnsafeCheckpoint, match="bare pickle"):
        check_weights(model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:b144\nsize 2023316821\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "this is a web page"),
        (b"GGUF\x03\x00\x00\x00", "not a PyTorch checkpoint"),
        (b"PK\x03\x04 nothing of use", "cannot be read"),
    ],
)
def test_stand_ins_are_told_apart(model: Path, content: bytes, message: str) -> None:
    replace(model / "llm.pt", content)
    with pytest.raises(ModelFileDamaged, match=message):
        check_weights(model)


def test_missing_and_extra_and_misshapen_tensors_are_reported_together(model: Path) -> None:
    def edit(state: dict[str, Any]) -> None:
        del state["encoder_proj.bias"], state["decoder.estimator.mid_blocks.1.0.res_conv.bias"]
        state["decoder.noise"] = torch.zeros(3)
        state["encoder.after_norm.weight"] = torch.zeros(511)

    change(model, "flow", edit)
    with pytest.raises(TensorMismatch) as caught:
        check_weights(model)
    assert caught.value.missing == ("encoder_proj.bias", "decoder.estimator.mid_blocks.1.0.res_conv.bias")
    assert caught.value.unexpected == ("decoder.noise",)
    assert caught.value.wrong == ("encoder.after_norm.weight is 511, must be 512",)
    assert "flow.pt: 2 missing: encoder_proj.bias" in caught.value.detail
    assert isinstance(caught.value, ConfigError)


def test_only_the_first_few_names_are_spelled_out(model: Path) -> None:
    change(model, "hift", lambda state: [state.pop(key) for key in list(state) if key.startswith("resblocks.4")])
    with pytest.raises(TensorMismatch, match=r"24 missing: (\S+, ){4}\S+ and 19 more"):
        check_weights(model)


@pytest.mark.parametrize("extra", [7, "text", [1.0], None])
def test_what_is_no_tensor_is_refused(model: Path, extra: object) -> None:
    change(model, "hift", lambda state: state.update(optimizer=extra))
    with pytest.raises(TensorMismatch, match="optimizer"):
        check_weights(model)


def test_integer_tensors_and_bare_tensors_are_refused(model: Path) -> None:
    change(model, "hift", lambda state: state.update({"conv_pre.bias": torch.zeros(32, dtype=torch.int64)}))
    with pytest.raises(TensorMismatch, match=r"conv_pre\.bias \(torch\.int64\)"):
        check_weights(model)
    (model / "hift.pt").unlink()
    torch.save(torch.zeros(3), model / "hift.pt")
    with pytest.raises(TensorMismatch, match="a Tensor in place of named tensors"):
        check_weights(model)


def test_one_tensor_under_two_names_is_refused(model: Path) -> None:
    change(model, "hift", lambda state: state.update({"generator.conv_pre.bias": torch.zeros(32)}))
    with pytest.raises(TensorMismatch, match="second name"):
        check_weights(model)


def test_the_tied_head_must_be_the_text_embedding(model: Path) -> None:
    change(model, "llm", lambda state: state.update({TIED_HEAD: torch.zeros(512, 64)}))
    with pytest.raises(TensorMismatch, match=r"lm_head\.weight differs from"):
        check_weights(model)


def test_a_copy_of_the_text_embedding_is_accepted_as_the_head(model: Path) -> None:
    change(
        model,
        "llm",
        lambda state: state.update({TIED_HEAD: state[TEXT_EMBEDDING].clone()}),
    )
    assert TIED_HEAD not in load_model(model).lm.state_dict()


def test_a_missing_last_layer_is_noticed_by_the_description(model: Path) -> None:
    change(model, "llm", lambda state: [state.pop(key) for key in list(state) if ".layers.1." in key])
    with pytest.raises(TensorMismatch, match=r"layers is 1, config\.json says 2"):
        check_weights(model)


def test_heads_that_are_not_whole_are_refused(model: Path) -> None:
    path = model / "CosyVoice-BlankEN" / "config.json"
    replace(path, json.dumps(json.loads(path.read_text()) | {"num_key_value_heads": 3}).encode())
    with pytest.raises(ModelFileDamaged, match=r"config\.json: 4 heads for 64 values, 3 of them for the keys"):
        check_weights(model)
    replace(path, json.dumps(json.loads(path.read_text()) | {"num_key_value_heads": 2}).encode())
    replace(model / "cosyvoice2.yaml", b"attention_head_dim: 15\n")
    with pytest.raises(ModelFileDamaged, match=r"cosyvoice2\.yaml: .* queries of 32 are not whole heads"):
        check_weights(model)


@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
@pytest.mark.parametrize("size", [0, 1, 1 << 40])
def test_sizes_that_no_network_has_are_wrong_shapes(part: Part, size: int) -> None:
    shapes = {key: (size,) * len(shape) for key, shape in listed(f"cosyvoice2_{part}_pt.json").items()}
    with pytest.raises(TensorMismatch, match="wrong shape"):
        check_part(f"{part}.pt", part, shapes)


def test_a_stack_without_end_is_refused() -> None:
    with pytest.raises(TensorMismatch, match="1 unexpected"):
        check_part("llm.pt", "llm", listed("cosyvoice2_llm_pt.json") | {"llm.model.model.layers.100.bias": (1,)})


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"hidden_size": 64}', b"null"])
def test_a_description_that_cannot_be_read_is_refused(model: Path, content: bytes) -> None:
    replace(model / "CosyVoice-BlankEN" / "config.json", content)
    with pytest.raises(ModelFileDamaged, match=r"config\.json: not the description"):
        check_weights(model)


def test_missing_files_are_listed_at_once(model: Path) -> None:
    (model / "flow.pt").unlink()
    (model / "hift.pt").unlink()
    with pytest.raises(ModelFileMissing, match=r"lacks flow\.pt, hift\.pt"):
        check_weights(model)
    with pytest.raises(ModelError, match="no such directory"):
        check_weights(model / "nowhere")


FIRST_VERSION: list[tuple[Part, dict[str, tuple[int, ...]]]] = [
    ("llm", {"llm_embedding.weight": (2, 1024), "text_encoder.embed.out.0.weight": (512, 512)}),
    ("flow", {"input_embedding.weight": (4096, 512), "length_regulator.model.0.weight": (80, 80, 3)}),
    ("hift", {"conv_pre.bias": (512,), "ups.0.bias": (256,), "ups.1.bias": (128,)}),
]


@pytest.mark.parametrize(("part", "shapes"), FIRST_VERSION)
def test_the_first_version_is_known_by_its_tensors(part: Part, shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(WrongModelVersion, match=rf"{part}\.pt is of CosyVoice 1"):
        check_part(f"{part}.pt", part, shapes)


@pytest.mark.parametrize(("part", "num_tensors"), [("flow", 330), ("hift", 328)])
def test_the_tensors_of_version_3_as_published_are_taken(part: Part, num_tensors: int) -> None:
    found = listed(f"cosyvoice3_{part}_pt.json")
    network = check_part(f"{part}.pt", part, found)
    assert len(found) == num_tensors
    assert not sizes.differences(network.config)


@pytest.mark.parametrize(
    ("capability", "half"),
    [(each, torch.bfloat16) for each in ((8, 0), (8, 9), (9, 0), (12, 0))]
    + [((7, 0), torch.float16), ((7, 5), torch.float16), ((6, 1), torch.float32)],
)
def test_types_follow_the_device(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], half: Any) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert dtype_for(torch.device("cuda")) == half
    assert dtype_for(torch.device("cpu")) == torch.float32


def test_the_vocoder_stays_float32(whole: Path) -> None:
    model = load_model(whole, dtype=torch.bfloat16)
    assert {value.dtype for value in model.lm.state_dict().values()} == {torch.bfloat16}
    assert {value.dtype for value in model.flow.state_dict().values()} == {torch.bfloat16}
    assert {value.dtype for value in model.vocoder.state_dict().values()} == {torch.float32}
