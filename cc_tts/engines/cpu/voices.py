"""Finds the voices: hibari's packaged one and those in ``tts.voices_dir``, or espeak-ng's.

``NAME.onnx`` with ``NAME.onnx.json`` is a Piper voice; a model of hibari's further voices is told by its file name, and
``kokoro`` is the folder of Kokoro's. The packages of the models are imported where they are needed: a worker of
espeak-ng alone has no onnxruntime.
"""

from pathlib import Path

from cc_tts.engines.cpu.contract import Found


def find_models(voices_dir: Path | None) -> list[Found]:
    """Return all neural voices, the packaged one first, and the files in ``voices_dir`` that cannot be used."""
    from cc_tts.engines.cpu.hibari import hibari_models
    from cc_tts.engines.cpu.kokoro.voices import kokoro_models
    from cc_tts.engines.cpu.piper.voices import piper_models

    found: list[Found] = [*hibari_models(voices_dir)]
    return found if voices_dir is None else [*found, *kokoro_models(voices_dir), *piper_models(voices_dir)]


def find_espeak(_voices_dir: Path | None) -> list[Found]:
    """Return the voices of espeak-ng; raises ``EngineFailed`` if the library or its data cannot be loaded."""
    from cc_tts.engines.cpu.espeak import espeak_model

    return [espeak_model()]
