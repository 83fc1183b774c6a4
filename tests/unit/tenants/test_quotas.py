"""What tenants use and may use."""

import contextlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.cluster.messages import Leases, TenantShare
from cc_tts.config.schema import ClusterConfig, Config, ServerConfig, TenantConfig
from cc_tts.errors import EngineOverloaded, QuotaExceeded
from cc_tts.metrics import Metrics
from cc_tts.tenants.quotas import MAX_LABELS, Reservation, TenantQuotas, divided
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def idle() -> float:
    return 0.0


def busy() -> float:
    return 0.85


def charge(book: TenantQuotas, tenant: str, num: int) -> None:
    with book.characters(tenant, num):
        pass


def stream(book: TenantQuotas, tenant: str) -> Reservation:
    return book.hold_stream(tenant, idle)


HOLDS: dict[str, Callable[[TenantQuotas, str], Reservation]] = {
    "max_calls": partial(TenantQuotas.hold, kind="calls"),
    "max_listeners": partial(TenantQuotas.hold, kind="listeners"),
    "max_streams": stream,
}


@pytest.mark.parametrize("key", HOLDS)
def test_as_much_as_the_limit_and_no_more(key: str) -> None:
    book, hold = TenantQuotas({"acme": TenantConfig(**{key: 2}), "other": TenantConfig()}), HOLDS[key]
    first, _ = hold(book, "acme"), hold(book, "acme")
    with pytest.raises(QuotaExceeded, match=f"{key} of this tenant is 2") as refused:
        hold(book, "acme")
    assert (refused.value.http_status, refused.value.sip_status) == (429, 480)
    assert refused.value.retry_after_s
    hold(book, "other")
    hold(book, "")
    first.release()
    first.release()
    hold(book, "acme")
    with pytest.raises(QuotaExceeded):
        hold(book, "acme")


def test_what_fails_in_between_leaves_nothing_behind() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_listeners=1, max_characters_per_day=10)})
    for _ in range(3):
        with contextlib.suppress(RuntimeError), book.hold("acme", "listeners"), book.characters("acme", 10):
            raise RuntimeError
    use = book.use()["acme"]
    assert (use.listeners, use.characters) == (0, 0)


def test_without_tenants_nothing_is_counted() -> None:
    metrics = Metrics()
    book = TenantQuotas(metrics=metrics)

    def not_asked() -> float:
        raise AssertionError

    book.hold("", "calls").release()
    book.hold_stream("", not_asked).release()
    charge(book, "", 1000)
    assert book.use() == {}
    assert b"cctts_tenant_calls{" not in metrics.render()


def test_characters_are_of_a_day() -> None:
    clock = FakeClock()
    book = TenantQuotas({"acme": TenantConfig(max_characters_per_day=100)}, clock=clock)
    charge(book, "acme", 60)
    with pytest.raises(QuotaExceeded) as refused:
        charge(book, "acme", 41)
    rest_s = 86_400 - clock.wall_s() % 86_400
    assert rest_s <= (refused.value.retry_after_s or 0) <= rest_s + 1
    charge(book, "acme", 40)
    clock.advance(rest_s * 1000 + 1)
    charge(book, "acme", 100)
    assert book.use()["acme"].characters == 100


def test_what_is_refused_over_midnight_takes_nothing_from_the_new_day() -> None:
    clock = FakeClock()
    book = TenantQuotas({"acme": TenantConfig(max_characters_per_day=100)}, clock=clock)
    with contextlib.suppress(RuntimeError), book.characters("acme", 60):
        clock.advance(86_400_000)
        charge(book, "acme", 10)
        raise RuntimeError
    assert book.use()["acme"].characters == 10


def test_a_lower_limit_ends_nothing() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_calls=3)})
    holds = [book.hold("acme", "calls") for _ in range(3)]
    book.reload({"acme": TenantConfig(max_calls=1)})
    for hold in holds[:2]:
        hold.release()
        with pytest.raises(QuotaExceeded):
            book.hold("acme", "calls")
    holds[2].release()
    book.hold("acme", "calls")


