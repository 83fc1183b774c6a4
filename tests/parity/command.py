"""Hold the engine against recorded outputs of the reference: ``python -m tests.parity DIR``.

``DIR`` is laid out as the reference outputs are (``tests/data/golden/README.md``): ``SIZE.npz`` and
``SIZE_state_dict.json``, and what is there of ``features.npz`` and ``spec/``. The weights are made
by the rule with the salt of the file, written to disk as they are published, and read by the real loader. The exit status
is 1 when something differs by more than its tolerance, 2 when the directory cannot be used.

Which generation the outputs are of shows in the tensors; those of the third are compared by :mod:`tests.parity.third`, with
``special_tokens.json`` and ``schedule.json`` where they are there.

With ``--engine`` the recorded streams go through the engine's runners, too, batched with random others.

In float32 on a CUDA device TensorFloat-32 is off. In other types signal-to-noise ratios are printed, and only numbers
that are not finite and decisions that do not depend on the weights make the comparison fail.
"""

import argparse
import json
import platform
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.engines.cosyvoice.model.checkpoint import DESCRIPTIONS
from cc_tts.engines.cosyvoice.model.loader import LLM_CONFIG, SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import CausalVocoder
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import (
    PARTS,
    TEXT_EMBEDDING,
    TIED_HEAD,
    LmConfig,
    Part,
    Shape,
    generation_of,
)
from cc_tts.engines.cosyvoice.runners.graphs import claim
from cc_tts.errors import CcTtsError
from lab.cosyvoice.golden_fill import fill_by_kind
from lab.cosyvoice.whole_vocoder import cast, with_coarse_phase
from tests.parity import cases as parity_cases
from tests.parity import engine as parity_engine
from tests.parity import spec as parity_spec
from tests.parity import third as parity_third
from tests.parity.engine_lm import BatchPlan
from tests.parity.result import EXACT, Array, Comparisons, Verdict, verdict_on

HEAD_DIM: Final = {"tiny": 16, "full": 64}
"""Of language model and estimator; shapes do not tell it."""
_PITCH: Final = "f0_predictor.classifier."
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NS_PER_S: Final = 1e9
_KIB: Final = 1024
_BYTES_PER_MIB: Final = 1 << 20


def write_model(
    target: Path,
    shapes: Mapping[Part, Mapping[str, Shape]],
    *,
    salt: str,
    head_dim: int,
    pitch: tuple[float, float] = (1.0, 0.0),
) -> None:
    """Fill the weights by the rule and write them as they are published (spec §1); one file is in memory at a time.

    ``pitch``: a factor and an offset for the last layer of the pitch, for speech that is voiced in parts.
    """
    for part in PARTS:
        state = fill_by_kind({key: of for key, of in shapes[part].items() if key != TIED_HEAD}, f"{part}.", salt)
        if part == "llm":
            state[TIED_HEAD] = state[TEXT_EMBEDDING]
        if part == "hift":
            state[_PITCH + "weight"] *= pitch[0]
            state[_PITCH + "bias"] += pitch[1]
        prefix = "generator." if part == "hift" else ""
        torch.save({prefix + key: value for key, value in state.items()}, target / f"{part}.pt")
    sizes = LmConfig.of(shapes["llm"], head_dim)
    description = {
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.query_size // head_dim,
        "num_key_value_heads": sizes.num_kv_heads,
    }
    (target / DESCRIPTIONS[generation_of("llm", shapes["llm"])]).write_text(f"attention_head_dim: {head_dim}\n")
    (target / LLM_CONFIG).parent.mkdir()
    (target / LLM_CONFIG).write_text(json.dumps(description))


def read_shapes(path: Path) -> dict[Part, dict[str, Shape]]:
    """The shapes of the floating-point tensors of the three files; others keep what the modules give them."""
    stored: dict[str, dict[str, tuple[list[int], str]]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        part: {key: tuple(shape) for key, (shape, dtype) in stored[f"{part}.pt"].items() if "float" in dtype}
        for part in PARTS
    }


