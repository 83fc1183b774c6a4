"""Small things: tokens do not show, and the metrics' names."""

import re

import pytest
from aiohttp.test_utils import make_mocked_request

from cc_tts.api.http import auth
from cc_tts.config.schema import TokenConfig
from cc_tts.errors import Forbidden, Unauthorized
from cc_tts.metrics import Metrics

pytestmark = pytest.mark.unit


def test_tokens_do_not_show() -> None:
    authenticator = auth.TokenAuthenticator([TokenConfig("secret-token", ("read",))])
    request = make_mocked_request("GET", "/", headers={"Authorization": "Bearer secret-token"})
    holder = authenticator.authenticate(request, "read")
    assert "secret-token" not in repr(holder)
    assert "secret-token" not in repr(vars(authenticator))
    with pytest.raises(Forbidden):
        authenticator.authenticate(request, "call")
    with pytest.raises(Unauthorized):
        authenticator.authenticate(make_mocked_request("GET", "/", headers={"Authorization": "Bearer other"}), "read")


def test_series_are_named_in_base_units() -> None:
    text = Metrics().render().decode()
    ours = re.findall(r"^# TYPE (cctts_\w+) (\w+)$", text, re.MULTILINE)
    assert len(ours) > 15
    for name, kind in ours:
        assert not name.endswith(("_ms", "_us", "_kb")), name
        assert (kind == "counter") == name.endswith("_total"), name
        has_no_unit = name.endswith("_mos")
        assert kind != "histogram" or name.endswith(("_seconds", "_ratio")) or has_no_unit, name


def test_two_servers_do_not_share_series() -> None:
    one, two = Metrics(), Metrics()
    one.calls_active.set(3)
    assert "cctts_calls_active 0.0" in two.render().decode()
    assert "cctts_build_info" in two.render().decode()
