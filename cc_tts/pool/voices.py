"""The files of ``tts.voices_dir``, from the pool to the machines of the workers, each found by the hash of its content.

A host has the same files as the pool, no more: what the pool removed is removed. A file is written whole or not at all.
"""

import asyncio
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import IO, Annotated, Final

import aiohttp
import msgspec

from cc_tts import logs
from cc_tts.cluster import pool_client
from cc_tts.cluster.messages import MAX_MESSAGE_BYTES
from cc_tts.config.schema import RemoteConfig
from cc_tts.egress.http import read_at_most
from cc_tts.errors import UNREADABLE, CcTtsError, ProcessFailed
from cc_tts.voices.folder import FEATURES, KOKORO, STYLES, files_in

MAX_FILES: Final = 4096  # unmeasured
MAX_FILE_BYTES: Final = 512 << 20  # unmeasured
MAX_TOTAL_BYTES: Final = 8 << 30  # unmeasured
LIST_TIMEOUT_S: Final = 5.0  # unmeasured
FETCH_TIMEOUT_S: Final = 120.0
"""Time limit to fetch one file, s (unmeasured)."""
READ_BYTES: Final = 1 << 16
NAME: Final = rf"^({FEATURES}/|{KOKORO}/|{STYLES}/)?[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}$"
"""A file of the folder, or of those below it."""

_NAME: Final = re.compile(NAME)

log = logs.get(__name__)


class VoiceFile(msgspec.Struct, frozen=True):
    """One file of a voice."""

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_FILE_BYTES)]


class VoiceFiles(msgspec.Struct, frozen=True):
    """All of them, by name."""

    files: Annotated[tuple[VoiceFile, ...], msgspec.Meta(max_length=MAX_FILES)]

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16] if self.files else ""


_FILES: Final = msgspec.json.Decoder(VoiceFiles)


class VoiceFolder:
    """A folder of voices. Hashes are kept until a file's size or date changes. Runs on: a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self._hashes: dict[tuple[str, int, int], str] = {}

    def files(self) -> VoiceFiles:
        """Return the files. Links, files with other names and files that are too large are left out; nothing is raised."""
        known, self._hashes = self._hashes, {}
        found: list[VoiceFile] = []
        for path in files_in(self.folder, with_features=True):
            name = path.relative_to(self.folder).as_posix()
            try:
                about = path.lstat()
                if not _NAME.fullmatch(name) or about.st_size > MAX_FILE_BYTES:
                    continue
                key = (name, about.st_size, about.st_mtime_ns)
                digest = known.get(key) or _sha256(path)
            except OSError:
                continue
            self._hashes[key] = digest
            found.append(VoiceFile(name, digest, about.st_size))
        return VoiceFiles(tuple(found[:MAX_FILES]))

    def find(self, sha256: str) -> Path | None:
        """Return the file with this content, as far as :meth:`files` has seen it."""
        return next((self.folder / name for (name, *_), digest in self._hashes.items() if digest == sha256), None)


async def fetch(url: str, remote: RemoteConfig, folder: VoiceFolder) -> bool:
    """Make a folder equal to the pool's; return whether that changed it. Raises ``ProcessFailed`` if the pool cannot be
    asked, sends something else than announced, or the folder cannot be written; files that arrived before stay.
    """
    try:
        async with pool_client.opened(url, remote) as (client, pool):
            async with asyncio.timeout(LIST_TIMEOUT_S), client.get(pool / "v1/voices", allow_redirects=False) as answer:
                answer.raise_for_status()
                wanted = _FILES.decode(await read_at_most(answer.content, MAX_MESSAGE_BYTES))
            if sum(file.bytes for file in wanted.files) > MAX_TOTAL_BYTES:
                raise ProcessFailed(f"the voices of the pool are more than {MAX_TOTAL_BYTES >> 30} GiB")
            have = await asyncio.to_thread(folder.files)
            for below in {Path(file.name).parent for file in wanted.files} | {Path(FEATURES)}:
                (folder.folder / below).mkdir(parents=True, exist_ok=True)
            for file in wanted.files:
                if file not in have.files:
                    async with asyncio.timeout(FETCH_TIMEOUT_S):
                        await _fetch_file(client, str(pool / "v1/voices" / file.sha256), folder.folder, file)
            names = {file.name for file in wanted.files}
            for file in have.files:
                if file.name not in names:
                    (folder.folder / file.name).unlink(missing_ok=True)
    except (aiohttp.ClientError, OSError, TimeoutError, CcTtsError, *UNREADABLE) as error:
        raise ProcessFailed(f"the voices of the pool cannot be fetched: {pool_client.why(error)}") from None
    if have != wanted:
        log.info("voices_fetched", num_files=len(wanted.files), num_before=len(have.files))
    return have != wanted


async def _fetch_file(client: aiohttp.ClientSession, url: str, folder: Path, file: VoiceFile) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part") as part:
        digest, num_bytes = hashlib.sha256(), 0
        async with client.get(url, allow_redirects=False) as answer:
            answer.raise_for_status()
            async for data in answer.content.iter_chunked(READ_BYTES):
                num_bytes += len(data)
                if num_bytes > file.bytes:
                    break
                digest.update(data)
                await asyncio.to_thread(part.write, data)
        if num_bytes != file.bytes or digest.hexdigest() != file.sha256:
            raise ProcessFailed(f"{file.name} is not what was announced")
        await asyncio.to_thread(_settle, part, folder / file.name)


def _settle(part: IO[bytes], path: Path) -> None:
    """Give a whole file its name; the one it was written under goes."""
    part.flush()
    os.fsync(part.fileno())
    linked = path.with_name(f"{Path(part.name).name}.whole")
    linked.hardlink_to(part.name)
    linked.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
