"""Chunks of speech as they cross a process boundary."""

import pytest

from cc_tts.audio import WordMark
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import FROM_WORKER
from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import Decoder, encode

pytestmark = pytest.mark.unit


def test_a_chunk_arrives_as_it_was_sent() -> None:
    chunk = SpeechChunk(b"\1\0", stream_id=7, text_chunk_index=2, spoken_words=(WordMark(3, 12.5),))
    assert Decoder(FROM_WORKER).feed(encode(chunk)) == [(chunk, b"")]


@pytest.mark.parametrize("chunk", [SpeechChunk(b"\1\0"), SpeechChunk(text_chunk_index=1)])
def test_half_a_sample_and_a_text_chunk_before_the_first_break_the_channel(chunk: SpeechChunk) -> None:
    chunk.data, chunk.text_chunk_index = chunk.data[1:], -chunk.text_chunk_index
    with pytest.raises(ProcessFailed, match="unreadable"):
        Decoder(FROM_WORKER).feed(encode(chunk))
