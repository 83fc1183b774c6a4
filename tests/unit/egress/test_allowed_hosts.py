"""Which hosts and addresses a URL of a client may lead to."""

import pytest

from cc_tts.egress.hosts import AllowedHosts, is_host_entry, usable_url

pytestmark = pytest.mark.unit


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


def test_with_networks_a_listed_address_is_reached_through_them_alone() -> None:
    allowed = AllowedHosts(["10.1.2.3", "127.0.0.1"], ["10.1.0.0/16"])
    assert allowed.has("10.1.2.3")
    assert not allowed.has("127.0.0.1")
    assert not allowed.may_reach("127.0.0.1")


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "localhost"])
def test_other_spellings_of_an_address_are_names_that_nobody_listed(host: str) -> None:
    assert not AllowedHosts(["*.example.com", "127.0.0.0/8"]).has(host)


@pytest.mark.parametrize(
    "text",
    ["ftp://a.example.com/", "https:///x", "https://u:p@a.example.com/", "https://@a.example.com/", "https://a.example.com/#x",
     "https://a.example.com/\r\nX: y", "https://a.example.com:0/", "https://a.example.com:99999/", "//a.example.com/", ""],
)  # fmt: skip
def test_urls_that_are_not_requested(text: str) -> None:
    assert usable_url(text, "http", "https") is None


def test_a_url_is_requested_as_it_is_written() -> None:
    text = "https://A.example.com:8443/a%2Fb%7e?sig=%2B+x"
    assert str(usable_url(text, "https")) == text


def test_entries_of_the_list() -> None:
    assert all(map(is_host_entry, ("a.example.com", "*.example.com", "10.0.0.0/8", "::1")))
    assert not any(map(is_host_entry, ("https://a.example.com", "a b", "10.0.0.0/33", "*", "")))
