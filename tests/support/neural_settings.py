"""The settings of the neural engine with one model."""

from typing import Any

from cc_tts.config.sections.models import FORMER_KEYS, ModelConfig, TtsConfig


def neural_settings(model_dir: object, **keys: Any) -> TtsConfig:
    """``[tts]`` with the model of a directory; each key goes where it belongs."""
    of_model = {key: keys.pop(key) for key in (*FORMER_KEYS, "flow_context_s", "overlap") if key in keys}
    return TtsConfig(engine="cosyvoice2", models={"main": ModelConfig(model_dir=str(model_dir), **of_model)}, **keys)
