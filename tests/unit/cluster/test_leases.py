"""How limits of tenants are divided between nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.cluster import leases as leases_module
from cc_tts.cluster.leases import TTL_S, TenantLeases
from cc_tts.cluster.messages import Leases, TenantShare, TenantUse
from cc_tts.config.schema import TenantConfig
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True, scope="module")
def _at_every_report() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases_module, "WORK_OUT_INTERVAL_S", 0.0)
        yield


def started(limit: int, *, clock: FakeClock | None = None, key: str = "max_calls") -> TenantLeases:
    clock = clock or FakeClock()
    leases = TenantLeases({"acme": TenantConfig(**{key: limit})}, clock=clock)
    clock.advance(TTL_S * 1000 + 1)
    return leases


@dataclass
class Line:
    """A node: what it holds is what it was last told."""

    name: str
    leases: TenantLeases
    calls: int = 0
    refused: int = 0
    held: int | None = 0
    on_its_way: list[Leases] = field(default_factory=list)

    def report(self, *, delivered: bool = True) -> None:
        use = TenantUse(calls=self.calls, refused=self.refused, held=TenantShare(calls=self.held))
        self.leases.report(self.name, {"acme": use})
        self.refused = 0
        self.on_its_way.append(self.leases.shares(self.name))
        if delivered:
            self.deliver()

    def deliver(self) -> None:
        for told in self.on_its_way:
            self.held = told.tenants["acme"].calls
        self.on_its_way.clear()

    def ask(self, num: int) -> None:
        held = self.held or 0
        begun = min(num, max(0, held - self.calls))
        self.calls += begun
        self.refused += num - begun


@pytest.mark.parametrize("limit", [40, 0])
def test_one_node_has_everything_and_what_has_no_limit_is_not_divided(limit: int) -> None:
    leases = started(limit)
    leases.report("line-1", {})
    assert leases.shares("line-1") == Leases(TTL_S, {"acme": TenantShare(calls=limit or None)})


def test_nodes_come_to_what_they_use() -> None:
    leases = started(100)
    one, two = Line("line-1", leases), Line("line-2", leases)
    for _ in range(10):
        for line in (one, two):
            line.report()
        one.ask(60 - one.calls)
        two.ask(10 - two.calls)
    assert (one.calls, two.calls) == (60, 10)
    assert (one.held or 0) + (two.held or 0) == 100
    assert (one.held or 0) > 60
    assert (two.held or 0) > 10


@given(st.data())
def test_shares_never_exceed_the_limit_and_nobody_starves(data: st.DataObject) -> None:
    num, clock = data.draw(st.integers(1, 6)), FakeClock()
    limit = data.draw(st.integers(1, 60))
    leases = started(limit, clock=clock)
    lines = [Line(f"line-{number}", leases) for number in range(num)]
    for _ in range(data.draw(st.integers(1, 25))):
        line = data.draw(st.sampled_from(lines))
        clock.advance(10)
        line.ask(data.draw(st.integers(0, limit + 5)))
        line.calls -= data.draw(st.integers(0, line.calls))
        line.report(delivered=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            data.draw(st.sampled_from(lines)).deliver()
        assert sum(max(each.held or 0, each.calls) for each in lines) <= limit
        on_way = [
            max([each.held or 0, *(told.tenants["acme"].calls or 0 for told in each.on_its_way[-2:])]) for each in lines
        ]
        assert sum(on_way) <= limit
    for line in lines:
        line.deliver()
        line.calls = 0
    for _ in range(4):
        for line in lines:
            line.report()
    shares = [line.held or 0 for line in lines]
    assert sum(shares) == limit
    if limit >= num:
        assert min(shares) >= 1, shares


def test_a_node_that_is_gone_leaves_its_share_to_the_others() -> None:
    clock = FakeClock()
    leases = started(10, clock=clock)
    one, two = Line("line-1", leases), Line("line-2", leases)
    for _ in range(3):
        one.report()
        two.report()
    assert one.held == two.held == 5
    clock.advance(TTL_S * 1000 + 1)
    one.report()
    assert one.held == 10


def test_a_pool_that_starts_again_confirms_what_nodes_hold() -> None:
    clock = FakeClock()
    leases = TenantLeases({"acme": TenantConfig(max_calls=10)}, clock=clock)
    one, two = Line("line-1", leases, calls=7, held=7), Line("line-2", leases, held=3)
    one.report()
    assert one.held == 7, "another one may hold the rest"
    two.report()
    assert two.held == 3
    clock.advance(TTL_S * 1000 + 1)
    for _ in range(3):
        one.report()
        two.report()
    assert (one.held, two.held) == (9, 1)


def test_what_is_left_of_a_day_goes_where_it_is_spoken() -> None:
    leases = started(1000, key="max_characters_per_day")
    used = {"line-1": 0, "line-2": 0}
    held = dict.fromkeys(used, 0)
    for _ in range(400):
        for name in ("line-1", "line-2"):
            if name == "line-1" and used[name] + 5 <= held[name]:
                used[name] += 5
            use = TenantUse(characters=used[name], held=TenantShare(characters=held[name]))
            leases.report(name, {"acme": use})
            held[name] = leases.shares(name).tenants["acme"].characters or 0
            assert sum(held.values()) <= 1000
    assert used["line-1"] >= 990


def test_what_many_reports_ask_for_is_worked_out_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "WORK_OUT_INTERVAL_S", 1.0)
    clock = FakeClock()
    leases = started(100, clock=clock)
    one, two = Line("line-1", leases), Line("line-2", leases)
    for _ in range(3):
        one.report()
        two.report()
    assert (one.held, two.held) == (50, 50)
    two.refused = 1000
    two.report()
    assert two.held == 50
    two.refused = 1000
    for _ in range(5):
        clock.advance(1000)
        two.refused = 1000
        two.report()
        one.report()
    assert (two.held or 0) > 90
    assert (one.held or 0) >= 1
