"""What is kept of prompts: in memory, on disk, within bounds, and whole or not at all."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts import atomic_file
from cc_tts.config.schema import CacheConfig
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.speech.cache import prompt_files
from cc_tts.speech.cache.prompt_cache import MAX_KEYS_REMEMBERED, PromptCache
from cc_tts.speech.cache.prompt_files import (
    CachedChunk,
    CachedPrompt,
    PromptFiles,
    charged_bytes,
    from_file,
    to_file,
)
from lab.waiting import until
from tests.support.captured_logs import capture_logs
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def prompt(number: int = 1, num_bytes: int = 1600) -> CachedPrompt:
    pcm = bytes([number % 256, 1]) * (num_bytes // 2)
    words = ((0.0, 0.0), (120.5, 0.4))
    first, second, third = pcm[:640], pcm[640:960], pcm[960:]
    chunks = (CachedChunk(first, 12, words), CachedChunk(second, None, ((400.0, 0.9),)), CachedChunk(third, 7))
    return CachedPrompt(chunks)


class MeasuredCache(PromptCache):
    def __init__(self, config: CacheConfig) -> None:
        self.metrics = Metrics()
        super().__init__(config, self.metrics)


def cache(folder: Path | None = None, **config: Any) -> MeasuredCache:
    return MeasuredCache(CacheConfig(disk_dir=str(folder or ""), **config))


def keep(to: PromptCache, number: int, num_bytes: int = 1600, *, uses: int = 2) -> None:
    for _ in range(uses):
        to.count_use(key(number))
    to.store(key(number), prompt(number, num_bytes))


def listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def figure(of: MeasuredCache, name: str, **labels: str) -> float | None:
    return of.metrics.registry.get_sample_value(f"cctts_prompt_cache_{name}", labels)


# --- in memory -----------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_goes_first() -> None:
    kept = cache(memory_bytes=1 << 20)
    for number in range(3):
        keep(kept, number, 340_000)
    assert kept.in_memory(key(0)) is not None
    keep(kept, 3, 340_000)
    assert [kept.has(key(number)) for number in range(4)] == [True, False, True, True]
    assert figure(kept, "evictions_total", where="memory") == 1
    assert figure(kept, "prompts", where="memory") == 3
    assert figure(kept, "bytes", where="memory") == kept.memory_bytes


def test_the_same_prompt_kept_twice_is_counted_once() -> None:
    kept = cache()
    keep(kept, 1)
    keep(kept, 1)
    assert kept.memory_bytes == prompt(1).num_bytes


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(500, 700_000), st.booleans()), max_size=30),
    st.integers(1 << 20, 3 << 20),
)
@settings(max_examples=40)
def test_memory_never_grows_beyond_its_bound(steps: list[tuple[int, int, bool]], memory_bytes: int) -> None:
    kept = cache(memory_bytes=memory_bytes)
    prompts: dict[int, CachedPrompt] = {}
    for number, num_samples, is_read in steps:
        if is_read:
            kept.in_memory(key(number))
        else:
            keep(kept, number, num_samples * 2)
            if (made := prompt(number, num_samples * 2)).num_bytes <= memory_bytes:
                prompts[number] = made
                assert kept.has(key(number)), "what came last is there"
        held = [prompts[each].num_bytes for each in prompts if kept.has(key(each))]
        assert sum(held) == kept.memory_bytes <= memory_bytes


def test_uses_are_forgotten_in_time() -> None:
    kept = cache()

    def use(numbers: range) -> int:
        for number in numbers:
            kept.count_use(str(number))
        return held_bytes(kept)

    few = use(range(MAX_KEYS_REMEMBERED))
    assert use(range(MAX_KEYS_REMEMBERED, 3 * MAX_KEYS_REMEMBERED)) < 1.5 * few


# --- the file ------------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_file_is_refused(data: st.DataObject) -> None:
    whole = bytearray(to_file(key(1), prompt(1)))
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    with pytest.raises(ValueError):
        from_file(key(1), bytes(whole))


def test_the_file_of_another_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="another prompt"):
        from_file(key(2), to_file(key(1), prompt(1)))


@pytest.mark.parametrize(
    "unsound",
    [
        CachedPrompt(()),
        CachedPrompt((CachedChunk(b"abc"),)),
        CachedPrompt((CachedChunk(b"abcd"), CachedChunk(b"abc"))),
        CachedPrompt((CachedChunk(b"abcd", -1),)),
    ],
)
def test_what_makes_no_sense_is_refused_though_its_checksum_is_right(unsound: CachedPrompt) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|half a sample"):
        from_file(key(1), to_file(key(1), unsound))


# --- the folder ----------------------------------------------------------------------------------------------------------


async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    kept = cache(tmp_path / "prompts")
    await kept.files.start()
    keep(kept, 1)
    await kept.files.stop()
    (file,) = (tmp_path / "prompts").iterdir()
    assert file.name == f"{key(1)}.prompt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_damaged_file_is_dropped_and_said(tmp_path: Path, logged: list[Any]) -> None:
    kept = cache(tmp_path)
    await kept.files.start()
    keep(kept, 1)
    await kept.files.stop()
    path = tmp_path / f"{key(1)}.prompt"
    path.write_bytes(path.read_bytes()[:-1])
    again = cache(tmp_path)
    await again.files.start()
    assert await again.load(key(1)) is None
    assert not path.exists()
    assert key(1) not in again.files
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == ["prompt_cache_file_damaged"]
    assert figure(again, "damaged_total") == 1
    assert figure(again, "bytes", where="disk") == 0


async def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    await kept.files.start()
    keep(kept, 1)
    await kept.files.stop()
    (tmp_path / f"{key(1)}.prompt").unlink()
    assert await kept.load(key(1)) is None
    assert key(1) not in kept.files
    assert figure(kept, "damaged_total") == 0


async def test_what_is_not_ours_is_left_alone_and_what_was_begun_goes(tmp_path: Path) -> None:
    for name in ("notes.txt", f"{key(1)}.prompt.bak", "x.prompt", ".begun-abc"):
        (tmp_path / name).write_text("x")
    (tmp_path / f"{key(2)}.prompt").mkdir()
    (tmp_path / f"{key(3)}.prompt").symlink_to(tmp_path / "notes.txt")
    kept = cache(tmp_path)
    await kept.files.start()
    assert not any(key(number) in kept.files for number in (1, 2, 3))
    assert not (tmp_path / ".begun-abc").exists()
    assert len(listed(tmp_path)) == 5
    await kept.files.stop()


async def test_a_folder_that_cannot_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"cache\.disk_dir"):
        await cache(tmp_path / "file" / "prompts").files.start()


async def test_the_oldest_files_go_at_the_start_when_the_bound_was_lowered(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / f"{key(number)}.prompt"
        path.write_bytes(to_file(key(number), prompt(number, 400_000)))
        os.utime(path, (number, number))
    kept = cache(tmp_path, disk_bytes=1 << 20)
    await kept.files.start()
    assert [key(number) in kept.files for number in range(4)] == [False, False, True, True]
    assert len(listed(tmp_path)) == 2
    await kept.files.stop()


async def test_the_order_of_use_survives_a_restart_also_for_what_was_played_from_memory(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{key(number)}.prompt"
        path.write_bytes(to_file(key(number), prompt(number, 300_000)))
        os.utime(path, (number, number))
    first = cache(tmp_path)
    await first.files.start()
    await first.load(key(0))
    os.utime(tmp_path / f"{key(0)}.prompt", (0, 0))
    assert first.in_memory(key(0)) is not None
    await first.files.stop()
    second = cache(tmp_path, disk_bytes=1 << 20)
    await second.files.start()
    keep(second, 9, 400_000)
    await second.files.stop()
    assert [key(number) in second.files for number in (0, 1, 2, 9)] == [True, False, True, True]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 300_000)), min_size=1, max_size=12))
@settings(max_examples=25)
def test_files_never_grow_beyond_their_bound(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    max_bytes = 1 << 20
    sizes: list[int] = []

    async def run() -> PromptFiles:
        files = PromptFiles(CacheConfig(disk_dir=str(folder), disk_bytes=max_bytes), Metrics())
        await files.start()
        for number, num_samples in steps:
            files.store(key(number), prompt(number, num_samples * 2))
            await files.stop()
            sizes.append(sum(charged_bytes(path.stat().st_size) for path in folder.iterdir()))
        return files

    files = asyncio.run(run())
    assert max(sizes) <= max_bytes
    assert sizes[-1] == files.num_bytes
    assert len(files) == len(list(folder.iterdir()))


async def test_a_full_disk_is_said_once_and_calls_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    kept = cache(tmp_path)
    await kept.files.start()

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file, "write", full)
    for number in range(3):
        keep(kept, number)
    await kept.files.stop()
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == ["prompt_cache_write_failed"]
    assert all(kept.in_memory(key(number)) for number in range(3))
    assert key(0) not in kept.files
    assert kept.metrics.registry.get_sample_value("cctts_file_unwritable", {"key": "cache.disk_dir"}) == 1


async def test_what_the_disk_refused_is_written_when_it_takes_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(prompt_files, "RETRY_INTERVAL_S", 0.0)
    kept = cache(tmp_path)
    await kept.files.start()
    refusals = [OSError(28, "No space left on device")] * 3
    write = atomic_file.write

    def sometimes_full(*arguments: Any, **options: Any) -> None:
        if refusals:
            raise refusals.pop()
        write(*arguments, **options)

    monkeypatch.setattr(atomic_file, "write", sometimes_full)
    keep(kept, 1)
    await until(lambda: key(1) in kept.files)
    await kept.files.stop()
    assert kept.metrics.registry.get_sample_value("cctts_file_unwritable", {"key": "cache.disk_dir"}) == 0
    assert [line["event"] for line in logged if line["event"].startswith("prompt_cache_w")] == [
        "prompt_cache_write_failed",
        "prompt_cache_written_again",
    ]


async def test_a_write_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache(tmp_path)
    await kept.files.start()

    def broken(_self: Path, _target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", broken)
    keep(kept, 1)
    await kept.files.stop()
    assert listed(tmp_path) == []


async def test_what_waits_to_be_written_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_files, "MAX_PENDING_BYTES", 4000)
    kept = cache(tmp_path)
    await kept.files.start()
    for number in range(5):
        keep(kept, number)
    await kept.files.stop()
    assert [key(number) in kept.files for number in range(5)] == [True, True, False, False, False]
    assert all(kept.in_memory(key(number)) for number in range(5))
