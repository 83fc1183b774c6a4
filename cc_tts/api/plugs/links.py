"""Addresses of speech: ``POST /v1/speech`` makes one, and whoever has it gets a file until it expires, without a token.

::

    POST /v1/speech {"text": …} ─▸ link ─▸ GET /v1/speech/{link}.mp3 ─▸ made once, kept, sent whole with its length

What plays the URL of a file becomes a client of the voices so: ``Playback`` of Asterisk, ``<Play>`` of carriers, a browser.
A link is 128 random bits, so that nobody guesses it and no text stands in a log of addresses. Links live in memory: a
restart forgets them.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from cc_tts import wav_file
from cc_tts.api import schemas
from cc_tts.api.calls import OF_TEXT, fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import HOLDER, Holder
from cc_tts.api.http.route import RouteTable
from cc_tts.api.plugs.alignment import unaligned
from cc_tts.api.plugs.encoder import FORMATS, Output
from cc_tts.api.plugs.speech_context import ERRORS, speech_of
from cc_tts.errors import CapacityExceeded, LinkNotFound
from cc_tts.media import synthetic_label
from cc_tts.speech.prompt import Content

MAX_LINKS: Final = 10_000  # unmeasured
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""The most audio that is kept for all links. The least recently used audio is dropped and made again when needed
(unmeasured).
"""
DEFAULT_TTL_S: Final = 3600  # unmeasured
MAX_TTL_S: Final = 86_400  # unmeasured
LINK_BYTES: Final = 16
TELEPHONE_RATE_HZ: Final = 8000
TAG_CHARS: Final = 32
"""The characters of the digest in an entity tag: 128 bits."""

ROUTES: Final = RouteTable("Speech")


class SpeechLink(schemas.Words, frozen=True):
    """The text that is spoken at the address, and its file."""

    format: Annotated[Literal["wav", "mp3"], Meta(description="wav: 16-bit mono.")] = "wav"
    sample_rate_hz: Literal[8000, 16000, 24000] = TELEPHONE_RATE_HZ
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S, description="How long the address is good for.")] = DEFAULT_TTL_S


class SpeechAddress(Struct, frozen=True):
    """An address that is valid until ``expires_at``, seconds since 1970."""

    id: str
    url: str
    expires_at: float


@dataclass(slots=True)
class _Link:
    content: Content
    format: str
    rate_hz: int
    holder: Holder
    expires_at_s: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SpeechLinks:
    """The links of a server, oldest first. Runs on: the event loop."""

    def __init__(self) -> None:
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._audio: OrderedDict[str, bytes] = OrderedDict()
        """The audio of links that is kept, the most recently used last."""

    def add(self, link: _Link, *, now_s: float) -> str:
        """Keep a link, and return its name. Raises ``CapacityExceeded``."""
        if len(self._links) >= MAX_LINKS:
            for name in [name for name, each in self._links.items() if each.expires_at_s <= now_s]:
                self._forget(name)
        if len(self._links) >= MAX_LINKS:
            raise CapacityExceeded(f"{MAX_LINKS} addresses of speech are in use", retry_after_s=DEFAULT_TTL_S)
        name = f"{secrets.token_urlsafe(LINK_BYTES)}.{link.format}"
        self._links[name] = link
        return name

    def find(self, name: str, *, now_s: float) -> _Link:
        """The link of this name. Raises ``LinkNotFound``."""
        link = self._links.get(name)
        if link is not None and link.expires_at_s <= now_s:
            self._forget(name)
            link = None
        if link is None:
            raise LinkNotFound("there is no speech at this address, or no longer")
        return link

    def audio(self, name: str) -> bytes:
        """Return the audio of a link; empty if none is kept."""
        return self._audio.get(name, b"")

    def keep(self, name: str, audio: bytes) -> None:
        """Keep the audio of a link; the least recently used audio is dropped if there is no room."""
        if name not in self._links:
            return
        self._audio[name] = audio
        self._audio.move_to_end(name)
        while sum(map(len, self._audio.values())) > MAX_KEPT_BYTES and len(self._audio) > 1:
            self._audio.popitem(last=False)

    def _forget(self, name: str) -> None:
        self._links.pop(name, None)
        self._audio.pop(name, None)


