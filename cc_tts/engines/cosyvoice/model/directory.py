"""``cc-tts model check DIR`` and ``cc-tts model download``: checks that all files exist and are the published ones (spec
§1).

The check reads every file once. It hashes all, and where torch is installed it reads the weight files and holds their
tensors against the specification. A file that differs from the published one but has the right structure is a remark,
not a fault: fine-tuned weights are such files.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from cc_tts.engines.cosyvoice.model import checkpoint, download, sizes
from cc_tts.engines.cosyvoice.model.checkpoint import ModelError
from cc_tts.engines.cosyvoice.model.sizes import PARTS, Generation, Part

Need = Literal["engine", "enrolment", "check", "none"]
State = Literal["published", "unknown", "differs", "missing", "unused", "wrong"]

STOCK_MERGES_BYTES: Final = 1_600_000  # the stock Qwen2 merges are 1.67 MB; CosyVoice's file has fewer (spec §1)


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file of the release (spec §1): the hash is the first 16 digits of its sha256. ``0`` and empty: not known."""

    name: str
    num_bytes: int
    sha256: str
    need: Need


_SHARED: Final = (
    PublishedFile("CosyVoice-BlankEN/config.json", 659, "168aa1bd401abc3b", "engine"),
    PublishedFile("CosyVoice-BlankEN/tokenizer_config.json", 1_287, "482bd97988142337", "engine"),
    PublishedFile("CosyVoice-BlankEN/vocab.json", 2_776_833, "ca10d7e9fb3ed185", "engine"),
    PublishedFile("CosyVoice-BlankEN/merges.txt", 1_402_109, "ac8ff86a72bee708", "engine"),
    PublishedFile("campplus.onnx", 28_303_423, "a6ac6a63997761ae", "enrolment"),
    PublishedFile("CosyVoice-BlankEN/model.safetensors", 988_097_824, "130282af0dfa9fe5", "none"),
    PublishedFile("CosyVoice-BlankEN/generation_config.json", 242, "e558847a8b440261", "none"),
)
PUBLISHED: Final[Mapping[Generation, tuple[PublishedFile, ...]]] = {
    2: (
        PublishedFile("cosyvoice2.yaml", 7_330, "0af2c0d010c47718", "check"),
        PublishedFile("llm.pt", 2_023_316_821, "b144ef55b51ce8cf", "engine"),
        PublishedFile("flow.pt", 450_575_567, "ff4c2f867674411e", "engine"),
        PublishedFile("hift.pt", 83_390_254, "3386cc880324d4e9", "engine"),
        *_SHARED,
        PublishedFile("speech_tokenizer_v2.onnx", 496_082_973, "d43342aa12163a80", "enrolment"),
        PublishedFile("speech_tokenizer_v2.batch.onnx", 496_095_794, "5b45a98572ed21e3", "none"),
        PublishedFile("flow.decoder.estimator.fp32.onnx", 286_317_026, "cd54e4281701e663", "none"),
    ),
    3: (
        PublishedFile("cosyvoice3.yaml", 6_934, "", "check"),
        PublishedFile("llm.pt", 2_024_669_519, "", "engine"),
        PublishedFile("flow.pt", 1_329_116_148, "", "engine"),
        PublishedFile("hift.pt", 83_202_622, "", "engine"),
        *_SHARED,
        PublishedFile("speech_tokenizer_v3.onnx", 0, "", "enrolment"),
        PublishedFile("llm.rl.pt", 2_024_682_701, "", "none"),
        PublishedFile("flow.decoder.estimator.fp32.onnx", 0, "", "none"),
    ),
}
"""The files of each generation. Of the third the sums are not known, and of two files neither are the sizes (v3 §1)."""


def needed_files(generation: Generation) -> tuple[str, ...]:
    return tuple(file.name for file in PUBLISHED[generation] if file.need != "none")


