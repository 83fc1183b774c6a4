"""Checks that find what is wrong with a configuration on this machine before anything is served: for the server's
start, ``cc-tts check-config`` and ``cc-tts doctor``.

::

    check_machine                build of pjsua2 · TLS files · addresses · folders · VAD · ports, before anything starts
    SpeechSource.check_voices    default voice · the routes' voices, languages, greetings, once the engine knows its voices
"""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from cc_tts import port_owner
from cc_tts.calls.events.types import EVENTS
from cc_tts.clock import MonotonicClock
from cc_tts.cluster import pool_client
from cc_tts.config import tls as tls_files
from cc_tts.config.load import named_paths
from cc_tts.config.remote import pool_url
from cc_tts.config.schema import Config, HttpConfig, listens
from cc_tts.engines.factory import engine_names, make_engine, remote_workers
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.messages import Purpose
from cc_tts.errors import CcTtsError, ConfigError, ProcessFailed, did_you_mean
from cc_tts.metrics import Metrics
from cc_tts.port_owner import Kind
from cc_tts.recorder.store import RecordingStore
from cc_tts.speech.cache.prompt_files import PromptFiles
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.staged.prompts import check_folder
from cc_tts.text.normalizer import Normalizer
from cc_tts.tracing import otlp
from cc_tts.ua import pjsua2_build
from cc_tts.vad.silero import find_model

POOL_POLL_S: Final = 0.5  # unmeasured


async def check(config: Config) -> tuple[list[str], list[CcTtsError]]:
    """Check everything that a start would, without holding a port and without loading a model. Returns warnings, a sentence
    each, and why the server would not start or would refuse every call of a route, in the order in which a start finds it.
    """
    warnings: list[str] = []
    faults: list[CcTtsError] = []
    for step in _STEPS:
        try:
            warnings += step(config)
        except (CcTtsError, OSError) as error:
            faults.append(unusable(config, error))
    try:
        warnings += await _unreached_workers(config)
        async with engine_without_model(config, purpose="load") as engine:
            warnings += [f"a voice cannot be used: {fault}" for fault in engine.voice_faults]
            warnings += SpeechSource(engine, Normalizer(), config.tts).check_voices(
                config.routes, config.calls.disclosure
            )
    except (CcTtsError, OSError) as error:
        faults.append(unusable(config, error))
    return warnings, faults


def unusable(config: Config, error: CcTtsError | OSError) -> CcTtsError:
    """Return the fault for an error; for a file or folder that the system refuses, with the key that names it."""
    if isinstance(error, CcTtsError):
        return error
    if not isinstance(error.filename, str):
        return ConfigError(str(error))
    path = Path(error.filename).absolute()
    keys = [key for key, named in named_paths(config) if named in (path, *path.parents)]
    advice = "; the server's user must be able to read it" if isinstance(error, PermissionError) else ""
    return ConfigError(": ".join([*keys[:1], str(path), error.strerror or str(error)]) + advice)


def cannot_listen(http: HttpConfig, error: OSError) -> ConfigError:
    """Return the fault for an address of the control API that cannot be bound."""
    unseen = "the port is taken, by whom is not to be seen (try as root)"
    is_taken = error.errno == errno.EADDRINUSE
    why = port_owner.reason("tcp", http.port, unseen) if is_taken else str(error)
    return ConfigError(f"HTTP on {http.host}:{http.port}: {why}")


@contextlib.asynccontextmanager
async def engine_without_model(config: Config, *, purpose: Purpose = "check") -> AsyncIterator[WorkerEngine]:
    """Return the configured engine, which knows its voices but cannot speak; it ends with the context. Voices of the CPU may
    be loaded or measured.
    """
    engine = make_engine(config, purpose=purpose)
    await name_pool_workers(config, engine.elsewhere)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def name_pool_workers(config: Config, workers: RemoteWorkers) -> None:
    """Ask the pool of ``tts.workers`` once, for commands that do not follow it; raises ``ProcessFailed`` if it cannot be
    asked.
    """
    if workers.follows_pool:
        workers.set_pool_workers(await pool_client.ask_workers(pool_url(config), config.remote))


