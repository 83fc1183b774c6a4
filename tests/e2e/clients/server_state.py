"""What a server does after its client has gone."""

import asyncio

from lab.server_under_test import Server
from lab.waiting import PATIENCE_S


async def until_no_stream_runs(server: Server) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while "cctts_speech_streams 0.0\n" not in (await server.get_text("/metrics"))[1]:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)
