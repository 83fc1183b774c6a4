"""Who loses what, when a place that several share is full."""

import pytest

from cc_tts.tenants.shares import SharedRoom

pytestmark = pytest.mark.unit


def filled(**kept: int) -> SharedRoom[str, str]:
    room: SharedRoom[str, str] = SharedRoom()
    for owner, num in kept.items():
        for number in range(num):
            room.add(f"{owner}{number}", f"{owner}{number}", owner)
    return room


def test_the_oldest_of_whoever_has_most_goes_first() -> None:
    room = filled(beta=1, acme=3)
    gone = []
    for _ in range(3):
        gone.append(room.next_out())
        room.discard(gone[-1] or "")
    assert gone[:2] == ["acme0", "acme1"]
    assert room.count("acme") + room.count("beta") == 1


def test_what_is_in_use_stays() -> None:
    room = filled(acme=2, beta=1)
    assert room.next_out(lambda key: key != "acme0") == "acme1"
    assert room.next_out(lambda key: key.startswith("beta")) == "beta0"
    assert room.next_out(lambda _key: False) is None


def test_what_comes_again_is_the_newest_and_is_kept_once() -> None:
    room = filled(acme=2)
    room.add("acme0", "acme0", "acme")
    assert (len(room), room.next_out()) == (2, "acme1")


def test_an_owner_without_anything_is_forgotten() -> None:
    room = filled(acme=1)
    assert room.discard("acme0") == "acme"
    assert room.discard("acme0") == ""
    assert (len(room), room.next_out(), list(room)) == (0, None, [])