LINKS: Final = web.AppKey("speech_links", SpeechLinks)


@ROUTES.add(
    "POST",
    "/v1/speech",
    scope="call",
    status=201,
    location="/v1/speech/",
    errors=(CapacityExceeded, *OF_TEXT),
    for_tenants=True,
    examples={
        "for a PBX": {"text": "All of our agents are busy.", "ttl_s": 600},
        "mp3": {"text": "Hello.", "format": "mp3"},
    },
)
async def make_speech_address(request: web.Request, body: SpeechLink) -> SpeechAddress:
    """Make an address at which a text is spoken, for players of files; it needs no token."""
    context = request.app[CONTEXT]
    content = body.content()
    with bodies.located(fields_of_text("/text" if body.ssml is UNSET else "/ssml")):
        await context.services.source.match_lexicons(content)
        context.services.source.check(content)
    now_s = context.services.clock.wall_s()
    link = _Link(content, body.format, body.sample_rate_hz, HOLDER.get(), now_s + body.ttl_s)
    name = request.app[LINKS].add(link, now_s=now_s)
    return SpeechAddress(name, f"{request.scheme}://{request.host}/v1/speech/{name}", link.expires_at_s)


@ROUTES.add(
    "GET",
    "/v1/speech/{link}",
    scope=None,
    content_types=("audio/mpeg", "audio/wav"),
    errors=(LinkNotFound, *ERRORS),
    streams=True,
    is_synthetic=True,
    is_file=True,
)
async def get_speech(request: web.Request) -> web.StreamResponse:
    """The speech at an address, as a file; a part of it with Range."""
    context, links, name = request.app[CONTEXT], request.app[LINKS], request.match_info["link"]
    now_s = context.services.clock.wall_s()
    link = links.find(name, now_s=now_s)
    HOLDER.set(link.holder)  # the limits of the tenant that made the link hold
    async with link.lock:
        audio = links.audio(name) or await _made(request, link)
        links.keep(name, audio)
    tag = hashlib.sha256(audio).hexdigest()[:TAG_CHARS]
    response = web.Response(body=audio, content_type=FORMATS[link.format].content_type, headers=synthetic_label.HEADERS)
    response.headers["Cache-Control"] = f"private, max-age={max(0, int(link.expires_at_s - now_s))}"
    response.etag = tag
    if any(each.value in (tag, "*") for each in request.if_none_match or ()):
        kept = {name: response.headers[name] for name in ("ETag", "Cache-Control")}  # RFC 9110 §15.4.5
        return web.Response(status=304, headers=kept)
    _cut(response, audio, request)
    return response


def _cut(response: web.Response, audio: bytes, request: web.Request) -> None:
    """Return the requested part of a file (RFC 9110 §14). Safari plays a file only if it gets the parts that it asks for."""
    response.headers["Accept-Ranges"] = "bytes"
    if request.headers.get("If-Range", response.headers["ETag"]) != response.headers["ETag"]:
        return
    try:
        wanted = request.http_range
    except ValueError:  # what cannot be read is ignored (RFC 9110 §14.2)
        return
    if wanted.start is None and wanted.stop is None:
        return
    start, end, _ = wanted.indices(len(audio))
    if start < end:
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(audio)}"
    else:
        response.set_status(416)
        response.headers["Content-Range"] = f"bytes */{len(audio)}"
    response.body = audio[start:end]


async def _made(request: web.Request, link: _Link) -> bytes:
    output = Output(FORMATS[link.format], link.rate_hz)
    async with speech_of(request, link.content, rate_hz=link.rate_hz) as speech:
        if not output.format.is_wav:
            encoded = output.encoded(unaligned(speech.chunks()), speech.label)
            return b"".join([audio async for audio, _ in encoded])
        pcm = b"".join([chunk.data async for chunk in speech.chunks()])
        return wav_file.encoded(pcm, rate_hz=link.rate_hz, chunks=synthetic_label.wav_chunks(*speech.label))
