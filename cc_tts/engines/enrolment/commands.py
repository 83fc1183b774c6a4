"""``cc-tts voices enrol | remove | enrolled``: the voices of your own recordings. ``add`` is in ``public``.

None of them starts an engine.
"""

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from cc_tts.config.schema import Config
from cc_tts.config.sections.models import MAIN, of_model
from cc_tts.engines.enrolment.recording import read_recording
from cc_tts.errors import AudioUnreadable, ConfigError, did_you_mean
from cc_tts.voices.embedding_cache import VoiceMetadata
from cc_tts.voices.enrolment import (
    MAX_TRANSCRIPT_CHARS,
    PromptUnusable,
    ReferenceEncoder,
    ReferenceRecording,
    check_recording,
    enrol,
    spoken_words,
)
from cc_tts.voices.library import MODES, VoiceLibrary, VoiceRecord, check_id, check_plain, check_record
from cc_tts.voices.public.command import fill_add, voices_folder

MAX_WAV_BYTES: Final = (
    100_000_000  # thirty seconds in stereo at the highest rate and width that are read are 92 MB; unmeasured
)

_ENGINE: Final = "cosyvoice2"  # the engine of these voices
_NO_KEY: Final = "0" * 64
_MAX_TRANSCRIPT_BYTES: Final = 4 * MAX_TRANSCRIPT_CHARS


def add_voice_commands(
    voices: argparse.ArgumentParser,
    *,
    normalize: Callable[[str, str], str],  # from a transcript and its language to the words that are spoken
    parents: Sequence[argparse.ArgumentParser],  # with the options that every command takes (``--config``, ``--set``)
) -> None:
    """Add ``enrol``, ``add``, ``remove`` and ``enrolled`` to ``cc-tts voices``, which still runs without any of them."""
    commands = voices.add_subparsers(title="your own voices", metavar="COMMAND")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--voices", type=Path, metavar="DIR", help="where voices are kept (tts.voices_dir)")
    shared = [*parents, folder]
    of_one = argparse.ArgumentParser(add_help=False)
    of_one.add_argument("--model", default="", metavar="NAME", help="which of tts.models, if there are several")

    new = commands.add_parser("enrol", parents=shared, help="make a voice of a recording")
    new.add_argument("id", metavar="ID", help="its name from now on, such as anna")
    new.add_argument("--wav", type=Path, required=True, metavar="FILE", help="1 to 30 s of one person, best 3 to 8 s")
    words = new.add_mutually_exclusive_group()
    words.add_argument("--transcript", metavar="TEXT", help="what is said in the recording, word for word")
    words.add_argument("--transcript-file", type=Path, metavar="FILE", help="the same from a file in UTF-8")
    new.add_argument("--language", required=True, metavar="TAG", help="BCP 47 tag of what it speaks, such as en-GB")
    new.add_argument("--mode", choices=MODES, default="zero_shot", help="how the recording is used (zero_shot)")
    new.add_argument("--instruction", default="", metavar="TEXT", help="how to speak; with --mode instruct")
    new.add_argument("--description", default="", metavar="TEXT", help="a remark for people")
    new.add_argument("--model", default="", metavar="NAME|DIR", help="one of tts.models, or a model directory")
    new.add_argument("--keep-whole", action="store_true", help="keep the whole recording, not its last 7.5 s at most")
    new.add_argument("--replace", action="store_true", help="take the place of a voice of this name")
    new.set_defaults(run=partial(run_enrol, normalize=normalize))

    fill_add(commands.add_parser("add", parents=shared, help="fetch a public neural voice for the CPU"))

    remove = commands.add_parser("remove", parents=[*shared, of_one], help="forget a voice")
    remove.add_argument("id", metavar="ID", help="a voice of `cc-tts voices enrolled`")
    remove.set_defaults(run=run_remove)

    enrolled = commands.add_parser("enrolled", parents=[*shared, of_one], help="list your own voices; starts no engine")
    enrolled.set_defaults(run=run_enrolled)


