"""Messages between a server and `cc-tts pool` over one WebSocket, ``GET /v1/watch`` of the pool: JSON texts, each with
its ``type``.

::

    server ── node (every 2 s, and when something changes) ──▸ pool
    server ◂── workers, nodes (whole lists, when they change), leases (after each node) ── pool

A server that loses the pool keeps what it last got: nothing that a caller hears depends on the pool.
"""

from typing import Annotated, Final

import msgspec

REPORT_INTERVAL_S: Final = 2.0
"""The interval of a server's reports (unmeasured)."""
MAX_MESSAGE_BYTES: Final = 1 << 20  # unmeasured

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
Url = Annotated[str, msgspec.Meta(max_length=255)]
Number = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
Characters = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class TenantShare(msgspec.Struct, frozen=True):
    """The share of a tenant at one node; ``None`` for no limit. ``characters``: per day in UTC."""

    calls: Number | None = None
    streams: Number | None = None
    listeners: Number | None = None
    characters: Characters | None = None


class TenantUse(msgspec.Struct, frozen=True):
    """A tenant's use at one node now. ``refused``: requests that were refused for lack of a share since the last report;
    ``held``: the share in force at the node.
    """

    calls: Number = 0
    streams: Number = 0
    listeners: Number = 0
    characters: Characters = 0
    refused: Number = 0
    held: TenantShare = TenantShare()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One line node, as `GET /v1/cluster` shows it."""

    name: Name
    base_url: Url = ""
    version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    calls: Number = 0
    max_calls: Number = 0
    draining: bool = False


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One speech worker of the pool. ``address`` as in ``tts.workers``, ``generation`` as the worker has it."""

    address: Url
    generation: Annotated[str, msgspec.Meta(max_length=64)] = ""
    device: Annotated[str, msgspec.Meta(max_length=64)] = ""
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""
    draining: bool = False


class NodeReport(msgspec.Struct, frozen=True, tag="node"):
    """Server → pool: how this node is, and what its tenants use."""

    node: Node
    tenants: dict[Name, TenantUse] = {}


class Workers(msgspec.Struct, frozen=True, tag="workers"):
    """Pool → server: all workers."""

    workers: tuple[Worker, ...]


class Nodes(msgspec.Struct, frozen=True, tag="nodes"):
    """Pool → server: all nodes that have reported lately, the receiver among them."""

    nodes: tuple[Node, ...]


class Leases(msgspec.Struct, frozen=True, tag="leases"):
    """Pool → server: this node's shares, in force for ``ttl_s``, and as long as the pool is away."""

    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    tenants: dict[Name, TenantShare]


FromPool = Workers | Nodes | Leases
