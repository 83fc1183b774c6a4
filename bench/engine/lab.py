"""What every bench of the engine needs: its command line, the loaded engine, and a description of the machine."""

import argparse
import contextlib
import copy
import dataclasses
import gc
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import torch

from bench.engine.clock import BenchClock, RealClock, WorkClock
from bench.engine.front import SizedFront
from bench.engine.model import NUM_CODES, Size, model_at, voices
from bench.report import RESULTS, machine, save
from cc_tts import logs
from cc_tts.engines.cosyvoice.batched import NUM_POSITIONS, BatchedConfig, BatchedLoader, paced
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.model.loader import TOKENIZER_FOLDER, SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpeechIds
from cc_tts.engines.cosyvoice.model.networks.pages import PageType
from cc_tts.engines.cosyvoice.model.sizes import FLOW_STEPS
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.runner import ModelRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.cosyvoice.worker_engine import (
    CPU_CALIBRATION_ROWS,
    CUDA_CALIBRATION_ROWS,
    DTYPES,
    choose_device,
    may_compile,
)
from lab.server_under_test import Json

MAX_STREAMS: Final[Mapping[str, int]] = {"cpu": 32, "cuda": 512}
RULE_FILLED: Final = "weights filled by rule: speed is that of trained ones, the sound means nothing"


@dataclass(frozen=True, kw_only=True)
class Lab:
    size: Size
    model_dir: Path
    device: torch.device
    dtype: str
    graphs: bool
    overlaps: bool
    kernels: bool
    compiles: bool
    page_type: PageType
    flow_steps: int
    pages_bytes: int
    is_real_time: bool
    notes: tuple[str, ...]
    begin_s: float

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def has_work_clock(self) -> bool:
        """Whether time is that of the processor, which other programs do not make longer."""
        return not (self.is_cuda or self.is_real_time)

    def model(self) -> SpeechModel:
        return load_model(
            self.model_dir,
            device=self.device,
            dtype=DTYPES[self.dtype],
        )

    def rig(self, *, max_streams: int | None = None, num_cold: int = 0) -> "Rig":
        """The engine, loaded, warm and measured, with the memory of what was deleted before."""
        if self.is_cuda:
            gc.collect()  # a runner and its graphs know each other
            torch.cuda.empty_cache()
        return Rig(self, max_streams or MAX_STREAMS[self.device.type], voices(self.size, num_cold))

    def synchronize(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def described(self, result: Json) -> Json:
        """``result`` with what it was taken on."""
        setting: Json = {
            "size": self.size,
            "device": str(self.device),
            "dtype": self.dtype,
            "graphs": self.graphs and self.is_cuda,
            "overlaps": self.overlaps and self.is_cuda,
            "compiled": self.compiles,
            "page_type": self.page_type,
            "flow_steps": self.flow_steps,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "clock": "processor time, idle time skipped" if self.has_work_clock else "real time",
            "took_s": round(time.monotonic() - self.begin_s, 1),
        }
        if self.is_cuda:
            card = torch.cuda.get_device_properties(self.device)
            setting["card"] = {"name": card.name, "memory_gib": round(card.total_memory / 2**30, 1)}
        return {"machine": machine(), "setting": setting, "notes": list(self.notes), **result}


class Rig:
    """A loaded engine, and others over its device whose texts have the length that the bench chooses."""

    def __init__(self, lab: Lab, max_streams: int, speakers: Mapping[str, Speaker]) -> None:
        self.lab = lab
        self.clock: BenchClock = WorkClock() if lab.has_work_clock else RealClock()
        loader = BatchedLoader(
            lab.model_dir,
            lambda: speakers,
            BatchedConfig(
                engine=EngineConfig(max_streams=max_streams),
                device=lab.device,
                dtype=DTYPES[lab.dtype],
                memory_bytes=lab.pages_bytes,
                graphs=lab.graphs,
                kernels=lab.kernels,
                compiles=lab.compiles,
                fuses=lab.compiles,
                page_type=lab.page_type,
                flow_steps=lab.flow_steps,
                calibration_rows=CUDA_CALIBRATION_ROWS if lab.is_cuda else CPU_CALIBRATION_ROWS,
            ),
            clock=self.clock,
        )
        loaded = loader.load(lambda line: print(f"  {line}", flush=True))
        assert loaded is not None
        assert isinstance(loaded.device, ModelRunner)
        self.runner = loaded.device
        self._costs = loader.costs
        self._voices = tuple(speakers)
        self.max_streams = min(max_streams, self.runner.num_slots)
        self._front = SizedFront(
            TextTokenizer.from_directory(lab.model_dir / TOKENIZER_FOLDER),
            speakers,
            speech_ids=SpeechIds(NUM_CODES[lab.size]),
            num_positions=NUM_POSITIONS,
        )

    def engine(self, config: EngineConfig) -> Engine:
        """An engine with the costs as they were measured at the start; close it before the next one is used."""
        costs, config = copy.deepcopy(self._costs), dataclasses.replace(config, max_streams=self.max_streams)
        if self.lab.is_cuda:
            config = dataclasses.replace(paced(config, costs), overlaps=self.lab.overlaps)
        return Engine(self.runner, self._front, costs, config, typical_voice=self._voices[0], clock=self.clock)

    def forget_voices(self) -> None:
        """Drop the state of voices that nobody speaks with, so that the next request has to make it."""
        for voice_id in self._voices:
            self.runner.forget(voice_id)

    def kernels(self) -> Json:
        """Which kernels of ours are used."""
        form = self.runner._flow.flow.page_form  # noqa: SLF001 - nobody else asks
        return {"attention in pages by our kernel": form.in_place, "fused products": form.fused}

    def memory(self) -> Json:
        """Bytes of pages and slots, and on a card the most that torch has held."""
        arena = self.runner._flow.arena  # noqa: SLF001 - its size is of interest here only
        num_bytes = arena.bytes_per_page * arena.num_pages + arena.bytes_per_slot * arena.num_slots
        result: Json = {"state_mib": round(num_bytes / 2**20, 1), "pages": self.runner.num_pages}
        if self.lab.is_cuda:
            result["device_max_gib"] = round(torch.cuda.max_memory_allocated(self.lab.device) / 2**30, 2)
        return result


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("tiny", "full"), default="tiny", help="of the networks")
    parser.add_argument("--model-dir", type=Path, help="where the model is, or is made; a temporary folder without it")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs, on a card")
    parser.add_argument("--overlap", action=argparse.BooleanOptionalAction, default=True, help="of stages, on a card")
    parser.add_argument("--kernels", action=argparse.BooleanOptionalAction, default=True, help="of ours, on a card")
    parser.add_argument("--compiled", action="store_true", help='on a card, as graphs = "compiled" of a model')
    parser.add_argument("--page-type", choices=get_args(PageType), default="auto")
    parser.add_argument("--flow-steps", type=int, default=FLOW_STEPS)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--real-time", action="store_true", help="on a CPU, too; otherwise processor time counts there")
    parser.add_argument("--pages-gib", type=float, default=0.0, help="for the flow's pages; 0: what is free")
    parser.add_argument("--note", action="append", default=[], help="what else to know of this run; goes into the JSON")
    parser.add_argument("--name", help="save NAME.json; without it nothing is saved")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder it is saved in")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    return parser


