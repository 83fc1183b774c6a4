"""A server with few open files, and clients that send half requests."""

import asyncio
import json
from pathlib import Path

import pytest

from lab.server_under_test import Server

pytestmark = pytest.mark.e2e

HALF_REQUESTS = 248
OPEN_FILES = 128
MAX_LOG_BYTES = 200_000


async def half_request(port: int) -> asyncio.StreamWriter | None:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nX-Half")
        await writer.drain()
    except ConnectionError:
        return None
    return writer


async def test_half_requests_with_few_files_neither_stop_the_api_nor_fill_the_log(tmp_path: Path) -> None:
    prefix = ("sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh")
    server = await Server.start(tmp_path, prefix=prefix)
    try:
        port = int(server.url.rpartition(":")[2])
        writers = [await half_request(port) for _ in range(HALF_REQUESTS)]
        for _ in range(20):
            assert (await server.get("/healthz"))[0] == 200
        assert (await server.get("/readyz"))[0] == 200
        for writer in writers:
            if writer is not None:
                writer.close()
    finally:
        code = await server.end()
    assert code == 0
    assert len(server.log) < MAX_LOG_BYTES
    for line in server.log.splitlines():
        assert isinstance(json.loads(line), dict), line
