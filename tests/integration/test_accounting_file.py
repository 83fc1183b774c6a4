"""The accounting file: every line once, through moves of the file and a disk that is full."""

import asyncio
import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cc_tts import atomic_file
from cc_tts.config.schema import TenantConfig, TokenConfig
from cc_tts.errors import ConfigError, EngineFailed
from cc_tts.metrics import Metrics
from cc_tts.processes import line_writer
from cc_tts.tenants.accounting import AccountingLog, UtteranceLine
from lab.waiting import until
from tests.fakes.fake_line import FakeClock
from tests.fakes.running_api import make_config, running_api

pytestmark = pytest.mark.integration

WITHIN_S = 100.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "INTERVAL_S", 0.01)
    monkeypatch.setattr(line_writer, "RETRY_INTERVAL_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounting.jsonl"


def line(number: int) -> UtteranceLine:
    return UtteranceLine(
        tenant="acme",
        call_id="c1",
        utterance_id=f"u{number}",
        characters=10,
        played_ms=1500,
        cached=False,
        voice="en-us",
        engine="espeak",
        reason="normal",
        error=None,
    )


def lines_of(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for path in files if path.exists() for each in path.read_text().splitlines()]


def mode_of(file: Path) -> int:
    return file.stat().st_mode


def make_folder_of(file: Path) -> None:
    file.unlink()
    file.mkdir()


def text_of(file: Path) -> str:
    return file.read_text()


async def until_lines(num: int, *files: Path) -> list[dict[str, Any]]:
    await until(lambda: len(lines_of(*files)) >= num, timeout_s=WITHIN_S)
    return lines_of(*files)


async def test_a_line(file: Path) -> None:
    log = AccountingLog(file, node="line-1", clock=FakeClock())
    await log.start()
    log.add(line(1))
    (found,) = await until_lines(1, file)
    assert found == {
        "type": "utterance",
        "time": 1.0,
        "node": "line-1",
        "tenant": "acme",
        "call_id": "c1",
        "utterance_id": "u1",
        "characters": 10,
        "played_ms": 1500,
        "cached": False,
        "voice": "en-us",
        "engine": "espeak",
        "reason": "normal",
        "error": None,
    }
    await log.stop()


async def test_what_waits_is_written_at_the_end(file: Path) -> None:
    file.write_text('{"earlier": true}\n')  # noqa: ASYNC240 - a test
    log = AccountingLog(file)
    await log.start()
    for number in range(2500):
        log.add(line(number))
    await log.stop()
    await log.stop()
    assert [each.get("utterance_id") for each in lines_of(file)] == [None, *(f"u{number}" for number in range(2500))]


async def test_who_wants_to_know_is_told_when_a_line_is_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, disk, written = AccountingLog(file), FullDisk(), list[int]()
    await log.start()
    monkeypatch.setattr(atomic_file, "os", disk)
    log.add(line(1), on_written=lambda: written.append(1))
    await until(lambda: disk.num_refused >= 2, timeout_s=WITHIN_S)
    assert not written
    monkeypatch.setattr(atomic_file, "os", os)
    await until(lambda: written == [1], timeout_s=WITHIN_S)
    assert len(lines_of(file)) == 1
    await log.stop()
    AccountingLog().add(line(2), on_written=lambda: written.append(2))
    assert written == [1, 2], "without a file there is nothing to wait for"


async def test_the_file_may_be_moved(file: Path) -> None:
    log = AccountingLog(file)
    await log.start()
    log.add(line(1))
    await until_lines(1, file)
    moved = file.rename(file.with_suffix(".1"))  # noqa: ASYNC240 - a test
    log.add(line(2))
    await until_lines(1, file)
    await log.stop()
    assert [each["utterance_id"] for each in lines_of(moved, file)] == ["u1", "u2"]


class FullDisk:
    """The module ``os`` of a machine that can write half a line more."""

    def __init__(self) -> None:
        self.num_refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: memoryview) -> int:
        if len(data) > 100:
            return os.write(descriptor, data[:100])
        self.num_refused += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_while_the_disk_is_full_lines_wait_and_then_come_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, disk = Metrics(), FullDisk()
    log = AccountingLog(file, metrics=metrics)

    def is_unwritable() -> float | None:
        return metrics.registry.get_sample_value("cctts_file_unwritable", {"key": "accounting.file"})

    await log.start()
    assert is_unwritable() == 0
    log.add(line(0))
    await until_lines(1, file)
    monkeypatch.setattr(atomic_file, "os", disk)
    for number in range(1, 4):
        log.add(line(number))
    await until(lambda: disk.num_refused >= 2, timeout_s=WITHIN_S)
    assert is_unwritable() == 1
    monkeypatch.setattr(atomic_file, "os", os)
    found = await until_lines(4, file)
    await until(lambda: is_unwritable() == 0)
    assert [each["utterance_id"] for each in found] == ["u0", "u1", "u2", "u3"]
    await log.stop()


async def test_lines_beyond_those_that_may_wait_are_counted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "MAX_WAITING_LINES", 5)
    monkeypatch.setattr(line_writer, "STOP_TIMEOUT_S", 0.1)
    metrics = Metrics()
    log = AccountingLog(file, metrics=metrics)
    await log.start()
    make_folder_of(file)  # it cannot be written
    for number in range(8):
        log.add(line(number))
    await log.stop()
    assert metrics.registry.get_sample_value("cctts_accounting_lost_lines_total") == 8


async def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    log = AccountingLog(tmp_path / "nowhere" / "accounting.jsonl")
    with pytest.raises(ConfigError, match=r"accounting.file: .*nowhere.*: No such file"):
        await log.start()


async def test_a_pipe_that_nobody_reads_stops_the_start_instead_of_holding_it_up(file: Path) -> None:
    os.mkfifo(file)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(ConfigError, match=r"accounting.file: "):
            await AccountingLog(file).start()


async def test_without_a_file_nothing_is_kept() -> None:
    log = AccountingLog()
    await log.start()
    log.add(line(1))
    assert not list(Path.cwd().glob("accounting*"))
    await log.stop()


async def test_nobody_else_may_read_it(file: Path) -> None:
    log = AccountingLog(file)
    await log.start()
    await log.stop()
    assert mode_of(file) & 0o007 == 0


async def test_speech_without_a_call_has_a_line(file: Path) -> None:
    token = "token-of-acme"
    config = dataclasses.replace(
        make_config(tokens=(TokenConfig(token, tenant="acme"),)), tenants={"acme": TenantConfig()}
    )
    log = AccountingLog(file)
    await log.start()
    headers = {"Authorization": f"Bearer {token}"}
    async with running_api(config, accounting=log) as api:
        whole = {"input": "one two three", "response_format": "pcm"}
        assert (await api.ask("POST", "/v1/audio/speech", whole, headers=headers)).status == 200
        api.registry.source.fail_at, api.registry.source.error = 1, EngineFailed("it broke")
        with pytest.raises(aiohttp.ClientPayloadError):
            await api.ask("POST", "/v1/audio/speech", whole, headers=headers)
        refused = await api.ask("POST", "/v1/audio/speech", {"input": "..."}, headers=headers)
        assert refused.status == 422
        found = await until_lines(2, file)
    await log.stop()
    kept = ("type", "tenant", "call_id", "characters", "played_ms", "voice", "reason", "error")
    assert [tuple(each[key] for key in kept) for each in found] == [
        ("utterance", "acme", None, 13, 300, "en-us", "normal", None),
        ("utterance", "acme", None, 13, 100, "en-us", "error", "engine_failed"),
    ]
    assert "one two" not in text_of(file)
