"""The settings of speech, and of the neural models, each in a table ``[tts.models.NAME]``."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

import msgspec

from cc_tts.config.wording import form

MAIN: Final = "main"
"""The name of a model without a name of its own: its keys are in ``[tts]``, or only its folder is known."""
FORMER_KEYS: Final = (
    "model_dir", "dtype", "graphs", "first_hop_tokens", "flow_steps", "interleaved_text", "state_memory_bytes",
    "stop_runaways",
)  # fmt: skip
"""The keys of a model that used to be keys of ``[tts]``."""
VoiceName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
MAX_INSTRUCTION_CHARS: Final = 500  # unmeasured
Instructions = Annotated[
    str,
    msgspec.Meta(
        max_length=MAX_INSTRUCTION_CHARS,
        pattern=form(r"^(?![^\x00]*<\|)[^\x00]*$(?!\n)", "text without NUL and without <|"),
    ),
]
"""How to speak, in words. ``<|`` is not allowed, since it begins the marks of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """``[tts.models.NAME]``: a model. Where ``voices_dir`` and ``devices`` are empty, those of ``[tts]`` hold."""

    model_dir: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    voices_dir: str = ""
    devices: tuple[str, ...] = ()
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    interleaved_text: bool = False
    stop_runaways: bool = True
    first_hop_tokens: Annotated[int, msgspec.Meta(ge=8, le=100)] = 12
    flow_steps: Annotated[int, msgspec.Meta(ge=5, le=10)] = 10
    page_type: Literal["auto", "int8", "float8"] = "auto"
    kernels: bool = True
    flow_context_s: Annotated[int, msgspec.Meta(ge=0, le=60)] = 0
    state_memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    graphs: bool | Literal["compiled"] = True
    overlap: bool = True

    @property
    def sound(self) -> tuple[str, int, bool, int, int, str]:
        """Return the settings that affect the sound."""
        steps = self.flow_steps, self.flow_context_s
        return self.dtype, self.first_hop_tokens, self.interleaved_text, *steps, self.page_type


@dataclass(frozen=True, slots=True, kw_only=True)
class TtsConfig:
    """``[tts]``: the engine and the limits of a prompt."""

    engine: str = "auto"
    voice: str = ""
    language: str = ""
    speed: Annotated[float, msgspec.Meta(ge=0.5, le=2.0)] = 1.0
    producer: Annotated[str, msgspec.Meta(max_length=128)] = ""
    target_dbfs: Annotated[float, msgspec.Meta(ge=-40, le=-10)] = -20.0
    max_text_chars: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5000
    first_chunk_max_chars: Annotated[int, msgspec.Meta(ge=10, le=1000)] = 60
    markdown: Literal["strip", "keep"] = "strip"
    chunk_max_chars: Annotated[int, msgspec.Meta(ge=20, le=1000)] = 200
    voices_dir: str = ""
    voice_aliases: dict[VoiceName, VoiceName] = field(default_factory=dict)
    lexicons_dir: str = ""
    lexicons: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("auto",)
    num_threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    max_streams: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0
    refuse_when_full: bool = False
    overload_wait_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 2000.0
    first_audio_target_ms: Annotated[float, msgspec.Meta(ge=10, le=600_000)] = 300.0
    max_utilisation: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    worker_start_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 7)] = 600.0
    stall_timeout_ms: Annotated[float, msgspec.Meta(ge=100, le=600_000)] = 3000.0
    workers: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    generations: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)]] = field(default_factory=dict)
    resume_on_worker_loss: bool = True
    fallback_engine: Literal["auto", "", "espeak"] = "auto"
    models: dict[str, ModelConfig] = field(default_factory=dict)


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
