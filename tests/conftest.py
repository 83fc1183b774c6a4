"""Settings of the whole suite: what is left out, how Hypothesis runs, and which tests were skipped for which reason."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from lab import needs
from tests.support.passed_before import LEAVE_OUT, WRITE, PassedTests, file_of, leave_out

settings.register_profile("default", deadline=None)  # a deadline in wall time fails on a busy machine
settings.load_profile("default")

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU; Triton asks when it is first imported

# a shell has commands that it runs in the background ignore SIGINT, and their children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # all modules stay: collections while they are imported free nothing, in two fifths of the time (measured)
_passed = PassedTests()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file = file_of(LEAVE_OUT)
    if file is not None:
        config.hook.pytest_deselected(items=leave_out(items, file))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _passed.add(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and file_of(LEAVE_OUT) is not None:
        session.exitstatus = pytest.ExitCode.OK  # all of them passed before
    file = file_of(WRITE)
    if file is not None and not hasattr(session.config, "workerinput"):  # workers of xdist report to the controller
        _passed.append_to(file)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("skipped")
        for line in needs.summary(report.longrepr[2] for report in skipped):
            terminalreporter.line(line)
