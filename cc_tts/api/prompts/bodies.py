"""Bodies of requests that stage a prompt."""

from typing import Annotated

from msgspec import Meta

from cc_tts.api import schemas
from cc_tts.speech.staged.prompts import StagedText

TimeToLive = Annotated[
    float, Meta(gt=0, le=31_536_000, description="It is forgotten after this many seconds; left out: never.")
]


class StagePrompt(schemas.Words, frozen=True):
    """A prompt to stage. The audio is made at once, and kept."""

    prompt_id: (
        Annotated[
            schemas.PromptId,
            Meta(description="One is made if it is left out, unless the same words are staged already."),
        ]
        | None
    ) = None
    ttl_s: TimeToLive | None = None
    pin: Annotated[bool, Meta(description="Its audio never makes room for that of others.")] = False

    def words(self) -> StagedText:
        """Return the words; raises as :meth:`Speak.prompt`."""
        self.content()
        style = {name: getattr(self, name) for name in schemas.STYLE}
        return StagedText(text=self.text or "", ssml=self.ssml or "", **style)


class StageAudio(StagePrompt, frozen=True):
    """A recorded announcement: the bytes of its file, and the fields of a form beside it."""

    audio: bytes = b""
