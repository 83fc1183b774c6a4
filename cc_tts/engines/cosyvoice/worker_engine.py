"""The engine that a worker drives, made from its settings.

Runs on: the thread that owns the device.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from cc_tts import logs
from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.gpu_driver import installed_driver, why_no_gpu
from cc_tts.engines.cosyvoice.model.download import cache_folder
from cc_tts.engines.cosyvoice.model.loader import generation_of_directory
from cc_tts.engines.cosyvoice.model.networks.compiling import UNCOMPILED, compiler_fault, keep_compiled_in
from cc_tts.engines.cosyvoice.model.networks.int8 import can_quantise
from cc_tts.engines.cosyvoice.voice.speakers import Speaker, built_in_speakers, enrolled_speakers
from cc_tts.engines.engine_core import EngineLoader
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import ConfigError
from cc_tts.voices.library import VoiceLibrary

DTYPES: Final[Mapping[str, torch.dtype | None]] = {
    "auto": None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

HAS_FLOAT8: Final = (8, 9)  # the compute capability that has e4m3: Ada and later
CUDA_GUARD_MS: Final = 60.0  # at least: a card whose calls take long has more; unmeasured
CPU_GUARD_MS: Final = 250.0
"""How long before its listener runs dry a piece is due. What a processor does besides makes single calls take up to 2.5
times as long as they did before and do after (docs/engine-notes.md).
"""
CUDA_CALIBRATION_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
CPU_CALIBRATION_ROWS: Final = (1,)
"""How many streams are spoken at a time at start-up, to measure what the stages cost."""

log = logs.get(__name__)


def make_loader(settings: WorkerSettings) -> EngineLoader:
    """Return what loads the engine. Raises ``ConfigError`` when the device cannot be used."""
    tts = settings.tts
    ((name, model),) = tts.models.items()
    device = choose_device(settings.device)
    check_build(device)
    check_page_type(model.page_type, device)
    model_dir = Path(model.model_dir)
    voices_dir = Path(tts.voices_dir) if tts.voices_dir else None
    is_cuda = device.type == "cuda"
    calibration_rows = CUDA_CALIBRATION_ROWS if is_cuda else CPU_CALIBRATION_ROWS
    config = BatchedConfig(
        engine=EngineConfig(
            first_audio_target_ms=tts.first_audio_target_ms,
            guard_ms=CUDA_GUARD_MS if is_cuda else CPU_GUARD_MS,
            max_streams=tts.max_streams,
            max_utilisation=tts.max_utilisation,
            first_hop_tokens=model.first_hop_tokens,
            interleaved=model.interleaved_text,
            stops_runaways=model.stop_runaways,
            admits_all=settings.purpose == "say",
        ),
        model=name,
        device=device,
        dtype=DTYPES[model.dtype],
        int8=not is_cuda and model.dtype == "auto" and can_quantise(),
        flow_steps=model.flow_steps,
        page_type=model.page_type,
        kernels=model.kernels,
        fuses=model.graphs == "compiled",  # no card has run these kernels yet, so they are asked for
        flow_context=model.flow_context_s,  # a chunk is a second
        num_threads=1 if is_cuda else tts.num_threads,
        memory_bytes=model.state_memory_bytes,
        graphs=model.graphs is not False,
        overlaps=model.overlap,
        compiles=is_cuda and model.graphs == "compiled" and may_compile(),
        checks_only=settings.purpose == "check",
        calibration_rows=() if settings.purpose == "say" else calibration_rows,  # nobody is refused there
    )
    faults: list[str] = []

    def speakers() -> dict[str, Speaker]:
        found = load_speakers(model_dir, voices_dir, faults)
        return dict(sorted(found.items(), key=lambda pair: pair[0] != tts.voice))  # the first is measured with

    return BatchedLoader(model_dir, speakers, config, faults=faults)


def choose_device(wanted: str) -> torch.device:
    """The device of a setting; ``auto`` is a CUDA device if there is one, and a CPU with a warning if not. Raises
    ``ConfigError`` when a named one is not there.
    """
    if wanted == "auto" and not torch.cuda.is_available():
        found, remedy = _why_no_gpu()
        detail = f"no GPU was found, so the neural engine runs on the CPU, which is far too slow for calls: {found}"
        log.warning("no_gpu", detail=detail, remedy=f'{remedy}; tts.devices = ["cpu"] says that a CPU is meant')
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if device.type == "cuda":
        num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= num_devices:
            why = "" if num_devices else "; {}; {}".format(*_why_no_gpu())
            raise ConfigError(f"tts.devices: there is no {wanted} here: torch sees {num_devices} CUDA devices{why}")
    return device


def may_compile() -> bool:
    """Return whether code can be compiled here; what lacks is a warning. What is compiled is kept beside the models."""
    fault = compiler_fault()
    if fault:
        log.warning("not_compiled", detail=fault, remedy=UNCOMPILED)
    keep_compiled_in(cache_folder() / "inductor")
    return not fault


def _why_no_gpu() -> tuple[str, str]:
    return why_no_gpu(torch.__version__, torch.version.cuda or "", installed_driver())


def check_build(device: torch.device) -> None:
    """Raise ``ConfigError`` if this build of PyTorch has no kernels for ``device``, with the build that has."""
    if device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    built = torch.cuda.get_arch_list()
    if any(_runs_on(arch, major, minor) for arch in built):
        return
    name, has = torch.cuda.get_device_name(device), ", ".join(built) or "no GPU"
    raise ConfigError(
        f"tts.devices: {name} is sm_{major}{minor}, and this PyTorch ({torch.__version__}) is built for {has}; a V100 "
        "(sm_70) needs PyTorch 2.10 for CUDA 12, requirements/gpu-cuda12.lock, or one of CUDA 12.6, older than 2.15"
    )


def check_page_type(page_type: str, device: torch.device) -> None:
    """Raise ``ConfigError`` if a card does not have the type of pages."""
    if page_type == "float8" and device.type == "cuda" and torch.cuda.get_device_capability(device) < HAS_FLOAT8:
        name = torch.cuda.get_device_name(device)
        raise ConfigError(
            f'page_type: {name} has no 8-bit floating-point numbers; "int8" takes as little memory and is more exact'
        )


def _runs_on(arch: str, major: int, minor: int) -> bool:
    """Return whether what was built for ``arch``, such as ``sm_90`` or ``compute_120``, runs on a device of this
    capability.
    """
    kind, _, digits = arch.partition("_")
    number = re.match(r"\d+", digits)
    if number is None:
        return False
    built = divmod(int(number[0]), 10)
    if kind == "compute":  # compiled by the driver for what is newer
        return built <= (major, minor)
    return built[0] == major and built[1] <= minor and (digits[-1].isdigit() or built[1] == minor)


def load_speakers(model_dir: Path, voices_dir: Path | None, faults: list[str]) -> Mapping[str, Speaker]:
    """Every voice: those of the model, and those that were enrolled, which win. ``faults`` tells the enrolled ones that
    cannot be used, and why. Raises ``ConfigError`` without any voice.
    """
    speakers, left_out = dict(built_in_speakers(model_dir)), list[str]()
    generation = generation_of_directory(model_dir)
    if voices_dir is not None:
        library = VoiceLibrary(voices_dir)
        unreadable = library.faults()
        for fault in unreadable:
            log.warning("voice_unreadable", detail=fault)
        speakers |= enrolled_speakers(library, generation, on_fault=left_out.append)
        for fault in left_out:
            log.warning("voice_unusable", detail=fault)
        faults[:] = [*unreadable, *left_out]
    if not speakers:
        where = f"tts.voices_dir ({voices_dir})" if voices_dir is not None else "tts.voices_dir, which is empty"
        raise ConfigError(
            f"there is no voice to speak with in {where}{''.join(f'; {fault}' for fault in left_out[:1])}; enrol one: "
            "cc-tts voices enrol ID --wav FILE --transcript TEXT --language TAG"
        )
    return speakers
