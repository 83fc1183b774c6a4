"""Bodies of requests that stage a prompt."""

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from cc_tts.api import schemas
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.staged.prompts import StagedText

TimeToLive = Annotated[
    float, Meta(gt=0, le=31_536_000, description="It is forgotten after so many seconds; left out: never.")
]


class StagePrompt(schemas.Body, frozen=True):
    """A prompt to stage: one of ``text`` and ``ssml``. The audio is made at once, and kept."""

    exactly_one: ClassVar[tuple[str, ...]] = ("text", "ssml")
    prompt_id: (
        Annotated[
            schemas.PromptId,
            Meta(description="One is made if it is left out, unless the same words are staged already."),
        ]
        | None
    ) = None
    text: schemas.Text | UnsetType = UNSET
    ssml: schemas.Ssml | UnsetType = UNSET
    voice: schemas.VoiceId | None = None
    language: schemas.Language | None = None
    speed: schemas.Speed | None = None
    lexicons: schemas.LexiconNames = ()
    ttl_s: TimeToLive | None = None
    pin: Annotated[bool, Meta(description="Its audio never makes room for that of others.")] = False

    def words(self) -> StagedText:
        """The words; raises as :meth:`Speak.prompt`."""
        style = TextContent("", self.voice, self.language, self.speed, lexicons=self.lexicons)
        schemas.words(self.text, self.ssml, style, text_field="text")
        return StagedText(
            text=self.text or "",
            ssml=self.ssml or "",
            voice=self.voice,
            language=self.language,
            speed=self.speed,
            lexicons=self.lexicons,
        )


class StageAudio(StagePrompt, frozen=True):
    """A recorded announcement: the bytes of its file, and the fields of a form beside it."""

    audio: bytes = b""
