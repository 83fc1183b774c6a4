"""The addresses of ``[cluster]``: where clients and other nodes reach a server's API."""

import re
from collections.abc import Iterator
from typing import Final

from cc_tts.config.remote import shown
from cc_tts.config.schema import Config
from cc_tts.config.sip_uri import MAX_PORT

NODE_NAME: Final = r"[A-Za-z0-9._-]{1,64}"
"""The form of ``server.node``, which becomes part of ids, and so of paths."""
MAX_NODES: Final = 1000  # unmeasured
MAX_URL_CHARS: Final = 255  # unmeasured
_URL: Final = re.compile(
    r"(?P<origin>https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>\d{1,5}))?)"
    r"(?P<path>(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._~-]+)*)/?"
)
_HOW: Final = "write http://HOST:PORT or https://HOST, with what comes before /v1 if there is anything"


def base_url(text: str) -> str | None:
    """Return ``text`` without a trailing slash; ``None`` if it is no API address: ``http`` or ``https``, a host, a port, and
    an optional path prefix, without a user name, a query or a fragment.
    """
    match = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARS else None
    if match is None or (match["port"] is not None and not 0 < int(match["port"]) <= MAX_PORT):
        return None
    return match["origin"] + match["path"]


def faults(config: "Config") -> Iterator[str]:
    """Yield a sentence for each unusable or contradictory value in ``cluster.base_url`` and ``cluster.nodes``."""
    cluster, own = config.cluster, config.server.node
    if len(cluster.nodes) > MAX_NODES:
        yield f"cluster.nodes has {len(cluster.nodes)} nodes; {MAX_NODES} are possible"
        return
    if (cluster.base_url or cluster.nodes) and not own:
        key = "base_url" if cluster.base_url else "nodes"
        yield f'cluster.{key} is set but server.node is empty: give each server a name there, as in server.node = "line-1"'
    named = {"cluster.base_url": cluster.base_url} if cluster.base_url else {}
    for name, url in cluster.nodes.items():
        if not re.fullmatch(NODE_NAME, name):
            yield f"cluster.nodes: {name[:80]!r} is no name of a node; a name is 1 to 64 of A-Z a-z 0-9 . _ -"
            return
        named[f"cluster.nodes.{name}"] = url
    for key, url in named.items():
        if base_url(url) is None:
            yield f"{key}: {shown(url)} is not the address of an API; {_HOW}"
            return
    if cluster.is_on and not re.fullmatch(NODE_NAME, config.server.node_name):
        yield "server.node is empty, and the name of this machine cannot be part of an id; set server.node"
    yield from _contradictions(own, {key: base_url(url) for key, url in named.items()})


def _contradictions(own: str, named: dict[str, str | None]) -> Iterator[str]:
    here, said_here = named.get("cluster.base_url"), f"cluster.nodes.{own}"
    if here is not None and named.get(said_here, here) != here:
        yield f"{said_here} is this server, with another address than cluster.base_url; leave one of them out"
    seen: dict[str | None, str] = {}
    for key, url in named.items():
        if url in seen and {key, seen[url]} != {"cluster.base_url", said_here}:
            yield f"{key} and {seen[url]} have the same address; each node has an API of its own"
        seen.setdefault(url, key)
