"""The choice of a voice for an MRCP client."""

from collections.abc import Sequence

from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import UnknownVoice
from cc_tts.mrcp.messages import Style
from cc_tts.text.language import subtags
from cc_tts.voices.voice import Voice


def voice_of(style: Style, voices: Sequence[Voice], config: TtsConfig) -> str | None:
    """Return the first existing voice of ``Voice-Name``, else one of the language and the gender; ``None`` for the server's
    default.

    Raises:
        UnknownVoice: the client names voices, and there is none of them.
    """
    known = {name for each in voices for name in (each.id, *each.also_called)} | config.voice_aliases.keys()
    if style.voices:
        found = next((name for name in style.voices if name in known), None)
        if found is None:
            raise UnknownVoice(f"no voice is called {' or '.join(style.voices)[:200]!r}")
        return found
    if not style.gender:
        return None
    language = style.language or config.language
    of_gender = [each for each in voices if each.gender == style.gender and each.ready]
    matching = [each for each in of_gender if not language or subtags(each.language)[0] == subtags(language)[0]]
    return matching[0].id if matching else None
