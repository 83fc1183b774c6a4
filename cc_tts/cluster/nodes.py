"""The line nodes of a cluster. The id of a call or an utterance names its node.

Ids that a node makes up are ``call_NODE_RANDOM``, ``utt_NODE_RANDOM`` and ``rec_NODE_RANDOM``. RANDOM is 16 hexadecimal
digits, or 32 where Asterisk names the call by a UUID, so that what is before its underscore is the node, whatever characters
that has. Runs on: the event loop.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from cc_tts import logs
from cc_tts.cluster.messages import Node
from cc_tts.config.cluster import NODE_NAME, base_url
from cc_tts.config.schema import ClusterConfig, Config, ServerConfig

MAX_ID_CHARS: Final = 100  # unmeasured
_RANDOM_BYTES: Final = 8
_ID: Final = re.compile(rf"(?:call|utt|rec)_(?P<node>{NODE_NAME})_(?:[0-9a-f]{{{2 * _RANDOM_BYTES}}}){{1,2}}")

log = logs.get(__name__)


def call_id_prefix(config: Config) -> str:
    """Return the beginning of call ids at a node: ``call_``, in a cluster ``call_NODE_``."""
    return _prefix("call", config.server, config.cluster)


def _prefix(kind: str, server: ServerConfig, cluster: ClusterConfig) -> str:
    return f"{kind}_{server.node_name}_" if cluster.is_on else f"{kind}_"


class LineNodes:
    """Our node and the other nodes: those of the configuration, and those that the pool names."""

    def __init__(self, server: ServerConfig | None = None, cluster: ClusterConfig | None = None) -> None:
        self._server = server or ServerConfig()
        self._cluster = cluster or ClusterConfig()
        self.name = self._server.node_name
        configured = _usable(self._cluster.nodes)
        self.base_url = base_url(self._cluster.base_url) or configured.pop(self.name, "")
        """The URL of the API of our own node; empty if it is not known."""
        configured.pop(self.name, None)
        self._configured = configured
        self._reported: dict[str, str] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Return the API addresses of the other nodes by name."""
        return self._reported | self._configured

    def set_reported(self, nodes: Iterable[Node]) -> None:
        """Set the nodes that the pool knows now. The address in the configuration has precedence."""
        found = {node.name: node.base_url for node in nodes if node.base_url and node.name != self.name}
        self._reported = _usable(found)
        if unusable := sorted(found.keys() - self._reported.keys()):
            log.warning(
                "node_without_address", nodes=unusable, detail="its cluster.base_url is not the address of an API"
            )

    def new_id(self, kind: str) -> str:
        """Return an id of ``kind`` ``call``, ``utt`` or ``rec`` that is unique in the cluster."""
        return _prefix(kind, self._server, self._cluster) + secrets.token_hex(_RANDOM_BYTES)

    def owner(self, id_: str) -> tuple[str, str] | None:
        """Return the name and the API address of the other node that created this id, if it is known."""
        match = _ID.fullmatch(id_) if len(id_) <= MAX_ID_CHARS else None
        name = match["node"] if match else ""
        url = self.addresses.get(name)
        return (name, url) if url else None


def _usable(nodes: Mapping[str, str]) -> dict[str, str]:
    return {name: url for name, text in nodes.items() if (url := base_url(text)) is not None}
