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
    """Names that a request may give instead of the id."""
    also_speaks: tuple[str, ...] = ()
    """Languages besides its own."""
    also_reads: tuple[str, ...] = ()
    """Scripts besides those of its languages whose words it says (:mod:`cc_tts.voices.scripts`)."""
    cost: float | None = None
    """Its seconds of a core for a second of speech, where the engine has measured it on this machine."""
    streams: int | None = None
    """This machine carries so many listeners of it at a time; 0: it is for prompts that are made before they are heard."""
    takes_instructions: bool = False
    """Whether it speaks as a text says ("calmly", "in a whisper"), and makes the sounds and the emphasis of SSML."""
    model: str = ""
    """The model that speaks with it, of ``[tts.models]``."""
    names_letters_of: frozenset[str] = frozenset()
    """Scripts of its languages of which it says what the letters are called ("Chinese letter") instead of the words."""

    @property
    def is_live(self) -> bool:
        """Whether it speaks as fast as somebody listens, or nobody has measured it."""
        return self.streams != 0

    def is_of_same_model(self, other: "Voice") -> bool:
        """Whether both are of one model, as far as they say: those of workers of an older version do not."""
        return self.model == other.model or not (self.model and other.model)
