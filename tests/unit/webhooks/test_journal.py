"""The events that must not be lost, in their file: when they are on the disk, and what is left in it."""

import asyncio
import os
from pathlib import Path

import pytest

from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.processes import line_writer
from cc_tts.webhooks import journal as module
from cc_tts.webhooks.journal import Journal, Kept
from lab.waiting import until
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit


def event(number: int) -> Kept:
    return Kept(webhook="w", id=f"e{number}", type="call.terminated", call_id="c1", seq=number, at_s=1.0, body="{}")


async def left_over(file: Path) -> list[str]:
    journal = Journal(file, Metrics())
    found = await journal.start()
    await journal.stop()
    return [each.id for each in found]


async def test_an_event_is_on_the_disk_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fdatasync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", note)
    file = tmp_path / "journal"
    journal = Journal(file, Metrics())
    await journal.start()
    begun_s = asyncio.get_running_loop().time()
    journal.keep(event(1))
    await until(lambda: bool(synced))
    journal.keep(event(2))
    journal.settle("w e1")
    await until(lambda: len(synced) > 1)
    assert asyncio.get_running_loop().time() - begun_s < 10 * line_writer.INTERVAL_S
    assert synced[-1] == file.stat().st_size
    await journal.stop()
    assert await left_over(file) == ["e2"]


async def test_the_file_does_not_grow_with_events_that_were_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_LINES_TO_COMPACT", 10)
    monkeypatch.setattr(line_writer, "INTERVAL_S", 0.01)
    file = tmp_path / "journal"
    journal = Journal(file, Metrics())
    await journal.start()
    journal.keep(event(0))
    for number in range(1, 40):
        journal.keep(event(number))
        journal.settle(f"w e{number}")
    await until(lambda: file.stat().st_size > 0)
    journal.keep(event(40))
    await journal.stop()
    assert len(file.read_text().splitlines()) <= 3
    assert await left_over(file) == ["e0", "e40"]


async def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "cc_tts.toml"
    file.write_text("[sip]\nport = 5060\n")
    with pytest.raises(ConfigError, match="is not a file of events"):
        await left_over(file)
    assert file.read_text() == "[sip]\nport = 5060\n"


async def test_a_damaged_line_costs_one_event_and_is_told_of(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file, Metrics())
    await journal.start()
    for number in (1, 2, 3):
        journal.keep(event(number))
    await journal.stop()
    first, second, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second.replace(b"{", b"\0", 1) + third + b'{"keep"')
    with capture_logs() as logged:
        assert await left_over(file) == ["e1", "e3"]
    assert [(each["event"], each["lines"]) for each in logged] == [("events_unreadable", 1)]


async def test_without_a_file_nothing_is_written() -> None:
    journal = Journal(None, Metrics())
    assert await journal.start() == []
    journal.keep(event(1))
    journal.settle("w e1")
    await journal.stop()
