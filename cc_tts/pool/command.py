"""The command ``cc-tts pool``."""

import asyncio
import logging
import signal
import ssl
from pathlib import Path

from aiohttp import web

from cc_tts import logs
from cc_tts.clock import MonotonicClock
from cc_tts.cluster.leases import TenantLeases
from cc_tts.config import remote as addresses
from cc_tts.config.schema import Config, RemoteConfig
from cc_tts.engines.factory import with_one_model
from cc_tts.errors import ConfigError
from cc_tts.pool import ray_hosts
from cc_tts.pool.app import build_app
from cc_tts.pool.ray_hosts import RayHosts
from cc_tts.pool.state import PoolState
from cc_tts.pool.voices import VoiceFolder
from cc_tts.processes import threads
from cc_tts.processes.tasks import first_of

SHUTDOWN_TIMEOUT_S = 3.0  # unmeasured

_SILENT = logging.getLogger("cc_tts.pool.protocol")  # aiohttp's lines quote headers, and a header may be the token
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

log = logs.get(__name__)


class _Stopped(BaseException):
    """A signal came before there was an event loop to handle it."""


def _stop(_number: int, _frame: object) -> None:
    raise _Stopped


def run(config: Config, listen: str, *, generation: str = "", model: str = "") -> int:
    """Serve until SIGTERM or SIGINT; the workers keep running. ``generation`` of the workers that are started from now on,
    and ``model``: see :func:`cc_tts.engines.remote.host.run`. Raises ``ConfigError``, and ``ProcessFailed`` when Ray is
    lost.
    """
    if generation:
        addresses.check_generation(generation, "--generation")
    host, port = addresses.listen_address(listen)
    addresses.check_listener(config.remote, host, who="pool")
    config = with_one_model(config, model)
    tls = _tls(config.remote)
    logs.configure(level=config.log.level, json=config.log.json, process="pool")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        is_own = ray_hosts.connect(config)  # it may block this thread for half a minute
        threads.run(_serve(config, host, port, tls, generation=generation, is_own=is_own))
    except _Stopped:
        log.warning("stopped_while_starting")
    return 0


def down(config: Config) -> int:
    """Let the workers of the cluster finish their streams, and end them. Raises ``ConfigError``."""
    logs.configure(level="critical", json=False, process="pool")
    if ray_hosts.connect(config):
        raise ConfigError("--down needs the Ray cluster of the workers: set pool.ray_address or RAY_ADDRESS")
    num = RayHosts(config, pool_url="", is_own=False, clock=MonotonicClock()).down()
    print(f"{num} workers ended")  # noqa: T201 - what the command is asked for
    return 0


async def _serve(
    config: Config, host: str, port: int, tls: ssl.SSLContext | None, *, generation: str, is_own: bool
) -> None:
    clock, stop = MonotonicClock(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    reached_at = await asyncio.to_thread(ray_hosts.own_address) if host in ("0.0.0.0", "::") else host
    url = f"{'https' if tls else 'http'}://{addresses.host_port(reached_at, port)}"
    voice_folder = VoiceFolder(Path(config.tts.voices_dir)) if config.tts.voices_dir else None
    state = PoolState(
        RayHosts(config, pool_url=url, generation=generation, is_own=is_own, clock=clock),
        clock=clock,
        first_audio_target_ms=config.tts.first_audio_target_ms,
        voice_folder=voice_folder,
        leases=TenantLeases(config.tenants, clock=clock),
    )
    app = build_app(state, token=config.remote.token)
    runner = web.AppRunner(app, access_log=None, logger=_SILENT, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        state.start()
        log.info("pool_listens", host=host, port=port, tls=tls is not None)
        await first_of(state.ended(), stop.wait())  # if Ray is lost, the pool ends and its service manager restarts it
    except OSError as error:
        raise ConfigError(f"--listen {addresses.host_port(host, port)}: {error.strerror}") from None
    finally:
        await state.stop()
        await runner.cleanup()
        log.info("stopped", consequence="the workers end with their Ray node" if is_own else "the workers go on")


def _tls(remote: RemoteConfig) -> ssl.SSLContext | None:
    if not remote.certificate_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = Path(remote.certificate_file), Path(remote.private_key_file)
    try:
        context.load_cert_chain(certificate.expanduser(), key.expanduser())
        if remote.ca_file:
            context.load_verify_locations(Path(remote.ca_file).expanduser())
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError too
        raise ConfigError(f"the files of [remote] cannot be used: {error.strerror or error}") from None
    return context
