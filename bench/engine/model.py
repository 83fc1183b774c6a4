"""A model directory of rule-filled weights, small or of the published size, and voices of made-up numbers.

Rule-filled weights cost what trained ones do and say nothing that means anything: for speed they are as good, for quality
their figures only show whether two ways of computing agree.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch

from bench.engine.figures import TOKENS_PER_S
from cc_tts.engines.cosyvoice.model.sizes import TEXT_EMBEDDING, TIED_HEAD, FlowConfig, LmConfig, VocoderConfig
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.library import VoiceLibrary, VoiceRecord
from lab.cosyvoice import tiny_model
from lab.cosyvoice.golden_fill import fill_by_kind
from lab.cosyvoice.networks import shapes_for

Size = Literal["tiny", "full"]

PROMPT_TOKENS: Final = 113
"""4.5 s, 13 more than a multiple of 25, as enrolment leaves it: the first hop is 12."""
PROMPT_TEXT: Final = "please hold the line, your call is important to us, thank you for calling."
VOICE: Final = "cached"
NUM_CODES: Final[Mapping[Size, int]] = {"tiny": tiny_model.NUM_CODES, "full": FlowConfig().vocab_size}


def model_at(directory: Path, size: Size) -> Path:
    """``directory`` with a model in it: the one that is there, or one that is made, which at full size takes 2.5 GB."""
    if (directory / "hift.pt").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    llm = tiny_model.LLM if size == "tiny" else LmConfig()
    flow = tiny_model.FLOW if size == "tiny" else FlowConfig()
    hift = tiny_model.HIFT if size == "tiny" else VocoderConfig()
    description = f"# rule-filled\nsample_rate: 24000\nattention_head_dim: {flow.estimator.head_dim}\n"
    (directory / "cosyvoice2.yaml").write_text(description)
    tokenizer = directory / "CosyVoice-BlankEN"
    tiny_model.write_tokenizer(tokenizer)
    _describe(tokenizer / "config.json", llm)
    weights = fill_by_kind({key: shape for key, shape in shapes_for(llm).items() if key != TIED_HEAD}, "llm.")
    weights[TIED_HEAD] = weights[TEXT_EMBEDDING]
    torch.save(weights, directory / "llm.pt")
    torch.save(fill_by_kind(shapes_for(flow), "flow."), directory / "flow.pt")
    torch.save(
        fill_by_kind(shapes_for(hift), "hift."), directory / "hift.pt"
    )  # last: with it the directory is complete
    return directory


def _describe(path: Path, llm: LmConfig) -> None:
    config = json.loads(path.read_text())
    config |= {
        "hidden_size": llm.hidden_size,
        "intermediate_size": llm.intermediate_size,
        "num_hidden_layers": llm.num_layers,
        "num_attention_heads": llm.query_size // llm.head_dim,
        "num_key_value_heads": llm.num_kv_heads,
        "vocab_size": llm.text_vocab_size,
    }
    path.write_text(json.dumps(config))


def voice(voice_id: str, size: Size, *, num_prompt: int = PROMPT_TOKENS, language: str = "en") -> Speaker:
    """A zero-shot voice; its numbers depend on its id alone."""
    codes = NUM_CODES[size]
    start = sum(voice_id.encode()) % codes
    tokens = ((np.arange(num_prompt) * 7 + start) % codes).astype(np.int32)
    return Speaker(
        id=voice_id,
        language=language,
        mode="zero_shot",
        prompt_text=PROMPT_TEXT,
        llm_tokens=tokens,
        flow_tokens=tokens,
        flow_mel=tiny_model.random_values(f"mel.{voice_id}", (2 * num_prompt, 80)),
        embedding=tiny_model.random_values(f"embedding.{voice_id}", (192,)),
    )


def voices(size: Size, num_cold: int = 0) -> dict[str, Speaker]:
    """:data:`VOICE`, and so many others whose state is to be made in the request."""
    return {each.id: each for each in _voices(size, num_cold)}


def _voices(size: Size, num_cold: int) -> Iterator[Speaker]:
    yield voice(VOICE, size)
    for number in range(num_cold):
        yield voice(cold_voice(number), size)


def cold_voice(number: int) -> str:
    return f"cold-{number}"


def enrolled_voice(voices_dir: Path) -> str:
    """The id of a voice of the small model that is enrolled in this folder."""
    speaker, key = voice(VOICE, "tiny"), "0" * 64
    library = VoiceLibrary(voices_dir)
    library.features.store(
        EnrolledVoice(
            key=key,
            transcript=speaker.prompt_text,
            fingerprint="bench",
            duration_s=len(speaker.flow_tokens) / TOKENS_PER_S,
            warnings=(),
            llm_tokens=speaker.llm_tokens,
            flow_tokens=speaker.flow_tokens,
            flow_mel=speaker.flow_mel,
            embedding=speaker.embedding,
        )
    )
    library.store(VoiceRecord(id=VOICE, language="en", mode="zero_shot", key=key))
    return VOICE
