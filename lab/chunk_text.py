"""The chunks of a whole text at once, for tests and measurements."""

from collections.abc import Sequence
from dataclasses import replace

from cc_tts.text.chunker import Chunker, Chunking, TextChunk
from cc_tts.text.language import detect_language
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.replacements import Replacement


def chunks_of(
    normalizer: Normalizer, text: str, chunking: Chunking | None = None, replacements: Sequence[Replacement] = ()
) -> list[TextChunk]:
    slices = Chunker(normalizer, chunking or Chunking(), text, replacements).slices()
    return [chunk for chunks, _ in slices for chunk in chunks]


def chunk_text(
    text: str,
    normalizer: Normalizer,
    *,
    language: str | None,
    first_chunk_max_chars: int = 60,
    chunk_max_chars: int = 200,
) -> list[TextChunk]:
    """The chunks, the last one with what follows it and is not said; none when the text holds nothing to say.

    Without ``language`` numbers that stand alone are read in the language of the whole text.
    """
    chunking = Chunking(
        language=language,
        detected_language=detect_language(text),
        first_chunk_max_chars=first_chunk_max_chars,
        chunk_max_chars=chunk_max_chars,
    )
    chunks = chunks_of(normalizer, text, chunking)
    if chunks:
        chunks[-1] = replace(chunks[-1], source=text[sum(len(chunk.source) for chunk in chunks[:-1]) :])
    return chunks
