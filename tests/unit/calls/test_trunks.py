"""Which trunk places a call, and which is next."""

import pytest

from cc_tts.calls.dialplan.trunks import Attempt, Trunks
from cc_tts.config.load import from_tree
from cc_tts.errors import CapacityExceeded, Unprocessable
from cc_tts.metrics import Metrics
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

SECTIONS = {
    "all": {"domain": "all.example", "prefixes": [""]},
    "germany": {
        "domain": "de.example:5080",
        "prefixes": ["+49"],
        "failover_to": ["all", "spare"],
        "caller_id": "+4930555",
    },
    "berlin": {"domain": "b.example", "prefixes": ["+4930"], "transport": "tcp", "tenants": ["acme"]},
    "spare": {"domain": "spare.example", "max_calls": 1},
    "limited": {"domain": "l.example", "max_calls": 1, "max_calls_per_s": 2.0, "failover_to": ["spare"]},
}


class Desk:
    def __init__(self) -> None:
        self.clock, self.metrics = FakeClock(), Metrics()
        config = from_tree({"trunks": SECTIONS, "tenants": {"acme": {}}})
        self.trunks = Trunks(config.trunks, clock=self.clock, metrics=self.metrics)
        self._calls = 0

    def place(self, to: str, *, trunk: str | None = None, from_: str | None = None, tenant: str = "") -> Attempt:
        self._calls += 1
        return self.trunks.plan(f"call_{self._calls}", to, trunk=trunk, from_=from_, tenant=tenant)

    def fail(self, sip_code: int, *, is_unreachable: bool = False) -> str:
        """The last call was not taken; returns the next trunk."""
        attempt = self.trunks.next_for(f"call_{self._calls}", sip_code=sip_code, is_unreachable=is_unreachable)
        return "" if attempt is None else attempt.trunk


@pytest.mark.parametrize(
    ("number", "trunk", "uri"),
    [
        ("+4930123", "berlin", "sip:+4930123@b.example;transport=tcp;user=phone"),
        ("+4989123", "germany", "sip:+4989123@de.example:5080;user=phone"),
        ("*31#", "all", "sip:*31%23@all.example"),
    ],
)
def test_the_longest_prefix_chooses(number: str, trunk: str, uri: str) -> None:
    attempt = Desk().place(number)
    assert (attempt.trunk, attempt.to) == (trunk, uri)


def test_a_uri_without_a_trunk_goes_where_it_says() -> None:
    assert Desk().place("sip:bob@b.example", from_="sip:me@x.example") == Attempt(
        trunk="", to="sip:bob@b.example", from_="sip:me@x.example"
    )


def test_a_trunk_sends_no_credentials_elsewhere() -> None:
    desk = Desk()
    assert desk.place("sip:bob@b.example", trunk="berlin").to == "sip:bob@b.example"
    for uri in ("sip:bob@evil.example", "sip:bob@b.example:9", "sip:bob@b.example;maddr=evil.example"):
        with pytest.raises(Unprocessable, match="not at the host of the trunk"):
            desk.place(uri, trunk="berlin")


def test_a_tenant_uses_only_what_it_may() -> None:
    desk = Desk()
    assert desk.place("+4930123", tenant="acme").trunk == "berlin"
    with pytest.raises(Unprocessable, match="no trunk has a prefix"):
        desk.place("+4989123", tenant="acme")
    for name in ("germany", "there-is-none"):  # it cannot tell the one from the other
        with pytest.raises(Unprocessable, match="there is no such trunk"):
            desk.place("+4930123", trunk=name, tenant="acme")


@pytest.mark.parametrize("uri", ["sip:1@DE.example", "sips:1@de.example:5061", "sip:1@x.example;maddr=de.example"])
def test_a_tenant_does_not_call_around_a_trunk_that_it_may_not_use(uri: str) -> None:
    desk = Desk()
    with pytest.raises(Unprocessable, match="may not be called"):
        desk.place(uri, tenant="acme")
    assert desk.place(uri).to == uri, "the operator may"
    assert desk.place("sip:1@b.example", tenant="acme").to == "sip:1@b.example"
    assert desk.place("sip:1@elsewhere.example", tenant="acme").trunk == ""


def test_the_caller_is_that_of_the_trunk_unless_one_is_given() -> None:
    desk = Desk()
    assert desk.place("+4989123").from_ == "sip:+4930555@de.example"
    assert desk.place("+4989123", from_="+4989777").from_ == "sip:+4989777@de.example"
    assert desk.place("+4989123", from_="sip:me@x.example").from_ == "sip:me@x.example"
    assert desk.place("+1555").from_ == "sip:cc-tts@all.example"
    with pytest.raises(Unprocessable, match="/from"):
        desk.place("sip:bob@x.example", from_="+4989777")


@pytest.mark.parametrize("sip_code", [404, 486, 487, 603])
def test_who_was_reached_is_not_called_again(sip_code: int) -> None:
    desk = Desk()
    desk.place("+4989123")
    assert desk.fail(sip_code) == ""


def test_each_stand_in_is_tried_once() -> None:
    desk = Desk()
    desk.place("+4989123")
    assert [desk.fail(503), desk.fail(488, is_unreachable=True), desk.fail(408)] == ["all", "spare", ""]
    assert desk.metrics.registry.get_sample_value("cctts_trunk_calls", {"trunk": "germany"}) == 0
    assert desk.metrics.registry.get_sample_value("cctts_trunk_failures_total", {"trunk": "all", "code": "0"}) == 1
    assert desk.metrics.registry.get_sample_value("cctts_trunk_calls", {"trunk": "spare"}) == 1


def test_one_that_is_not_registered_is_left_out_while_there_is_another() -> None:
    desk = Desk()
    desk.trunks.note_registration("germany", registered=False)
    assert desk.place("+4989123").trunk == "all"
    for name in ("all", "spare"):
        desk.trunks.note_registration(name, registered=False)
    assert desk.place("+1555").trunk == "all", "there is none but this"


def test_a_full_trunk_is_followed_by_the_next_and_then_there_is_no_room() -> None:
    desk = Desk()
    assert desk.place("+1", trunk="limited").trunk == "limited"
    assert desk.place("+1", trunk="limited").trunk == "spare"
    with pytest.raises(CapacityExceeded):
        desk.place("+1", trunk="limited")
    desk.trunks.release("call_1")
    assert desk.place("+1", trunk="limited").trunk == "limited"
    desk.trunks.release("call_4")
    with pytest.raises(CapacityExceeded):  # two have begun within the second
        desk.place("+1", trunk="limited")
    desk.clock.advance(1001)
    assert desk.place("+1", trunk="limited").trunk == "limited"


def test_a_required_trunk_that_is_not_registered_is_a_reason_not_to_be_ready() -> None:
    required = {"a": {"registrar": "a.example", "username": "u", "required": True}}
    trunks = Trunks(from_tree({"trunks": required}).trunks, clock=FakeClock(), metrics=Metrics())
    assert trunks.not_ready_because == "trunk a is not registered"
    trunks.note_registration("a", registered=True)
    assert trunks.not_ready_because is None
