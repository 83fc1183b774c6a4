"""Runs ``examples/campaign.py`` as its tutorial does."""

import asyncio
import contextlib
import csv
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.architecture.state_tables import ROOT

SCRIPT = str(ROOT / "examples/campaign.py")
HEADER = "to,name,when\n"


@contextlib.asynccontextmanager
async def campaign(
    url: str, people: bytes, folder: Path, *, hours: tuple[int, int] = (0, 23), argv: tuple[str, ...] = (SCRIPT,)
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have the people of a file called at these hours and without a pause; what runs still at the end is killed."""
    (folder / "people.csv").write_bytes(people)
    files = [str(folder / "people.csv"), str(folder / "results.csv")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, url, *files, *map(str, hours), "0.1", stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def results_in(folder: Path) -> list[list[str]]:
    """The rows of the file of results, if there is one, in the order in which the calls were over."""
    path = folder / "results.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


async def run_campaign(url: str, people: str, folder: Path, *, hours: tuple[int, int] = (0, 23)) -> list[list[str]]:
    """Call these people, a line of CSV each, to the end; returns the rows of results."""
    async with campaign(url, f"{HEADER}{people}".encode(), folder, hours=hours) as process:
        _, told = await process.communicate()
    assert process.returncode == 0, told.decode()
    return results_in(folder)
