"""An application on a loopback port, in place of a client's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def served(app: web.Application, *, port: int = 0) -> AsyncIterator[int]:
    """Serve it; the value is the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def served_app(*routes: web.RouteDef, port: int = 0) -> AsyncIterator[int]:
    """Serve these routes; the value is the port."""
    app = web.Application()
    app.add_routes(routes)
    async with served(app, port=port) as bound:
        yield bound
