"""Staged prompts: frequently spoken texts, and recorded announcements, which have an id.

::

    text, SSML ─▸ SpeechSource.open ─▸ audio of the line ─┐
    WAV, MP3, FLAC ─▸ audio_file.read ────────────────────┴─▸ StagedPrompts ─▸ ReadyContent of each call that names the id

The audio is kept in memory at the rate of the line. A text whose audio had to make room is made again when it is spoken. In
``prompts.dir`` ``ID.wav`` (or .mp3, .flac, .ogg, as somebody put it there) is an announcement and ``ID.json`` a text; those
of a tenant are in a folder of its name. A prompt with a time to live is not written.

Runs on: the event loop; files are read and written on threads, audio files in processes of their own.
"""

import asyncio
import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from cc_tts import atomic_file, logs, wav_file
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    UNREADABLE,
    CcTtsError,
    ConfigError,
    EngineOverloaded,
    PromptNotFound,
    PromptNotStored,
    PromptsFull,
    QuotaExceeded,
    TextTooLong,
)
from cc_tts.media import synthetic_label
from cc_tts.processes.tasks import cancel_all
from cc_tts.speech.admission import OVERLOAD_POLL_S
from cc_tts.speech.cache.prompt_cache import as_cached
from cc_tts.speech.cache.prompt_files import CachedChunk, CachedPrompt
from cc_tts.speech.chunks import in_pieces
from cc_tts.speech.prompt import Content, ReadyContent, SequenceContent, StagedContent, TextContent, UrlContent, text_of
from cc_tts.speech.ssml import from_ssml
from cc_tts.speech.staged import audio_file
from cc_tts.speech.staged.urls import Outcome, UrlAudio
from cc_tts.tenants.quotas import Reservation

PROMPT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""The form of an id, which is also a file name."""
AUDIO_SUFFIXES: Final = (".wav", ".mp3", ".flac", ".ogg")
MAX_FILES_READ: Final = 2
"""Audio files that are read at the same time (unmeasured)."""
MAX_SHARE: Final = 4
"""A tenant may stage at most 1/MAX_SHARE of all prompts and seconds (unmeasured)."""
MAKE_TIMEOUT_S: Final = 30.0
"""The time for which a text waits for a full engine (unmeasured)."""

log = logs.get(__name__)

State = Literal["making", "ready", "failed"]
Open = Callable[..., ChunkStream]
Hold = Callable[[str, Content], Reservation]


class StagedText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Words as a client has staged them: ``text`` or ``ssml``, and their style."""

    text: str = ""
    ssml: str = ""
    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    instructions: str | None = None
    lexicons: tuple[str, ...] = ()

    def content(self) -> TextContent | SequenceContent:
        """Return the content; raises ``SsmlMalformed`` for an unreadable document."""
        names = ("voice", "language", "speed", "instructions", "lexicons")
        style = TextContent("", **{name: getattr(self, name) for name in names}, is_made_ahead=True)
        return from_ssml(self.ssml, style) if self.ssml else replace(style, text=self.text)


@dataclass(slots=True, kw_only=True, eq=False)
class StagedPrompt:
    """A prompt with an id. ``words`` ``None``: a recorded announcement. ``error`` is the code of a failure."""

    id: str
    tenant: str = ""
    words: StagedText | None = None
    content: Content | None = None
    audio: CachedPrompt | None = None
    pin: bool = False
    made_room: bool = False
    """Whether its audio was dropped to make room for others. It is made again only if it can be kept."""
    expires_at_s: float | None = None
    state: State = "making"
    error: str | None = None
    duration_ms: int = 0
    made: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def kind(self) -> Literal["text", "ssml", "audio"]:
        if self.words is None:
            return "audio"
        return "ssml" if self.words.ssml else "text"

    @property
    def chars(self) -> int:
        return 0 if self.content is None else len(text_of(self.content))

    @property
    def cached(self) -> bool:
        return self.audio is not None


