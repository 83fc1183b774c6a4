"""The settings of speech for each model, and the rules for several models together."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from cc_tts.config.sections.models import TtsConfig

_DEVICE: Final = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
"""The form of a model's name. It becomes part of names of environment variables, which are read in lower case, and of worker
processes.
"""


def of_model(tts: TtsConfig, name: str) -> TtsConfig:
    """Return the settings with only this model; they include its folder of voices and its devices."""
    model = tts.models[name]
    return replace(
        tts,
        models={name: replace(model, voices_dir="", devices=())},
        voices_dir=model.voices_dir or tts.voices_dir,
        devices=model.devices or tts.devices,
    )


def each_model(tts: TtsConfig) -> tuple[TtsConfig, ...]:
    """Return the settings of each model separately, or unchanged if there is none."""
    return tuple(of_model(tts, name) for name in tts.models) or (tts,)


def faults(tts: TtsConfig) -> Iterator[str]:
    """Yield a sentence for each contradiction."""
    named = {"tts": tts.devices, **{f"tts.models.{name}": model.devices for name, model in tts.models.items()}}
    for key, device in ((key, device) for key, devices in named.items() for device in devices):
        if not _DEVICE.fullmatch(device):
            yield f"{key}.devices: {device!r} is not a device; use auto, cpu, cuda or cuda:N"
    owners: dict[Path, str] = {}
    for name in tts.models:
        if not _NAME.fullmatch(name):
            yield f"tts.models: {name[:80]!r} is no name of a model; a name is 1 to 32 of a-z 0-9 _ -"
        folder = of_model(tts, name).voices_dir
        if folder and (other := owners.setdefault(Path(folder).expanduser(), name)) != name:
            yield (
                f"tts.models.{other} and tts.models.{name} have the same voices_dir, but a voice belongs to one model: give "
                "each a voices_dir of its own"
            )
