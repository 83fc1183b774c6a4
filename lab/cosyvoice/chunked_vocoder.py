"""The vocoder of one stream: each chunk begins with the last eight mel frames of the one before (§5.5).

The audio of those frames is made twice and held back the first time; the two versions are crossfaded.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.runners.vocoder import CROSSFADE_FRAMES, CROSSFADE_SAMPLES, crossfade, crossfade_window


class MelToWav(Protocol):
    def __call__(
        self, mel: Tensor, *, cache_source: Tensor | None = None, draws: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Audio [B, samples] and source [B, 1, samples] of ``mel`` [B, mels, frames]."""
        ...


@dataclass(frozen=True, slots=True)
class Crossfade:
    """What a chunk leaves for the next one; copies, so that the chunk itself can go."""

    mel: Tensor  # [B, mels, 8]
    source: Tensor  # [B, 1, 3840]
    audio: Tensor  # [B, 3840], held back


class ChunkedVocoder:
    """Turns chunks of mel into chunks of audio that join. It holds no state: what is held back goes in and comes out."""

    def __init__(self, vocoder: MelToWav) -> None:
        self._vocoder = vocoder
        self._window = crossfade_window()

    def push(
        self, mel: Tensor, held: Crossfade | None, *, is_last: bool, draws: Tensor | None = None
    ) -> tuple[Tensor, Crossfade | None]:
        """Audio of the next chunk.

        Args:
            mel: new mel frames, [B, mels, T].
            held: what the chunk before left; None for the first one.
            is_last: nothing follows, so nothing is held back.
            draws: standard normal numbers for the source, [B, samples, harmonics], where samples are those of ``mel`` and of
                the crossfade before it; zeros, when left out.

        Returns:
            Audio [B, samples] and the crossfade for the next chunk, None after the last one.

        """
        if held is not None:
            mel = torch.cat((held.mel, mel), dim=2)
        if not is_last and mel.shape[2] < CROSSFADE_FRAMES:
            raise ValueError(f"a chunk of {mel.shape[2]} frames is shorter than the crossfade")
        audio, source = self._vocoder(mel, cache_source=None if held is None else held.source, draws=draws)
        if held is not None:
            audio = crossfade(audio, held.audio, self._window)
        if is_last:
            return audio, None
        left = Crossfade(
            mel=mel[:, :, -CROSSFADE_FRAMES:].clone(),
            source=source[:, :, -CROSSFADE_SAMPLES:].clone(),
            audio=audio[:, -CROSSFADE_SAMPLES:].clone(),
        )
        return audio[:, :-CROSSFADE_SAMPLES], left
