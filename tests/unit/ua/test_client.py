"""What each UA process is given of the configuration."""

import pytest

from cc_tts.config import load as config
from cc_tts.ua.client import settings_of

pytestmark = pytest.mark.unit


def test_a_single_process_has_it_all() -> None:
    loaded = config.load(overrides=["sip.max_calls=7"])
    (only,) = settings_of(loaded)
    assert (only.sip.port, only.sip.max_calls, only.rtp) == (5060, 7, loaded.rtp)
    assert (only.dispatcher_port, only.registers, only.public_port) == (0, True, 5060)


def test_several_share_calls_and_rtp_ports_and_one_registers() -> None:
    wanted = [
        "ua.processes=3",
        "sip.transports=['udp']",
        "sip.max_calls=10",
        "rtp.port_min=20000",
        "rtp.port_max=20099",
    ]
    each = settings_of(config.load(overrides=wanted))
    assert [settings.sip.port for settings in each] == [5070, 5071, 5072]
    assert sum(settings.sip.max_calls for settings in each) == 10
    assert {settings.public_port for settings in each} == {5060}
    assert [settings.registers for settings in each] == [True, False, False]
    ranges = [range(settings.rtp.port_min, settings.rtp.port_max + 1) for settings in each]
    assert [len(ports) for ports in ranges] == [32, 32, 32]
    assert len(set().union(*ranges)) == 96
    assert set().union(*ranges) <= set(range(20000, 20100))
    assert all(ports[0] % 2 == 0 for ports in ranges)
