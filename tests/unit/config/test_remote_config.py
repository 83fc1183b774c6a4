"""The addresses of ``tts.workers`` and the keys of ``[remote]``."""

from typing import Any

import pytest

from cc_tts.config import load as configuration
from cc_tts.config import remote
from cc_tts.config.schema import Config, RemoteConfig
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit

WORKERS = ["grpc://10.0.0.1:1"]


@pytest.mark.parametrize(
    "text",
    [
        "grpc://127.0.0.1:7400",
        "grpcs://gpu-1.example:7400",
        "grpc://[::1]:7400",
        "dns:workers.speech.svc:7400",
        "pool:10.0.0.9:8090",
    ],
)
def test_addresses(text: str) -> None:
    assert str(remote.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "gpu-1:7400", "http://gpu-1:7400", "grpc://gpu-1", "grpc://gpu-1:0", "grpc://gpu-1:70000", "grpc://a b:1"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="write grpcs://HOST:PORT, grpc://HOST:PORT, dns:NAME:PORT or pool:HOST:PORT"):
        remote.parse(text)


@pytest.mark.parametrize(
    ("tree", "url"),
    [
        ({}, ""),
        ({"tts": {"workers": ["pool:10.0.0.9:8090"]}}, "http://10.0.0.9:8090"),
        ({"tts": {"workers": ["pool:[::1]:8090"]}}, "http://[::1]:8090"),
        ({"tts": {"workers": ["pool:pool:8090"]}, "remote": {"ca_file": "ca.pem"}}, "https://pool:8090"),
        (
            {"cluster": {"pool_url": "http://10.0.0.9:8090"}, "tts": {"workers": ["pool:10.0.0.9:8090"]}},
            "http://10.0.0.9:8090",
        ),
    ],
)
def test_where_the_pool_is(tree: dict[str, Any], url: str) -> None:
    assert remote.pool_url(configuration.from_tree(tree)) == url


def test_a_server_may_have_workers_elsewhere_only() -> None:
    config = configuration.from_tree({"tts": {"devices": [], "workers": ["grpc://10.0.0.1:7400"]}})
    assert config.tts.devices == ()


@pytest.mark.parametrize(
    ("address", "is_private"),
    [
        *((address, True) for address in ("127.0.0.1", "10.1.2.3", "192.168.0.1", "fd00::1", "::1")),
        *((address, False) for address in ("8.8.8.8", "2a00::1", "0.0.0.0", "::", "gpu-1")),
    ],
)
def test_private_addresses(address: str, is_private: bool) -> None:
    assert remote.is_private(address) is is_private


@pytest.mark.parametrize("text", ["7400", "gpu-1:7400", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:x"])
def test_a_worker_listens_at_an_address(text: str) -> None:
    with pytest.raises(ConfigError, match="write an address of this machine and a port"):
        remote.listen_address(text)


@pytest.mark.parametrize(
    ("host", "config", "message"),
    [
        ("127.0.0.1", RemoteConfig(), ""),
        ("10.0.0.5", RemoteConfig(token="horse-battery"), ""),
        ("0.0.0.0", RemoteConfig(token="horse-battery", certificate_file="a", private_key_file="b"), ""),
        ("0.0.0.0", RemoteConfig(ca_file="c", certificate_file="a", private_key_file="b"), ""),
        ("10.0.0.5", RemoteConfig(), r"set remote\.token"),
        ("0.0.0.0", RemoteConfig(token="horse-battery"), "without TLS"),
        ("0.0.0.0", RemoteConfig(certificate_file="a", private_key_file="b"), "set one of them"),
    ],
)
def test_where_a_worker_may_listen(host: str, config: RemoteConfig, message: str) -> None:
    if not message:
        remote.check_listener(config, host)
        return
    with pytest.raises(ConfigError, match=message):
        remote.check_listener(config, host)


def test_shares_of_generations_are_taken_over_by_a_running_server() -> None:
    def config(**generations: float) -> Config:
        return configuration.from_tree({"tts": {"workers": WORKERS, "generations": generations}})

    found = configuration.reload(config(), config(blue=0.3, green=0.7))
    assert (found.changed, found.needs_restart) == (("tts.generations",), ())
    assert found.config.tts.generations == {"blue": 0.3, "green": 0.7}


def test_shares_may_come_from_the_command_line() -> None:
    config = configuration.load(overrides=['tts.workers=["grpc://10.0.0.1:1"]', 'tts.generations={"0.2.0" = 0.05}'])
    assert config.tts.generations == {"0.2.0": 0.05}


@pytest.mark.parametrize("label", ["0.1.0", "0.2.0.dev1+g1a2b3c", "blue", "2026-11-25", "A" * 32])
def test_names_of_generations(label: str) -> None:
    remote.check_generation(label, "--generation")


@pytest.mark.parametrize("label", ["", "-1", "a b", "a/b", "A" * 33, "ü", "a\n"])
def test_what_is_no_name_of_a_generation(label: str) -> None:
    with pytest.raises(ConfigError, match=r"--generation: .* is no name of a generation"):
        remote.check_generation(label, "--generation")