async def wait_for_pool(config: Config, on_waiting: Callable[[str], object]) -> None:
    """Wait until a worker of the pool of ``tts.workers`` is ready, at most ``tts.worker_start_timeout_s``; ``on_waiting``
    gets the reason. Raises ``ProcessFailed`` with that reason, or if the pool cannot be asked.
    """
    url, reason = pool_url(config), ""
    try:
        async with asyncio.timeout(config.tts.worker_start_timeout_s):
            while reason := await pool_client.why_not_ready(url, config.remote) or "":
                on_waiting(f"the pool at {url} is not ready: {reason}")
                await asyncio.sleep(POOL_POLL_S)
    except TimeoutError:
        raise ProcessFailed(f"the pool at {url} is not ready: {reason}") from None


async def _unreached_workers(config: Config) -> list[str]:
    """Return the workers on other machines that cannot be used now, and what to check, a sentence each."""
    if not config.tts.workers:
        return []
    named = replace(config, tts=replace(config.tts, engine=engine_names(config.tts)[0]))
    workers = remote_workers(named, "check", clock=MonotonicClock(), metrics=Metrics())
    try:
        await name_pool_workers(config, workers)
        return await workers.try_once()
    except ProcessFailed as error:
        return [error.detail]
    finally:
        await workers.stop()


def check_machine(config: Config) -> list[str]:
    """Check addresses, files and builds, and return warnings, a sentence each. Raises ``ConfigError`` with the key and what
    to do if the server would not start.
    """
    try:
        return [warning for step in _STEPS for warning in step(config)]
    except OSError as error:
        raise unusable(config, error) from None


def _check_build(_config: Config) -> list[str]:
    pjsua2_build.chosen()
    return []


def _check_tls(config: Config) -> list[str]:
    warnings = tls_files.check(config.tls, now_s=MonotonicClock().wall_s())
    if "tls" in config.sip.transports:
        tls_files.ca_file(config.tls)
    return warnings


def _check_cache(config: Config) -> list[str]:
    if config.cache.enabled:
        PromptFiles(config.cache, Metrics()).check()
    return []


def _check_record(config: Config) -> list[str]:
    if config.record.dir:
        try:
            folder = RecordingStore(Path(config.record.dir).expanduser()).prepare("")
        except OSError as error:
            raise ConfigError(f"record.dir: {config.record.dir}: {error.strerror}") from None
        free, least = shutil.disk_usage(folder).free, config.record.min_free_bytes
        if free < least:
            return [f"record.dir: {free} bytes are free; calls are not recorded below record.min_free_bytes ({least})"]
    return []


def _check_files(config: Config) -> list[str]:
    """Refuse files that nothing can be appended to, without making them, and a folder that is none. A folder of prompts or
    lexicons may be read-only, as one that comes with an image is.
    """
    if folder := config.prompts.dir:
        check_folder(Path(folder).expanduser())
    for key, name in (("accounting.file", config.accounting.file), ("webhooks.file", config.webhooks.file)):
        if name and (fault := _why_not_appended(Path(name).expanduser())):
            raise ConfigError(f"{key}: {name}: {fault}")
    journal = Path(config.webhooks.file).expanduser() if config.webhooks.file else None
    if journal and journal.exists() and not journal.is_file():
        raise ConfigError(f"webhooks.file: {journal} is no file")  # a pipe would be read for ever
    warnings = [
        f"{key}: {folder} cannot be written: what is there is used, and requests that would change it get 507"
        for key, folder in (("prompts.dir", config.prompts.dir), ("tts.lexicons_dir", config.tts.lexicons_dir))
        if folder and (path := Path(folder).expanduser()).is_dir() and not os.access(path, os.W_OK | os.X_OK)
    ]
    command = config.record.on_saved
    if command and shutil.which(command[0]) is None:
        warnings.append(
            f"record.on_saved: {command[0]} is no program of this machine: recordings would not be handed on"
        )
    return warnings


def _why_not_appended(path: Path) -> str:
    if path.is_dir():
        return "it is a folder; name a file"
    if path.exists():
        return "" if os.access(path, os.W_OK) else "it cannot be written"
    if not path.parent.is_dir():
        return "its folder does not exist"
    return "" if os.access(path.parent, os.W_OK | os.X_OK) else "its folder cannot be written"


def _check_vad(config: Config) -> list[str]:
    if config.vad.model_file or listens(config):
        find_model(config.vad.model_file)
    return []


def _check_addresses(config: Config) -> list[str]:
    for key, kind, host, port in listeners(config):
        _check_address(key, kind, host, port)
    return []


