"""What counts as one source of connections."""

import pytest

from cc_tts.processes.source_address import source_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_is_one_source(host: str, source: str) -> None:
    assert source_of(host) == source