def test_a_call_that_is_up_counts_whatever_the_limit_is() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_calls=1)})
    holds = [book.hold("acme", "calls", is_up=True) for _ in range(2)]
    assert book.use()["acme"].calls == 2
    holds[0].release()
    with pytest.raises(QuotaExceeded):
        book.hold("acme", "calls")


def test_a_tenant_that_is_gone_gives_back_what_it_had() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_calls=1)})
    held = book.hold("acme", "calls")
    book.reload({})
    held.release()
    book.reload({"acme": TenantConfig(max_calls=1)})
    book.hold("acme", "calls")


def test_refusals_are_counted_from_report_to_report() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_calls=1)})
    book.hold("acme", "calls")
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            book.hold("acme", "calls")
    assert [book.use()["acme"].refused, book.use()["acme"].refused] == [2, 0]


def test_a_lease_is_in_force_until_the_next_one() -> None:
    book = TenantQuotas({"acme": TenantConfig(max_calls=9)}, node=2, num_nodes=3)
    assert book.limit("acme", "calls") == 3
    book.on_leases(Leases(10.0, {"acme": TenantShare(calls=5), "unknown": TenantShare(calls=1)}))
    assert book.use()["acme"].held == TenantShare(calls=5)
    book.on_leases(Leases(10.0, {"acme": TenantShare(calls=50)}))
    assert book.limit("acme", "calls") == 9
    book.on_leases(Leases(10.0, {"acme": TenantShare(calls=0)}))
    with pytest.raises(QuotaExceeded, match="is 9, 0 of them at this node"):
        book.hold("acme", "calls")
    book.on_leases(Leases(10.0, {}))
    assert book.limit("acme", "calls") == 3
    assert book.limit("acme", "streams") is None


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_the_parts_of_all_nodes_are_the_whole(total: int, num: int) -> None:
    parts = [divided(total, num, which) for which in range(num)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize(("node", "limit"), [("line-1", 4), ("line-2", 3), ("line-3", 3)])
def test_the_limit_is_divided_by_the_configured_nodes(node: str, limit: int) -> None:
    nodes = {"line-2": "http://10.0.0.2:8080", "line-3": "http://10.0.0.3:8080", "line-1": "http://10.0.0.1:8080"}
    config = Config(
        server=ServerConfig(node=node),
        cluster=ClusterConfig(nodes=nodes),
        tenants={"acme": TenantConfig(max_calls=10)},
    )
    assert TenantQuotas.of(config, clock=FakeClock(), metrics=Metrics()).limit("acme", "calls") == limit


def test_a_busy_engine_is_shared() -> None:
    metrics = Metrics()
    book = TenantQuotas({"a": TenantConfig(), "b": TenantConfig()}, clock=FakeClock(), metrics=metrics)
    for _ in range(3):
        book.hold_stream("a", idle)
    book.hold_stream("a", busy)  # nobody else waits
    with pytest.raises(EngineOverloaded), book.asking_engine("b"):
        raise EngineOverloaded
    with pytest.raises(EngineOverloaded, match="has its share"):
        book.hold_stream("a", busy)
    book.hold_stream("b", busy)
    refused = metrics.registry.get_sample_value("cctts_tenant_refused_total", {"tenant": "a", "limit": "share"})
    assert refused == 1


def test_series_of_many_tenants_are_bounded() -> None:
    metrics = Metrics()
    names = [f"t{number}" for number in range(MAX_LABELS + 50)]
    book = TenantQuotas({name: TenantConfig() for name in names}, metrics=metrics)
    holds = [book.hold(name, "calls") for name in names]
    value = metrics.registry.get_sample_value
    assert metrics.render().count(b"cctts_tenant_calls{") == MAX_LABELS + 1
    assert value("cctts_tenant_calls", {"tenant": "other"}) == 50
    for hold in holds:
        hold.release()
    assert value("cctts_tenant_calls", {"tenant": "other"}) == 0
