"""The store behind Idempotency-Key: expiry, room, what is kept. Time is a number here."""

import asyncio

import pytest

from cc_tts.api.http.idempotency import IdempotencyStore, ResponseKey, StoredResponse, check_key
from cc_tts.errors import CapacityExceeded, MalformedRequest
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


class Work:
    """Counts how often it is done; may wait."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.times = 0
        self.may_finish = asyncio.Event()
        self.may_finish.set()

    async def __call__(self) -> StoredResponse:
        self.times += 1
        await self.may_finish.wait()
        return StoredResponse(self.status, (), b"%d" % self.times)


def key(value: str) -> ResponseKey:
    return ResponseKey("", "POST", "/x", value)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> IdempotencyStore:
    return IdempotencyStore(clock, ttl_s=10, max_keys=2)


async def test_it_expires(store: IdempotencyStore, clock: FakeClock) -> None:
    work = Work()
    await store.run_once(key("a"), b"1", work)
    clock.advance(9_900)
    assert (await store.run_once(key("a"), b"1", work))[1] is True
    clock.advance(100)
    assert await store.run_once(key("a"), b"2", work) == (StoredResponse(200, (), b"2"), False)
    assert len(store) == 1


@pytest.mark.parametrize(
    ("status", "times"), [(201, 1), (400, 1), (404, 1), (409, 1), (422, 1), (408, 2), (429, 2), (500, 2), (503, 2)]
)
async def test_what_may_go_better_next_time_is_not_kept(store: IdempotencyStore, status: int, times: int) -> None:
    work = Work(status)
    for _ in range(2):
        await store.run_once(key("a"), b"1", work)
        await asyncio.sleep(0)
    assert work.times == times


async def test_the_oldest_finished_one_makes_room(store: IdempotencyStore) -> None:
    work = Work()
    for name in "abc":
        await store.run_once(key(name), b"1", work)
    assert len(store) == 2
    assert (await store.run_once(key("c"), b"1", work))[1] is True
    assert (await store.run_once(key("a"), b"1", work))[1] is False


async def test_a_token_that_floods_pushes_out_its_own() -> None:
    store, work = IdempotencyStore(FakeClock(), ttl_s=10, max_keys=10), Work()
    theirs = ResponseKey("beta", "POST", "/x", "a")
    await store.run_once(theirs, b"1", work)
    for number in range(50):
        await store.run_once(ResponseKey("acme", "POST", "/x", str(number)), b"1", Work(404))
    assert len(store) == 10
    assert (await store.run_once(theirs, b"1", work))[1] is True
    assert (await store.run_once(ResponseKey("acme", "POST", "/x", "49"), b"1", Work(404)))[1] is True
    assert work.times == 1


async def test_running_ones_are_not_pushed_out(store: IdempotencyStore, clock: FakeClock) -> None:
    work = Work()
    work.may_finish.clear()
    running = [asyncio.create_task(store.run_once(key(name), b"1", work)) for name in "ab"]
    await asyncio.sleep(0)
    clock.advance(100_000)
    with pytest.raises(CapacityExceeded):
        await store.run_once(key("c"), b"1", work)
    work.may_finish.set()
    await asyncio.gather(*running)
    assert (await store.run_once(key("c"), b"1", work))[1] is False


async def test_work_that_raises_is_forgotten(store: IdempotencyStore) -> None:
    async def fail() -> StoredResponse:
        raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            await store.run_once(key("a"), b"1", fail)
        await asyncio.sleep(0)
    assert len(store) == 0


async def test_room_for_none_turns_it_off(clock: FakeClock) -> None:
    store, work = IdempotencyStore(clock, ttl_s=10, max_keys=0), Work()
    for _ in range(2):
        assert (await store.run_once(key("a"), b"1", work))[1] is False
    assert work.times == 2


async def test_close_cancels_what_runs(store: IdempotencyStore) -> None:
    work = Work()
    work.may_finish.clear()
    first = asyncio.create_task(store.run_once(key("a"), b"1", work))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(store) == 0


@pytest.mark.parametrize(("keys", "fault"), [(["k1", "k2"], "comes twice"), (["a\x7f"], "printable")])
def test_a_request_has_one_key_of_printable_characters(keys: list[str], fault: str) -> None:
    with pytest.raises(MalformedRequest, match=fault):
        check_key(keys)
