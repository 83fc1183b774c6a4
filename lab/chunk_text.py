"""The chunks of a whole text, for tests and measurements: the server gets its texts bit by bit."""

from dataclasses import replace

from cc_tts.text.chunker import Chunker, Chunking, TextChunk
from cc_tts.text.language import detect_language
from cc_tts.text.normalizer import Normalizer


def chunk_text(
    text: str,
    normalizer: Normalizer,
    *,
    language: str | None,
    first_chunk_max_chars: int = 60,
    chunk_max_chars: int = 200,
) -> list[TextChunk]:
    """The chunks of a whole text; none when it holds nothing to say.

    Without ``language`` numbers that stand alone are read in the language of the whole text.
    """
    chunking = Chunking(
        language=language,
        detected_language=detect_language(text),
        first_chunk_max_chars=first_chunk_max_chars,
        chunk_max_chars=chunk_max_chars,
    )
    chunker = Chunker(normalizer, chunking)
    chunks = chunker.push(text) + chunker.flush()
    if chunks and chunker.silent_tail:
        chunks[-1] = replace(chunks[-1], source=chunks[-1].source + chunker.silent_tail)
    return chunks
