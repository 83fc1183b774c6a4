"""``[asterisk]``: who may bring calls without SIP."""

import pytest

from cc_tts.config.load import from_tree
from cc_tts.ua.client import settings_of_lines

pytestmark = pytest.mark.unit


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
