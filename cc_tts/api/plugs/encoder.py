"""Encodes PCM in the audio format that a client asks for, during synthesis.

FFmpeg's libraries (through PyAV) encode MP3, Opus, AAC and FLAC. They are loaded with the first response that needs them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from cc_tts import wav_file
from cc_tts.api.plugs.alignment import AlignedAudio
from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.media import synthetic_label
from cc_tts.media.g711 import alaw_encode, ulaw_encode

_MUXING: Final = {"flush_packets": "1", "page_duration": "100000", "write_xing": "0"}
"""Options of FFmpeg's muxers. Each packet goes out at once. Ogg pages last 0.1 s instead of 1 s, since a client hears
nothing of a page before its end (unmeasured). MP3 has no Xing header, which would need the length.
"""
MP3: Final = "libmp3lame"
MP3_BITS_PER_S: Final = 64_000  # unmeasured
MP3_OPTIONS: Final = {"compression_level": "7"}
"""LAME's quality 7 takes 3.6 ms of a core for a second of audio; its default 5 takes 4.8 ms."""
Label = tuple[str, str]
"""The id of the speech and its producer, for :func:`cc_tts.media.synthetic_label.tags`; formats without tags ignore it."""


T = TypeVar("T")


class _Samples:
    """Encodes each sample separately, after a header. The parts of a response follow each other without gaps."""

    def __init__(self, convert: Callable[[bytes], bytes], header: bytes = b"") -> None:
        self._convert = convert
        self._header = header

    def encode(self, pcm: bytes) -> bytes:
        """Take signed 16-bit little-endian mono PCM, and return the bytes that can be sent, possibly none."""
        header, self._header = self._header, b""
        return header + self._convert(pcm)

    def finish(self) -> bytes:
        return self._header


class _Output:
    """A write-only file; the bytes written since the last time can be taken out."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class _File:
    """A file of ``container`` with audio of ``codec``, both by FFmpeg's names."""

    def __init__(self, container: str, codec: str, label: Label, rate_hz: int, bits_per_s: int | None) -> None:
        import av  # loads FFmpeg's libraries

        self._frame_of = av.AudioFrame.from_ndarray
        self._output = _Output()
        self._file = av.open(self._output, "w", format=container, container_options=_MUXING)
        self._file.metadata.update(synthetic_label.tags(*label))
        stream = self._file.add_stream(codec, rate=rate_hz, layout="mono", options=MP3_OPTIONS if codec == MP3 else {})
        assert isinstance(stream, av.AudioStream)
        if bits_per_s is not None or codec == MP3:
            stream.bit_rate = bits_per_s or MP3_BITS_PER_S
        self._stream = stream
        self._rate_hz = rate_hz
        self._num_samples = 0

    def encode(self, pcm: bytes) -> bytes:
        if pcm:
            frame = self._frame_of(np.frombuffer(pcm, "<i2")[np.newaxis], format="s16", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts = self._num_samples
            self._num_samples += len(pcm) // BYTES_PER_SAMPLE
            self._file.mux(self._stream.encode(frame))
        return self._output.take()

    def finish(self) -> bytes:
        self._file.mux(self._stream.encode(None))
        self._file.close()
        return self._output.take()


@dataclass(frozen=True, slots=True)
class AudioFileFormat:
    """A format of responses. ``content_type`` may name ``{rate_hz}``. ``rates_hz``: the only rates that it has, the usual
    one first; empty: any. ``codec``: FFmpeg's words for the container and the codec. ``convert`` is for formats without one.
    """

    content_type: str
    rates_hz: tuple[int, ...] = ()
    codec: tuple[str, str] | None = None
    convert: Callable[[bytes], bytes] = bytes
    is_wav: bool = False

    @property
    def is_slow(self) -> bool:
        """Whether its encoder should run on a thread."""
        return self.codec is not None

    def encoder(self, rate_hz: int, label: Label, *, bits_per_s: int | None = None) -> _Samples | _File:
        """Return an encoder at this rate. ``bits_per_s`` ``None``: :data:`MP3_BITS_PER_S`, or FFmpeg's default."""
        if self.codec is not None:
            return _File(*self.codec, label, rate_hz, bits_per_s)
        header = wav_file.header(rate_hz=rate_hz, chunks=synthetic_label.wav_chunks(*label)) if self.is_wav else b""
        return _Samples(self.convert, header)


@dataclass(frozen=True, slots=True)
class Output:
    """The audio that a client has asked for."""

    format: AudioFileFormat
    rate_hz: int
    bits_per_s: int | None = None

    @property
    def content_type(self) -> str:
        return self.format.content_type.format(rate_hz=self.rate_hz)

    async def encoded(
        self, pieces: AsyncIterator[AlignedAudio], label: Label
    ) -> AsyncIterator[tuple[bytes, AlignedAudio | None]]:
        """Yield the encoded bytes of each piece, possibly empty. With ``None`` they are the encoder's last bytes."""
        encoder = await self._step(lambda: self.format.encoder(self.rate_hz, label, bits_per_s=self.bits_per_s))
        async for piece in pieces:
            yield await self._step(partial(encoder.encode, piece.pcm)), piece
        yield await self._step(encoder.finish), None

    async def _step(self, step: Callable[[], T]) -> T:
        """Run one step of an encoder: on a thread, if it would delay the event loop."""
        return await asyncio.to_thread(step) if self.format.is_slow else step()


FORMATS: Final[Mapping[str, AudioFileFormat]] = {
    "mp3": AudioFileFormat("audio/mpeg", codec=("mp3", MP3)),
    "opus": AudioFileFormat("audio/ogg", (24_000, 48_000, 16_000, 8000), ("ogg", "libopus")),
    "aac": AudioFileFormat("audio/aac", codec=("adts", "aac")),
    "flac": AudioFileFormat("audio/flac", codec=("flac", "flac")),
    "wav": AudioFileFormat("audio/wav", is_wav=True),
    "pcm": AudioFileFormat("audio/pcm;rate={rate_hz}"),
    "ulaw": AudioFileFormat("audio/basic", (8000,), convert=ulaw_encode),
    "alaw": AudioFileFormat("audio/PCMA;rate=8000", (8000,), convert=alaw_encode),
}
"""``opus`` is Ogg Opus (RFC 7845), ``aac`` ADTS, ``flac`` FLAC without a length. audio/basic is μ-law of one channel at
8000 Hz (RFC 2046 §4.3), audio/PCMA is of RFC 4856.
"""
MEDIA_TYPES: Final = tuple(sorted({each.content_type.partition(";")[0] for each in FORMATS.values()}))
"""The media types of all formats, without parameters."""
