"""Who speaks, as the networks need it: enrolled voices, and those of a ``spk2info.pt`` (§1, §3.2, §7.5).

::

    mode            text before the text      speech before the speech     flow's prompt
    zero_shot       transcript                llm_tokens                   flow_tokens, flow_mel
    cross_lingual   -                         -                            flow_tokens, flow_mel
    instruct        instruction, end mark     -                            flow_tokens, flow_mel
    builtin         -                         -                            -

In the third generation an instruction and its end mark come first in every mode (v3 §3.2). A request that has instructions
of its own is spoken as in the mode instruct (instruct2 of the reference), with the flow's prompt of the voice.

torch is imported by the functions that need it; the rest works without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from cc_tts.engines.cosyvoice.model.checkpoint import ModelError, ModelFileDamaged, read_saved
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmRequest
from cc_tts.engines.cosyvoice.model.sizes import FlowConfig, LmConfig
from cc_tts.errors import CcTtsError
from cc_tts.voices.embedding_cache import EMBEDDING_SIZE, MEL_BINS, EnrolledVoice
from cc_tts.voices.enrolment import MAX_LM_TOKENS, num_flow_tokens
from cc_tts.voices.library import VoiceLibrary, VoiceMode, VoiceRecord
from cc_tts.voices.voice import Voice

if TYPE_CHECKING:
    from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer

ENGINE: Final = "cosyvoice2"
SPK2INFO: Final = "spk2info.pt"
MAX_PROMPT_TOKENS: Final = 750  # 30 s, all that the speech tokenizer takes (§7.3)
MAX_PROMPT_TEXT_TOKENS: Final = 1000  # unmeasured
MAX_SPEAKERS: Final = 1000  # unmeasured
MAX_TABLE_BYTES: Final = 512 * 1024 * 1024  # unmeasured

Mode = VoiceMode | Literal["builtin"]

_LANGUAGES: Final = {"英文": "en", "日语": "ja", "韩语": "ko", "粤语": "yue"}
_ZERO_SHOT_KEYS: Final = (
    "prompt_text", "llm_prompt_speech_token", "flow_prompt_speech_token", "prompt_speech_feat", "flow_embedding",
)  # fmt: skip
_NO_TOKENS: Final = np.empty(0, np.int32)
_NO_MEL: Final = np.empty((0, MEL_BINS), np.float32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Speaker:
    """A voice with its numbers. ``prompt_text`` is the transcript of the prompt, or with ``instruct`` the instruction."""

    id: str
    language: str
    mode: Mode
    embedding: npt.NDArray[np.float32]  # [192]
    prompt_text: str = ""
    prompt_text_ids: tuple[int, ...] | None = None  # where only they are known, as in a ``spk2info.pt``
    llm_tokens: npt.NDArray[np.int32] = field(default_factory=lambda: _NO_TOKENS)  # [P]
    flow_tokens: npt.NDArray[np.int32] = field(default_factory=lambda: _NO_TOKENS)  # [P']
    flow_mel: npt.NDArray[np.float32] = field(default_factory=lambda: _NO_MEL)  # [2P', 80]
    description: str = ""

    def __post_init__(self) -> None:
        """Raise ``ModelError`` if the numbers do not go together."""
        tokens = {"llm_tokens": self.llm_tokens, "flow_tokens": self.flow_tokens}
        wrong = [
            f"{name} {value.shape} of {value.dtype}"
            for name, value in tokens.items()
            if value.ndim != 1 or value.dtype != np.int32 or len(value) > MAX_PROMPT_TOKENS or (value < 0).any()
        ]
        shapes = {"flow_mel": (2 * len(self.flow_tokens), MEL_BINS), "embedding": (EMBEDDING_SIZE,)}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype != np.float32 or not np.isfinite(value).all():
                wrong.append(f"{name} {value.shape} of {value.dtype}")
        ids = self.prompt_text_ids or ()
        if len(ids) > MAX_PROMPT_TEXT_TOKENS or min(ids, default=0) < 0:
            wrong.append(f"prompt_text of {len(ids)} tokens")
        if wrong:
            raise ModelError(f"the speaker {self.id[:80]!r} cannot be used: {', '.join(wrong)}")

    @property
    def voice(self) -> Voice:
        kind: Literal["builtin", "zero_shot"] = "builtin" if self.mode == "builtin" else "zero_shot"
        return Voice(self.id, ENGINE, self.language, kind=kind, description=self.description, takes_instructions=True)

    def sounds_like(self, other: "Speaker") -> bool:
        """Whether both are the same voice in all that is heard and listed of it."""
        names = ("id", "language", "mode", "prompt_text", "prompt_text_ids", "description")
        arrays = ("llm_tokens", "flow_tokens", "flow_mel", "embedding")
        return all(getattr(self, name) == getattr(other, name) for name in names) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays
        )

    def lm_request(self, tokenizer: "TextTokenizer", ids: Sequence[int], instruction: Sequence[int] = ()) -> LmRequest:
        """Return what the language model gets to speak the text tokens ``ids``, see the table above. With the tokens of an
        ``instruction`` it gets that of the mode ``instruct``, whatever the voice's mode is.
        """
        if instruction:
            return LmRequest(ids, instruction)
        default = tokenizer.instruction("")
        if self.mode in {"builtin", "cross_lingual"}:
            return LmRequest(ids, default)
        if self.mode == "instruct":
            return LmRequest(ids, tokenizer.instruction(self.prompt_text))
        prompt_text = self.prompt_text_ids
        if prompt_text is None:
            prompt_text = tuple(tokenizer.encode(self.prompt_text))
        elif max(prompt_text, default=0) >= tokenizer.num_tokens:
            raise ModelError(f"the speaker {self.id!r} has text tokens that are not of this model")
        has_own = tokenizer.end_of_prompt in prompt_text
        return LmRequest(ids, prompt_text if has_own else (*default, *prompt_text), tuple(self.llm_tokens.tolist()))

    def check_fits(self, lm: LmConfig, flow: FlowConfig) -> None:
        """Raise ``ModelError`` if the speaker was made for another model."""
        limits = ((self.llm_tokens, lm.num_speech_codes), (self.flow_tokens, flow.vocab_size))
        if any(tokens.size and int(tokens.max()) >= limit for tokens, limit in limits):
            raise ModelError(f"the speaker {self.id!r} has speech tokens that this model does not know")
        if len(self.embedding) != flow.num_embedding or self.flow_mel.shape[1] != flow.estimator.num_mels:
            raise ModelError(f"the speaker {self.id!r} was made for another model")


def enrolled_speakers(
    library: VoiceLibrary, generation: int = 2, *, on_fault: Callable[[str], None]
) -> dict[str, Speaker]:
    """The voices of the library, by id. One that cannot be loaded, or was enrolled for another generation of the model, is
    reported to ``on_fault`` and left out.
    """
    speakers = {}
    for record in library.records():
        try:
            record, voice = library.load(record.id)  # noqa: PLW2901 - as it is now
            if (made_for := generation_of_fingerprint(voice.fingerprint)) != generation:
                on_fault(
                    f"the voice {record.id!r} is left out: it was enrolled for CosyVoice {made_for}, and this model is "
                    f"CosyVoice {generation}, whose speech tokens are others; enrol it again"
                )
                continue
            speakers[record.id] = _enrolled_speaker(record, voice)
        except CcTtsError as error:
            on_fault(f"the voice {record.id!r} is left out: {error.detail}")
    return speakers


def _enrolled_speaker(record: VoiceRecord, voice: EnrolledVoice) -> Speaker:
    prompt_text = {"zero_shot": voice.transcript, "cross_lingual": "", "instruct": record.instruction}[record.mode]
    return _with_short_reference(
        Speaker(
            id=record.id,
            language=record.language,
            mode=record.mode,
            prompt_text=prompt_text,
            llm_tokens=voice.llm_tokens if record.mode == "zero_shot" else _NO_TOKENS,
            flow_tokens=voice.flow_tokens,
            flow_mel=voice.flow_mel,
            embedding=voice.embedding,
            description=record.description,
        )
    )


def generation_of_fingerprint(fingerprint: str) -> int:
    mark, found, _ = fingerprint.partition(":")
    return int(mark) if found and mark.isdecimal() else 2


def _with_short_reference(speaker: Speaker) -> Speaker:
    """Return the speaker without its reference for the language model, if that is empty or too long."""
    if speaker.mode != "zero_shot" or 0 < len(speaker.llm_tokens) <= MAX_LM_TOKENS:
        return speaker
    return replace(speaker, mode="cross_lingual", prompt_text="", prompt_text_ids=None, llm_tokens=_NO_TOKENS)


def built_in_speakers(model_dir: Path) -> dict[str, Speaker]:
    """The speakers of ``spk2info.pt``, by id; none, when the file is not there, as in the published model.

    An entry with a prompt becomes a zero-shot speaker, one with an ``embedding`` only a speaker known by that. Raises
    ``ModelError`` if the file is damaged, would run code, or an entry is of neither kind.
    """
    path = model_dir / SPK2INFO
    if not path.exists():
        return {}
    if path.stat().st_size > MAX_TABLE_BYTES:
        raise ModelFileDamaged(f"{path}: {path.stat().st_size:,} bytes are too many for a table of speakers")
    table = read_saved(path)
    if not isinstance(table, dict) or not all(isinstance(key, str) and key for key in table):
        raise ModelError(f"{path}: not a table of speakers by name")
    if len(table) > MAX_SPEAKERS:
        raise ModelError(f"{path}: {len(table)} speakers, there may be {MAX_SPEAKERS}")
    return {speaker_id: _speaker(path, speaker_id, entry) for speaker_id, entry in table.items()}


def _speaker(path: Path, speaker_id: str, entry: object) -> Speaker:
    where = f"{path}: the speaker {speaker_id[:80]!r}"
    if not isinstance(entry, dict):
        raise ModelError(f"{where} is a {type(entry).__name__}, not an entry")
    language = next((tag for name, tag in _LANGUAGES.items() if name in speaker_id), "cmn")
    if all(key in entry for key in _ZERO_SHOT_KEYS):
        flow_tokens = _integers(where, entry, "flow_prompt_speech_token")
        flow_mel = _floats(where, entry, "prompt_speech_feat")
        surplus = len(flow_tokens) - num_flow_tokens(len(flow_tokens))
        speaker = Speaker(
            id=speaker_id,
            language=language,
            mode="zero_shot",
            prompt_text_ids=tuple(_integers(where, entry, "prompt_text").tolist()),
            llm_tokens=_integers(where, entry, "llm_prompt_speech_token"),
            flow_tokens=flow_tokens[surplus:],
            flow_mel=flow_mel[2 * surplus :],
            embedding=_floats(where, entry, "flow_embedding"),
        )
        return _with_short_reference(speaker)
    if "embedding" in entry:
        return Speaker(id=speaker_id, language=language, mode="builtin", embedding=_floats(where, entry, "embedding"))
    keys = ", ".join(sorted(str(key)[:40] for key in entry)[:10])
    raise ModelError(f"{where} has neither a prompt nor an embedding, but: {keys or 'nothing'}")


def _integers(where: str, entry: Mapping[str, Any], key: str) -> npt.NDArray[np.int32]:
    value = _row(where, entry, key, num_dims=1)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        raise ModelError(f"{where}: {key} is {value.dtype}, must be whole numbers")
    numbers = value.long().numpy()
    if ((numbers < 0) | (numbers > np.iinfo(np.int32).max)).any():
        raise ModelError(f"{where}: {key} holds numbers that are no tokens")
    return np.array(numbers, np.int32)


def _floats(where: str, entry: Mapping[str, Any], key: str) -> npt.NDArray[np.float32]:
    value = _row(where, entry, key, num_dims=2 if key == "prompt_speech_feat" else 1)
    if not value.dtype.is_floating_point:
        raise ModelError(f"{where}: {key} is {value.dtype}, must be floating point")
    return np.array(value.float().numpy(), np.float32)


def _row(where: str, entry: Mapping[str, Any], key: str, *, num_dims: int) -> Any:
    """The tensor without its leading dimension of one; bounded by what the largest prompt needs."""
    import torch

    value = entry[key]
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"{where}: {key} is a {type(value).__name__}, must be a tensor")
    row = value[0] if value.ndim == num_dims + 1 and value.shape[0] == 1 else value
    if row.ndim != num_dims or row.numel() > 2 * MAX_PROMPT_TOKENS * MEL_BINS or row.layout is not torch.strided:
        raise ModelError(f"{where}: {key} has the shape {tuple(value.shape)}")
    return row
