from collections.abc import AsyncIterator

import pytest

from tests.fakes.running_api import RunningApi, running_api


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api() as running:
        running.registry.add("c1", answered=True)
        yield running
