"""``cc-tts health``: it finds out what runs, and asks it."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cc_tts import cli
from cc_tts.doctor import health

pytestmark = pytest.mark.unit

SERVICES = ("serve", "worker", "pool")


@contextmanager
def listening(status: str = "200 OK") -> Iterator[int]:
    """A port whose first client gets this status of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                if client.recv(1000).startswith(b"GET /healthz HTTP/1.1\r\n"):
                    client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)


def runs(monkeypatch: pytest.MonkeyPatch, folder: Path, command_line: Sequence[str]) -> None:
    path = folder / "cmdline"
    path.write_bytes(b"".join(word.encode() + b"\0" for word in command_line))
    monkeypatch.setattr(health.service_arguments, "__defaults__", (path,))


@pytest.mark.parametrize(
    ("command_line", "found"),
    [
        ("/opt/cc-tts/bin/python /opt/cc-tts/bin/cc-tts serve --config /a.toml", "serve --config /a.toml"),
        ("/sbin/docker-init -- cc-tts worker --listen 10.0.0.5:7400", "worker --listen 10.0.0.5:7400"),
        ("python -m cc_tts.cli pool --listen 0.0.0.0:8090", "pool --listen 0.0.0.0:8090"),
        ("/sbin/init", ""),
        ("cc-tts", ""),
        ("cc-tts doctor serve", ""),
        ("vim serve", ""),
    ],
)
def test_the_service_is_read_from_the_command_line(command_line: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "cmdline"
    path.write_bytes(b"".join(word.encode() + b"\0" for word in command_line.split(" ")))
    assert health.service_arguments(SERVICES, path) == found.split()


def test_without_a_process_to_read_there_is_no_service(tmp_path: Path) -> None:
    assert health.service_arguments(SERVICES, tmp_path / "none") == []


@pytest.mark.parametrize(
    "service",
    [
        ["serve", "--set", "http.port=PORT"],
        [
            "serve",
            "--set",
            "http.host=0.0.0.0",
            "--set",
            "http.port=PORT",
            "--set",
            'http.tokens=[{token="a-secret-token"}]',
        ],
        ["pool", "--listen", "127.0.0.1:PORT"],
        ["worker", "--listen", "127.0.0.1:PORT"],
    ],
    ids=["server", "server on every address", "pool", "worker"],
)
def test_a_service_that_answers_is_healthy(
    service: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening() as port:
        runs(monkeypatch, tmp_path, ["cc-tts", *(word.replace("PORT", str(port)) for word in service)])
        assert cli.main(["health"]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_a_server_that_is_no_container_is_found_by_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, tmp_path, ["/sbin/init"])
    with listening() as port:
        assert cli.main(["health", "--set", f"http.port={port}"]) == 0


@pytest.mark.parametrize("service", [["serve", "--set", "http.port=PORT"], ["pool", "--listen", "127.0.0.1:PORT"]])
def test_an_error_is_not_healthy(
    service: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening("500 Internal Server Error") as port:
        runs(monkeypatch, tmp_path, ["cc-tts", *(word.replace("PORT", str(port)) for word in service)])
        assert cli.main(["health"]) == 1
    assert f"127.0.0.1:{port} answers 'HTTP/1.1 500" in capsys.readouterr().err


@pytest.mark.parametrize("service", ["serve", "worker"])
def test_nobody_is_not_healthy(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    given = ["--listen", f"127.0.0.1:{port}"] if service == "worker" else ["--set", f"http.port={port}"]
    runs(monkeypatch, tmp_path, ["cc-tts", service, *given])
    assert cli.main(["health"]) == 1
    assert f"nothing answers at 127.0.0.1:{port}: Connection refused" in capsys.readouterr().err
