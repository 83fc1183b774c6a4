"""Where a recording may be sent, and what is told where that fails."""

import asyncio
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from cc_tts.api.recordings import delivery
from cc_tts.config.record import RecordConfig
from cc_tts.errors import Unprocessable
from cc_tts.recorder.info import RecordingInfo

pytestmark = pytest.mark.unit

CONFIG = RecordConfig(
    upload_hosts=("a.example.com", "*.s3.example.com", "10.1.2.3", "127.0.0.1"), upload_networks=("10.1.0.0/16",)
)


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example.com/x?signature=1",
        "https://A.example.com:8443/",
        "https://b.s3.example.com/r",
        "https://10.1.2.3/r",
    ],
)
def test_named_hosts_are_sent_recordings(url: str) -> None:
    delivery.check_url(url, CONFIG)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example.com/x",
        "https://other.example.com/",
        "https://s3.example.com/",
        "https://evils3.example.com/",
        "https://a.example.com.evil.example/",
        "https://user:word@a.example.com/",
        "https://a.example.com@evil.example/",
        "https://127.0.0.1/",
        "https://169.254.169.254/",
        "https://[::1]/",
        "file:///etc/passwd",
        "",
    ],
)
def test_others_are_not(url: str) -> None:
    with pytest.raises(Unprocessable):
        delivery.check_url(url, CONFIG)


def command(folder: Path, text: str) -> str:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def delivered(*argv: str, **more: Any) -> Any:
    info = RecordingInfo(recording_id="r1", call_id="c1", client_state="s")
    config = RecordConfig(on_saved=argv, **more)
    return await delivery.RecordingDelivery(config).deliver(info, Path("/recordings/r1.wav"))


def ends(pid: int) -> bool:
    for _ in range(250):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


async def test_the_command_gets_its_arguments_without_a_shell(tmp_path: Path) -> None:
    program = command(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/seen')
    outcome = await delivered(program, "{path}", "{recording_id} $(id)", "{other}")
    assert (outcome.to, outcome.result, outcome.attempts, outcome.client_state) == ("command", "delivered", 1, "s")
    assert (tmp_path / "seen").read_text() == "/recordings/r1.wav\nr1 $(id)\n{other}\n"


async def test_a_command_that_fails_is_tried_again_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 0.01)
    outcome = await delivered(command(tmp_path, f"echo >> {tmp_path}/seen; exit 3"), deliver_tries=2)
    assert (outcome.result, outcome.attempts, outcome.detail) == ("failed", 2, "the command exited with status 3")
    assert (tmp_path / "seen").read_text() == "\n\n"


async def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    outcome = await delivered(command(tmp_path, "exec sleep 60"), deliver_tries=1, deliver_timeout_s=0.1)
    assert (outcome.result, outcome.detail) == ("failed", "not done within 0.1 s")


async def test_what_a_command_that_hangs_has_started_is_ended_too(tmp_path: Path) -> None:
    program = command(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    outcome = await delivered(program, deliver_tries=1, deliver_timeout_s=1.0)
    assert outcome.result == "failed"
    assert await asyncio.to_thread(ends, int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("host", ["a..s3.example.com", f"{'a' * 64}.s3.example.com"])
async def test_a_host_whose_name_cannot_be_looked_up_is_told(host: str, tmp_path: Path) -> None:
    path = tmp_path / "r1.wav"
    path.touch()
    info = RecordingInfo(recording_id="r1", call_id="c1", upload_url=f"https://{host}/r")
    config = RecordConfig(upload_hosts=("*.s3.example.com",), deliver_tries=1)
    outcome: Any = await delivery.RecordingDelivery(config).deliver(info, path)
    assert (outcome.to, outcome.result) == ("upload", "failed")


async def test_nothing_is_told_where_nobody_wants_it() -> None:
    assert await delivered() is None