@contextlib.contextmanager
def lab_of(arguments: argparse.Namespace) -> Iterator[Lab]:
    """What the command line asks for.

    Raises:
        ConfigError: the device is not there.

    """
    logs.configure(level="warning", json=False, process="bench")
    torch.set_num_threads(arguments.threads)
    with contextlib.ExitStack() as stack:
        folder = arguments.model_dir
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        device = choose_device(arguments.device)
        print(f"{arguments.size} on {device}, {arguments.dtype}", flush=True)
        yield Lab(
            size=arguments.size,
            model_dir=model_at(folder, arguments.size),
            device=device,
            dtype=arguments.dtype,
            graphs=arguments.graphs,
            overlaps=arguments.overlap,
            kernels=arguments.kernels,
            compiles=arguments.compiled and device.type == "cuda" and may_compile(),
            page_type=arguments.page_type,
            flow_steps=arguments.flow_steps,
            pages_bytes=int(arguments.pages_gib * 2**30),
            is_real_time=arguments.real_time,
            notes=(RULE_FILLED, *arguments.note),
            begin_s=time.monotonic(),
        )


def keep(lab: Lab, arguments: argparse.Namespace, result: Json) -> None:
    """Save what was measured so far, if a name was given."""
    if arguments.name:
        print(f"\nsaved {save(arguments.name, lab.described(result), arguments.out)}")
