"""The section of MRCP beside the others."""

from typing import Any

import pytest

from cc_tts.config import load as config
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"transports": []}, "mrcp.transports is empty"),
        ({"sip_port": 5060}, "mrcp.sip_port and sip.port are both 5060"),
        ({"control_port": 8060}, "mrcp.control_port and mrcp.sip_port are both 8060"),
        ({"rtp_port_min": 16_500}, "must be other ports than rtp.port_min to rtp.port_max"),
        ({"rtp_port_min": 20_001, "rtp_port_max": 20_001}, "a session needs an even port"),
        ({"transports": ["tls"]}, "set tls.certificate_file"),
        ({"allowed_peers": ["10.0.0.1/8"]}, "mrcp.allowed_peers"),
        ({"tenant": "nobody"}, "mrcp.tenant names the tenant 'nobody'"),
        ({"max_sessions": 0}, "mrcp.max_sessions"),
    ],
)
def test_what_does_not_fit_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.from_tree({"mrcp": {"enabled": True, **section}})


def test_without_mrcp_its_ports_are_nobodys() -> None:
    assert not config.from_tree({"mrcp": {"sip_port": 5060}}).mrcp.enabled