@dataclass(frozen=True, slots=True)
class FileReport:
    """The finding about one published file."""

    name: str
    num_bytes: int | None
    state: State
    detail: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class ModelDirReport:
    """The result of the whole check."""

    directory: Path
    files: tuple[FileReport, ...]
    faults: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0: the engine can run on it; 1: it cannot."""
        return 1 if self.faults else 0

    def __str__(self) -> str:
        lines = [str(self.directory)]
        width = max((len(file.name) for file in self.files), default=0)
        for file in self.files:
            size = "-" if file.num_bytes is None else f"{file.num_bytes:,}"
            line = f"  {file.name:{width}}  {size:>13}  {file.sha256[:16]:16}  {file.state:9}  {file.detail}"
            lines.append(line.rstrip())
        lines += [f"wrong: {fault}" for fault in self.faults] + [f"note: {remark}" for remark in self.remarks]
        return "\n".join([*lines, f"This directory {'cannot' if self.faults else 'can'} be used."])


def check_model_dir(directory: Path) -> ModelDirReport:
    """Check every file of a model directory; never raises because of their content."""
    if not directory.is_dir():
        return ModelDirReport(directory, (), (f"{directory}: no such directory",), ())
    remarks: list[str] = []
    generation = _generation(directory)
    files = [_check_file(directory / each.name, each, generation, remarks) for each in PUBLISHED[generation]]
    other = checkpoint.other_description(directory)
    faults = [f"{directory} holds {other}"] if other else []
    faults += [f"{file.name}: {file.detail}" for file in files if file.state in {"missing", "wrong"}]
    if not _installed("torch"):
        remarks.append("torch is not installed here, so the tensors in the weight files were not looked at")
    elif not faults:
        from cc_tts.engines.cosyvoice.model import loader

        try:  # whether the files are of one model, as the engine will find them
            loader.check_weights(directory)
        except ModelError as error:
            faults.append(error.detail)
    return ModelDirReport(directory, tuple(files), tuple(faults), tuple(remarks))


def _generation(directory: Path) -> Generation:
    """Return the generation that the directory is meant for; the second one if it is unknown."""
    found = checkpoint.described(directory)
    if found is None and _installed("torch"):
        from cc_tts.engines.cosyvoice.model import loader

        with contextlib.suppress(ModelError):
            found = loader.generation_of_directory(directory)
    return found or 2


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


_WHY: Final[dict[Need, str]] = {
    "engine": "speaking",
    "enrolment": "enrolling voices",
    "check": "telling what model this is",
}


def _check_file(path: Path, published: PublishedFile, generation: Generation, remarks: list[str]) -> FileReport:
    size = path.stat().st_size if path.is_file() else None
    report = partial(FileReport, published.name, size)
    if published.need == "none":
        return report("unused", "not there, not needed" if size is None else "not needed")
    if size is None:
        return report("missing", f"not there; needed for {_WHY[published.need]}")
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if published.sha256 and size == published.num_bytes and sha256.startswith(published.sha256):
            return report("published", sha256=sha256)
        remarks += _check_content(path, generation)
    except OSError as error:
        return report("wrong", f"cannot be read: {error.strerror}")
    except ModelError as error:
        return report("wrong", error.detail.removeprefix(f"{path}: "), sha256)
    if not published.sha256 and size == (published.num_bytes or size):
        known = "the published size" if published.num_bytes else "no published size"
        return report("unknown", f"{known} is known, and no sum", sha256)
    differs = (
        "other content than published" if size == published.num_bytes else f"published: {published.num_bytes:,} bytes"
    )
    return report("differs", differs, sha256)


def _check_content(path: Path, generation: Generation) -> list[str]:
    """Check a file that is not the published one; returns remarks, raises ``ModelError`` if it cannot be used."""
    checkpoint.refuse_stand_in(path)
    part: Part | None = next((part for part in PARTS if path.name == f"{part}.pt"), None)
    if part is not None:
        return _check_weights(path, part, generation)
    if path.suffix == ".json":
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(path.read_bytes()), dict):
                return []
        raise ModelError(f"{path}: not a JSON object")
    if path.name == "merges.txt" and path.stat().st_size > STOCK_MERGES_BYTES:
        raise ModelError(
            f"{path}: this is the stock Qwen2 file; CosyVoice has fewer merges, and others split Chinese text"
        )
    if path.suffix == ".onnx":
        return _check_graph(path)
    return []


def _check_weights(path: Path, part: Part, generation: Generation) -> list[str]:
    if not _installed("torch"):
        return []
    from cc_tts.engines.cosyvoice.model import loader

    shapes = checkpoint.shapes_of(checkpoint.read_checkpoint(path, part))
    if (found := sizes.generation_of(part, shapes)) != generation:
        raise checkpoint.WrongModelVersion(
            f"{path.name} is of CosyVoice {found}, the directory of CosyVoice {generation}"
        )
    differences = sizes.differences(loader.check_part(path.name, part, shapes).config)
    return [f"{path.name} is of another size of model: {', '.join(differences)}"] if differences else []


def _check_graph(path: Path) -> list[str]:
    from cc_tts.engines.cosyvoice.voice import encoder as speaker_encoder

    if not _installed("onnxruntime"):
        return [f"onnxruntime is not installed here, so {path.name} was not opened"]
    if path.name == speaker_encoder.SPEAKER_FILE:
        speaker_encoder.SpeakerEncoder(path)
    else:
        speaker_encoder.SpeechTokenizer(path)
    return []


def add_model_commands(model: argparse.ArgumentParser, *, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add ``check`` and ``download`` to ``cc-tts model``; ``parents`` have the options of every command (``--config``)."""
    commands = model.add_subparsers(title="commands", required=True, metavar="COMMAND")
    check = commands.add_parser("check", parents=parents, help="is a model directory whole, and which model is it")
    check.add_argument("directory", type=Path, metavar="DIR")
    check.set_defaults(run=lambda options, _config: _print_check(options.directory))
    fetch = commands.add_parser("download", parents=parents, help="fetch a model from ModelScope (3.1 or 4.4 GB)")
    fetch.add_argument(
        "--model", choices=list(download.MODELS), default=download.DEFAULT_MODEL, help="which (%(default)s)"
    )
    default = download.default_directory(download.DEFAULT_MODEL)
    fetch.add_argument("--to", type=Path, metavar="DIR", help=f"where to ({default})")
    fetch.set_defaults(run=lambda options, _: _print_check(_download(options.model, options.to)))


def _download(model: str, to: Path | None) -> Path:
    files = needed_files(download.MODELS[model].generation)
    return download.download_model(model, to or download.default_directory(model), files=files)


def _print_check(directory: Path) -> int:
    report = check_model_dir(directory)
    sys.stdout.write(f"{report}\n")
    return report.exit_code