def made_model(
    options: argparse.Namespace, arrays: Mapping[str, Array], device: torch.device, dtype: torch.dtype
) -> SpeechModel:
    """The networks with the weights of the file; on the CPU in float32 they stay pages of files that have no name."""
    shapes = read_shapes(options.directory / f"{options.size}_state_dict.json")
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        pitch = float(arrays.get("f0_gain", 1.0)), float(arrays.get("f0_offset", 0.0))
        write_model(Path(name), shapes, salt=str(arrays["salt"]), head_dim=options.head_dim, pitch=pitch)
        model = load_model(Path(name), device=device, dtype=dtype)
    if isinstance(model.vocoder, Vocoder):
        cast(with_coarse_phase(model.vocoder), _DTYPES[options.vocoder_dtype])
    return model


def run_groups(
    groups: Iterator[tuple[str, Comparisons]], *, is_float32: bool, device: torch.device, clock: Clock
) -> Iterator[Verdict]:
    """Judge comparison after comparison; a group that breaks off is a failed row."""
    for name, comparisons in groups:
        start_ns = clock.now_ns()
        while True:
            try:
                comparison = next(comparisons, None)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong, the other groups are worth running
                seconds = (clock.now_ns() - start_ns) / _NS_PER_S
                note = f"{type(error).__name__}: {error}"
                yield Verdict(name, float("nan"), float("nan"), EXACT, seconds, is_ok=False, note=note)
                break
            if comparison is None:
                break
            seconds = (clock.now_ns() - start_ns) / _NS_PER_S
            yield verdict_on(comparison, seconds, is_float32=is_float32)
            start_ns = clock.now_ns()


