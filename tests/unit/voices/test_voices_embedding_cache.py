"""The cache of enrolled voices: whole or not there, and quick."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")

from cc_tts.errors import ConfigError
from cc_tts.voices.embedding_cache import EmbeddingCache, EnrolledVoice

pytestmark = pytest.mark.unit

KEY = "a" * 64


def voice(key: str = KEY, **changes: Any) -> EnrolledVoice:
    rng = np.random.default_rng(3)
    made = EnrolledVoice(
        key=key,
        transcript="Grüß Gott, 你好",
        fingerprint="networks 1",
        duration_s=4.5,
        warnings=("quiet",),
        llm_tokens=np.arange(112, dtype=np.int32),
        flow_tokens=np.arange(12, 112, dtype=np.int32),
        flow_mel=rng.standard_normal((200, 80)).astype(np.float32),
        embedding=rng.standard_normal(192).astype(np.float32),
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "voices")


def test_a_voice_comes_back_as_it_was(cache: EmbeddingCache) -> None:
    assert cache.load(KEY) is None
    stored = voice()
    cache.store(stored)
    loaded = cache.load(KEY)
    assert loaded is not None
    for field in dataclasses.fields(EnrolledVoice):
        expected, found = getattr(stored, field.name), getattr(loaded, field.name)
        if isinstance(expected, np.ndarray):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        else:
            assert found == expected


def test_voices_are_listed_without_their_tensors(cache: EmbeddingCache, tmp_path: Path) -> None:
    assert list(cache.entries()) == []
    cache.store(voice("b" * 64))
    cache.store(voice())
    (tmp_path / "voices" / "notes.json").write_text("{}")
    (tmp_path / "voices" / f"{KEY}.safetensors").unlink()
    found = list(cache.entries())
    assert [entry.key for entry in found] == ["a" * 64, "b" * 64]
    assert (found[0].num_llm_tokens, found[0].num_flow_tokens, found[0].transcript) == (112, 100, "Grüß Gott, 你好")


def test_nothing_but_the_two_files_is_left(cache: EmbeddingCache, tmp_path: Path) -> None:
    cache.store(voice())
    cache.store(voice())  # by two processes, say
    assert sorted(path.name for path in (tmp_path / "voices").iterdir()) == [f"{KEY}.json", f"{KEY}.safetensors"]
    cache.remove(KEY)
    cache.remove(KEY)
    assert list((tmp_path / "voices").iterdir()) == []


@pytest.mark.parametrize("kind", ["safetensors", "json"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-40], lambda _data: b"", lambda data: data[:50] + b"x" + data[51:]]
)
def test_a_damaged_voice_is_not_there(cache: EmbeddingCache, tmp_path: Path, kind: str, damage: Any) -> None:
    cache.store(voice())
    path = tmp_path / "voices" / f"{KEY}.{kind}"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load(KEY) is None


@pytest.mark.parametrize(
    ("field", "value"), [("version", 2), ("key", "b" * 64), ("tensors_sha256", "0" * 64), ("new", 1)]
)
def test_metadata_of_something_else_is_not_taken(cache: EmbeddingCache, tmp_path: Path, field: str, value: Any) -> None:
    cache.store(voice())
    path = tmp_path / "voices" / f"{KEY}.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {field: value}), encoding="utf-8")
    assert cache.load(KEY) is None


@pytest.mark.parametrize("file", ["safetensors", "json"])
def test_a_voice_whose_writing_broke_off_is_not_there(
    cache: EmbeddingCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    real = os.replace

    def broken(source: str, target: Path) -> None:
        if str(target).endswith(file):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(ConfigError, match="No space left"):
        cache.store(voice())
    assert cache.load(KEY) is None
    assert not [path for path in (tmp_path / "voices").iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_only_hashes_are_keys(cache: EmbeddingCache, key: str) -> None:
    with pytest.raises(ValueError, match="not the key of a voice"):
        cache.load(key)
