"""A model directory as an engine needs it: networks and tokenizer that belong together, and voices that fit them (§1).

Runs on: the thread that owns the device.
"""

from pathlib import Path
from typing import Final

import torch

from cc_tts.engines.cosyvoice2.model.checkpoint import ModelError
from cc_tts.engines.cosyvoice2.model.loader import DtypePolicy, OnShare, SpeechModel, load_model
from cc_tts.engines.cosyvoice2.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice2.voice.speakers import Speaker
from cc_tts.errors import EngineFailed

RATE_HZ: Final = 24_000
TOKENIZER_FOLDER: Final = "CosyVoice-BlankEN"
LANGUAGES: Final = ("zh", "en", "ja", "ko", "yue")
"""Those the model was trained on; a cloned voice speaks them all."""


def load_networks(
    model_dir: Path,
    *,
    device: str | torch.device,
    policy: DtypePolicy | None,
    estimator_head_dim: int,
    compat: bool = False,
    on_share: OnShare = lambda _share: None,
) -> tuple[SpeechModel, TextTokenizer]:
    """The networks and the tokenizer of a directory; for the arguments see ``load_model``.

    Raises:
        CcTtsError: something of it cannot be used; the message says what.

    """
    model = load_model(
        model_dir,
        device=device,
        policy=policy,
        estimator_head_dim=estimator_head_dim,
        compat=compat,
        on_share=on_share,
    )
    tokenizer = TextTokenizer.from_directory(model_dir / TOKENIZER_FOLDER)
    check_tokenizer(model, tokenizer)
    rate_hz = model.vocoder.config.sample_rate_hz
    if rate_hz != RATE_HZ:
        raise EngineFailed(f"the model speaks at {rate_hz} Hz, not at {RATE_HZ}")
    return model, tokenizer


def check_tokenizer(model: SpeechModel, tokenizer: TextTokenizer) -> None:
    """Refuse a tokenizer of another model.

    Raises:
        ModelError: it has more tokens than the model.

    """
    if tokenizer.num_tokens > model.lm.config.text_vocab_size:
        raise ModelError(
            f"the tokenizer has {tokenizer.num_tokens} tokens, the model {model.lm.config.text_vocab_size}"
        )


def check_speaker(model: SpeechModel, speaker: Speaker) -> None:
    """Refuse a speaker that was made for another model.

    Raises:
        ModelError: it was.

    """
    lm, flow = model.lm.config, model.flow.config
    limits = ((speaker.llm_tokens, lm.num_speech_codes), (speaker.flow_tokens, flow.vocab_size))
    if any(tokens.size and int(tokens.max()) >= limit for tokens, limit in limits):
        raise ModelError(f"the speaker {speaker.id!r} has speech tokens that this model does not know")
    if len(speaker.embedding) != flow.num_embedding or speaker.flow_mel.shape[1] != flow.estimator.num_mels:
        raise ModelError(f"the speaker {speaker.id!r} was made for another model")
