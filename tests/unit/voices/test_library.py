"""Named voices on disk: what is written comes back, names stay in their folder, features go with their last voice."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("safetensors")

from cc_tts import atomic_file
from cc_tts.errors import ConfigError, UnknownVoice
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.library import VoiceLibrary, VoiceRecord

pytestmark = pytest.mark.unit

KEY, OTHER_KEY = "a" * 64, "b" * 64


def record(voice_id: str = "anna", **changes: Any) -> VoiceRecord:
    made = VoiceRecord(id=voice_id, language="de-AT", mode="zero_shot", key=KEY, description="Grüß Gott")
    return msgspec.structs.replace(made, **changes)


def features(key: str = KEY, transcript: str = "Grüß Gott, 你好") -> EnrolledVoice:
    rng = np.random.default_rng(3)
    return EnrolledVoice(
        key=key,
        transcript=transcript,
        fingerprint="networks 1",
        duration_s=4.5,
        warnings=("quiet",),
        llm_tokens=np.arange(30, dtype=np.int32),
        flow_tokens=np.arange(5, 30, dtype=np.int32),
        flow_mel=rng.standard_normal((50, 80)).astype(np.float32),
        embedding=rng.standard_normal(192).astype(np.float32),
    )


@pytest.fixture
def library(tmp_path: Path) -> VoiceLibrary:
    return VoiceLibrary(tmp_path / "voices")


def test_a_voice_comes_back_as_it_was(library: VoiceLibrary) -> None:
    stored = features()
    library.add(record(), stored)
    found, loaded = VoiceLibrary(library.folder).load("anna")
    assert found == record()
    for field in dataclasses.fields(EnrolledVoice):
        expected, value = getattr(stored, field.name), getattr(loaded, field.name)
        assert getattr(value, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_array_equal(value, expected)


def test_a_folder_that_is_not_there_holds_no_voices(library: VoiceLibrary) -> None:
    assert (library.records(), library.faults(), library.has("anna")) == ((), (), False)
    assert not library.folder.exists()


def test_voices_are_listed_by_id(library: VoiceLibrary) -> None:
    for voice_id in ("bruno", "anna-2", "anna", "0.x_y"):
        library.store(record(voice_id))
    assert [found.id for found in library.records()] == ["0.x_y", "anna", "anna-2", "bruno"]
    assert not [path for path in library.folder.iterdir() if path.suffix == ".part"]


def test_an_unknown_voice_is_told_the_nearest(library: VoiceLibrary) -> None:
    library.store(record("anna"))
    library.store(record("zoe"))
    for call in (library.load, library.remove):
        with pytest.raises(UnknownVoice, match=r"no voice is called 'ana'; did you mean anna\? Known: anna, zoe$"):
            call("ana")


@pytest.mark.parametrize(
    "voice_id", ["", ".", "..", "../anna", "a/b", "/etc/passwd", "Anna", "-anna", "änna", "anna\n", "a" * 65, "anna\0"]
)
def test_names_stay_in_the_folder(library: VoiceLibrary, voice_id: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a voice"):
        library.store(record(voice_id))
    with pytest.raises(UnknownVoice):
        library.load(voice_id)
    with pytest.raises(UnknownVoice):
        library.remove(voice_id)
    assert not library.has(voice_id)
    assert not library.folder.exists()


def test_the_longest_name_is_a_file(library: VoiceLibrary) -> None:
    library.store(record("a" * 64))
    assert library.has("a" * 64)


@pytest.mark.parametrize("language", ["de", "en-GB", "cmn-Hans-CN", "yue", "es-419", "de-DE-1996"])
def test_language_tags(library: VoiceLibrary, language: str) -> None:
    library.store(record(language=language))
    assert library.records()[0].language == language


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"language": ""}, "not a language tag"),
        ({"language": "german"}, "not a language tag"),
        ({"language": "en_GB"}, "write it as in en-GB"),
        ({"language": "en-"}, "not a language tag"),
        ({"language": "de\n"}, "not a language tag"),
        ({"language": "en-toolongsubtag"}, "not a language tag"),
        ({"key": "../" + "a" * 61}, "not the key of a voice"),
        ({"mode": "instruct"}, "needs an instruction"),
        ({"mode": "instruct", "instruction": "  "}, "needs an instruction"),
        ({"instruction": "Speak calmly."}, "zero_shot takes none"),
        ({"mode": "cross_lingual", "instruction": "Speak calmly."}, "cross_lingual takes none"),
        ({"mode": "instruct", "instruction": "Calm.<|endofprompt|>"}, "marks of the model"),
        ({"mode": "instruct", "instruction": "x" * 501}, "501 characters; 500 are the most"),
        ({"description": "two\nlines"}, "more than one line"),
        ({"description": "\x1b[2J"}, "control characters"),
        ({"description": "x" * 201}, "201 characters"),
        ({"version": 2}, "form 2"),
    ],
)
def test_records_that_make_no_sense_are_not_stored(
    library: VoiceLibrary, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        library.store(record(**changes))
    assert not library.folder.exists()


def as_json(**changes: Any) -> bytes:
    return json.dumps(msgspec.to_builtins(record()) | changes).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a voice"),
        (b"{", "not a voice"),
        (b"\xff\xfe", "not a voice"),
        (b'{"id": "anna"}', "not a voice: .*language"),
        (as_json(mode="sft"), "not a voice"),
        (as_json(colour="red"), "not a voice: .*colour"),
        (as_json(description="\ud800"), "not a voice|control"),
        (as_json(version=2), "form 2"),
        (as_json(id="bruno"), "holds the voice 'bruno', its name says otherwise"),
        (as_json(language="german"), "not a language tag"),
        (as_json(key="x"), "not the key"),
        (as_json() + b" " * 70_000, "too long to be a voice"),
    ],
)
def test_files_that_are_no_voices_are_skipped_and_reported(library: VoiceLibrary, data: bytes, message: str) -> None:
    library.store(record("bruno"))
    (library.folder / "anna.voice.json").write_bytes(data)
    (library.folder / "notes.json").write_text("{}")
    assert [found.id for found in library.records()] == ["bruno"]
    (fault,) = library.faults()
    assert fault.startswith("anna.voice.json: ")
    with pytest.raises(ConfigError, match=message) as refused:
        library.load("anna")
    assert refused.value.detail == fault


def test_a_folder_in_the_place_of_a_file_is_reported(library: VoiceLibrary) -> None:
    (library.folder / "anna.voice.json").mkdir(parents=True)
    assert library.faults() == ("anna.voice.json: cannot be read: Is a directory",)
    with pytest.raises(ConfigError, match=r"cannot remove .*anna"):
        library.remove("anna")


@pytest.mark.parametrize("kind", ["safetensors", "json"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-40], lambda _data: b"", lambda data: data[:50] + b"x" + data[51:]]
)
def test_missing_or_damaged_features_are_reported(library: VoiceLibrary, kind: str, damage: Any) -> None:
    library.store(record())
    with pytest.raises(ConfigError, match="'anna' are missing or damaged; enrol it again"):
        library.load("anna")
    library.features.store(features())
    library.load("anna")
    path = library.folder / "features" / f"{KEY}.{kind}"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match="enrol it again"):
        library.load("anna")


def test_a_zero_shot_voice_needs_its_transcript(library: VoiceLibrary) -> None:
    library.features.store(features(transcript=""))
    library.store(record())
    library.store(record("across", mode="cross_lingual"))
    with pytest.raises(ConfigError, match="without a transcript"):
        library.load("anna")
    assert library.load("across")[1].transcript == ""


def test_features_go_with_their_last_voice(library: VoiceLibrary) -> None:
    library.features.store(features())
    library.store(record("anna"))
    library.store(record("calm", mode="instruct", instruction="Speak calmly."))
    library.remove("anna")
    assert [found.id for found in library.records()] == ["calm"]
    assert library.load("calm")[1].key == KEY
    library.remove("calm")
    assert library.features.load(KEY) is None
    assert [path.name for path in library.folder.rglob("*") if path.is_file()] == []


def test_a_voice_replaced_takes_its_old_features_along(library: VoiceLibrary) -> None:
    library.features.store(features())
    library.features.store(features(OTHER_KEY))
    library.store(record())
    library.store(record(description="the same recording"))
    assert library.features.load(KEY) is not None
    library.store(record(key=OTHER_KEY))
    assert library.features.load(KEY) is None
    assert library.load("anna")[1].key == OTHER_KEY


def test_features_stay_while_a_file_that_cannot_be_read_may_use_them(library: VoiceLibrary) -> None:
    library.features.store(features())
    library.store(record())
    (library.folder / "newer.voice.json").write_bytes(as_json(id="newer", version=2))
    library.remove("anna")
    assert library.features.load(KEY) is not None


def test_a_damaged_voice_can_be_removed_and_replaced(library: VoiceLibrary) -> None:
    library.store(record())
    path = library.folder / "anna.voice.json"
    path.write_bytes(b"{")
    library.store(record())
    assert library.faults() == ()
    path.write_bytes(b"{")
    library.remove("anna")
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_told(library: VoiceLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file, "write", full)
    with pytest.raises(ConfigError, match=r"cannot keep the voice in .*No space left"):
        library.store(record())
    assert library.records() == ()


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "voices").write_text("")
    library = VoiceLibrary(tmp_path / "voices")
    with pytest.raises(ConfigError, match=r"cannot keep the voice in .*exists"):
        library.store(record())


# --- features


def test_features_are_listed_without_their_tensors(library: VoiceLibrary) -> None:
    assert list(library.features.entries()) == []
    library.features.store(features(OTHER_KEY))
    library.features.store(features())
    (library.folder / "features" / "notes.json").write_text("{}")
    (library.folder / "features" / f"{KEY}.safetensors").unlink()
    found = list(library.features.entries())
    assert [entry.key for entry in found] == [KEY, OTHER_KEY]
    assert (found[0].num_llm_tokens, found[0].num_flow_tokens, found[0].transcript) == (30, 25, "Grüß Gott, 你好")


def test_nothing_but_the_two_files_is_left(library: VoiceLibrary) -> None:
    library.features.store(features())
    library.features.store(features())  # by two processes, say
    assert sorted(path.name for path in (library.folder / "features").iterdir()) == [
        f"{KEY}.json",
        f"{KEY}.safetensors",
    ]
    library.features.remove(KEY)
    library.features.remove(KEY)
    assert list((library.folder / "features").iterdir()) == []


@pytest.mark.parametrize(
    ("field", "value"), [("version", 2), ("key", OTHER_KEY), ("tensors_sha256", "0" * 64), ("new", 1)]
)
def test_metadata_of_something_else_is_not_taken(library: VoiceLibrary, field: str, value: Any) -> None:
    library.features.store(features())
    path = library.folder / "features" / f"{KEY}.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {field: value}), encoding="utf-8")
    assert library.features.load(KEY) is None


@pytest.mark.parametrize("file", ["safetensors", "json"])
def test_features_whose_writing_broke_off_are_not_there(
    library: VoiceLibrary, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    real = os.replace

    def broken(source: str, target: Path) -> None:
        if str(target).endswith(file):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(ConfigError, match="No space left"):
        library.features.store(features())
    assert library.features.load(KEY) is None
    assert not [path for path in (library.folder / "features").iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_only_hashes_are_keys(library: VoiceLibrary, key: str) -> None:
    with pytest.raises(ValueError, match="not the key of a voice"):
        library.features.load(key)
