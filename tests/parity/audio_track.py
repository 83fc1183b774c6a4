"""From speech tokens to audio of one utterance, as the tokens are drawn: hops of the flow, vocoder, crossfades (§6).

::

    add(token) ─▸ HopSchedule ─▸ Flow ─▸ ChunkedVocoder ─▸ next_audio()

Runs on: the thread that owns the device.
"""

from functools import partial

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS, exact_hop
from cc_tts.engines.cosyvoice2.model.loader import SpeechModel
from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice2.model.networks.flow.flow import FlowReference
from cc_tts.errors import EngineFailed
from lab.cosyvoice2.chunked_vocoder import ChunkedVocoder, Crossfade
from lab.cosyvoice2.schedule import FlowCall, HopSchedule
from lab.cosyvoice2.whole_flow import whole_mel
from lab.cosyvoice2.whole_vocoder import vocode


class NotFinite(EngineFailed):
    """A network gave infinities or what is not a number; ``stage`` says which."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"the {stage} gave numbers that are not finite")
        self.stage = stage


def check_finite(values: Tensor, stage: str) -> Tensor:
    """``values``, if all of them are numbers.

    Raises:
        NotFinite: they are not.

    """
    if not bool(torch.isfinite(values).all()):
        raise NotFinite(stage)
    return values


class SourceDraws:
    """Standard normal numbers for the vocoder's source, a function of the seed and of how many were taken before."""

    def __init__(self, seed: int, model: SpeechModel) -> None:
        config = model.vocoder.config
        self._generator = torch.Generator(device="cpu").manual_seed(seed)
        self._hop_samples, self._num_harmonics = config.hop_samples, config.num_harmonics
        self._device = model.lm.device

    def __call__(self, num_frames: int) -> Tensor:
        """[1, samples, harmonics] for so many mel frames."""
        shape = (1, num_frames * self._hop_samples, self._num_harmonics)
        return torch.randn(shape, generator=self._generator, device="cpu").to(self._device)


class AudioTrack:
    """The audio of one utterance.

    Args:
        model: the networks.
        prompt: who speaks.
        noise: see :meth:`Flow.forward`; frames for prompt and speech.
        seed: of the vocoder's source.
        compat: hops and the last call as in the reference (``HopSchedule``).

    """

    def __init__(
        self, model: SpeechModel, prompt: FlowReference, *, noise: Tensor, seed: int, compat: bool = False
    ) -> None:
        self._flow = model.flow
        self._prompt = prompt
        self._noise = noise
        self._vocoder = ChunkedVocoder(partial(vocode, model.vocoder))
        self._draw = SourceDraws(seed, model)
        num_prompt = prompt.token.shape[1]
        first_hop = CHUNK_TOKENS if compat else exact_hop(num_prompt)
        self._schedule = HopSchedule(num_prompt, hop=first_hop, compat=compat)
        self._tokens: list[int] = []
        self._has_ended = False
        self._is_over = False
        self._crossfade: Crossfade | None = None

    @property
    def is_over(self) -> bool:
        """No audio will come any more."""
        return self._is_over

    def add(self, token: int) -> None:
        """One speech token more."""
        self._tokens.append(token)

    def end(self) -> None:
        """There will be no more tokens."""
        self._has_ended = True
        self._is_over = not self._tokens

    @torch.inference_mode()
    def next_audio(self) -> Tensor | None:
        """The next piece [samples], float32, if the tokens for it are there.

        Raises:
            NotFinite: a network gave no numbers.

        """
        if self._is_over:
            return None
        call = self._schedule.poll(len(self._tokens), finished=self._has_ended)
        if call is None:
            return None
        mel = check_finite(self._mel(call), "flow")
        draws = self._draw(mel.shape[2] + (0 if self._crossfade is None else self._crossfade.mel.shape[2]))
        audio, self._crossfade = self._vocoder.push(mel, self._crossfade, is_last=call.finalize, draws=draws)
        if call.finalize:
            self._is_over = True
        return check_finite(audio[0], "vocoder")

    def _mel(self, call: FlowCall) -> Tensor:
        """Mel frames [1, mels, 2 new tokens] of one call: everything is run again, as in the reference."""
        known = torch.tensor([self._tokens[: call.num_tokens]], dtype=torch.int64, device=self._noise.device)
        mel: Tensor = whole_mel(
            self._flow,
            known,
            self._prompt,
            streaming=call.streaming,
            finalize=call.finalize,
            noise=self._noise,
        )
        return mel[:, :, FRAMES_PER_TOKEN * call.num_given :]
