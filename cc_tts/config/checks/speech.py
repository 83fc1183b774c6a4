"""How models, playout and the audio of clients must fit together."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_tts.config.schema import Config
from cc_tts.config.sections.models import of_model

_DEVICE: Final = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
"""The form of a model's name. It becomes part of names of environment variables, which are read in lower case, and of worker
processes.
"""


def lists(config: Config) -> Iterator[str]:
    choices = {
        "sip.transports": (config.sip.transports, '"udp", "tcp", "tls"'),
        "rtp.codecs": (config.rtp.codecs, '"PCMU", "PCMA", "G722", "L16"'),
        "tts.devices": (config.tts.devices or config.tts.workers, '"auto", "cuda:0", "cpu"'),
        "auth.algorithms": (config.auth.algorithms, '"SHA-256", "MD5"'),
    }
    yield from (f"{key} is empty; use any of {known}" for key, (chosen, known) in choices.items() if not chosen)


def playout(config: Config) -> Iterator[str]:
    playout = config.playout
    if playout.start_threshold_min_ms > playout.start_threshold_max_ms:
        yield "playout.start_threshold_min_ms is above playout.start_threshold_max_ms"
    if playout.start_threshold_max_ms > playout.window_ms:
        yield (
            "playout.start_threshold_max_ms is above playout.window_ms: a prompt that waits for that much audio would never "
            "start; raise playout.window_ms"
        )


def media(config: Config) -> Iterator[str]:
    if config.media.start_threshold_ms > config.playout.window_ms:
        yield (
            "media.start_threshold_ms is above playout.window_ms: audio that waits for that much would never start; raise "
            "playout.window_ms"
        )


def models(config: Config) -> Iterator[str]:
    tts = config.tts
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
