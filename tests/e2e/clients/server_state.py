"""What a server does after its client has gone."""

from lab.server_under_test import Server


async def until_no_stream_runs(server: Server) -> None:
    await server.until_metrics("cctts_speech_streams 0.0\n")
