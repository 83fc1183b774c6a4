"""The addresses of ``[cluster]``."""

import pytest

from cc_tts.config import cluster
from cc_tts.config import load as configuration

pytestmark = pytest.mark.unit

A, B = "https://line-1.example.com", "http://10.0.0.12:8080"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (B, B),
        (f"{A}/", A),
        (f"{A}/tts/one/", f"{A}/tts/one"),
        ("http://[fd00::1]:8080", "http://[fd00::1]:8080"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert cluster.base_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "line-1",
        "line-1:8080",
        "ftp://line-1",
        "https://",
        "https://:8080",
        f"{B}0000",
        "http://line-1:0",
        "https://user:word@line-1",
        f"{A}?token=word",
        f"{A}#top",
        f"{A}/../v1",
        f"{A}//other",
        f"{A}/a b",
        f"{A}\r\nX: y",
        f"{A}\n",
        "https://" + "a" * 300,
    ],
)
def test_what_is_no_address(text: str) -> None:
    assert cluster.base_url(text) is None


def test_one_table_of_nodes_serves_all_of_them() -> None:
    nodes = {"line-1": A, "line-2": B}
    for own, url in nodes.items():
        config = configuration.from_tree({"server": {"node": own}, "cluster": {"nodes": nodes, "base_url": url}})
        assert config.cluster.nodes == nodes


def test_nodes_from_the_environment() -> None:
    config = configuration.load(
        environ={"CC_TTS_SERVER__NODE": "line-1", "CC_TTS_CLUSTER__NODES": f'{{"line-2" = "{B}"}}'}
    )
    assert config.cluster.nodes == {"line-2": B}
