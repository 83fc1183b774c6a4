"""What a kept prompt is found by: a hash over everything that makes a difference to its audio.

The text goes in as the caller wrote it, with what decides how it is read; the version of the program stands for the rules of
reading. Other audio for the same key would be a fault, the same audio under two keys only costs room.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from cc_tts import __version__
from cc_tts.config.schema import Config
from cc_tts.speech.cached_prompt import FORMAT_VERSION
from cc_tts.speech.source import SpokenPrompt
from cc_tts.voices.library import VoiceLibrary

_LIBRARIES = ("espeakng-loader", "num2words", "soxr", "wetext")
"""What else the audio depends on, besides the model."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What stands behind the name of an engine and of its voices: another identity, other audio."""

    model: str = ""
    voices: Mapping[str, str] = field(default_factory=dict)


def engine_identity(config: Config) -> EngineIdentity:
    """Look at the libraries, the model's files (name, size, time of change) and the enrolled voices. Runs on: a thread."""
    tts = config.tts
    parts = [f"{name} {_version(name)}" for name in _LIBRARIES]
    parts += [tts.dtype, str(tts.first_hop_tokens), str(tts.interleaved_text)]
    if tts.model_dir:
        parts += _files(Path(tts.model_dir).expanduser())
    voices = {}
    if tts.voices_dir:
        for record in VoiceLibrary(Path(tts.voices_dir).expanduser()).records():
            voices[record.id] = _digest([record.key, record.mode, record.instruction, record.language])
    return EngineIdentity(_digest(parts), voices)


def prompt_key(prompt: SpokenPrompt, identity: EngineIdentity) -> str:
    """64 hexadecimal digits."""
    voice = prompt.voice
    return _digest(
        [
            str(FORMAT_VERSION),
            __version__,
            voice.engine,
            identity.model,
            voice.id,
            identity.voices.get(voice.id, ""),
            prompt.asked_language,
            prompt.language,
            repr(float(prompt.speed)),
            str(prompt.first_chunk_max_chars),
            str(prompt.chunk_max_chars),
            str(prompt.rate_hz),
            prompt.text,
        ]
    )


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _files(folder: Path) -> list[str]:
    found = []
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                status = path.stat()
                found.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    except OSError:
        pass  # the engine says what is wrong with the folder when it starts
    return found
