"""``[asterisk]``: who may bring calls without SIP."""

import pytest

from cc_tts.config.load import from_tree
from cc_tts.errors import ConfigError
from cc_tts.ua.client import settings_of_lines

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ({"host": "0.0.0.0", "websocket_port": 9091}, "asterisk.password is empty"),
        ({"host": "pbx.example.com"}, "not an IP address"),
        ({"websocket_port": 9091, "audiosocket_port": 9091}, "are both 9091"),
        ({"username": "asterisk"}, "goes with asterisk.password"),
        ({"allowed_peers": ["10.0.0.300"]}, "asterisk.allowed_peers"),
    ],
)
def test_what_makes_no_sense_is_refused(section: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        from_tree({"asterisk": section})


def test_without_a_port_there_is_no_process() -> None:
    assert settings_of_lines(from_tree({})) is None


def test_the_process_of_the_lines_has_no_passwords_of_sip() -> None:
    tree = {
        "asterisk": {"host": "0.0.0.0", "websocket_port": 9091, "password": "for Asterisk"},
        "registration": {"registrar": "pbx.example.com", "username": "tts", "password": "for the PBX"},
        "auth": {"users": [{"username": "pbx", "password": "for callers"}]},
    }
    settings = settings_of_lines(from_tree(tree))
    assert settings is not None
    assert (settings.registration.password, settings.auth.users, settings.trunks) == ("", (), {})
    assert settings.asterisk is not None
    assert settings.asterisk.password == "for Asterisk"
