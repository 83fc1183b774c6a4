"""The HTTP response with the speech of one text, sent during synthesis.

A failure after the first audio breaks the connection off: a response that ends properly is complete. A reader that takes
nothing for :data:`WRITE_TIMEOUT_S` is cut off; a client that hangs up cancels the synthesis.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import ClassVar, Final

from aiohttp import web

from cc_tts import logs
from cc_tts.api.http.connections import abort
from cc_tts.api.plugs.alignment import AlignedAudio, unaligned
from cc_tts.api.plugs.encoder import Output
from cc_tts.api.plugs.speech_context import ERRORS, ROUTE, Speech, speech_of
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import ClientError
from cc_tts.media import synthetic_label
from cc_tts.speech.prompt import Content

WRITE_TIMEOUT_S: Final = 10.0  # unmeasured
"""The time that one write may wait for the reader."""
WRITE_BYTES: Final = 65_536  # unmeasured
"""The most bytes in one write, so that a slow reader of a long response is not mistaken for one that has stopped."""

NO_HEADERS: Final[Mapping[str, str]] = {}
RESPONSE_ROUTE: Final = ROUTE | {"errors": ERRORS, "is_synthetic": True}
"""The options of a route that responds with the speech of a text."""

log = logs.get(__name__)


class SpeechResponse:
    """The audio as it is encoded. Other responses derive from it."""

    content_type: ClassVar = ""
    """The media type of the response; empty for that of the format."""

    def __init__(
        self, request: web.Request, speech: Speech, output: Output, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        self._request = request
        self._speech = speech
        self._output = output
        content_type = {"Content-Type": self.content_type or output.content_type}
        voice = {} if speech.voice is None else {"X-Voice": speech.voice.id}
        self._response = web.StreamResponse(headers=content_type | synthetic_label.HEADERS | voice | dict(headers))

    def pieces(self, chunks: AsyncIterator[SpeechChunk]) -> AsyncIterator[AlignedAudio]:
        return unaligned(chunks)

    def part(self, audio: bytes, piece: AlignedAudio | None) -> bytes:  # noqa: ARG002
        """Return the bytes for one piece; ``None`` stands for the encoder's last bytes. ``audio`` may be empty."""
        return audio

    def last(self) -> bytes:
        return b""

    async def send(self) -> web.StreamResponse:
        """Send everything. Failures are noted for the accounting, and break the connection."""
        try:
            await self._send()
        except ConnectionError:
            self._speech.reason = CompletionCause.CANCELLED
            log.debug("speech_stream_client_gone")
            abort(self._request)
        except TimeoutError:
            self._speech.reason = CompletionCause.CANCELLED
            log.info("speech_stream_reader_too_slow", limit_s=WRITE_TIMEOUT_S)
            abort(self._request)
        except Exception as error:  # noqa: BLE001 - the head is out: only breaking off tells the client
            self._speech.reason, self._speech.error = CompletionCause.ERROR, getattr(error, "code", "internal")
            log.warning("speech_stream_failed", error=type(error).__name__, code=self._speech.error)
            abort(self._request)
        return self._response

    async def _send(self) -> None:
        await self._response.prepare(self._request)
        async for audio, piece in self._output.encoded(self.pieces(self._speech.chunks()), self._speech.label):
            await self._write(self.part(audio, piece))
        await self._write(self.last())
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._response.write_eof()

    async def _write(self, data: bytes) -> None:
        for start in range(0, len(data), WRITE_BYTES):
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._response.write(data[start : start + WRITE_BYTES])


async def respond(
    request: web.Request,
    content: Content,
    output: Output,
    *,
    pointers: Mapping[type[ClientError], str],
    headers: Mapping[str, str] = NO_HEADERS,
    kind: type[SpeechResponse] = SpeechResponse,
) -> web.StreamResponse:
    """Send the speech of a text that is there as a whole; raises as :func:`speech_of`."""
    async with speech_of(request, content, rate_hz=output.rate_hz, pointers=pointers) as speech:
        return await kind(request, speech, output, headers).send()
