"""How much one source may ask, in virtual time."""

import pytest

from cc_tts.ua.guard import limits as source_limits
from cc_tts.ua.guard.limits import PeerList, SourceLimits, Verdict, address_of, host_of, source_of
from tests.fakes.fake_line import FakeClock
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("socket_address", "host", "source"),
    [
        ("192.0.2.1:5060", "192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]:5060", "2001:db8::1", "2001:db8::/64"),
        ("[2001:db8::ffff:1]:1", "2001:db8::ffff:1", "2001:db8::/64"),
        ("[fe80::1%eth0]:5060", "fe80::1", "fe80::/64"),
        ("[::ffff:192.0.2.1]:5060", "::ffff:192.0.2.1", "192.0.2.1"),
        ("", "", ""),
    ],
)
def test_sources(socket_address: str, host: str, source: str) -> None:
    assert host_of(socket_address) == host
    assert source_of(host) == source


@pytest.mark.parametrize(
    ("name", "port"), [("[::1]:4001", 4001), ("0.0.0.0:0", 0), ("", 0), ("host", 0), ("host:", 0), ("h:²", 0)]
)
def test_the_port_of_an_address(name: str, port: int) -> None:
    assert address_of(name)[1] == port


def test_peers() -> None:
    peers = PeerList(["192.0.2.0/30", "2001:db8::/32"])
    assert [host in peers for host in ("192.0.2.3", "::ffff:192.0.2.1", "2001:db8:1::1")] == [True] * 3
    assert "::ffff:192.0.2.4" not in peers
    assert [host in peers for host in ("192.0.2.4", "2001:db9::1", "", "nonsense", "192.0.2.1:5060")] == [False] * 5
    assert not PeerList(())


def test_a_burst_then_the_rate() -> None:
    clock = FakeClock()
    limits = SourceLimits(per_s=10, clock=clock)
    asked = [limits.ask("a") for _ in range(50)]
    assert asked == [Verdict.TAKE] * 20 + [Verdict.ANSWER] * 20 + [Verdict.IGNORE] * 10
    assert limits.ask("b") is Verdict.TAKE, "sources do not share"
    clock.advance(100)
    assert [limits.ask("a") for _ in range(3)] == [Verdict.TAKE, Verdict.ANSWER, Verdict.IGNORE]
    clock.advance(60_000)
    assert [limits.ask("a") for _ in range(21)].count(Verdict.TAKE) == 20, "no more than a burst is saved up"


def test_less_than_one_a_second_lets_one_pass() -> None:
    clock = FakeClock()
    limits = SourceLimits(per_s=0.1, clock=clock)
    assert limits.ask("a") is Verdict.TAKE
    assert not limits.has_room("a")
    clock.advance(10_000)
    assert limits.has_room("a")
    assert limits.ask("a") is Verdict.TAKE


def test_forged_sources_do_not_make_the_table_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "MAX_SOURCES", 100)
    limits = SourceLimits(per_s=1, clock=FakeClock())

    def forge(sources: range) -> int:
        for number in sources:
            limits.ask(f"s{number}")
            limits.ask("busy")
        return held_bytes(limits)

    few = forge(range(200))
    assert forge(range(200, 1000)) < 1.5 * few
    assert limits.ask("busy") is Verdict.IGNORE, "who keeps sending is not forgotten"
    assert limits.has_room("never seen")
