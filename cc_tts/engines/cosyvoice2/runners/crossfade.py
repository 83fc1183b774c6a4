"""The seam between chunks of audio: each one begins with the last eight mel frames of the one before (§5.5).

The audio of those frames is made twice, held back the first time, and the two versions are faded into each other.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

SEAM_FRAMES: Final = 8
SEAM_SAMPLES: Final = SEAM_FRAMES * 480


class MelToWav(Protocol):
    """What the seam needs of the vocoder."""

    def __call__(
        self, mel: Tensor, *, cache_source: Tensor | None = None, draws: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Audio [B, samples] and source [B, 1, samples] of ``mel`` [B, mels, frames]."""
        ...


def seam_window(num_samples: int = SEAM_SAMPLES) -> Tensor:
    """Rise and fall of a fade over ``num_samples``: a symmetric Hamming window twice as long, float64.

    Its halves add up to 1.08, so a seam is 0.67 dB louder than what it joins. So it is in the reference.
    """
    return torch.hamming_window(2 * num_samples, periodic=False, dtype=torch.float64, device="cpu")


def cross_fade(new: Tensor, old: Tensor, window: Tensor) -> Tensor:
    """Fade the end of ``old`` [B, n] out under the beginning of ``new`` [B, m], which comes back whole.

    Args:
        new: audio whose beginning fades in.
        old: audio whose end fades out.
        window: rise and fall, float64; half of it is faded over.

    """
    half = window.shape[0] // 2
    rise, fall = window.to(new.device).chunk(2)
    faded = new[..., :half] * rise + old[..., -half:] * fall
    return torch.cat((faded.to(new.dtype), new[..., half:]), dim=-1)


@dataclass(frozen=True, slots=True)
class Seam:
    """What a chunk leaves for the next one; copies, so that the chunk itself can go."""

    mel: Tensor  # [B, mels, 8]
    source: Tensor  # [B, 1, 3840]
    audio: Tensor  # [B, 3840], held back


class ChunkedVocoder:
    """Turns chunks of mel into chunks of audio that join. It holds no state: the seam goes in and comes out."""

    def __init__(self, vocoder: MelToWav) -> None:
        self._vocoder = vocoder
        self._window = seam_window()

    def push(
        self, mel: Tensor, seam: Seam | None, *, is_last: bool, draws: Tensor | None = None
    ) -> tuple[Tensor, Seam | None]:
        """Audio of the next chunk.

        Args:
            mel: new mel frames, [B, mels, T].
            seam: what the chunk before left; None for the first one.
            is_last: nothing follows, so nothing is held back.
            draws: standard normal numbers for the source, [B, samples, harmonics], where samples are those of ``mel`` and of
                the seam before it; zeros, when left out.

        Returns:
            Audio [B, samples] and the seam for the next chunk, None after the last one.

        """
        if seam is not None:
            mel = torch.cat((seam.mel, mel), dim=2)
        if not is_last and mel.shape[2] < SEAM_FRAMES:
            raise ValueError(f"a chunk of {mel.shape[2]} frames is shorter than the seam")
        audio, source = self._vocoder(mel, cache_source=None if seam is None else seam.source, draws=draws)
        if seam is not None:
            audio = cross_fade(audio, seam.audio, self._window)
        if is_last:
            return audio, None
        held = Seam(
            mel=mel[:, :, -SEAM_FRAMES:].clone(),
            source=source[:, :, -SEAM_SAMPLES:].clone(),
            audio=audio[:, -SEAM_SAMPLES:].clone(),
        )
        return audio[:, :-SEAM_SAMPLES], held