class StagedPrompts:
    """All prompts by tenant and id. ``open_stream`` speaks words, ``is_again`` if it has done so in vain, and
    ``hold_stream`` reserves the tenant's share of the engine for that; ``on_ready`` is called for each prompt that was made
    or failed. ``producer`` is named in labels of synthetic speech.
    """

    def __init__(
        self,
        config: PromptsConfig,
        *,
        rate_hz: int,
        clock: Clock,
        open_stream: Open,
        hold_stream: Hold,
        on_ready: Callable[[StagedPrompt], None],
        producer: str = "",
        on_fetch: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._producer = producer
        self._config = config
        self._folder = Path(config.dir).expanduser() if config.dir else None
        self._format = AudioFormat(rate_hz)
        self._clock = clock
        self._open = open_stream
        self._hold = hold_stream
        self._on_ready = on_ready
        self._prompts: OrderedDict[tuple[str, str], StagedPrompt] = OrderedDict()
        """The most recently used come last."""
        self._making: dict[StagedPrompt, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        self._reading = asyncio.Semaphore(MAX_FILES_READ)
        self.urls = UrlAudio(config, audio_format=self._format, clock=clock, read=self._read_whole, on_fetch=on_fetch)

    # --- what calls and clients ask for ------------------------------------------------------------------------------

    def get(self, prompt_id: str, tenant: str = "") -> StagedPrompt:
        """Return a prompt of the tenant, or else of the operator.

        Raises:
            PromptNotFound: there is none of this id.
        """
        self._expire()
        found = self._prompts.get((tenant, prompt_id)) or self._prompts.get(("", prompt_id))
        if found is None:
            known = [each for owner, each in self._prompts if owner in (tenant, "")]
            raise PromptNotFound.named(prompt_id, known)
        return found

    def own(self, prompt_id: str, tenant: str) -> StagedPrompt:
        """Return a prompt of the tenant itself; raises as :meth:`get`."""
        found = self.get(prompt_id, tenant)
        if found.tenant != tenant:
            raise PromptNotFound.named(prompt_id)
        return found

    def all_of(self, tenant: str) -> list[StagedPrompt]:
        self._expire()
        return sorted((each for each in self._prompts.values() if each.tenant == tenant), key=lambda each: each.id)

    def resolved(self, content: Content, tenant: str) -> Content:
        """Return the content to say or play: that of the prompt it names, with its audio if that is kept.

        Raises:
            PromptNotFound: there is none of this id.
            UrlNotAllowed: a file may not be fetched from this URL.
        """
        if isinstance(content, UrlContent):
            return self.urls.resolved(content)
        if not isinstance(content, StagedContent):
            return content
        prompt = self.get(content.prompt_id, tenant)
        self._prompts.move_to_end((prompt.tenant, prompt.id))
        if prompt.audio is not None:
            text = "" if prompt.content is None else text_of(prompt.content)
            return ReadyContent(prompt.audio, text, content.gain_db)
        if prompt.content is None:
            raise PromptNotFound(f"the file of prompt {prompt.id!r} could not be read")
        if prompt.made_room:
            self._make(prompt)
        return prompt.content

    def same_as(self, words: StagedText, tenant: str) -> StagedPrompt | None:
        return next((each for each in self.all_of(tenant) if each.words == words and each.state != "failed"), None)

    async def put_text(
        self, prompt_id: str, words: StagedText, *, tenant: str = "", pin: bool = False, ttl_s: float | None = None
    ) -> StagedPrompt:
        """Stage words under an id, replacing any prompt there; :attr:`StagedPrompt.made` is set when their audio is ready.

        Raises:
            PromptsFull: there are too many.
            PromptNotStored: the folder cannot be written.
        """
        prompt = StagedPrompt(
            id=prompt_id, tenant=tenant, words=words, content=words.content(), pin=pin, expires_at_s=self._end_of(ttl_s)
        )
        await self._add(prompt, msgspec.json.encode(words), ".json")
        self._make(prompt)
        return prompt

    async def put_audio(
        self, prompt_id: str, data: bytes, *, tenant: str = "", ttl_s: float | None = None
    ) -> StagedPrompt:
        """Stage a recorded announcement under an id, replacing any prompt there.

        Raises:
            AudioUnreadable: it is no audio file, or too long.
            PromptsFull, PromptNotStored: as :meth:`put_text`.
        """
        pcm = await self._read(data)
        prompt = StagedPrompt(id=prompt_id, tenant=tenant, expires_at_s=self._end_of(ttl_s))
        self._fill(prompt, self._whole(pcm))
        await self._add(prompt, self.wav(prompt), ".wav")
        prompt.made.set()
        return prompt

    async def delete(self, prompt_id: str, tenant: str) -> StagedPrompt:
        """Delete a prompt of the tenant; calls that play it continue.

        Raises:
            PromptNotFound: there is none of this id.
            PromptNotStored: its file cannot be removed.
        """
        prompt = self.own(prompt_id, tenant)
        async with self._changing:
            await self._change_files(prompt, b"", "")
            self._forget(prompt)
        return prompt

    def wav(self, prompt: StagedPrompt) -> bytes:
        """Return the audio of a prompt as a WAV file: 16 bit, mono. Synthetic speech is labelled."""
        chunks = () if prompt.audio is None else prompt.audio.chunks
        label = synthetic_label.wav_chunks(prompt.id, self._producer) if prompt.words else b""
        return wav_file.encoded(b"".join(chunk.pcm for chunk in chunks), rate_hz=self._format.rate_hz, chunks=label)

    # --- files -------------------------------------------------------------------------------------------------------

    async def load(self) -> list[str]:
        """Load the files in ``prompts.dir``; return a sentence for each that cannot be used. It may be called again."""
        if self._folder is None:
            return []
        await asyncio.to_thread(check_folder, self._folder)
        faults: list[str] = []
        for tenant, path in await asyncio.to_thread(_files, self._folder, faults):
            if (tenant, path.stem) in self._prompts:
                continue
            try:
                await self._load_file(tenant, path)
            except (CcTtsError, OSError, *UNREADABLE) as error:
                why = error.detail if isinstance(error, CcTtsError) else str(error)
                faults.append(f"prompts.dir: {path.name}: {why}")
        return faults

    async def _load_file(self, tenant: str, path: Path) -> None:
        data = await asyncio.to_thread(_bounded_bytes, path, self._config.max_upload_bytes)
        prompt = StagedPrompt(id=path.stem, tenant=tenant)
        if path.suffix == ".json":
            prompt.words = msgspec.json.decode(data, type=StagedText)
            prompt.content = prompt.words.content()
        else:
            self._fill(prompt, self._whole(await self._pcm_of(path, data)))
            prompt.made.set()
        self._make_room(prompt)
        self._prompts[tenant, prompt.id] = prompt
        if prompt.words is not None:
            self._make(prompt)

    async def _pcm_of(self, path: Path, data: bytes) -> bytes:
        """Return the samples of a file. Files that were written here are PCM of the line, and need no other process to read
        them.
        """
        with contextlib.suppress(ValueError):
            rate_hz, max_s = self._format.rate_hz, self._config.max_prompt_s
            if pcm := await asyncio.to_thread(wav_file.read, path, rate_hz=rate_hz, max_s=max_s):
                return pcm
        return await self._read(data)

    async def _read(self, data: bytes) -> bytes:
        async with self._reading:
            return await audio_file.read(data, rate_hz=self._format.rate_hz, max_s=self._config.max_prompt_s)

    async def _read_whole(self, data: bytes) -> CachedPrompt:
        return self._whole(await self._read(data))

    async def _change_files(self, prompt: StagedPrompt, data: bytes, suffix: str) -> None:
        """Replace the files of a prompt by one with this suffix; without a suffix there is none."""
        if self._folder is None:
            return
        folder = self._folder / prompt.tenant
        writes = suffix if prompt.expires_at_s is None else ""

        def change() -> None:
            if writes:
                folder.mkdir(exist_ok=True)
                atomic_file.write(folder / f"{prompt.id}{writes}", data)
            for each in {*AUDIO_SUFFIXES, ".json"} - {writes}:
                (folder / f"{prompt.id}{each}").unlink(missing_ok=True)

        try:
            await asyncio.to_thread(change)
        except OSError as error:
            log.error("prompt_not_stored", reason=error.strerror)
            hint = "; a prompt with ttl_s is kept in memory alone" if writes else ""
            raise PromptNotStored(f"prompts.dir cannot be written: {error.strerror}{hint}") from None

    # --- audio -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Cancel what is being made and fetched."""
        await self.urls.stop()
        await cancel_all(*self._making.values())

    def _make(self, prompt: StagedPrompt) -> None:
        if prompt not in self._making:
            prompt.state, prompt.error, prompt.made_room = "making", None, False
            prompt.made.clear()
            task = asyncio.create_task(self._made(prompt), name="stage a prompt")
            self._making[prompt] = task
            task.add_done_callback(lambda _: self._making.pop(prompt, None))

    async def _made(self, prompt: StagedPrompt) -> None:
        content = prompt.content
        assert content is not None
        try:
            async with asyncio.timeout(MAKE_TIMEOUT_S + self._config.max_prompt_s):
                audio = await self._synthesised(content, prompt.tenant)
        except CcTtsError as error:
            prompt.state, prompt.error = "failed", error.code
        except TimeoutError:
            prompt.state, prompt.error = "failed", EngineOverloaded.code
        except Exception:
            log.exception("prompt_not_made")
            prompt.state, prompt.error = "failed", CcTtsError.code
        else:
            if self._prompts.get((prompt.tenant, prompt.id)) is prompt:
                self._fill(prompt, audio)
                self._drop_audio(keep=prompt)
        finally:
            prompt.made.set()  # set also if the prompt was replaced or deleted meanwhile
        self._on_ready(prompt)

    async def _synthesised(self, content: Content, tenant: str) -> CachedPrompt:
        """Return the audio of words. It waits for a full engine, and starts again where the engine refuses the rest, since
        nobody listens yet.
        """
        until_ns = self._clock.now_ns() + round(MAKE_TIMEOUT_S * NS_PER_S)
        was_opened = False
        while True:
            try:
                with self._hold(tenant, content):
                    stream = self._open(content, is_again=was_opened)
                    was_opened = True
                    return await self._read_stream(stream, content)
            except (EngineOverloaded, QuotaExceeded):
                if self._clock.now_ns() > until_ns:
                    raise
            await asyncio.sleep(OVERLOAD_POLL_S)

    async def _read_stream(self, stream: ChunkStream, content: Content) -> CachedPrompt:
        chunks, num_bytes = [], 0
        try:
            async for chunk in stream:
                chunks.append(chunk)
                num_bytes += len(chunk.data)
                stream.set_buffered_ms(self._format.ms_for_bytes(num_bytes))
                if self._format.ms_for_bytes(num_bytes) > self._config.max_prompt_s * 1000:
                    raise TextTooLong(f"prompts.max_prompt_s is {self._config.max_prompt_s:g}")
        finally:
            await stream.cancel()
        text = text_of(content)
        found = None if any(chunk.marks for chunk in chunks) else as_cached(chunks, text)
        if found is None:  # marks are not kept, and what a fallback voice said is not: the words are spoken each time
            return CachedPrompt(())
        return found

    def _whole(self, pcm: bytes) -> CachedPrompt:
        return CachedPrompt(tuple(CachedChunk(each.data) for each in in_pieces(SpeechChunk(), pcm, self._format)))

    def _fill(self, prompt: StagedPrompt, audio: CachedPrompt) -> None:
        prompt.audio = audio if audio.pcm_bytes else None
        prompt.duration_ms = round(self._format.ms_for_bytes(audio.pcm_bytes))
        prompt.state = "ready"

    # --- limits ------------------------------------------------------------------------------------------------------

    async def _add(self, prompt: StagedPrompt, data: bytes, suffix: str) -> None:
        async with self._changing:
            self._make_room(prompt)
            await self._change_files(prompt, data, suffix)
            earlier = self._prompts.pop((prompt.tenant, prompt.id), None)
            if earlier is not None and (task := self._making.get(earlier)) is not None:
                task.cancel()
            self._prompts[prompt.tenant, prompt.id] = prompt

    def _make_room(self, prompt: StagedPrompt) -> None:
        """Check that one more prompt may be staged, and drop audio that can be made again.

        Raises:
            PromptsFull: it may not.
        """
        self._expire()
        share = MAX_SHARE if prompt.tenant else 1
        others = [
            each
            for key, each in self._prompts.items()
            if key != (prompt.tenant, prompt.id) and (not prompt.tenant or each.tenant == prompt.tenant)
        ]
        if len(others) >= max(1, self._config.max_prompts // share):
            raise PromptsFull(f"{len(others)} prompts are staged; prompts.max_prompts is {self._config.max_prompts}")
        kept_s = sum(each.duration_ms for each in others if each.words is None or each.pin) / 1000
        if kept_s + prompt.duration_ms / 1000 > self._config.max_total_s / share:
            raise PromptsFull(
                f"{kept_s:.0f} s of audio are staged; prompts.max_total_s is {self._config.max_total_s:g}"
            )
        self._drop_audio(keep=prompt)

    def _drop_audio(self, *, keep: StagedPrompt) -> None:
        """Drop the least recently used audio that can be made again, until the limit is kept."""
        kept = [each for each in self._prompts.values() if each.audio is not None]
        total_ms = sum(each.duration_ms for each in {*kept, keep})
        for each in kept:
            if total_ms <= self._config.max_total_s * 1000:
                break
            if each.words is not None and not each.pin and each is not keep:
                each.audio, each.made_room = None, True
                total_ms -= each.duration_ms

    def _end_of(self, ttl_s: float | None) -> float | None:
        return None if ttl_s is None else self._clock.wall_s() + ttl_s

    def _expire(self) -> None:
        now_s = self._clock.wall_s()
        for prompt in [
            each for each in self._prompts.values() if each.expires_at_s is not None and each.expires_at_s <= now_s
        ]:
            self._forget(prompt)

    def _forget(self, prompt: StagedPrompt) -> None:
        self._prompts.pop((prompt.tenant, prompt.id), None)
        if (task := self._making.get(prompt)) is not None:
            task.cancel()


def check_folder(folder: Path) -> None:
    """Raise ``ConfigError`` if ``prompts.dir`` is no folder, or cannot be read. Runs on: a thread."""
    if not folder.is_dir():
        raise ConfigError(f"prompts.dir: {folder} is not a folder; make it, or leave the key empty")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(f"prompts.dir: {folder} cannot be read; the server's user must be able to read it")


def _files(folder: Path, faults: list[str]) -> list[tuple[str, Path]]:
    """Return the prompt files in a folder and in its tenants' folders, each with its tenant. A sentence for each folder of a
    tenant that cannot be read is added to ``faults``.
    """
    found: list[tuple[str, Path]] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and PROMPT_ID.fullmatch(path.name):
            try:
                found += [(path.name, inner) for inner in sorted(path.iterdir()) if _is_prompt(inner)]
            except OSError as error:
                faults.append(f"prompts.dir: {path.name}: {error.strerror}")
        elif _is_prompt(path):
            found.append(("", path))
    return found


def _is_prompt(path: Path) -> bool:
    return path.suffix in (*AUDIO_SUFFIXES, ".json") and PROMPT_ID.fullmatch(path.stem) is not None and path.is_file()


def _bounded_bytes(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"larger than prompts.max_upload_bytes ({limit})")
    return data