def _check_address(key: str, kind: Kind, host: str, port: int) -> None:
    """Bind an address as the server will, and release it. A port in use is no fault: the server may be running."""
    host_key = "http.host" if key == "http.port" else "sip.host"
    try:
        found = socket.getaddrinfo(host, port, type=port_owner.SOCKET_KINDS[kind], flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise ConfigError(f"{host_key}: {host[:255]!r} is neither an address nor a name that resolves") from None
    errors = [port_owner.bind_error(kind, family, address) for family, _, _, _, address in found]
    failures = {error.errno if error is not None else None for error in errors}
    if failures == {errno.EADDRNOTAVAIL}:
        advice = "0.0.0.0 listens on all that it has"
        raise ConfigError(f"{host_key}: {host} is not an address of this machine; {advice}")
    if failures == {errno.EACCES}:
        raise ConfigError(f"{key}: {port} needs privileges; use a port above 1023, or grant CAP_NET_BIND_SERVICE")


def listeners(config: Config) -> Iterator[tuple[str, Kind, str, int]]:
    """Return the addresses that SIP and, last, HTTP listen on: the port's key, UDP or TCP, host, port."""
    sip, http = config.sip, config.http
    for name in sip.transports:
        if name == "tls":
            yield "sip.tls_port", "tcp", sip.host, sip.tls_port
        else:
            yield "sip.port", name, sip.host, sip.port
    if config.ua.processes > 1:
        for port in config.ua.own_ports:
            yield "ua.first_port", "udp", sip.host, port
    yield from _mrcp_listeners(config)
    yield "http.port", "tcp", http.host, http.port


def _mrcp_listeners(config: Config) -> Iterator[tuple[str, Kind, str, int]]:
    mrcp, host = config.mrcp, config.sip.host
    if not mrcp.enabled:
        return
    for name in mrcp.transports:
        if name == "tls":
            yield "mrcp.sip_tls_port", "tcp", host, mrcp.sip_tls_port
            yield "mrcp.control_tls_port", "tcp", host, mrcp.control_tls_port
        else:
            yield "mrcp.sip_port", name, host, mrcp.sip_port
    if set(mrcp.transports) - {"tls"}:
        yield "mrcp.control_port", "tcp", host, mrcp.control_port


def _check_ports(config: Config) -> list[str]:
    sip, rtp, http = config.sip, config.rtp, config.http
    *of_sip, _ = listeners(config)
    for key, kind, host, port in of_sip:
        if kind == "tcp" and port == http.port != 0 and _overlap(host, http.host):
            raise ConfigError(f"{key} and http.port are both {port}, but each needs a TCP port of its own")
    warnings = []
    among_media = {key for key, kind, _, port in of_sip if kind == "udp" and rtp.port_min <= port <= rtp.port_max}
    if "sip.port" in among_media:
        warnings.append(f"sip.port {sip.port} lies between rtp.port_min and rtp.port_max: calls cannot use that port")
    if "ua.first_port" in among_media:
        warnings.append("the ports from ua.first_port on lie between rtp.port_min and rtp.port_max")
    if rtp.num_pairs < sip.max_calls:
        warnings.append(
            f"sip.max_calls is {sip.max_calls}, but rtp.port_min to rtp.port_max has ports for {rtp.num_pairs} calls only"
        )
    return warnings


def _check_webhooks(config: Config) -> list[str]:
    endpoints = config.webhooks.endpoints
    for place, each in enumerate(endpoints):
        if unknown := sorted(set(each.types) - EVENTS.keys()):
            hint = did_you_mean(unknown[0], EVENTS)
            raise ConfigError(f"webhooks[{place}].types: no event is called {unknown[0][:80]!r}{hint}")
    if endpoints and not config.webhooks.file:
        return ["webhooks.file is empty: events that wait for an endpoint are lost when the server ends"]
    return []


def _check_tracing(config: Config) -> list[str]:
    return otlp.check(config.tracing, os.environ)


_STEPS: Final = (
    _check_build, _check_tls, _check_addresses, _check_cache, _check_record, _check_files, _check_vad, _check_webhooks,
    _check_tracing, _check_ports,
)  # fmt: skip


def _overlap(host: str, other: str) -> bool:
    hosts = {host, other}
    return len(hosts) == 1 or hosts == {"127.0.0.1", "localhost"} or bool(hosts & {"0.0.0.0", "::", ""})
