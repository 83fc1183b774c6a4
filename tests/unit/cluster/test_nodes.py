"""Ids that name their node."""

import re
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.events.types import CallEarly
from cc_tts.cluster.messages import Node
from cc_tts.cluster.nodes import LineNodes, call_id_prefix
from cc_tts.config.schema import ClusterConfig, Config, ServerConfig
from cc_tts.ua.client import settings_of
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

URL, OTHER_URL = "http://10.0.0.11:8080", "http://10.0.0.12:8080/two"
CLUSTER = ClusterConfig(nodes={"line-2": f"{OTHER_URL}/"})
NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


def line_nodes(cluster: ClusterConfig = CLUSTER, *, node: str = "line-1") -> LineNodes:
    return LineNodes(ServerConfig(node=node), cluster)


def test_ids_are_as_ever_without_a_cluster() -> None:
    config = Config(server=ServerConfig(node="line-1"))
    assert re.fullmatch("utt_[0-9a-f]{16}", LineNodes(config.server, config.cluster).new_id("utt"))
    assert call_id_prefix(config) == settings_of(config)[0].call_id_prefix == "call_"


@pytest.mark.parametrize(
    "cluster", [CLUSTER, ClusterConfig(base_url=URL), ClusterConfig(pool_url="http://10.0.0.9:8090")]
)
def test_ids_name_the_node_in_a_cluster(cluster: ClusterConfig) -> None:
    config = Config(server=ServerConfig(node="line-1"), cluster=cluster)
    assert re.fullmatch("call_line-1_[0-9a-f]{16}", line_nodes(cluster).new_id("call"))
    assert settings_of(config)[0].call_id_prefix == "call_line-1_"


@given(name=NAMES, kind=st.sampled_from(("call", "utt")))
def test_the_node_of_an_id_is_the_one_that_made_it(name: str, kind: str) -> None:
    there = line_nodes(ClusterConfig(base_url=URL), node=name)
    here = line_nodes(ClusterConfig(nodes={name: OTHER_URL}), node=f"not {name}")
    assert here.owner(there.new_id(kind)) == (name, OTHER_URL)


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "call_0123456789abcdef",
        "call_line-1_0123456789abcdef",
        "call_line-3_0123456789abcdef",
        "call_line-2_0123456789ABCDEF",
        "call_line-2_0123456789abcde",
        "call_line-2_0123456789abcdef\n",
        "gather_line-2_0123456789abcdef",
        "call__0123456789abcdef",
        "call_//evil.example_0123456789abcdef",
        "call_" + "x" * 10_000 + "_0123456789abcdef",
        "a-client's-own",
    ],
)
def test_ids_of_nobody_else(id_: str) -> None:
    assert line_nodes().owner(id_) is None


def test_a_table_with_our_own_name_says_our_address() -> None:
    nodes = line_nodes(ClusterConfig(nodes={"line-1": URL, "line-2": OTHER_URL}))
    assert nodes.base_url == URL
    assert nodes.owner("call_line-1_0123456789abcdef") is None
    assert nodes.owner("utt_line-2_0123456789abcdef") == ("line-2", OTHER_URL)


def test_nodes_of_the_pool_come_and_go() -> None:
    nodes, of_three = line_nodes(), "call_line-3_0123456789abcdef"
    three = Node(name="line-3", base_url="https://line-3.example.com/")
    nodes.set_reported([three, Node(name="line-1", base_url=URL), Node(name="line-2", base_url="http://elsewhere")])
    assert nodes.owner(of_three) == ("line-3", "https://line-3.example.com")
    assert nodes.owner("call_line-1_0123456789abcdef") is None
    assert nodes.owner("call_line-2_0123456789abcdef") == ("line-2", OTHER_URL)
    nodes.set_reported([msgspec.structs.replace(three, base_url="javascript:alert(1)")])
    assert nodes.owner(of_three) is None
    nodes.set_reported([Node(name="line-3")])
    assert nodes.owner(of_three) is None


@pytest.mark.parametrize(("cluster", "api"), [(CLUSTER, None), (replace(CLUSTER, base_url=URL), URL)])
def test_events_say_where_the_call_is(cluster: ClusterConfig, api: str | None) -> None:
    bus = EventBus(FakeClock(), node="line-1", api=line_nodes(cluster).base_url)
    event = msgspec.json.decode(msgspec.json.encode(bus.publish(CallEarly(sip_code=180), call_id="c")))
    assert event.get("api") == api
    assert event["node"] == "line-1"
