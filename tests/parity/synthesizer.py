"""From text to audio, one utterance at a time: tokenizer, language model, flow, vocoder (§3, §6, §7.5).

::

    text ─▸ text tokens ─▸ generation.speak ─▸ speech tokens ─▸ AudioTrack ─▸ audio        hop by hop
                                                            └─▸ flow, speed, vocoder       in one piece

The same speaker, text, seed and way give the same audio. Runs on: the thread that owns the device.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice2.model.loader import SpeechModel
from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice2.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import LengthLimits, LmRequest
from cc_tts.engines.cosyvoice2.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice2.runners.sampler import forbid
from cc_tts.engines.cosyvoice2.voice.speakers import Speaker
from cc_tts.engines.cosyvoice2.voice.spoken_text import as_sentence
from cc_tts.engines.cosyvoice2.voice.text_front import MAX_SEED
from cc_tts.engines.engine_core import check_speed
from cc_tts.errors import Unprocessable
from lab.cosyvoice2.whole_flow import whole_mel
from lab.cosyvoice2.whole_vocoder import vocode
from tests.parity.audio_track import (
    AudioTrack,
    NotFinite,
    SourceDraws,
    check_finite,
)
from tests.parity.bistream import SteppedBistream
from tests.parity.generation import CachedSequence, speak
from tests.parity.samplers import SeededRas, forbidden_row

MAX_POSITIONS: Final = 4096
"""Of one sequence of the language model: prompt, text and the longest speech that the text may become."""

_FULL_SCALE: Final = 32767
_SPEECH_PER_TEXT: Final = 3
"""Speech tokens of an interleaved group to each of its text tokens (§3.5)."""


class CheckedRas(SeededRas):
    """The seeded sampler, which refuses to draw from what are no numbers."""

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """Draw.

        Raises:
            NotFinite: a log-probability is not a number, or all ids are impossible.

        """
        if not math.isfinite(float(log_probs.max())):
            raise NotFinite("language model")
        return super().__call__(log_probs, history)


class Synthesizer:
    """Speaks with the three networks.

    Args:
        model: the networks, from ``load_model``.
        tokenizer: of the same model directory.
        noise: what the flow starts from, [1, mels, frames]; that of the reference, when left out. Prompt and speech together
            cannot be longer.
        compat: do as the reference does where it does worse (§12), but for the vocoder: see ``with_coarse_phase``.

    """

    def __init__(
        self,
        model: SpeechModel,
        tokenizer: TextTokenizer,
        *,
        noise: Tensor | None = None,
        compat: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.compat = compat
        self._noise = (fixed_noise() if noise is None else noise).to(model.lm.device)

    @property
    def rate_hz(self) -> int:
        """Sample rate of the audio, Hz."""
        return self.model.vocoder.config.sample_rate_hz

    def speak(
        self, speaker: Speaker, text: str, *, seed: int, speed: float = 1.0, stream: bool = True
    ) -> Iterator[Tensor]:
        """Audio of a text that is there as a whole: pieces [samples], float32; none, when there is nothing to be said.

        Args:
            speaker: who speaks.
            text: what is said.
            seed: 0 to ``MAX_SEED``.
            speed: how fast, 0.5 to 2. Other than 1 needs the whole mel, so the audio comes in one piece.
            stream: pieces as they are ready, the first after 28 speech tokens; otherwise one, as the reference makes it.

        Raises:
            Unprocessable: the text is too long for the model, or seed or speed are out of bounds.
            ModelError: the speaker does not fit the model.
            EngineFailed: a network gave what are no numbers (on iteration).

        """
        check_speed(speed)
        _check_seed(seed)
        request = speaker.lm_request(self.tokenizer, self.tokenizer.encode(as_sentence(text)))
        speaker.check_fits(self.model.lm.config, self.model.flow.config)
        self._check_length(request, speaker, request.limits.max_len)
        if stream and speed == 1.0:
            return self._hops(speaker, request, seed)
        return self._in_one_piece(speaker, request, seed, speed)

    def speak_streamed(self, speaker: Speaker, pieces: Iterable[str], *, seed: int) -> Iterator[Tensor]:
        """Audio of a text that comes in pieces, which are joined as they are, see :class:`InterleavedSpeech`."""
        speech = self.interleaved(speaker, seed=seed)
        for piece in pieces:
            speech.add_text(piece)
            while (audio := speech.next_audio()) is not None:
                yield audio
        speech.end_text()
        while (audio := speech.next_audio()) is not None:
            yield audio

    def interleaved(self, speaker: Speaker, *, seed: int) -> "InterleavedSpeech":
        """Begin to speak a text that will come later; errors as of :meth:`speak`."""
        _check_seed(seed)
        speaker.check_fits(self.model.lm.config, self.model.flow.config)
        return InterleavedSpeech(self, speaker, seed=seed)

    @torch.inference_mode()
    def track(self, speaker: Speaker, *, seed: int) -> AudioTrack:
        """Audio for the speech tokens of ``speaker``."""
        return AudioTrack(self.model, self._prompt(speaker), noise=self._noise, seed=seed, compat=self.compat)

    @torch.inference_mode()
    def _hops(self, speaker: Speaker, request: LmRequest, seed: int) -> Iterator[Tensor]:
        if not request.text:
            return
        track = self.track(speaker, seed=seed)
        for token in speak(self.model.lm, request, CheckedRas(seed), compat=self.compat):
            track.add(token)
            while (audio := track.next_audio()) is not None:
                yield audio
        track.end()
        while (audio := track.next_audio()) is not None:
            yield audio

    @torch.inference_mode()
    def _in_one_piece(self, speaker: Speaker, request: LmRequest, seed: int, speed: float) -> Iterator[Tensor]:
        tokens = list(speak(self.model.lm, request, CheckedRas(seed), compat=self.compat)) if request.text else []
        if not tokens:
            return
        prompt = self._prompt(speaker)
        mel = whole_mel(
            self.model.flow,
            torch.tensor([tokens], device=self.model.lm.device),
            prompt,
            streaming=False,
            finalize=True,
            noise=self._noise,
        )
        check_finite(mel, "flow")
        if speed != 1.0:
            mel = functional.interpolate(mel, size=max(1, int(mel.shape[2] / speed)), mode="linear")
        audio, _ = vocode(self.model.vocoder, mel, draws=SourceDraws(seed, self.model)(mel.shape[2]))
        yield check_finite(audio[0], "vocoder")

    def _prompt(self, speaker: Speaker) -> FlowReference:
        device = self.model.lm.device
        return FlowReference(
            token=torch.tensor(speaker.flow_tokens, dtype=torch.int64, device=device)[None],
            feat=torch.tensor(speaker.flow_mel, device=device)[None],
            embedding=torch.tensor(speaker.embedding, device=device)[None],
        )

    def _check_length(self, request: LmRequest, speaker: Speaker, max_speech: int) -> None:
        num_inputs = len(request.prompt_text) + len(request.text) + len(request.prompt_speech) + 2
        num_flow_tokens = len(speaker.flow_tokens) + max_speech
        if num_inputs + max_speech > MAX_POSITIONS or num_flow_tokens > self._noise.shape[2] // FRAMES_PER_TOKEN:
            raise Unprocessable(
                f"a text of {len(request.text)} tokens with this voice may be longer than the speech model can take in "
                "one piece; split it into sentences"
            )


class InterleavedSpeech:
    """Speech of a text that arrives while it is spoken: five text tokens, fifteen speech tokens, and so on (§3.5).

    Pieces of text are joined as they are; each is tokenised by itself, as in the reference. With a zero-shot speaker the
    prompt's speech is placed together with text, 15 tokens to 5, so the first sound waits for a third as many text tokens as
    the prompt has speech tokens (those of its transcript count). Where the first sound matters, use a cross-lingual or
    instruct speaker: five text tokens start the speech. A text that ends before anything was said is spoken as one piece.
    """

    def __init__(self, synthesizer: Synthesizer, speaker: Speaker, *, seed: int) -> None:
        self._synthesizer = synthesizer
        self._speaker = speaker
        lm = synthesizer.model.lm
        self._request = speaker.lm_request(synthesizer.tokenizer, ())
        synthesizer._check_length(self._request, speaker, 0)
        self._bistream = SteppedBistream(
            self._request.prompt_text,
            self._request.prompt_speech,
            speech_ids=lm.config.speech_ids,
            compat=synthesizer.compat,
        )
        self._sampler = CheckedRas(seed)
        self._track = synthesizer.track(speaker, seed=seed)
        self._sequence: CachedSequence | None = None
        self._text: list[int] = []
        self._has_text_ended = False

    @property
    def is_over(self) -> bool:
        """No audio will come any more, whatever is done."""
        return self._track.is_over

    def add_text(self, piece: str) -> None:
        """More text.

        Raises:
            Unprocessable: with it the text is too long for the model.

        """
        ids = self._synthesizer.tokenizer.encode(piece)
        text = [*self._text, *ids]
        request = LmRequest(tuple(text), self._request.prompt_text, self._request.prompt_speech)
        max_speech = LengthLimits.of_text(len(text)).max_len + _SPEECH_PER_TEXT * len(text)
        self._synthesizer._check_length(request, self._speaker, max_speech)
        self._text = text
        self._bistream.add_text(ids)

    def end_text(self) -> None:
        """There will be no more text."""
        self._has_text_ended = True
        self._bistream.end_text()

    @torch.inference_mode()
    def next_audio(self) -> Tensor | None:
        """The next piece [samples]; ``None`` while more text is needed, and when all is spoken.

        Raises:
            EngineFailed: a network gave what are no numbers, or speech would not end.

        """
        while (audio := self._track.next_audio()) is None and not self.is_over:
            step = self._bistream.next_step()
            if step is None:
                if not self._has_text_ended:
                    return None
                self._track.end()
                continue
            log_probs = self._cache().feed(step.inputs)
            drawn = step.forced
            if drawn is None:
                forbidden = forbidden_row(step.forbidden, log_probs.device)
                drawn = self._sampler(forbid(log_probs, forbidden), self._bistream.history)
            token = self._bistream.take(drawn)
            if token is not None:
                self._track.add(token)
        return audio

    def _cache(self) -> CachedSequence:
        if self._sequence is None:
            self._sequence = CachedSequence(self._synthesizer.model.lm, num_positions=MAX_POSITIONS)
        return self._sequence


def to_pcm(audio: Tensor) -> bytes:
    """Audio [samples] in ±1 as signed 16-bit little-endian; what is louder, as crossfades can be, is clipped."""
    samples = (audio.detach().to("cpu", torch.float32).clamp(-1.0, 1.0) * _FULL_SCALE).round()
    return samples.numpy().astype("<i2").tobytes()


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= MAX_SEED:
        raise Unprocessable(f"a seed of {seed} is not between 0 and {MAX_SEED}")