def compare(options: argparse.Namespace, clock: Clock) -> Iterator[Verdict]:
    """Everything there is to compare in the directory."""
    device, dtype = torch.device(options.device), _DTYPES[options.dtype]
    claim(device)
    vocoder_dtype = _DTYPES[options.vocoder_dtype]
    is_float32 = dtype == vocoder_dtype == torch.float32
    with np.load(options.directory / f"{options.size}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    model = made_model(options, arrays, device, dtype)
    batch = BatchPlan(options.seed, graphs=options.graphs)
    if isinstance(model.vocoder, CausalVocoder):
        files = parity_third.ThirdFiles(options.directory)
        third = parity_third.groups(model, arrays, device, files, batch if options.engine else None, options.size)
        yield from run_groups(third, is_float32=is_float32, device=device, clock=clock)
        return
    recorded = parity_cases.Recorded(arrays, device, parity_cases.FEATURE_TOLERANCE[options.size])
    yield from run_groups(parity_cases.groups(model, recorded), is_float32=is_float32, device=device, clock=clock)
    if options.engine:
        engine = parity_engine.groups(model, recorded, batch)
        yield from run_groups(engine, is_float32=is_float32, device=device, clock=clock)
        del engine
    del model
    spec = parity_spec.SpecData(options.directory, device, dtype, vocoder_dtype)
    yield from run_groups(parity_spec.groups(spec), is_float32=is_float32, device=device, clock=clock)


def absent_files(options: argparse.Namespace) -> Sequence[str]:
    """The files that a directory of its generation may have and this one has not."""
    shapes = read_shapes(options.directory / f"{options.size}_state_dict.json")
    if generation_of("llm", shapes["llm"]) > 2:
        return [name for name in parity_third.FILES if not (options.directory / name).is_file()]
    return parity_spec.absent(parity_spec.SpecData(options.directory, torch.device("cpu"), torch.float32))


def row(verdict: Verdict) -> str:
    ok = "failed" if not verdict.is_ok else "ok" if verdict.is_judged else "-"
    figures = f"{verdict.max_error:10.2e} · {verdict.snr_db:7.1f} · {verdict.tolerance:9.0e}"
    return f"{verdict.case:<34} · {figures} · {ok}" + (f" · {verdict.note}" if verdict.note else "")


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory in use so far: of the device, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def device_name(device: torch.device) -> str:
    """What people call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()


def as_json(
    verdicts: Sequence[Verdict], options: argparse.Namespace, absent: Sequence[str], seconds: float
) -> dict[str, Any]:
    """The table, where it was made and how long it took; what is not finite is null."""
    device = torch.device(options.device)
    return {
        "size": options.size,
        "device": options.device,
        "device_name": device_name(device),
        "torch": torch.__version__,
        "dtype": options.dtype,
        "vocoder_dtype": options.vocoder_dtype,
        "engine": options.engine,
        "seed": options.seed,
        "graphs": options.graphs,
        "peak_memory_bytes": peak_memory_bytes(device),
        "seconds": round(seconds, 1),
        "ok": all(verdict.is_ok for verdict in verdicts),
        "absent": list(absent),
        "cases": [
            {
                "case": verdict.case,
                "max_abs_error": _finite(verdict.max_error),
                "snr_db": _finite(verdict.snr_db),
                "tolerance": verdict.tolerance,
                "judged": verdict.is_judged,
                "ok": verdict.is_ok,
                "seconds": round(verdict.seconds, 4),
                "note": verdict.note,
            }
            for verdict in verdicts
        ],
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with the head sizes of the size where none are given."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--size", choices=list(HEAD_DIM), default="tiny")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--dtype", choices=list(_DTYPES), default="float32", help="of language model and flow")
    parser.add_argument(
        "--vocoder-dtype",
        choices=list(_DTYPES),
        default="float32",
        help="of the vocoder, which is served in float32; pitch and source are float32 in any case",
    )
    parser.add_argument(
        "--lm-head-dim",
        "--estimator-head-dim",
        "--head-dim",
        dest="head_dim",
        type=int,
        help="of language model and estimator; 16 for tiny, 64 for full",
    )
    parser.add_argument("--engine", action="store_true", help="the engine's runners, too, among random sequences")
    parser.add_argument("--seed", type=int, default=0, help="of those sequences; 0 when left out")
    parser.add_argument("--graphs", action="store_true", help="with --engine on a CUDA device: replay CUDA graphs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    options = parser.parse_args(arguments)
    options.head_dim = options.head_dim or HEAD_DIM[options.size]
    if options.device.partition(":")[0] not in {"cpu", "cuda"}:
        parser.error(f"{options.device} is neither cpu nor cuda")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device here")
    if options.graphs and not (options.engine and options.device.startswith("cuda")):
        parser.error("--graphs needs --engine and a CUDA device: CUDA graphs are of the engine's runners")
    for name in (f"{options.size}.npz", f"{options.size}_state_dict.json"):
        if not (options.directory / name).is_file():
            parser.error(f"{options.directory} has no {name}")
    return options


def main(arguments: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Compare, print the table and return the exit status."""
    options = parse(arguments)
    clock = clock or MonotonicClock()
    start_ns = clock.now_ns()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    say = sys.stdout.write
    say(f"{options.size} · {device_name(torch.device(options.device))} · torch {torch.__version__} · ")
    say(f"{options.dtype}, vocoder {options.vocoder_dtype}\n")
    say(f"{'case':<34} · {'max error':>10} · {'SNR dB':>7} · {'tolerance':>9} · ok\n")
    verdicts = []
    try:
        with torch.inference_mode():
            for verdict in compare(options, clock):
                verdicts.append(verdict)
                say(row(verdict) + "\n")
                sys.stdout.flush()
    except (CcTtsError, ValueError, KeyError) as error:
        sys.stderr.write(f"{options.directory}: {type(error).__name__}: {error}\n")
        return 2
    absent = absent_files(options)
    if absent:
        say(f"not there, so not compared: {', '.join(absent)}\n")
    if not all(verdict.is_judged for verdict in verdicts):
        say("- : the tolerances are those of float32 and were not held up\n")
    failed = [verdict.case for verdict in verdicts if not verdict.is_ok]
    say(f"{len(verdicts)} compared, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}\n")
    seconds = (clock.now_ns() - start_ns) / _NS_PER_S
    of_what = " of the device" if options.device.startswith("cuda") else ""
    peak_mib = peak_memory_bytes(torch.device(options.device)) / _BYTES_PER_MIB
    say(f"{seconds:.1f} s, at most {peak_mib:,.0f} MiB{of_what}\n")
    if options.json:
        result = as_json(verdicts, options, absent, seconds)
        options.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 1 if failed else 0
