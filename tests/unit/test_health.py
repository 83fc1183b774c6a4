"""``cc-tts health``: it finds out what runs, and asks it."""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from cc_tts import cli
from cc_tts.doctor import health

pytestmark = pytest.mark.unit

SERVICES = ("serve", "worker", "pool")


@contextmanager
def listening(answers: Mapping[str, str] = MappingProxyType({"/healthz": "200 OK"})) -> Iterator[int]:
    """A port whose clients get these statuses of HTTP by path, below /v1 with the token only."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    request = client.recv(1000).decode()
                    path = request.split(" ")[1] if request else ""
                    if path in answers and (
                        path[:3] != "/v1" or "\r\nAuthorization: Bearer a-secret-token\r\n" in request
                    ):
                        client.sendall(f"HTTP/1.1 {answers[path]}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)  # wakes accept
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


@pytest.mark.parametrize(
    ("readyz", "voices", "fault"),
    [
        ("200 OK", "200 OK", ""),
        ("503 Service Unavailable", "200 OK", "'HTTP/1.1 503 Service Unavailable' to /readyz"),
        ("200 OK", "401 Unauthorized", "'HTTP/1.1 401 Unauthorized' to /v1/voices"),
    ],
)
def test_a_server_is_ready_if_it_takes_calls_and_the_token(
    readyz: str,
    voices: str,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs(monkeypatch, tmp_path, ["/sbin/init"])
    tokens = 'http.tokens=[{token="only-for-calls", scopes=["call"]}, {token="a-secret-token", scopes=["read"]}]'
    with listening({"/readyz": readyz, "/v1/voices": voices}) as port:
        status = cli.main(["health", "--ready", "--set", f"http.port={port}", "--set", tokens])
    assert (status, fault in capsys.readouterr().err) == (int(bool(fault)), True)


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
    with listening({"/healthz": "500 Internal Server Error"}) as port:
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
