"""Runs ``examples/campaign.py`` as its tutorial does."""

import asyncio
import csv
import sys
from pathlib import Path

from tests.architecture.state_tables import ROOT


async def run_campaign(url: str, people: str, folder: Path, *, hours: tuple[int, int] = (0, 23)) -> list[list[str]]:
    """Call these people, a line of CSV each, at any hour and without a pause; returns the rows that it prints."""
    file = folder / "people.csv"
    file.write_text(f"to,name,when\n{people}")
    argv = [str(ROOT / "examples/campaign.py"), url, *map(str, hours), "0.1"]
    with file.open() as read:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, stdin=read, stdout=asyncio.subprocess.PIPE
        )
        try:
            printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
    assert process.returncode == 0
    return list(csv.reader(printed.decode().splitlines()))
