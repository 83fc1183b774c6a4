"""What the softphone of ``cc-tts call`` tells a newcomer."""

import sys
from pathlib import Path

import pytest

from lab.children import Child
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess

pytestmark = pytest.mark.e2e


async def test_the_server_knows_the_round_trip_to_the_softphone_and_the_mos(
    server: Server, phone: SoftphoneProcess
) -> None:
    await phone.dial(server.uri("long"))
    call = await server.until_call(lambda call: call["quality"]["mos"] is not None, 20)
    assert call["quality"]["mos"] > 4
    assert 0 <= call["quality"]["round_trip_ms"] < 1000
    report = await phone.hangup()
    assert report["answer_to_first_rtp_ms"] >= 0
    assert report["answer_to_first_speech_ms"] >= 0
    ended = await server.until_terminated()
    assert ended["quality"]["mos"] is not None
    assert ended["quality"]["packets_lost"] == 0


async def test_a_page_shows_what_was_heard(server: Server, tmp_path: Path) -> None:
    page = tmp_path / "call.html"
    argv = [sys.executable, "-m", "cc_tts.softphone", server.uri("greet"), "--duration", "3", "--quiet"]
    child = await Child.start([*argv, "--report", str(page)], log_path=tmp_path / "call.log")
    assert await child.wait() == 0, child.log
    assert "recording" not in child.log  # it was made for the page alone
    shown = page.read_text("utf-8")
    assert shown.count("<polygon") == 1
    assert ">BYE</text>" in shown
    assert 'class="speech"' in shown
    assert page.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("option", "name"), [("--record", "a.wav"), ("--json", "a.json"), ("--report", "a.html")])
async def test_a_call_whose_file_cannot_be_written_is_no_success(
    server: Server, tmp_path: Path, option: str, name: str
) -> None:
    full = tmp_path / name
    full.symlink_to("/dev/full")
    argv = [sys.executable, "-m", "cc_tts.softphone", server.uri("greet"), "--duration", "1", "--quiet"]
    child = await Child.start([*argv, option, str(full)], log_path=tmp_path / "call.log")
    assert await child.wait() == 2, child.log
    assert f"{name}: No space left on device" in child.log
