"""The text front makes inputs of the language model from text chunks, by voice (§3.2, §7.2, §7.5).

Runs on: the thread that owns the device.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits, LmRequest, SpeechIds
from cc_tts.engines.cosyvoice.model.special_tokens import plain
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.prefill import Bistream, Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runaway import pace_of
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.cosyvoice.voice.spoken_text import as_sentence
from cc_tts.engines.phonemes import to_cmu
from cc_tts.errors import Unprocessable
from cc_tts.voices.catalog import unknown_voice
from cc_tts.voices.inline_ipa import replace_pronounced, without_pronunciations
from cc_tts.voices.inline_sounds import EMPHASIS_BEGINS, EMPHASIS_ENDS, SOUNDS, with_whole_emphasis

LIKELY_SPEECH_PER_TEXT: Final = 8  # speech tokens of a text token, at most as a rule; the hard limit is 20 (§3.3)
LIKELY_SPEECH_PER_SOUND: Final = 25  # of laughter, a cough and the like, 1 s; unmeasured
MAX_SPEECH_TOKENS: Final = (
    600  # of a sequence, 24 s: twice what its text takes as a rule; sampling ends there; unmeasured
)
MAX_TEXT_TOKENS: Final = MAX_SPEECH_TOKENS // LIKELY_SPEECH_PER_TEXT  # a longer text chunk becomes several sequences
MAX_INSTRUCTION_SHARE: Final = 2  # an instruction takes at most the half of a sequence; unmeasured
NUM_CONTROL_INPUTS: Final = 2  # the inputs that begin a sequence and part its text and speech (§3.2)
MAX_SEED: Final = 2**63 - 1  # of a signed integer of a CUDA kernel
_PHONE: Final = re.compile(r"\[[A-Z]+[0-2]?\]")
_CLAUSE_END: Final = re.compile(r"[.?!,;:](?=\s)|[。？！，、；：]")
_SPACE: Final = re.compile(r"\s")


class TextFront:
    """See :class:`cc_tts.engines.cosyvoice.engine.device.TextFront`. ``num_positions``: how long a sequence may become,
    inputs and speech together.
    """

    def __init__(
        self, tokenizer: TextTokenizer, speakers: Mapping[str, Speaker], *, speech_ids: SpeechIds, num_positions: int
    ) -> None:
        self._tokenizer = tokenizer
        self._speakers = speakers
        self._speech_ids = speech_ids
        self._num_positions = num_positions
        tokens = {sign: f"[{name}]" for name, sign in SOUNDS.items()}
        tokens |= {EMPHASIS_BEGINS: "<strong>", EMPHASIS_ENDS: "</strong>"}
        self._signs = str.maketrans({sign: tokenizer.written(token) for sign, token in tokens.items()})
        self._sounds = frozenset(tokenizer.written(f"[{name}]") for name in SOUNDS)

    def instruction(self, text: str) -> tuple[int, ...]:
        """The tokens of an instruction, none if the text is blank; raises ``Unprocessable`` if they leave no room."""
        if not text.strip():
            return ()
        ids, limit = self._tokenizer.instruction(text), self._num_positions // MAX_INSTRUCTION_SHARE
        if len(ids) > limit:
            raise Unprocessable(f"instructions of {len(ids)} tokens are too long for the model: {limit} are the most")
        return ids

    def spelled(self, text: str) -> str:
        """Sounds and emphasis become tokens, and pronunciations those of English phones, which the third generation has
        (v3 §7); the words stay where a pronunciation has other sounds.
        """
        text = with_whole_emphasis(plain(text)).translate(self._signs)
        if not self._tokenizer.has_phones:
            return without_pronunciations(text)
        return replace_pronounced(text, lambda ipa, words: self._phones(ipa) or words)

    def _phones(self, ipa: str) -> str:
        return _PHONE.sub(lambda match: self._tokenizer.written(match.group()), to_cmu(ipa))

    def cut(self, text: str, instruction: Sequence[int] = ()) -> tuple[str, str]:
        """Return as much of ``text`` as a sequence may have, up to the end of a clause if it can be, and the rest."""
        num_ids, limit = len(self._tokenizer.encode_written(text)), MAX_TEXT_TOKENS
        if instruction:
            num_full_stop = 1 + LIKELY_SPEECH_PER_TEXT  # one may be put at its end, which is spoken too
            limit = self._max_text(len(instruction) + NUM_CONTROL_INPUTS + num_full_stop)
        end = len(text)
        while num_ids > limit and end > 1:
            end = max(1, min(end - 1, end * limit // num_ids))
            for boundary in (_CLAUSE_END, _SPACE):
                ends = [found.end() for found in boundary.finditer(text, 0, end + 1) if found.end() <= end]
                if ends and ends[-1] > end // 2:
                    end = ends[-1]
                    break
            num_ids = len(self._tokenizer.encode_written(text[:end]))
        return text[:end], text[end:]

    def prepare(
        self, voice_id: str, text: str, *, more_follows: bool = False, instruction: Sequence[int] = ()
    ) -> Prefill | None:
        """A text chunk as a sequence of its own, None if it says nothing; ``more_follows``: more of the text comes after
        it.

        Raises ``Unprocessable`` if it is too long for the model.
        """
        ids = tuple(self._tokenizer.encode_written(as_sentence(text, more_follows=more_follows)))
        if not ids:
            return None
        speaker = self._speaker(voice_id)
        request = speaker.lm_request(self._tokenizer, ids, instruction)
        inputs, limits = request.inputs_for(self._speech_ids), request.limits
        free = self._num_positions - max(len(inputs), len(speaker.flow_tokens))
        if free < LIKELY_SPEECH_PER_TEXT * len(ids):
            raise Unprocessable(
                f"a text chunk of {len(ids)} tokens after a prompt of {len(inputs) - len(ids)} is too long for the model's "
                f"{self._num_positions} positions; lower tts.chunk_max_chars"
            )
        limits = LengthLimits(limits.min_len, min(limits.max_len, free, MAX_SPEECH_TOKENS))
        num_sounds = sum(character in self._sounds for character in text)
        num_likely = self._pace(request) * (len(ids) - num_sounds) + LIKELY_SPEECH_PER_SOUND * num_sounds
        return Prefill(inputs, SamplingRules.of_request(limits), num_likely=num_likely)

    def _pace(self, request: LmRequest) -> float:
        """Return how many speech tokens the voice takes for a text token, by its prompt, if it has the words of it."""
        prompt_text, end = request.prompt_text, self._tokenizer.end_of_prompt
        num_instruction = prompt_text.index(end) + 1 if end in prompt_text else 0
        return pace_of(len(request.prompt_speech), len(prompt_text) - num_instruction)

    def begin_interleaved(self, voice_id: str, instruction: Sequence[int] = ()) -> Bistream:
        """A sequence whose text comes in chunks (§3.5).

        A long prompt would keep it silent until five text tokens are there for each fifteen of its speech tokens. So only
        the text of an instruction goes before, and the voice comes from the flow.
        """
        return Bistream(instruction or self._instruction(voice_id), speech_ids=self._speech_ids)

    def text_ids(self, voice_id: str, text: str, instruction: Sequence[int] = ()) -> tuple[int, ...]:
        """The tokens of a chunk of an interleaved text; raises ``Unprocessable`` as :meth:`prepare` does."""
        ids = tuple(self._tokenizer.encode_written(text))
        if len(ids) > self.max_interleaved(voice_id, instruction):
            raise Unprocessable(
                f"a text chunk of {len(ids)} tokens is too long for the model; lower tts.chunk_max_chars"
            )
        return ids

    def max_interleaved(self, voice_id: str, instruction: Sequence[int] = ()) -> int:
        """Text tokens of an interleaved sequence, at which their speech still fits."""
        return self._max_text(max(len(instruction or self._instruction(voice_id)), self.num_flow_prompt(voice_id)))

    def _max_text(self, num_prompt: int) -> int:
        """Return the most text tokens whose speech still fits after ``num_prompt`` of a prompt."""
        return min(MAX_TEXT_TOKENS, max(1, (self._num_positions - num_prompt) // (1 + LIKELY_SPEECH_PER_TEXT)))

    def _instruction(self, voice_id: str) -> Sequence[int]:
        """The tokens of the voice's instruction, or of the one that a text has in any case."""
        speaker = self._speaker(voice_id)
        if speaker.mode != "instruct":
            return self._tokenizer.instruction("")
        return speaker.lm_request(self._tokenizer, ()).prompt_text

    def seed(self, voice_id: str, text: str) -> int:
        """Return a seed from 0 to :data:`MAX_SEED`: the same voice says the same text in the same way."""
        key = f"0\0{voice_id}\0{text}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") & MAX_SEED

    def num_flow_prompt(self, voice_id: str) -> int:
        """Speech tokens of the flow's prompt; raises ``UnknownVoice``."""
        return len(self._speaker(voice_id).flow_tokens)

    def _speaker(self, voice_id: str) -> Speaker:
        speaker = self._speakers.get(voice_id)
        if speaker is None:
            raise unknown_voice(voice_id, [each.voice for each in self._speakers.values()])
        return speaker
