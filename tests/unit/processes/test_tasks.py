"""Of several to end the first decides; the others are cancelled before it returns. A set of tasks ends as it is told to."""

import asyncio

import pytest

from cc_tts.processes.tasks import TaskSet, first_of

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]


async def ends(log: list[str], *, turns: int, name: str) -> None:
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
        log.append(f"{name} ended")
    except asyncio.CancelledError:
        log.append(f"{name} cancelled")
        raise


async def fails() -> None:
    raise ValueError("lost")


async def test_it_is_told_which_one_ended_and_the_others_are_cancelled() -> None:
    log: list[str] = []
    assert await first_of(ends(log, turns=100, name="a"), ends(log, turns=1, name="b")) == 1
    assert log == ["b ended", "a cancelled"]
    assert await first_of(ends([], turns=1, name="a"), ends([], turns=1, name="b")) == 0, "the lowest of several"


async def test_its_error_is_raised_and_that_of_a_later_one_is_not() -> None:
    with pytest.raises(ValueError, match="lost"):
        await first_of(asyncio.sleep(100), fails())
    assert await first_of(asyncio.sleep(0), fails()) == 0


async def test_all_are_cancelled_with_it() -> None:
    log: list[str] = []
    waiting = asyncio.create_task(first_of(ends(log, turns=100, name="a"), ends(log, turns=100, name="b")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(log) == ["a cancelled", "b cancelled"]


async def test_a_set_waits_so_long_for_its_tasks_and_cancels_the_late() -> None:
    log: list[str] = []
    tasks = TaskSet()
    tasks.begin(ends(log, turns=1, name="a"))
    tasks.begin(ends(log, turns=1_000_000, name="b"))
    await tasks.stop(0.01)
    assert log == ["a ended", "b cancelled"]


async def test_a_set_without_patience_cancels_all_and_one_that_waits_none() -> None:
    log: list[str] = []
    tasks = TaskSet()
    tasks.begin(fails())
    tasks.begin(ends(log, turns=1, name="a"))
    await tasks.ended()
    tasks.begin(ends(log, turns=2, name="b"))
    await asyncio.sleep(0)
    await tasks.stop()
    assert log == ["a ended", "b cancelled"]
