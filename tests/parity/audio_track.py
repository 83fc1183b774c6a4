"""From speech tokens to audio of one utterance, as the tokens are drawn: hops of the flow, vocoder, seams (§6).

::

    add(token) ─▸ HopSchedule ─▸ Flow.step on a fork of the voice's state ─▸ ChunkedVocoder ─▸ next_audio()

Runs on: the thread that owns the device.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS, FlowCall, HopSchedule, exact_hop
from cc_tts.engines.cosyvoice2.model.loader import SpeechModel
from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN, EncoderCache
from cc_tts.engines.cosyvoice2.model.networks.flow.estimator import EstimatorCache
from cc_tts.engines.cosyvoice2.model.networks.flow.flow import Flow, FlowState
from cc_tts.engines.cosyvoice2.model.networks.flow.state import FlowPrompt
from cc_tts.engines.cosyvoice2.runners.crossfade import ChunkedVocoder, Seam
from cc_tts.errors import EngineFailed


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


@dataclass(frozen=True, slots=True)
class VoiceState:
    """A voice on the device, and the flow's state after its prompt, which is forked, never stepped."""

    prompt: FlowPrompt
    state: FlowState


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
        voice: who speaks.
        noise: see :meth:`Flow.forward`; frames for prompt and speech.
        seed: of the vocoder's source.
        compat: hops and the last call as in the reference (``HopSchedule``).

    """

    def __init__(
        self, model: SpeechModel, voice: VoiceState, *, noise: Tensor, seed: int, compat: bool = False
    ) -> None:
        self._flow = model.flow
        self._voice = voice
        self._noise = noise
        self._vocoder = ChunkedVocoder(model.vocoder)
        self._draw = SourceDraws(seed, model)
        self._num_prompt = voice.prompt.token.shape[1]
        first_hop = CHUNK_TOKENS if compat else exact_hop(self._num_prompt)
        self._schedule = HopSchedule(self._num_prompt, hop=first_hop, compat=compat)
        self._tokens: list[int] = []
        self._has_ended = False
        self._is_over = False
        self._state: FlowState | None = None
        self._num_known = 0
        self._seam: Seam | None = None

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
        draws = self._draw(mel.shape[2] + (0 if self._seam is None else self._seam.mel.shape[2]))
        audio, self._seam = self._vocoder.push(mel, self._seam, is_last=call.finalize, draws=draws)
        if call.finalize:
            self._is_over = True
            self._state = None
        return check_finite(audio[0], "vocoder")

    def _mel(self, call: FlowCall) -> Tensor:
        """Mel frames [1, mels, 2 new tokens] of one call."""
        if not call.streaming:
            prompt = self._voice.prompt
            known = self._as_row(self._tokens[: call.num_tokens])
            voice = (prompt.token, prompt.feat, prompt.embedding)
            mel: Tensor = self._flow(known, *voice, streaming=False, finalize=call.finalize, noise=self._noise)
            return mel[:, :, FRAMES_PER_TOKEN * call.num_given :]
        num_tokens = self._num_prompt + call.num_tokens
        state = self._voice.state if self._state is None else self._state
        if self._state is None or num_tokens > state_room(state):
            next_tokens = self._num_prompt + self._schedule.needed_tokens
            max_tokens = min(next_tokens, self._noise.shape[2] // FRAMES_PER_TOKEN)
            state = with_room(self._flow, state, max(num_tokens, max_tokens), noise=self._noise)
        fresh = self._as_row(self._tokens[self._num_known : call.num_tokens])
        mel, self._state = self._flow.step(state, fresh, is_last=call.finalize, partial=True)
        self._num_known = call.num_tokens
        return mel

    def _as_row(self, tokens: list[int]) -> Tensor:
        return torch.tensor([tokens], dtype=torch.int64, device=self._noise.device)


def state_room(state: FlowState) -> int:
    """How many tokens of each sequence ``state`` can take, the prompt included."""
    return state.encoder.tokens.shape[-2] - 1


def with_room(flow: Flow, state: FlowState, max_tokens: int, *, noise: Tensor) -> FlowState:
    """A fork of ``state`` with room for ``max_tokens``; only what is kept is copied.

    A state is large, some MB a token with the published sizes (§9.3), so it grows with what is spoken.
    """
    num_rows = len(state.num_kept)
    kept = max(state.num_kept, default=0)
    encoder = flow.encoder.new_cache(num_rows, max_tokens)
    estimator = flow.estimator.new_cache(flow.config.num_steps, 2 * num_rows, max_tokens * FRAMES_PER_TOKEN)
    old = (state.encoder.tokens, state.encoder.frames, state.estimator.attention)
    new = (encoder.tokens, encoder.frames, estimator.attention)
    for source, target, scale in zip(old, new, (1, FRAMES_PER_TOKEN, FRAMES_PER_TOKEN), strict=True):
        target[..., : kept * scale, :] = source[..., : kept * scale, :]
    return replace(
        state,
        encoder=EncoderCache(
            encoder.tokens,
            encoder.frames,
            state.encoder.lookahead_context.clone(),
            state.encoder.up_context.clone(),
        ),
        estimator=EstimatorCache(estimator.attention, state.estimator.contexts.clone()),
        noise=noise,
    )


@torch.inference_mode()
def voice_state(flow: Flow, prompt: FlowPrompt, *, noise: Tensor) -> VoiceState:
    """Run the whole chunks of the prompt, once for all that the voice will say."""
    num_prompt = max(CHUNK_TOKENS, prompt.token.shape[1])
    state = flow.init_state(prompt.token, prompt.feat, prompt.embedding, noise=noise, max_tokens=num_prompt)
    return VoiceState(prompt, state)
