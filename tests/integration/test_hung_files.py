"""Files that hang, as on a dead network disk; a pipe that nobody writes to stands for them."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cc_tts.config.schema import CacheConfig
from cc_tts.metrics import Metrics
from cc_tts.speech.cache import prompt_files
from cc_tts.speech.cache.prompt_files import CachedChunk, CachedPrompt, PromptFiles
from lab.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ENDS = """
import asyncio, sys
from cc_tts.processes import threads

async def main():
    asyncio.get_running_loop().run_in_executor(None, open, sys.argv[1])
    await asyncio.sleep(0.2)
    print("ends", flush=True)

threads.run(main())
sys.exit(threads.leave(3))
"""
KEYS = tuple(f"{number:064x}" for number in range(8))
PROMPT = CachedPrompt(chunks=(CachedChunk(bytes(320)),))


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs")
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "hangs")], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 3
    assert b"ends" in done.stdout
    assert b"threads_hang" in done.stdout + done.stderr
    assert time.monotonic() - began_s < 30


async def filled(folder: Path) -> PromptFiles:
    files = PromptFiles(CacheConfig(disk_dir=str(folder)), Metrics())
    await files.start()
    for key in KEYS:
        files.store(key, PROMPT)
    await until(lambda: len(files) == len(KEYS))
    return files


async def test_a_pipe_in_place_of_a_prompt_is_no_prompt(tmp_path: Path) -> None:
    files = await filled(tmp_path)
    path = tmp_path / f"{KEYS[0]}.prompt"
    path.unlink()
    os.mkfifo(path)
    async with asyncio.timeout(PATIENCE_S):
        assert await files.load(KEYS[0]) is None
        assert await files.load(KEYS[1]) == PROMPT
        await files.stop()
    assert not path.exists()


async def test_prompts_whose_files_hang_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_files, "READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(prompt_files, "STOP_TIMEOUT_S", 0.1)
    files = await filled(tmp_path)
    os.mkfifo(tmp_path / "hangs")
    monkeypatch.setattr(prompt_files, "from_file", lambda *_read: (tmp_path / "hangs").read_bytes())
    async with asyncio.timeout(PATIENCE_S):
        assert [await files.load(key) for key in KEYS] == [None] * len(KEYS)
        assert await asyncio.to_thread(lambda: 1) == 1, "other threads are free"
        await files.stop()
    with (tmp_path / "hangs").open("wb"):  # the disk is back
        pass
    monkeypatch.undo()
    async with asyncio.timeout(PATIENCE_S):
        while await files.load(KEYS[0]) != PROMPT:  # noqa: ASYNC110 - the thread that hung tells nobody
            await asyncio.sleep(0.01)