def run_enrol(options: argparse.Namespace, config: Config, *, normalize: Callable[[str, str], str]) -> int:
    """Check the input, compute the features, and keep the voice under its name."""
    config = _of_model(options, config)
    library = VoiceLibrary(voices_folder(options, config))
    wav = options.wav
    recording = _recording(wav)
    model = _model_dir(options, config)
    transcript = _transcript(options)
    record = VoiceRecord(
        id=check_id(options.id),
        language=options.language,
        mode=options.mode,
        key=_NO_KEY,
        instruction=options.instruction.strip(),
        description=options.description.strip(),
    )
    check_record(record)
    if library.has(record.id) and not options.replace:
        raise ConfigError(f"a voice {record.id!r} is there already; choose another name, or give --replace")
    if importlib.util.find_spec("safetensors") is None:
        raise ConfigError(
            "voices are kept with safetensors, which is not installed: "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural` for a CPU"
        )
    voice = enrol(
        recording,
        None if transcript is None else spoken_words(transcript, lambda text: normalize(text, record.language)),
        reference_encoder(model),
        name=wav.name,
        cache=library.features,
        announced=lambda: _announced(f"{wav.name}: {recording.duration_s:.1f} s"),
        trim_to_chunk=not options.keep_whole,
    )
    library.store(msgspec.structs.replace(record, key=voice.key))
    _print(f"warning: {warning}" for warning in voice.warnings)
    tokens = f"{len(voice.llm_tokens)} speech tokens ({len(voice.flow_tokens)} for the flow)"
    form = f"{record.id}: {record.language}, {record.mode}, {voice.duration_s:.1f} s, {tokens}"
    _print([form, f"kept in:  {library.folder}", f"try it:   {_next_command(options, config, record.id)}"])
    return 0


def run_remove(options: argparse.Namespace, config: Config) -> int:
    """Delete the voice that the arguments name."""
    library = _library(options, config)
    library.remove(options.id)
    _print([f"removed {options.id} from {library.folder}"])
    return 0


def run_enrolled(options: argparse.Namespace, config: Config) -> int:
    """List the library, a line a voice and its warnings below; 1 if anything in it cannot be used."""
    library = _library(options, config)
    records, faults = library.records(), list(library.faults())
    known = {entry.key: entry for entry in library.features.entries()}
    for record in records:
        entry = known.get(record.key)
        if entry is None:
            faults.append(f"{record.id}: its features are missing or damaged; enrol it again")
        _print(_listed(record, entry))
    if not records and not faults:
        sys.stderr.write(f"no voices in {library.folder}; `cc-tts voices enrol` makes one\n")
    for fault in faults:
        sys.stderr.write(f"cc-tts: {fault}\n")
    return 1 if faults else 0


def _listed(record: VoiceRecord, entry: VoiceMetadata | None) -> list[str]:
    length = f"{entry.duration_s:5.1f} s {entry.num_llm_tokens:4} tokens" if entry else "no features"
    line = f"{record.id:24} {record.language:12} {record.mode:14} {length:19} {record.description}".rstrip()
    return [line, *(f"  warning: {warning}" for warning in (entry.warnings if entry else ()))]


@contextmanager
def _announced(what: str) -> Iterator[None]:
    """Report the slow part: reading and running 500 MB of networks."""
    sys.stderr.write(f"{what}; loading 500 MB of networks and listening … ")
    sys.stderr.flush()
    outcome = "failed"
    try:
        yield
        outcome = "done"
    finally:
        sys.stderr.write(f"{outcome}\n")


def _library(options: argparse.Namespace, config: Config) -> VoiceLibrary:
    models, name = config.tts.models, options.model
    if name and name not in models:
        raise ConfigError(f"--model: no model of tts.models is called {name[:80]!r}{did_you_mean(name, models)}")
    return VoiceLibrary(voices_folder(options, config if options.voices else _of_model(options, config)))


def _of_model(options: argparse.Namespace, config: Config) -> Config:
    """Return the configuration with only the chosen model, or unchanged if a directory is given or there is no model."""
    models, name = config.tts.models, options.model
    if len(models) > 1 and not name:
        raise ConfigError(f"which model? There are several: give --model with one of {', '.join(models)}")
    if models and name and name not in models and not Path(name).expanduser().is_dir():
        near = did_you_mean(name, models)
        raise ConfigError(
            f"--model: there is no directory {name[:80]!r}, and no model of tts.models is called so{near}"
        )
    name = name or next(iter(models), "")
    return replace(config, tts=of_model(config.tts, name)) if name in models else config


def _model_dir(options: argparse.Namespace, config: Config) -> Path:
    """The directory of the model that encodes; ``config`` has no other model if one of it is meant."""
    models = config.tts.models
    if not models and not options.model:
        raise ConfigError(
            "which model is to encode the recording? Give --model DIR, or set model_dir in [tts.models.main]; `cc-tts model "
            "download` fetches one"
        )
    is_named = not options.model or options.model in models
    model = Path(next(iter(models.values())).model_dir if is_named else options.model).expanduser()
    if not model.is_dir():
        raise ConfigError(f"{model}: no such directory; `cc-tts model download` fetches the model")
    return model


