"""From a published model directory to weights on a device (spec §1): checked, folded, cast, moved.

::

    llm.pt   ──▸ every tensor accounted for ──▸ tied head compared and dropped ───┐
    flow.pt  ──▸ every tensor accounted for ──────────────────────────────────────┼──▸ DtypePolicy ──▸ device
    hift.pt  ──▸ names made one way ──▸ every tensor accounted for ──▸ weight     │
                 norm folded ─────────────────────────────────────────────────────┘

The files are mapped, not read: on the CPU in float32 the weights stay pages of the files, which every worker of the
machine shares. Do not overwrite a model directory in place while a worker runs on it; put the new one beside it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from cc_tts.engines.cosyvoice2.model import checkpoint, checkpoint_shapes
from cc_tts.engines.cosyvoice2.model.checkpoint import (
    ModelError,
    ModelFileDamaged,
    ModelFileMissing,
    TensorMismatch,
    WrongModelVersion,
)
from cc_tts.engines.cosyvoice2.model.checkpoint_shapes import PARTS, TEXT_EMBEDDING, TIED_HEAD, Dims, LlmDims, Part
from cc_tts.engines.cosyvoice2.model.networks.flow.flow import Flow, FlowConfig
from cc_tts.engines.cosyvoice2.model.networks.layers import fold_weight_norm, join_linears
from cc_tts.engines.cosyvoice2.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice2.model.networks.vocoder.vocoder import Vocoder, VocoderConfig
from cc_tts.engines.cosyvoice2.runners.graphs import claim

OnShare = Callable[[float], None]

JOINED_ON_CPU_BYTES: Final = 32 << 20
"""So much of a network may be memory of each process on the CPU, instead of pages of the file that all share."""
LLM_CONFIG: Final = "CosyVoice-BlankEN/config.json"

ALWAYS_FLOAT32: Final = ("f0_predictor.", "m_source.")
"""Of the vocoder, whatever its type: pitch is in Hz and the phase is a running sum of it (spec §5.1, §5.2)."""

_VOLTA: Final = 7
_AMPERE: Final = 8

OVERFLOW_NOTE: Final = (
    "float16 ends at 65504. To be kept in float32: squares under the RMS norm (§3.7), softmax and log-softmax, "
    "layer norms, the state of the ODE (§4.6). To be watched on this GPU: the residual stream of the language model, whose "
    "few huge channels come out of down_proj; the gated product before it; the mask value, −1e10 in the reference (§4.4), "
    "which must be −inf or the type's own minimum; log-probabilities of −inf through casts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypePolicy:
    """In what type each part computes. The tensors of ``ALWAYS_FLOAT32`` stay float32 in any case."""

    llm: torch.dtype = torch.float32
    flow: torch.dtype = torch.float32
    hift: torch.dtype = torch.float32
    note: str = ""

    def dtype_of(self, part: Part, key: str) -> torch.dtype:
        """Type of one tensor."""
        if part == "hift" and key.startswith(ALWAYS_FLOAT32):
            return torch.float32
        return {"llm": self.llm, "flow": self.flow, "hift": self.hift}[part]


def dtype_policy(device: str | torch.device, capability: tuple[int, int] | None = None) -> DtypePolicy:
    """Choose the types for a device: bfloat16 from Ampere on, float16 on Volta and Turing, else float32.

    The vocoder is float32 everywhere, as the reference keeps it even in half precision (spec §3.8): its output goes
    through exp and sine, and it is a small part of the work (§9.4). Give another policy to change that.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        capability: CUDA compute capability; asked of the device if not given.

    """
    device = torch.device(device)
    if device.type != "cuda":
        return DtypePolicy()
    major, _ = capability or torch.cuda.get_device_capability(device)
    if major >= _AMPERE:
        return DtypePolicy(llm=torch.bfloat16, flow=torch.bfloat16)
    if major >= _VOLTA:
        return DtypePolicy(llm=torch.float16, flow=torch.float16, note=OVERFLOW_NOTE)
    return DtypePolicy(note="this GPU is older than Volta: half precision would be slower than float32 on it")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What was loaded, for the log and for ``/healthz``."""

    directory: Path
    num_tensors: Mapping[str, int]
    """By file, as stored."""
    num_values: Mapping[str, int]
    """By file, as stored; the tied head is counted once."""
    dims: Mapping[str, Dims]
    sha256: Mapping[str, str]
    """By file; empty unless asked for."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """State dicts ready for the modules: ``llm`` without its tied head, ``hift`` without weight norm."""

    llm: dict[str, Tensor]
    flow: dict[str, Tensor]
    hift: dict[str, Tensor]
    head_dim: int
    """Of the language model; it does not follow from shapes (spec §2)."""
    policy: DtypePolicy
    report: LoadReport


def load_weights(
    directory: Path,
    *,
    device: str | torch.device = "cpu",
    policy: DtypePolicy | None = None,
    checksums: bool = False,
    on_share: OnShare = lambda _share: None,
) -> ModelWeights:
    """Load the three weight files of a CosyVoice 2 directory.

    Args:
        directory: laid out as published (spec §1).
        device: where the weights shall be.
        policy: types to use; ``dtype_policy(device)`` if not given.
        checksums: hash the files too, which reads all 2.5 GB of them.
        on_share: called with the share of the weights that is on the device, 0 to 1, as it grows.

    Raises:
        ModelError: the directory cannot be used. The subclass says how, the message which file and what is wrong.

    """
    names = {part: f"{part}.pt" for part in PARTS}
    _check_files(directory, (*names.values(), LLM_CONFIG))
    policy = policy or dtype_policy(device)
    states = {part: checkpoint.read_checkpoint(directory / names[part]) for part in PARTS}
    num_tensors = {names[part]: len(states[part]) for part in PARTS}
    states["hift"] = checkpoint.canonical_names(names["hift"], states["hift"])
    dims = {
        names[part]: checkpoint.check_part(str(directory / names[part]), part, checkpoint.shapes_of(states[part]))
        for part in PARTS
    }
    head_dim = _check_llm_config(directory / LLM_CONFIG, dims[names["llm"]])
    _drop_tied_head(str(directory / names["llm"]), states["llm"])
    num_values = {names[part]: sum(value.numel() for value in states[part].values()) for part in PARTS}
    states["hift"] = _fold(str(directory / names["hift"]), states["hift"])
    ready = _placed(states, device, policy, on_share)
    notes = [f"{name}: {text}" for name, of in dims.items() for text in checkpoint_shapes.differences(of)]
    return ModelWeights(
        llm=ready["llm"],
        flow=ready["flow"],
        hift=ready["hift"],
        head_dim=head_dim,
        policy=policy,
        report=LoadReport(
            directory=directory,
            num_tensors=num_tensors,
            num_values=num_values,
            dims=dims,
            sha256={name: checkpoint.sha256_of(directory / name) for name in dims} if checksums else {},
            notes=(*notes, *([policy.note] if policy.note else ())),
        ),
    )


def _check_files(directory: Path, names: Sequence[str]) -> None:
    refuse_other_directory(directory)
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise ModelFileMissing(f"{directory} lacks {', '.join(absent)}; `cc-tts model check` lists what belongs there")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechModel:
    """The three networks, ready to run."""

    lm: SpeechLm
    flow: Flow
    vocoder: Vocoder
    policy: DtypePolicy
    report: LoadReport


def load_model(
    directory: Path,
    *,
    device: str | torch.device = "cpu",
    policy: DtypePolicy | None = None,
    checksums: bool = False,
    estimator_head_dim: int = 64,
    compat: bool = False,
    on_share: OnShare = lambda _share: None,
) -> SpeechModel:
    """Load a directory into the networks; for the arguments and errors see ``load_weights``.

    Args:
        directory: laid out as published.
        device: where the networks shall run.
        policy: types to use.
        checksums: hash the files too.
        estimator_head_dim: width of an attention head of the flow's estimator, which does not follow from its shapes.
        compat: keep the phase in the vocoder as the reference does (``Vocoder``).
        on_share: as in ``load_weights``.

    """
    claim(torch.device(device))
    weights = load_weights(directory, device=device, policy=policy, checksums=checksums, on_share=on_share)
    lm = SpeechLm.from_state_dict(weights.llm, head_dim=weights.head_dim)
    with torch.device("meta"):  # the weights are there already; nothing is to be drawn at random
        flow = Flow(FlowConfig.from_state_dict(weights.flow, estimator_head_dim=estimator_head_dim))
        vocoder = Vocoder(VocoderConfig.from_state_dict(weights.hift), compat=compat)
    flow.load_state_dict(weights.flow, strict=True, assign=True)
    vocoder.load_state_dict(weights.hift, strict=True, assign=True)
    model = SpeechModel(
        lm=_ready(lm, device),
        flow=_ready(flow, device),
        vocoder=_ready(vocoder, device),
        policy=weights.policy,
        report=weights.report,
    )
    for state, network in ((weights.llm, model.lm), (weights.flow, model.flow)):
        state.clear()  # lest what is joined be held twice
        join_linears(network, most_bytes=JOINED_ON_CPU_BYTES if torch.device(device).type == "cpu" else None)
    return model


_Module = TypeVar("_Module", bound=nn.Module)


def _ready(module: _Module, device: str | torch.device) -> _Module:
    """Move what is no weight, and forbid training."""
    return module.to(device).requires_grad_(requires_grad=False).eval()


def refuse_other_directory(directory: Path) -> None:
    """Raise if ``directory`` is none, or one of CosyVoice 1 or 3 by the name of its description.

    Raises:
        ModelError, WrongModelVersion: it is.

    """
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such directory; `cc-tts model download` fetches the model")
    if (directory / "cosyvoice2.yaml").exists():
        return
    for name, version in checkpoint.OTHER_DESCRIPTIONS.items():
        if (directory / name).exists():
            raise WrongModelVersion(
                f"{directory} holds {name}, so it is CosyVoice {version}; this engine speaks with CosyVoice 2 "
                "(iic/CosyVoice2-0.5B)"
            )


def _check_llm_config(path: Path, dims: Dims) -> int:
    """Hold ``llm.pt`` against the Qwen2 description beside it; returns the width of an attention head.

    How many heads share a projection leaves no trace in its shape; and a file without its last layer would pass for a
    smaller model.

    Raises:
        ModelFileMissing, ModelFileDamaged: the description is not there or cannot be read.
        TensorMismatch: they are of two different models.

    """
    assert isinstance(dims, LlmDims)
    checkpoint.refuse_stand_in(path)
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        hidden, heads, key_heads = (
            int(config[key]) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
        )
        layers, intermediate = (int(config[key]) for key in ("num_hidden_layers", "intermediate_size"))
        head_dim = hidden // heads
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ModelFileDamaged(
            f"{path}: not the description of a Qwen2 model ({type(error).__name__}: {error})"
        ) from None
    found = (
        ("hidden", hidden),
        ("layers", layers),
        ("intermediate", intermediate),
        ("query_width", heads * head_dim),
        ("key_width", key_heads * head_dim),
    )
    wrong = [
        f"{name} is {getattr(dims, name)}, {path.name} says {value}"
        for name, value in found
        if getattr(dims, name) != value
    ]
    if wrong:
        raise TensorMismatch(str(path.parent.parent / "llm.pt"), wrong=wrong)
    return head_dim


def _drop_tied_head(file: str, state: dict[str, Tensor]) -> None:
    """Take the unused head out (spec §1): it must be the text embedding again."""
    head, embedding = state.pop(TIED_HEAD), state[TEXT_EMBEDDING]
    same_memory = head.data_ptr() == embedding.data_ptr() and head.stride() == embedding.stride()
    if not same_memory and not torch.equal(head, embedding):
        raise TensorMismatch(file, wrong=[f"{TIED_HEAD} differs from {TEXT_EMBEDDING}, to which it is tied"])


def _fold(file: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Multiply weight norm out (spec §5.3); a direction of zeros would become weights that are not numbers."""
    folded = fold_weight_norm(state)
    bad = [f"{key} has rows that are zero or not numbers" for key, value in folded.items() if not _finite(value)]
    if bad:
        raise TensorMismatch(file, wrong=bad)
    return folded


def _finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value).all())


def _placed(
    states: Mapping[Part, Mapping[str, Tensor]], device: str | torch.device, policy: DtypePolicy, on_share: OnShare
) -> dict[Part, dict[str, Tensor]]:
    num_bytes = max(1, sum(value.nbytes for state in states.values() for value in state.values()))
    done_bytes = 0
    ready: dict[Part, dict[str, Tensor]] = {part: {} for part in states}
    for part, state in states.items():
        for key, value in state.items():
            ready[part][key] = value.to(device=device, dtype=policy.dtype_of(part, key))
            done_bytes += value.nbytes
            on_share(done_bytes / num_bytes)
    return ready
