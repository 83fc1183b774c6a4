"""Your own voices on disk: a name, how to use it, and the key of its features.

::

    <folder>/<id>.voice.json      one VoiceRecord
    <folder>/features/            EmbeddingCache: tokens, mel and embedding, found by key

Several names may share one key: the same recording may be spoken from in several ways.
"""

import contextlib
import re
import unicodedata
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from cc_tts import atomic_file
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.errors import UNREADABLE, ConfigError
from cc_tts.voices.catalog import unknown_voice
from cc_tts.voices.embedding_cache import KEY, EmbeddingCache, EnrolledVoice
from cc_tts.voices.folder import FEATURES
from cc_tts.voices.voice import Voice

VoiceMode = Literal["zero_shot", "cross_lingual", "instruct"]
"""The input of the language model besides the text (spec §3.2): the transcript and the recording, nothing, or an
instruction. The flow gets the recording in all three modes.
"""
MODES: Final[tuple[VoiceMode, ...]] = get_args(VoiceMode)

MAX_DESCRIPTION_CHARS: Final = 200  # unmeasured

_SUFFIX: Final = ".voice.json"
_MAX_RECORD_BYTES: Final = 65_536  # unmeasured
_VERSION: Final = 1
_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,5}")


class VoiceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One voice. ``language`` is a BCP 47 tag; ``key`` names the features; ``instruction`` belongs to ``instruct``."""

    id: str
    language: str
    mode: VoiceMode
    key: str
    instruction: str = ""
    description: str = ""
    version: int = _VERSION


def check_id(voice_id: str) -> str:
    """Return a valid id of a voice and its file; raises ``ConfigError``."""
    if not _ID.fullmatch(voice_id):
        raise ConfigError(
            f"{voice_id[:80]!r} cannot name a voice; use 1 to 64 of a-z, 0-9, dot, hyphen and underscore, a letter or "
            "digit first"
        )
    return voice_id


def check_plain(text: str, what: str, *, max_chars: int) -> str:
    """A text of one line that is no longer than ``max_chars`` and holds none of the model's marks; ``ConfigError`` if it is
    not, beginning with ``what``.
    """
    if len(text) > max_chars:
        raise ConfigError(f"{what} has {len(text)} characters; {max_chars} are the most")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in text):
        raise ConfigError(f"{what} holds control characters or more than one line")
    if "<|" in text:
        raise ConfigError(f"{what} holds '<|', as the marks of the model do; leave them out, they are put in as needed")
    return text


def check_record(record: VoiceRecord) -> VoiceRecord:
    """Return a record with valid and consistent fields; raises ``ConfigError``."""
    if record.version != _VERSION:
        raise ConfigError(f"written in form {record.version}, this version of cc-tts reads form {_VERSION}")
    check_id(record.id)
    if not _LANGUAGE.fullmatch(record.language):
        raise ConfigError(f"{record.language[:80]!r} is not a language tag; write it as in en-GB, de or zh")
    if not KEY.fullmatch(record.key):
        raise ConfigError(f"{record.key[:80]!r} is not the key of a voice")
    check_plain(record.instruction, "the instruction", max_chars=MAX_INSTRUCTION_CHARS)
    check_plain(record.description, "the description", max_chars=MAX_DESCRIPTION_CHARS)
    if record.mode == "instruct" and not record.instruction.strip():
        raise ConfigError("a voice of the mode instruct needs an instruction, such as 'Speak calmly and slowly.'")
    if record.mode != "instruct" and record.instruction:
        raise ConfigError(f"an instruction goes with the mode instruct; {record.mode} takes none")
    return record


class VoiceLibrary:
    """The voices of one folder. Every method reads the disk, so voices that were enrolled meanwhile are found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.features = EmbeddingCache(folder / FEATURES)

    def records(self) -> tuple[VoiceRecord, ...]:
        """Return every voice, by id. Unreadable files are left out; ``faults`` names them."""
        return self._scan()[0]

    def faults(self) -> tuple[str, ...]:
        """The voices that cannot be read and why, one line each."""
        return self._scan()[1]

    def has(self, voice_id: str) -> bool:
        """Whether the name is taken, also by an unreadable file."""
        return _ID.fullmatch(voice_id) is not None and self._path(voice_id).exists()

    def load(self, voice_id: str) -> tuple[VoiceRecord, EnrolledVoice]:
        """Read a voice with its features. Raises ``UnknownVoice``, which names the nearest ones, or ``ConfigError`` if its
        file cannot be read or its features are missing.
        """
        self._must_have(voice_id)
        record = _read(self._path(voice_id))
        features = self.features.load(record.key)
        if features is None:
            raise ConfigError(f"the features of the voice {voice_id!r} are missing or damaged; enrol it again")
        if record.mode == "zero_shot" and not features.transcript:
            raise ConfigError(f"the voice {voice_id!r} was enrolled without a transcript; enrol it again with one")
        return record, features

    def store(self, record: VoiceRecord) -> None:
        """Write a voice, replacing one of the same id; its former features are deleted if no other voice uses them. Raises
        ``ConfigError`` if the record makes no sense, or the folder cannot be written.
        """
        path = self._path(check_record(record).id)
        old_key = self._key_at(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_file.write(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot keep the voice in {self.folder}: {error.strerror}") from None
        self._forget_unused(old_key)

    def add(self, record: VoiceRecord, voice: EnrolledVoice) -> None:
        """Write a voice with its features; raises as :meth:`store`, with nothing new left behind."""
        try:
            self.features.store(voice)
            self.store(record)
        except ConfigError:
            with contextlib.suppress(ConfigError):
                self._forget_unused(voice.key)
            raise

    def remove(self, voice_id: str) -> None:
        """Delete a voice, also an unreadable one; its features stay while another voice uses them. Raises ``UnknownVoice``,
        or ``ConfigError`` if the folder cannot be written.
        """
        self._must_have(voice_id)
        path = self._path(voice_id)
        key = self._key_at(path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot remove {path}: {error.strerror}") from None
        self._forget_unused(key)

    def _must_have(self, voice_id: str) -> None:
        if not self.has(voice_id):
            raise unknown_voice(voice_id, [Voice(found.id, "", found.language) for found in self.records()])

    def _forget_unused(self, key: str | None) -> None:
        records, faults = self._scan()
        # a file that cannot be read may be a voice of a newer version and use the same features
        if key is None or faults or any(record.key == key for record in records):
            return
        try:
            self.features.remove(key)
        except OSError as error:
            raise ConfigError(f"cannot remove features from {self.folder}: {error.strerror}") from None

    def _key_at(self, path: Path) -> str | None:
        with contextlib.suppress(ConfigError):
            return _read(path).key
        return None

    def _scan(self) -> tuple[tuple[VoiceRecord, ...], tuple[str, ...]]:
        records, faults = [], []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            try:
                records.append(_read(path))
            except ConfigError as error:
                faults.append(error.detail)
        return tuple(sorted(records, key=lambda record: record.id)), tuple(sorted(faults))

    def _path(self, voice_id: str) -> Path:
        return self.folder / f"{check_id(voice_id)}{_SUFFIX}"


def _read(path: Path) -> VoiceRecord:
    try:
        with path.open("rb") as file:
            return _parsed(file.read(_MAX_RECORD_BYTES + 1), path.name.removesuffix(_SUFFIX))
    except OSError as error:
        raise ConfigError(f"{path.name}: cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error.detail}") from None


def _parsed(data: bytes, voice_id: str) -> VoiceRecord:
    if len(data) > _MAX_RECORD_BYTES:
        raise ConfigError("too long to be a voice")
    try:
        record = msgspec.json.decode(data, type=VoiceRecord)
    except UNREADABLE as error:
        raise ConfigError(f"not a voice: {error}") from None
    if record.id != voice_id:
        raise ConfigError(f"holds the voice {record.id[:80]!r}, its name says otherwise")
    return check_record(record)
