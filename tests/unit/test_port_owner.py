"""Who holds a port."""

import os
import socket

import pytest

from cc_tts import port_owner

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("kind", "type_"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)])
def test_the_holder_is_named_without_its_arguments(kind: port_owner.Kind, type_: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, type_) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == "tcp":
            taken.listen()
        port = taken.getsockname()[1]
        owner = port_owner.find(kind, port)
        assert owner is not None
        assert owner.pid == os.getpid()
        assert "pytest" not in str(owner) or "python" not in str(owner)
        assert str(owner).endswith(f", pid {os.getpid()}")
        assert port_owner.reason(kind, port, "unseen") == f"the port is taken by {owner}"
    assert port_owner.find(kind, port) is None
    assert port_owner.reason(kind, port, "unseen") == "unseen"
