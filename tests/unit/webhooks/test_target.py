"""Which hosts and addresses the webhook of a call may be at."""

import pytest

from cc_tts.config.schema import CallWebhook, WebhookConfig
from cc_tts.webhooks.target import AllowedHosts, Target

pytestmark = pytest.mark.unit

SECRET = "whsec_" + "a2" * 20


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("app.example.com", True),
        ("APP.example.com.", True),
        ("a.b.example.org", True),
        ("example.org", False),
        ("evil-example.org", False),
        ("app.example.com.evil.net", False),
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("93.184.216.34", False),
        ("::ffff:10.1.2.3", True),
        ("", False),
    ],
)
def test_hosts_that_are_listed(host: str, is_allowed: bool) -> None:
    assert AllowedHosts(["app.example.com", "*.example.org", "10.1.0.0/16"]).has(host) is is_allowed


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "fe80::1%eth0", "fc00::1", "0.0.0.0",
     "100.64.0.1", "224.0.0.1", "255.255.255.255", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "::", "what"],
)  # fmt: skip
def test_addresses_that_are_not_public_are_not_reached(address: str) -> None:
    assert not AllowedHosts(["app.example.com"]).may_reach(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_reached(address: str) -> None:
    assert AllowedHosts(["app.example.com"]).may_reach(address)


def test_a_listed_network_lets_private_addresses_through() -> None:
    allowed = AllowedHosts(["app.example.com", "10.1.0.0/16", "fd00::/8"])
    assert allowed.may_reach("10.1.2.3")
    assert allowed.may_reach("fd00::1")
    assert not allowed.may_reach("10.2.2.3")


def test_neither_the_path_nor_a_secret_is_shown() -> None:
    for target in (
        Target.configured("crm", WebhookConfig(url="https://u:pw@app.example.com/t0ken?key=k3y", secret=SECRET)),
        Target.chosen(CallWebhook(url="https://app.example.com/t0ken?key=k3y", secret=SECRET)),
    ):
        assert target.shown == "https://app.example.com"
        assert not any(text in repr(target) for text in ("t0ken", "k3y", "pw", SECRET, "a2a2"))


def test_an_endpoint_of_a_tenant_gets_its_events_alone() -> None:
    target = Target.configured(
        "crm", WebhookConfig(url="http://x", secret=SECRET, tenant="acme", types=("call.early",))
    )
    assert target.wants("call.early", "acme")
    assert not target.wants("call.early", "other")
    assert not target.wants("call.early", "")
    assert not target.wants("call.held", "acme")
