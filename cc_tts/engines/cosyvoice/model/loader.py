"""The loader makes networks on a device from a published model directory (spec §1): checked, folded, cast, moved.

::

    llm.pt   ──▸ every tensor accounted for ──▸ tied head compared and dropped ───┐
    flow.pt  ──▸ every tensor accounted for ──────────────────────────────────────┼──▸ cast ──▸ device
    hift.pt  ──▸ names made one way ──▸ every tensor accounted for ──▸ weight     │
                 norm folded ─────────────────────────────────────────────────────┘

The files are mapped, not read: on the CPU in float32 the weights stay pages of the files, which every worker of the
machine shares. Do not overwrite a model directory in place while a worker runs on it; put the new one beside it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import torch
from torch import Tensor, nn

from cc_tts.engines.cosyvoice.model import checkpoint
from cc_tts.engines.cosyvoice.model.checkpoint import (
    DESCRIPTION,
    ModelError,
    ModelFileDamaged,
    ModelFileMissing,
    TensorMismatch,
    WrongModelVersion,
)
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.int8 import quantise
from cc_tts.engines.cosyvoice.model.networks.layers import join_linears
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import CausalVocoder
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import (
    FLOW_STEPS,
    PARTS,
    TEXT_EMBEDDING,
    TIED_HEAD,
    EstimatorConfig,
    FlowConfig,
    Generation,
    LmConfig,
    Part,
    Shape,
    Shapes,
    VocoderConfig,
    generation_of,
)
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.graphs import claim

OnShare = Callable[[float], None]  # called with the share of the weights that is on the device, 0 to 1, as it grows
Network = SpeechLm | Flow | Vocoder | CausalVocoder

RATE_HZ: Final = 24_000
TOKENIZER_FOLDER: Final = "CosyVoice-BlankEN"
LLM_CONFIG: Final = f"{TOKENIZER_FOLDER}/config.json"
LANGUAGES: Final = ("zh", "en", "ja", "ko", "yue")  # those the model was trained on; a cloned voice speaks them all
HEAD_DIM: Final = 64  # of the published estimator (spec §2), for a directory without a description
JOINED_ON_CPU_BYTES: Final = 32 << 20
"""The most of a network that may be memory of each process on the CPU, instead of pages of the file that all share."""

_VOLTA: Final = 7
_AMPERE: Final = 8
_DIRECTION: Final = ".parametrizations.weight.original1"
_MAGNITUDE: Final = ".parametrizations.weight.original0"
_CONV_DIMS: Final = 3
_PITCH: Final = "f0_predictor."
_HEAD_DIM: Final = re.compile(r"^\s*attention_head_dim:\s*(\d{1,4})\s*(?:#.*)?$", re.MULTILINE)


def dtype_for(device: torch.device) -> torch.dtype:
    """Return the type in which language model and flow compute: bfloat16 from Ampere on, float16 on Volta and Turing,
    else float32, than which half precision is slower before Volta.

    The vocoder is float32 everywhere, as the reference keeps it even in half precision (spec §3.8): its output goes
    through exp and sine, and it is a small part of the work (§9.4).
    """
    major = torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else 0
    if major < _VOLTA:
        return torch.float32
    return torch.bfloat16 if major >= _AMPERE else torch.float16


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechModel:
    """The three networks, ready to run."""

    lm: SpeechLm
    flow: Flow
    vocoder: Vocoder | CausalVocoder

    @property
    def generation(self) -> Generation:
        return self.lm.config.generation


def load_model(
    directory: Path,  # laid out as published (spec §1); otherwise ``ModelError`` says which file is wrong in which way
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,  # of language model and flow; ``dtype_for(device)`` if not given
    flow_steps: int = FLOW_STEPS,
    flow_context: int = 0,  # chunks before its own that each chunk of the flow sees; 0: all
    int8: bool = False,  # the linear maps of the language model's layers, on a CPU
    on_share: OnShare = lambda _share: None,
) -> SpeechModel:
    """The networks of a directory of CosyVoice 2 or 3, ready to run on the device."""
    device = torch.device(device)
    claim(device)
    networks, states = check_weights(directory)
    cast("Flow", networks["flow"]).use(num_steps=flow_steps, context_chunks=flow_context)
    dtypes = _dtypes(device, dtype, cast("SpeechLm", networks["llm"]).config.generation)
    num_bytes, done_bytes = sum(value.nbytes for state in states.values() for value in state.values()), 0
    for part, network in networks.items():
        weights = {}
        for key, value in states.pop(part).items():
            weights[key] = value.to(device=device, dtype=dtypes.get(part, value.dtype))
            done_bytes += value.nbytes
            on_share(done_bytes / num_bytes)
        fill(network, weights).to(device)  # beside its weights, a network has constants
        del weights  # lest what is joined be held twice
        if int8 and isinstance(network, SpeechLm):
            quantise(network.backbone)
        join_linears(network, most_bytes=JOINED_ON_CPU_BYTES if device.type == "cpu" else None)
    return SpeechModel(
        lm=cast("SpeechLm", networks["llm"]),
        flow=cast("Flow", networks["flow"]),
        vocoder=cast("Vocoder | CausalVocoder", networks["hift"]),
    )


def load_tokenizer(directory: Path, model: SpeechModel) -> TextTokenizer:
    """The tokenizer of a directory, which must belong to its model."""
    tokenizer = TextTokenizer.from_directory(directory / TOKENIZER_FOLDER, model.generation)
    num_rows = model.lm.config.text_vocab_size
    if tokenizer.num_tokens > num_rows:
        raise ModelError(f"the tokenizer has {tokenizer.num_tokens} tokens, the model {num_rows}")
    return tokenizer


def _dtypes(device: torch.device, wanted: torch.dtype | None, generation: Generation) -> dict[Part, torch.dtype]:
    """Return the types of language model and flow. The third generation's flow is not trusted with float16 unless that is
    asked for: others report noise (v3 §4.5).
    """
    dtype = wanted or dtype_for(device)
    is_doubtful = wanted is None and dtype is torch.float16 and generation > 2  # noqa: PLR2004 - the second generation
    return {"llm": dtype, "flow": torch.float32 if is_doubtful else dtype}


def check_weights(directory: Path) -> tuple[dict[Part, Network], dict[Part, dict[str, Tensor]]]:
    """The networks of a directory without weights, and the weights on disk as they name them. ``ModelError`` for a fault."""
    refuse_other_directory(directory)
    files = {part: directory / f"{part}.pt" for part in PARTS}
    absent = [
        str(path.relative_to(directory)) for path in (*files.values(), directory / LLM_CONFIG) if not path.is_file()
    ]
    if absent:
        raise ModelFileMissing(f"{directory} lacks {', '.join(absent)}; `cc-tts model check` lists what belongs there")
    llm_sizes = _llm_sizes(directory / LLM_CONFIG)
    head_dims = {"llm": llm_sizes["head_dim"], "flow": estimator_head_dim(directory)}
    states = {part: checkpoint.read_checkpoint(path, part) for part, path in files.items()}
    shapes = {part: checkpoint.shapes_of(state) for part, state in states.items()}
    _refuse_mixture(directory, shapes)
    networks = {
        part: check_part(str(files[part]), part, found, head_dims.get(part, HEAD_DIM)) for part, found in shapes.items()
    }
    config = networks["llm"].config
    wrong = [
        f"{name} is {getattr(config, name)}, config.json says {size}"
        for name, size in llm_sizes.items()
        if getattr(config, name) != size
    ]
    if wrong:
        raise TensorMismatch(str(files["llm"]), wrong=wrong)
    estimator = cast("FlowConfig", networks["flow"].config).estimator
    if isinstance(estimator, EstimatorConfig) and estimator.num_attention % estimator.head_dim:
        raise ModelFileDamaged(
            f"{directory / DESCRIPTION}: attention_head_dim is {estimator.head_dim}; "
            f"queries of {estimator.num_attention} are not whole heads of that"
        )
    _drop_tied_head(str(files["llm"]), states["llm"])
    hift = states["hift"] = fold_weight_norm(states["hift"])  # in the types that they are used in
    bad = [f"{key} has rows that are zero or not numbers" for key, value in hift.items() if not value.isfinite().all()]
    if bad:
        raise TensorMismatch(str(files["hift"]), wrong=bad)
    return networks, states


def generation_of_directory(directory: Path) -> Generation:
    """Return which model a directory holds, by its description or else by its language model; the second generation, where
    neither is there. ``ModelError`` for a fault.
    """
    refuse_other_directory(directory)
    named = checkpoint.described(directory)
    if named is not None or not (directory / "llm.pt").exists():
        return named or 2
    return generation_of("llm", checkpoint.shapes_of(checkpoint.read_checkpoint(directory / "llm.pt", "llm")))


def _refuse_mixture(directory: Path, parts: Mapping[Part, Shapes]) -> None:
    """Raise ``WrongModelVersion`` if the files are not all of the same generation."""
    for part, shapes in parts.items():
        checkpoint.refuse_other_version(f"{part}.pt", part, shapes)
    found = {f"{part}.pt": generation_of(part, shapes) for part, shapes in parts.items()}
    if (by_name := checkpoint.described(directory)) is not None:
        found[checkpoint.DESCRIPTIONS[by_name]] = by_name
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} is of CosyVoice {generation}" for name, generation in found.items())
        raise WrongModelVersion(f"{directory} holds files of two models: {said}")


def check_part(file: str, part: Part, found: Shapes, head_dim: int = HEAD_DIM) -> Network:
    """The network for the tensors of one weight file, on the meta device. Raises ``WrongModelVersion`` for those of
    CosyVoice 1, and ``TensorMismatch`` if they are not those of the specification.
    """
    checkpoint.refuse_other_version(file, part, found)
    network = new_network(part, found, head_dim)
    checkpoint.check_tensors(file, found, stored_shapes(network))
    return network


def new_network(part: Part, found: Shapes, head_dim: int = HEAD_DIM) -> Network:
    """A network of the sizes that ``found`` shows, on the meta device; see :mod:`sizes` for ``head_dim``."""
    with torch.device("meta"):  # the weights come from the file; nothing is to be sampled at random
        if part == "llm":
            return SpeechLm(LmConfig.of(found, head_dim))
        return Flow(FlowConfig.of(found, head_dim)) if part == "flow" else new_vocoder(VocoderConfig.of(found))


def new_vocoder(config: VocoderConfig) -> Vocoder | CausalVocoder:
    return Vocoder(config) if config.generation == 2 else CausalVocoder(config)  # noqa: PLR2004 - the second generation


def stored_shapes(network: Network) -> dict[str, Shape]:
    """The tensors of its weight file: with the tied head (spec §3.6), with weight norm under canonical names (§5.4)."""
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    if isinstance(network, SpeechLm):
        shapes[TIED_HEAD] = shapes[TEXT_EMBEDDING]
    if isinstance(network, Vocoder | CausalVocoder):
        for key, shape in list(shapes.items()):
            if key.endswith(".weight") and len(shape) == _CONV_DIMS and not key.startswith("source_downs."):
                name = key.removesuffix(".weight")
                shapes |= {name + _MAGNITUDE: (shape[0], 1, 1), name + _DIRECTION: shapes.pop(key)}
    return shapes


_Module = TypeVar("_Module", bound=nn.Module)


def fill(network: _Module, state: Mapping[str, Tensor]) -> _Module:
    """Give a network the tensors of ``state`` themselves, not copies; strict about missing and unknown keys."""
    network.load_state_dict(state, strict=True, assign=True)
    return network.requires_grad_(requires_grad=False).eval()


def refuse_other_directory(directory: Path) -> None:
    """Raise ``ModelError`` if ``directory`` does not exist, or belongs to CosyVoice 1 by the name of its description."""
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such directory; `cc-tts model download` fetches the model")
    if other := checkpoint.other_description(directory):
        raise WrongModelVersion(f"{directory} holds {other} (iic/CosyVoice2-0.5B)")


def estimator_head_dim(directory: Path) -> int:
    """Width of an attention head of the flow's estimator, which does not follow from shapes (spec §2). ``ModelFileDamaged``
    if the description cannot be read, or names widths that contradict each other.
    """
    path = directory / DESCRIPTION
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return HEAD_DIM
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileDamaged(f"{path}: cannot be read: {error}") from None
    found = {int(width) for width in _HEAD_DIM.findall(text)}
    if len(found) > 1 or 0 in found:
        raise ModelFileDamaged(f"{path}: attention_head_dim is {sorted(found)}")
    return found.pop() if found else HEAD_DIM


def _llm_sizes(path: Path) -> dict[str, int]:
    """Sizes of the language model by the Qwen2 description beside it, named as in :class:`LmConfig`.

    How many heads share a projection leaves no trace in its shape; and a file without its last layer would pass for a
    smaller model.
    """
    checkpoint.refuse_stand_in(path)
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        hidden, heads, key_heads = (
            int(config[key]) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
        )
        layers, intermediate = (int(config[key]) for key in ("num_hidden_layers", "intermediate_size"))
        head_dim = hidden // heads
        is_whole = head_dim > 0 and heads % key_heads == 0
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ModelFileDamaged(
            f"{path}: not the description of a Qwen2 model ({type(error).__name__}: {error})"
        ) from None
    if not is_whole:
        raise ModelFileDamaged(f"{path}: {heads} heads for {hidden} values, {key_heads} of them for the keys")
    return {
        "hidden_size": hidden,
        "num_layers": layers,
        "intermediate_size": intermediate,
        "query_size": heads * head_dim,
        "key_size": key_heads * head_dim,
        "head_dim": head_dim,
    }


def _drop_tied_head(file: str, state: dict[str, Tensor]) -> None:
    """Take the unused head out (spec §1): it must be the text embedding again."""
    head, embedding = state.pop(TIED_HEAD), state[TEXT_EMBEDDING]
    same_memory = head.data_ptr() == embedding.data_ptr() and head.stride() == embedding.stride()
    if not same_memory and not torch.equal(head, embedding):
        raise TensorMismatch(file, wrong=[f"{TIED_HEAD} differs from {TEXT_EMBEDDING}, to which it is tied"])


def fold_weight_norm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Multiply out weight norm (spec §5.3): ``g · v / |v|``, the norm over all dimensions but the first.

    In float32, and in the third generation the pitch in float64 (v3 §5.1), for its phase is a running sum.
    """
    is_wide = generation_of("hift", checkpoint.shapes_of(state)) == 3  # noqa: PLR2004 - the third generation
    folded: dict[str, Tensor] = {}
    for key, stored in state.items():
        value = stored.to(torch.float64 if is_wide and key.startswith(_PITCH) else torch.float32)
        if key.endswith(_DIRECTION):
            name = key.removesuffix(_DIRECTION)
            norm = torch.linalg.vector_norm(value, dim=tuple(range(1, value.dim())), keepdim=True)
            folded[name + ".weight"] = value * (state[name + _MAGNITUDE].to(value.dtype) / norm)
        elif not key.endswith(_MAGNITUDE):
            folded[key] = value
    return folded
