"""Speakers for the small model of ``tiny_model``: one of each mode, of made-up numbers."""

from typing import Any

import numpy as np

from cc_tts.engines.cosyvoice.voice.speakers import Mode, Speaker
from lab.cosyvoice.tiny_model import NUM_CODES, random_values


def tiny_speaker(mode: Mode, *, num_prompt: int = 45, **changes: Any) -> Speaker:
    """A speaker of ``mode``, whose id that is, too; ``changes`` are fields of ``Speaker``."""
    is_builtin = mode == "builtin"
    tokens = (np.arange(num_prompt) * 7 % NUM_CODES).astype(np.int32)
    fields: dict[str, Any] = {
        "id": mode,
        "language": "en",
        "mode": mode,
        "prompt_text": {"zero_shot": "please hold the line.", "instruct": "thank you"}.get(mode, ""),
        "llm_tokens": tokens if mode == "zero_shot" else tokens[:0],
        "flow_tokens": tokens[:0] if is_builtin else tokens,
        "flow_mel": random_values("mel", (2 * num_prompt, 80))[: 0 if is_builtin else None],
        "embedding": random_values("embedding", (192,)),
    }
    return Speaker(**{**fields, **changes})
