"""What a new configuration means for a running server."""

import dataclasses

import pytest

from cc_tts.config import load as configuration
from cc_tts.config.load import from_tree
from cc_tts.config.schema import RELOADABLE, Config
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit


def test_what_can_be_taken_over_is_and_the_rest_is_named() -> None:
    running = from_tree({"routes": {"a": {"greeting": "A"}, "b": {}, "c": {}}})
    wanted = from_tree(
        {
            "sip": {"port": 5070, "allowed_peers": ["10.0.0.0/8"]},
            "http": {"tokens": ["a-new-token"], "port": 9000},
            "log": {"level": "debug"},
            "routes": {"a": {"greeting": "B"}, "c": {}, "d": {}},
        }
    )
    found = configuration.reload(running, wanted)
    assert set(found.changed) == {
        "sip.allowed_peers",
        "http.tokens",
        "log.level",
        "routes.a",
        "routes.b",
        "routes.d",
    }
    assert set(found.needs_restart) == {"sip.port", "http.port"}
    assert found.config.sip == dataclasses.replace(running.sip, allowed_peers=("10.0.0.0/8",))
    assert found.config.http == dataclasses.replace(running.http, tokens=wanted.http.tokens)
    assert found.config.routes == wanted.routes


def test_tenants_are_taken_over() -> None:
    running = from_tree({"tenants": {"acme": {"max_calls": 3}, "gone": {}}})
    wanted = from_tree({"tenants": {"acme": {"max_calls": 5}, "new": {}}})
    found = configuration.reload(running, wanted)
    assert (found.changed, found.needs_restart) == (("tenants.acme", "tenants.gone", "tenants.new"), ())
    assert found.config.tenants == wanted.tenants


def test_trunks_wait_for_a_restart_and_stay_registered() -> None:
    running = from_tree({"trunks": {"alpha": {"domain": "a.example"}}})
    wanted = from_tree({"trunks": {"alpha": {"domain": "b.example"}, "beta": {"domain": "c.example"}}})
    found = configuration.reload(running, wanted)
    assert (found.changed, found.needs_restart) == ((), ("trunks.alpha", "trunks.beta"))
    assert found.config.trunks == running.trunks


def test_nothing_new_changes_nothing() -> None:
    running = from_tree({"http": {"tokens": ["a-new-token"]}})
    assert configuration.reload(running, running) == configuration.Reload(config=running, changed=(), needs_restart=())


def test_tokens_are_not_given_up_while_strangers_reach_the_port() -> None:
    running = from_tree({"http": {"host": "0.0.0.0", "tokens": ["a-token-1"]}})
    with pytest.raises(ConfigError, match=r"no token is configured.*http.host"):
        configuration.reload(running, from_tree({}))


def test_reloadable_keys_exist() -> None:
    sections = {section.name: getattr(Config(), section.name) for section in dataclasses.fields(Config)}
    for name in RELOADABLE:
        section, _, key = name.partition(".")
        assert not key or key in {field.name for field in dataclasses.fields(sections[section])}
