"""SIGTERM and Ctrl-C while a command still starts: real processes, whose engine or cluster never gets ready."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WITHIN_S = 100.0
"""Less than anything that these starts would wait for."""
LOADS = "an engine begins to load"
SLOW_ENGINE = f"""
import sys
if "cc_tts.engines.worker" in sys.orig_argv:
    import time
    from cc_tts.engines.cpu.engine import CpuEngine
    def load(*_):
        print({LOADS!r}, file=sys.stderr, flush=True)
        time.sleep(3600)
    CpuEngine.load = load
"""
IMPORTS = "msgspec is imported"
JOINS = "ray is asked to start"
SLOW_RAY = f"""
import sys, time
def init(**_):
    print({JOINS!r}, file=sys.stderr, flush=True)
    time.sleep(3600)
class exceptions:
    RayError = RuntimeError
"""


READS = "a file is read"
HUNG_FILE = f"""
import pathlib, sys, time
read_bytes = pathlib.Path.read_bytes
def read(path):
    if path.name == "hangs":
        print({READS!r}, file=sys.stderr, flush=True)
        time.sleep(3600)
    return read_bytes(path)
pathlib.Path.read_bytes = read
"""


class Command:
    def __init__(self, folder: Path, *argv: str, **modules: str) -> None:
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cc_tts.cli", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "disabled"},
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def until(self, text: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while text not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def must_end_in_order(self, number: signal.Signals) -> None:
        children = self.children()
        self.process.send_signal(number)
        assert self.process.wait(WITHIN_S) == 0, self.log
        assert "Traceback" not in self.log, self.log
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for pid in self.children():
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def starting(folder: Path, *argv: str, **modules: str) -> Iterator[Command]:
    command = Command(folder, *argv, **modules)
    try:
        yield command
    finally:
        command.close()


def settings(*pairs: str) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def served(*pairs: str) -> list[str]:
    ports = f"http.port={free_ports()}", f"sip.port={free_ports()}"
    return ["serve", *settings(*ports, "tts.engine=onnx", *pairs)]


def test_a_server_that_waits_for_its_first_worker(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    nobody = f'tts.workers=["grpc://127.0.0.1:{free_ports()}"]'
    with starting(tmp_path, *served("tts.devices=[]", nobody)) as command:
        command.until("worker_missing")
        command.must_end_in_order(signal.SIGTERM)
        assert "stopped_while_starting" in command.log


def test_a_server_whose_engine_loads(tmp_path: Path) -> None:
    with starting(tmp_path, *served(), sitecustomize=SLOW_ENGINE) as command:
        command.until(LOADS)
        assert command.children()
        command.must_end_in_order(signal.SIGINT)
        assert "stopped_while_starting" in command.log


def test_a_server_whose_file_of_events_hangs(tmp_path: Path) -> None:
    with starting(tmp_path, *served(f"webhooks.file={tmp_path / 'hangs'}"), sitecustomize=HUNG_FILE) as command:
        command.until(READS)
        command.must_end_in_order(signal.SIGTERM)
        assert "stopped_while_starting" in command.log


def test_a_worker_whose_engine_loads(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    argv = ["worker", "--listen", f"127.0.0.1:{free_ports()}", *settings("tts.engine=onnx")]
    with starting(tmp_path, *argv, sitecustomize=SLOW_ENGINE) as command:
        command.until(LOADS)
        assert command.children()
        command.must_end_in_order(signal.SIGTERM)


def test_a_pool_that_joins_its_cluster(tmp_path: Path) -> None:
    argv = ["pool", "--listen", f"127.0.0.1:{free_ports()}", *settings("tts.engine=onnx")]
    with starting(tmp_path, *argv, ray=SLOW_RAY) as command:
        command.until(JOINS)
        command.must_end_in_order(signal.SIGINT)
        assert "stopped_while_starting" in command.log


@pytest.mark.parametrize(
    "argv",
    [("serve",), ("worker", "--listen", "127.0.0.1:1"), ("pool", "--listen", "127.0.0.1:1")],
    ids=lambda argv: argv[0],
)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2], ids=lambda sent: sent.name)
def test_signals_are_obeyed_while_modules_are_imported(
    tmp_path: Path, argv: tuple[str, ...], sent: signal.Signals
) -> None:
    slow = f"import sys, time\nprint({IMPORTS!r}, file=sys.stderr, flush=True)\ntime.sleep(3600)\n"
    with starting(tmp_path, *argv, msgspec=slow) as command:
        command.until(IMPORTS)
        command.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert command.process.poll() is None, "SIGHUP is for what has started"
        command.must_end_in_order(sent)