def _transcript(options: argparse.Namespace) -> str | None:
    """Return the transcript on one line; ``None`` only for a mode that needs none."""
    text: str | None = _read_text(options.transcript_file) if options.transcript_file else options.transcript
    if text is not None:
        return check_plain(" ".join(text.split()), "the transcript", max_chars=MAX_TRANSCRIPT_CHARS)
    if options.mode == "zero_shot":
        raise ConfigError(
            "what is said in the recording? Give --transcript TEXT or --transcript-file FILE, or choose "
            "--mode cross_lingual, which does without"
        )
    return None


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_TRANSCRIPT_BYTES + 1)
        if len(data) > _MAX_TRANSCRIPT_BYTES:
            raise PromptUnusable(
                f"{path}: too long for what is said in 30 s; {MAX_TRANSCRIPT_CHARS} characters at most"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        raise PromptUnusable(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PromptUnusable(f"{path}: not a text in UTF-8") from None


def _recording(wav: Path) -> ReferenceRecording:
    """Return a recording; one that no model could use is refused here, before a model is downloaded."""
    try:
        if not wav.is_file() and wav.exists():
            raise PromptUnusable(f"{wav}: not a file")
        if (num_bytes := wav.stat().st_size) > MAX_WAV_BYTES:
            raise PromptUnusable(f"{wav}: {num_bytes:,} bytes; no 30 s of speech are that long. Cut it")
        recording = read_recording(wav.read_bytes())
    except OSError as error:
        raise PromptUnusable(f"{wav}: cannot be read: {error.strerror}") from None
    except AudioUnreadable as error:
        raise PromptUnusable(f"{wav.name}: {error.detail}") from None
    check_recording(recording, name=wav.name)
    return recording


def reference_encoder(model: Path) -> ReferenceEncoder:
    from cc_tts.engines.cosyvoice.voice.encoder import CosyVoiceReferenceEncoder

    return CosyVoiceReferenceEncoder(model)


def _next_command(options: argparse.Namespace, config: Config, voice_id: str) -> str:
    """Return a command that speaks with this voice under the same settings, into another file than the recording."""
    words = ["cc-tts", "say", "Hello, how can I help?", "--voice", voice_id, "-o", f"{voice_id}-says.wav"]
    if options.config is not None:
        words += ["--config", str(options.config)]
    settings = list(options.set)
    if config.tts.engine != _ENGINE:
        settings.append(f"tts.engine={_ENGINE}")
    model = f"tts.models.{next(iter(config.tts.models), MAIN)}"
    if options.model and options.model not in config.tts.models:
        settings.append(f"{model}.model_dir={options.model}")
    if options.voices is not None:
        settings.append(f"{model}.voices_dir={options.voices}")
    for setting in settings:
        words += ["--set", setting]
    return shlex.join(words)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
