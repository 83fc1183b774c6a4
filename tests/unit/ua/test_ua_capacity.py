"""How many calls a UA process takes, by its settings, its build and the sockets of ended calls."""

from dataclasses import replace

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.config.schema import Config, RtpConfig, SipConfig
from cc_tts.ua.capacity import MIN_CLOSING_CALLS, SOCKET_CLOSING_NS, CallCapacity
from cc_tts.ua.client import settings_of
from cc_tts.ua.pjsua2_build import Pjsua2Build
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

BUILD_LIMIT = 4
BUILD = Pjsua2Build()
CONFIG = Config(rtp=RtpConfig(port_min=20_000, port_max=20_199, port_cooldown_s=0.0))


class Lab:
    def __init__(self, config: Config = CONFIG) -> None:
        self.num_pjsua_calls = 0
        self.clock = FakeClock()
        self.capacity = CallCapacity(
            settings_of(config)[0],
            BUILD,
            build_limit=BUILD_LIMIT,
            num_pjsua_calls=lambda: self.num_pjsua_calls,
            clock=self.clock,
        )


@pytest.mark.parametrize(("configured", "allowed"), [(0, BUILD_LIMIT), (2, 2), (100, BUILD_LIMIT)])
def test_the_build_and_the_setting_bound_the_calls(configured: int, allowed: int) -> None:
    assert Lab(replace(CONFIG, sip=SipConfig(max_calls=configured))).capacity.max_calls == allowed


def test_there_are_no_more_calls_than_pairs_of_ports() -> None:
    rtp = RtpConfig(port_min=20_000, port_max=20_005)
    assert Lab(replace(CONFIG, rtp=rtp)).capacity.max_calls == rtp.num_pairs


def test_a_slot_that_pjsua_still_has_is_not_free() -> None:
    lab = Lab()
    assert not lab.capacity.is_full(BUILD_LIMIT - 1)
    assert lab.capacity.is_full(BUILD_LIMIT)
    lab.num_pjsua_calls = BUILD_LIMIT
    assert lab.capacity.is_full(1)
    assert not lab.capacity.is_full(1, incoming=1)  # the one that asks


def test_sockets_that_are_being_closed_leave_no_room_for_a_while() -> None:
    lab = Lab()
    for _ in range(MIN_CLOSING_CALLS + 1):
        lab.capacity.note_closing()
    assert lab.capacity.is_crowded(BUILD_LIMIT - 1)
    assert not lab.capacity.is_crowded(BUILD_LIMIT - 2)
    lab.clock.advance(SOCKET_CLOSING_NS / NS_PER_MS + 1)
    assert not lab.capacity.is_crowded(BUILD_LIMIT - 1)
