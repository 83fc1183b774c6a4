"""Value types of voices."""

from dataclasses import dataclass
from typing import Literal

VoiceKind = Literal["builtin", "zero_shot"]


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice of one engine. ``language`` is a BCP 47 tag (``en-GB``, ``cmn``); ``gender`` is empty where it is not known;
    ``rate_hz`` is the sample rate of what it speaks, ``level_dbfs`` its active level (ITU-T P.56) where the engine knows it.
    """

    id: str
    engine: str
    language: str
    kind: VoiceKind = "builtin"
    ready: bool = True
    description: str = ""
    gender: Literal["", "female", "male"] = ""
    rate_hz: int = 24_000
    level_dbfs: float | None = None
    also_called: tuple[str, ...] = ()
    """Other names that a request may use for the voice."""
    also_speaks: tuple[str, ...] = ()
    """The languages that it speaks besides its own."""
    also_reads: tuple[str, ...] = ()
    """The scripts that it reads besides those of its languages (:mod:`cc_tts.voices.scripts`)."""
    cost: float | None = None
    """The seconds of a core that a second of its speech takes, if the engine has measured it on this machine."""
    streams: int | None = None
    """The listeners that this machine can supply with it at the same time; 0: it is only for prompts that are made in
    advance.
    """
    takes_instructions: bool = False
    """Whether it follows instructions ("calmly", "in a whisper"), and makes the sounds and the emphasis of SSML."""
    model: str = ""
    """The model of ``[tts.models]`` that speaks with it."""
    names_letters_of: frozenset[str] = frozenset()
    """The scripts of its languages whose letters it names ("Chinese letter") instead of reading the words."""

    @property
    def is_live(self) -> bool:
        """Whether it is fast enough for live speech, or was not measured."""
        return self.streams != 0

    def is_of_same_model(self, other: "Voice") -> bool:
        """Whether both belong to the same engine and model, as far as is known: voices of older workers name no model."""
        return self.engine == other.engine and (self.model == other.model or not (self.model and other.model))
