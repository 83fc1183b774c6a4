"""The settings of speech for each model."""

from dataclasses import replace

from cc_tts.config.sections.models import TtsConfig


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
