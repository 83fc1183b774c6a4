"""Says at the end what was skipped and which command adds it, a line each."""

import pytest

from tests.support import needs


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("skipped")
        for line in needs.summary(report.longrepr[2] for report in skipped):
            terminalreporter.line(line)
